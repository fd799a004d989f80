"""Dropout's numbers: the documented generator exactly, and as good as random in every direction of the plane."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard import Dropout
from regard.spec.dropout import drawn
from regard.spec.plane import Plane

M32, M64 = 2**32 - 1, 2**64 - 1


def mix64(x: int) -> int:
    """splitmix64: one step and its finalizer."""
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def number(seed: int, b: int, h: int, i: int, j: int) -> int:
    """The generator as the module's docstring writes it, in unbounded integers."""
    row = mix64((mix64((mix64((mix64(seed & M64) + b) & M64) + h) & M64) + i) & M64)
    x = ((j & M32) + (row & M32)) & M32
    x ^= x >> 17
    x = (x * 0xED5AD4BB) & M32
    x ^= x >> 11
    x ^= row >> 32
    x = (x * 0xAC4C1B51) & M32
    x ^= x >> 15
    x = (x * 0x31848BAB) & M32
    return x ^ (x >> 14)


def numbers(
    seed: int = 0, batch: int = 1, heads: int = 1, queries: int = 1, keys: int = 1, start: int = 0, key_start: int = 0
) -> Tensor:
    """(batch, head, query, key)."""
    plane = Plane(batch, heads, 1, queries, keys, torch.tensor([start]), key_start)
    return Dropout(0.5, seed).numbers(plane.all).squeeze(2)


positions = st.one_of(st.integers(-5, 300), st.integers(2**16 - 3, 2**16 + 3), st.integers(2**31 - 3, 2**40))
seeds = st.integers(-(2**63), 2**64 - 1)


@given(seeds, positions, positions)
def test_every_number_is_the_documented_one(seed: int, start: int, key_start: int) -> None:
    found = numbers(seed, 2, 3, 2, 5, start, key_start)
    for b in range(2):
        for h in range(3):
            for i in range(2):
                for j in range(5):
                    assert int(found[b, h, i, j]) == number(seed, b, h, start + i, key_start + j)


def test_a_first_number_by_hand() -> None:
    """Frozen: another pattern would change every seeded experiment."""
    assert numbers(seed=0, keys=3).flatten().tolist() == [number(0, 0, 0, 0, j) for j in range(3)] == FIRST
    assert numbers(seed=2026, queries=3)[0, 0, :, 0].tolist() == [number(2026, 0, 0, i, 0) for i in range(3)] == COLUMN


FIRST = [214027412, 3855503867, 535183026]
COLUMN = [1869310521, 3493367188, 3995305179]


def test_batch_rows_at_different_places_have_the_numbers_of_their_positions() -> None:
    plane = Plane(2, 1, 1, 3, 4, torch.tensor([0, 7]))
    found = Dropout(0.5, 9).numbers(plane.all)
    assert [int(found[1, 0, 0, r, 2]) for r in range(3)] == [number(9, 1, 0, 7 + r, 2) for r in range(3)]


def test_a_rectangle_is_cut_from_the_whole() -> None:
    plane = Plane(2, 2, 3, 11, 13, torch.tensor([5]))
    dropout = Dropout(0.3, 1)
    part = dropout.numbers(plane.pairs(slice(2, 7), slice(3, 10)))
    assert torch.equal(part, dropout.numbers(plane.all)[..., 2:7, 3:10])


def test_query_heads_are_numbered_through_the_groups() -> None:
    grouped = Dropout(0.3, 1).numbers(Plane(1, 2, 3, 4, 5, torch.tensor([0])).all)
    assert torch.equal(grouped.flatten(1, 2), numbers(1, 1, 6, 4, 5))


@pytest.mark.parametrize("p", [0.01, 0.1, 0.25, 0.5, 0.9])
def test_the_share_of_dropped_pairs_is_within_four_sigma(p: float) -> None:
    plane = Plane(1, 4, 1, 512, 512, torch.tensor([0]))
    kept = Dropout(p, 17).kept(plane.all)
    sigma = math.sqrt(p * (1 - p) / kept.numel())
    assert abs(float((~kept).double().mean()) - p) < 4 * sigma


def test_kept_pairs_are_those_at_or_above_the_threshold() -> None:
    plane = Plane(1, 1, 1, 32, 32, torch.tensor([0]))
    dropout = Dropout(0.3, 5)
    assert torch.equal(dropout.kept(plane.all), dropout.numbers(plane.all) >= math.floor(0.3 * 2**32))
    factors = dropout.factors(plane.all, torch.float64)
    assert set(factors.flatten().tolist()) == {0.0, 1 / 0.7}


def chi_square(counts: Tensor) -> float:
    """p-value of equally likely cells."""
    expected = counts.double().mean()
    statistic = ((counts - expected) ** 2 / expected).sum()
    half = torch.tensor((counts.numel() - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, statistic / 2))


@pytest.mark.parametrize("axis", [-1, -2], ids=["rows", "columns"])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_rows_and_columns_lose_equally_often(axis: int, p: float) -> None:
    plane = Plane(1, 1, 1, 1024, 1024, torch.tensor([0]))
    dropped = (~Dropout(p, 23).kept(plane.all)).squeeze().sum(axis)
    # counts of n Bernoulli trials vary less than Poisson counts, by 1 − p
    spread = (dropped - 1024 * p).square() / (1024 * p * (1 - p))
    p_value = float(torch.special.gammaincc(torch.tensor(512.0, dtype=torch.float64), spread.sum().double() / 2))
    assert 1e-3 < p_value < 1 - 1e-3


