"""The helpers that other tests lean on fail when they should."""

import pytest
import torch
from torch import Tensor

from regard import attend
from regard.engine.tiled import tiles as tiling
from regard.testing import (
    BIASES,
    MASKS,
    NORMALIZERS,
    SCORES,
    TEMPERATURES,
    Case,
    Draw,
    Sizes,
    allocations,
    assert_within,
    error,
    mechanisms,
    peak_bytes,
    small_tiles,
)

INF, NAN = torch.inf, torch.nan


def test_error_is_the_root_mean_square() -> None:
    assert error(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])) == 0
    assert error(torch.tensor([4.0, 2.0]), torch.tensor([1.0, 6.0])) == pytest.approx((25 / 2) ** 0.5)
    assert error(torch.tensor([1.0, -INF]), torch.tensor([3.0, -INF])) == 2
    assert error(torch.zeros(0), torch.zeros(0)) == 0


def test_error_compares_in_float64() -> None:
    assert error(torch.tensor([1.0]), torch.tensor([1.0 + 2**-40], dtype=torch.float64)) == 2**-40


@pytest.mark.parametrize(
    ("actual", "truth", "text"),
    [
        ([1.0, NAN], [1.0, 2.0], "NaN in the result"),
        ([1.0, NAN], [1.0, NAN], "NaN in the result"),
        ([1.0, INF], [1.0, 2.0], "infinities differ"),
        ([1.0, 2.0], [1.0, INF], "infinities differ"),
        ([INF, 2.0], [-INF, 2.0], "infinities differ in sign"),
        ([1.0, 2.0], [[1.0, 2.0]], r"shapes differ: \(2,\) and \(1, 2\)"),
        ([1.0], [1.0, 1.0], r"shapes differ: \(1,\) and \(2,\)"),
    ],
)
def test_error_fails(actual: list[float], truth: list[float], text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        error(torch.tensor(actual), torch.tensor(truth))


def test_a_nan_in_the_truth_passes_no_bound() -> None:
    assert not error(torch.tensor([1.0]), torch.tensor([NAN])) <= INF


def within(actual: Tensor, plain: Tensor, truth: Tensor) -> bool:
    try:
        assert_within(actual, plain, truth)
    except AssertionError:
        return False
    return True


def test_within_twice_the_error_of_the_formula() -> None:
    truth = torch.tensor([1.0, 1.0], dtype=torch.float64)
    plain = torch.tensor([1.01, 1.0])
    assert within(torch.tensor([1.019, 1.0]), plain, truth)
    assert not within(torch.tensor([1.021, 1.0]), plain, truth)


def test_within_one_rounding_of_the_largest_value() -> None:
    truth = torch.tensor([100.0, 0.0], dtype=torch.float64)
    eps = torch.finfo(torch.float32).eps
    assert within(torch.tensor([100.0, 100 * eps]), truth.float(), truth)
    assert not within(torch.tensor([100.0, 200 * eps]), truth.float(), truth)


@pytest.mark.parametrize("bad", [NAN, INF])
def test_within_fails_on_what_is_not_finite(bad: float) -> None:
    truth, wrong = torch.tensor([1.0, 2.0]), torch.tensor([1.0, bad])
    assert within(truth, truth, truth)
    assert not within(wrong, truth, truth)
    assert not within(truth, wrong, truth)
    assert not within(truth, truth, wrong)


def test_within_names_what_failed() -> None:
    with pytest.raises(AssertionError, match=r"grad query: error 1, allowed 1\.19e-07"):
        assert_within(torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([1.0]), "grad query")


def test_peak_bytes_sees_a_known_allocation() -> None:
    def work() -> Tensor:
        large = torch.zeros(1_000_000, dtype=torch.uint8)
        small = torch.zeros(1000, dtype=torch.uint8)
        del large
        return small

    assert peak_bytes(work) == (1_001_000, 1000)
    assert allocations(work) == [1_000_000, 1000, -1_000_000]


def test_peak_bytes_sees_what_autograd_keeps() -> None:
    x = torch.zeros(1000, requires_grad=True)
    most, held = peak_bytes(lambda: x.exp().exp())
    assert most == held == 8000  # the inner result is saved for the backward pass
    assert peak_bytes(lambda: x.detach().exp().exp()) == (8000, 4000)


def test_peak_bytes_of_nothing() -> None:
    assert peak_bytes(lambda: None) == (0, 0)


def test_small_tiles_are_restored() -> None:
    before = tiling.HEIGHT, tiling.SEGMENT
    with small_tiles(3, 5):
        assert (tiling.HEIGHT, tiling.SEGMENT) == (3, 5)
        with small_tiles():
            assert (tiling.HEIGHT, tiling.SEGMENT) == (4, 8)
        assert (tiling.HEIGHT, tiling.SEGMENT) == (3, 5)
    assert before == (tiling.HEIGHT, tiling.SEGMENT)
    with pytest.raises(ZeroDivisionError), small_tiles(3, 5):
        _ = 1 // 0
    assert before == (tiling.HEIGHT, tiling.SEGMENT)


def test_small_tiles_make_many() -> None:
    inputs, spec, _ = Case().build()

    def tiles() -> int:
        made = []
        with pytest.MonkeyPatch.context() as patch:
            original = tiling.Schedule.tiles

            def counting(self: tiling.Schedule, *where: object) -> object:
                found = list(original(self, *where))  # type: ignore[arg-type]
                made.extend(found)
                return iter(found)

            patch.setattr(tiling.Schedule, "tiles", counting)
            attend(*inputs, **spec, engine="tiled")
        return len(made)

    assert tiles() == 1
    with small_tiles():
        assert tiles() > 4


def test_draws_are_the_same_in_every_precision() -> None:
    size = Sizes()
    for through in (torch.float64, torch.bfloat16):
        wide = Draw(3, torch.float64, through).normal("x", size.queries, 4)
        narrow = Draw(3, torch.float32, through).normal("x", size.queries, 4)
        assert torch.equal(wide.float(), narrow)
        assert torch.equal(wide, wide.to(through).double())


def test_cases_build_and_print() -> None:
    assert str(Case()) == "plain"
    assert str(Case(score="additive", mask="causal", dropout=0.3)) == "additive causal 0.3"
    for case in mechanisms():
        inputs, spec, leaves = case.build()
        assert len(inputs) == 3
        assert set(spec) == {"score", "mask", "bias", "normalizer", "temperature", "dropout", "query_start"}
        assert {"query", "key", "value"} <= set(leaves)
        assert all(leaf.requires_grad for leaf in leaves.values())


def test_every_name_has_a_case() -> None:
    cases = mechanisms()
    for kind, names in (
        ("score", SCORES),
        ("mask", MASKS),
        ("bias", BIASES),
        ("normalizer", NORMALIZERS),
        ("temperature", TEMPERATURES),
    ):
        assert {getattr(case, kind) for case in cases} == set(names)