@pytest.mark.parametrize("bits", [slice(0, 8), slice(8, 16), slice(16, 24), slice(24, 32)], ids=str)
def test_every_byte_takes_every_value_equally_often(bits: slice) -> None:
    found = numbers(seed=3, queries=1024, keys=1024).flatten()
    p_value = chi_square(torch.bincount((found >> bits.start) & 255, minlength=256))
    assert 1e-3 < p_value < 1 - 1e-3


def correlation(left: Tensor, right: Tensor) -> float:
    """In units of what independent numbers would show by chance."""
    left, right = left.double().flatten(), right.double().flatten()
    left, right = left - left.mean(), right - right.mean()
    return float((left * right).mean() / (left.std() * right.std())) * math.sqrt(left.numel())


@pytest.mark.parametrize("step", [1, 2, 64, 256])
def test_neighbors_are_not_correlated(step: int) -> None:
    n = 1024
    found = numbers(seed=4, queries=n, keys=n)[0, 0]
    assert abs(correlation(found[step:], found[:-step])) < 4.5
    assert abs(correlation(found[:, step:], found[:, :-step])) < 4.5
    assert abs(correlation(found[step:, step:], found[:-step, :-step])) < 4.5
    assert abs(correlation(found[step:, :-step], found[:-step, step:])) < 4.5


def test_heads_batch_rows_and_seeds_are_not_correlated() -> None:
    heads = numbers(seed=5, batch=2, heads=4, queries=512, keys=512)
    assert abs(correlation(heads[:, 1:], heads[:, :-1])) < 4.5
    assert abs(correlation(heads[1], heads[0])) < 4.5
    one, two = (numbers(seed=seed, queries=512, keys=512) for seed in (6, 7))
    assert abs(correlation(one, two)) < 4.5


def test_rows_are_not_shifts_of_each_other() -> None:
    """With one key per row only, two rows whose keys lie close share a long stretch of numbers."""
    found = numbers(seed=8, queries=2048, keys=64)[0, 0]
    assert found.unique().numel() > found.numel() - 8  # of 131,072 numbers about 2 pairs are equal by chance


def test_seeds_of_64_bits_all_count() -> None:
    tried = [0, 1, -1, -2, 2**31, 2**32, 2**32 + 1, 2**40, 2**62, 2**63, -(2**63) + 1]
    patterns = [numbers(seed=seed, queries=8, keys=8) for seed in tried]
    for at, left in enumerate(patterns):
        for right in patterns[:at]:
            assert int((left == right).sum()) == 0


def test_a_negative_seed_is_its_64_bits() -> None:
    assert torch.equal(numbers(seed=-1, keys=8), numbers(seed=2**64 - 1, keys=8))


def test_far_positions_have_numbers_of_their_own() -> None:
    near = numbers(queries=16, keys=16)
    for start, key_start in ((2**16, 0), (2**31, 0), (2**40, 0), (0, 2**16), (0, 2**31)):
        assert int((numbers(queries=16, keys=16, start=start, key_start=key_start) == near).sum()) == 0


def test_a_rate_draws_from_the_cpu_generator_and_nothing_else() -> None:
    torch.manual_seed(0)
    first = drawn(0.5)
    torch.manual_seed(0)
    assert drawn(0.5) == first
    assert isinstance(first, Dropout)
    before = torch.get_rng_state()
    assert drawn(0.0) is None
    assert drawn(Dropout(0.0, 3)) is None
    assert drawn(Dropout(0.2, 3)) == Dropout(0.2, 3)
    assert torch.equal(torch.get_rng_state(), before)


def test_it_prints_and_compares_by_content() -> None:
    assert repr(Dropout(0.1, 7)) == "Dropout(0.1, 7)"
    assert Dropout(0.1, 7) == Dropout(0.1, 7) != Dropout(0.1, 8)


@pytest.mark.parametrize(
    ("p", "seed", "kind", "text"),
    [
        (1.0, 0, ValueError, "at least 0 and below 1, got 1.0; at 1 nothing would be left"),
        (-0.1, 0, ValueError, "at least 0 and below 1, got -0.1"),
        (float("nan"), 0, ValueError, "at least 0 and below 1, got nan"),
        (True, 0, TypeError, r"dropout must be a float or Dropout\(p, seed\), got bool"),
        ("half", 0, TypeError, r"dropout must be a float or Dropout\(p, seed\), got str"),
        (0.1, 1.5, TypeError, "Dropout's seed must be an int, got float"),
        (0.1, 2**64, ValueError, r"Dropout's seed must be at most 2\*\*64 - 1, got 18446744073709551616"),
        (0.1, -(2**63) - 1, ValueError, r"Dropout's seed must be at least -2\*\*63"),
    ],
)
def test_wrong_calls(p: float, seed: int, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        Dropout(p, seed)
