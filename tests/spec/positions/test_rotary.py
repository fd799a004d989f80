"""Laws of rotary positions: norms, distances, chunks, pairings, precision."""

import re
from collections.abc import Callable
from typing import Any, Literal

import mpmath  # type: ignore[import-untyped]
import pytest
import torch
from torch import Tensor

from regard.spec import positions
from regard.spec.positions import Linear, YaRN

BATCH, HEADS, LENGTH, WIDTH = 3, 2, 11, 14
Pairing = Literal["half", "interleaved"]

both = pytest.mark.parametrize("pairing", ["half", "interleaved"])


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@both
@pytest.mark.parametrize("start", [0, -19, 997])
def test_norms_stay(pairing: Pairing, start: int) -> None:
    x = draw(BATCH, HEADS, LENGTH, WIDTH)
    turned = positions.rotary(x, start, pairing=pairing)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), atol=1e-14, rtol=1e-14)


@both
@pytest.mark.parametrize("width", [None, 6])
def test_score_depends_on_distance_alone(pairing: Pairing, width: int | None) -> None:
    q, k = draw(1, WIDTH, seed=1), draw(1, WIDTH, seed=2)

    def score(i: int, j: int) -> Tensor:
        turned = positions.rotary(q, i, width=width, pairing=pairing)
        return (turned * positions.rotary(k, j, width=width, pairing=pairing)).sum()

    for i, j in ((5, 2), (0, 7), (13, 13)):
        for shift in (1, 101, -997):
            torch.testing.assert_close(score(i + shift, j + shift), score(i, j), atol=1e-12, rtol=0)
    assert abs(score(5, 2) - score(2, 5)) > 1e-3, "the sign of the distance must matter"


@both
def test_position_zero_changes_nothing_and_opposite_positions_undo(pairing: Pairing) -> None:
    x = draw(BATCH, HEADS, LENGTH, WIDTH)
    still = torch.zeros(LENGTH, dtype=torch.int64)
    assert torch.equal(positions.rotary(x, positions=still, pairing=pairing), x)
    there = torch.arange(LENGTH) + 5
    back = positions.rotary(positions.rotary(x, positions=there, pairing=pairing), positions=-there, pairing=pairing)
    torch.testing.assert_close(back, x, atol=1e-14, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@both
def test_chunks_are_the_whole(pairing: Pairing, dtype: torch.dtype) -> None:
    x = draw(BATCH, HEADS, LENGTH, WIDTH, dtype=torch.float32).to(dtype)
    whole = positions.rotary(x, 23, pairing=pairing)
    for cut in (1, 5, LENGTH - 1):
        chunks = [
            positions.rotary(x[:, :, :cut], 23, pairing=pairing),
            positions.rotary(x[:, :, cut:], 23 + cut, pairing=pairing),
        ]
        assert torch.equal(torch.cat(chunks, dim=2), whole)


@both
def test_all_ways_to_say_where_agree(pairing: Pairing) -> None:
    x = draw(BATCH, HEADS, LENGTH, WIDTH)
    starts = [17, -3, 0]
    rows = torch.tensor(starts)[:, None] + torch.arange(LENGTH)
    one_by_one = torch.stack(
        [positions.rotary(row, start, pairing=pairing) for row, start in zip(x, starts, strict=True)]
    )
    assert torch.equal(positions.rotary(x, torch.tensor(starts), pairing=pairing), one_by_one)
    assert torch.equal(positions.rotary(x, torch.tensor(starts, dtype=torch.int32), pairing=pairing), one_by_one)
    assert torch.equal(positions.rotary(x, positions=rows, pairing=pairing), one_by_one)
    assert torch.equal(positions.rotary(x[1], positions=rows[1], pairing=pairing), one_by_one[1])
    assert torch.equal(positions.rotary(x, positions=rows[:1], pairing=pairing)[0], one_by_one[0])
    assert torch.equal(positions.rotary(x[0], torch.tensor(17), pairing=pairing), one_by_one[0])
    without_heads = positions.rotary(x[:, 0], torch.tensor(starts), pairing=pairing)
    assert torch.equal(without_heads, one_by_one[:, 0])
    order = torch.tensor([4, 0, 2, 1, 3, 10, 9, 8, 7, 6, 5])
    shuffled = positions.rotary(x[:, :, order], positions=rows[:, order], pairing=pairing)
    assert torch.equal(shuffled, one_by_one[:, :, order])


@pytest.mark.parametrize("width", [WIDTH, 10])
def test_pairings_differ_by_a_permutation(width: int) -> None:
    x = draw(BATCH, HEADS, LENGTH, WIDTH)
    rest = torch.arange(width, WIDTH)
    apart = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2), rest])
    interleaved = positions.rotary(x, 5, width=width, pairing="interleaved")
    half = positions.rotary(x[..., apart], 5, width=width, pairing="half")
    assert torch.equal(half, interleaved[..., apart])


@both
def test_partial_width_leaves_the_rest_alone(pairing: Pairing) -> None:
    width = 6
    x = draw(BATCH, HEADS, LENGTH, 13)
    x[..., 7], x[..., 11] = torch.nan, -0.0
    turned = positions.rotary(x, 3, width=width, pairing=pairing)
    assert torch.equal(turned[..., width:].view(torch.int64), x[..., width:].view(torch.int64))
    assert torch.equal(turned[..., :width], positions.rotary(x[..., :width], 3, pairing=pairing))


@both
@pytest.mark.parametrize("width", [None, 2])
def test_first_and_second_derivatives(pairing: Pairing, width: int | None) -> None:
    x = draw(2, 3, 6).requires_grad_()
    stretch = YaRN(4.0, original_length=64)

    def turn(x: Tensor) -> Tensor:
        return positions.rotary(x, torch.tensor([5, -2]), width=width, pairing=pairing, stretch=stretch)

    assert torch.autograd.gradcheck(turn, x)
    assert torch.autograd.gradgradcheck(turn, x)


@both
def test_gradient_turns_back(pairing: Pairing) -> None:
    x = draw(HEADS, LENGTH, WIDTH).requires_grad_()
    upstream = draw(HEADS, LENGTH, WIDTH, seed=1)
    (gradient,) = torch.autograd.grad(positions.rotary(x, 7, pairing=pairing), x, upstream)
    back = positions.rotary(upstream, positions=-(torch.arange(LENGTH) + 7), pairing=pairing)
    assert torch.equal(gradient, back)


@both
@pytest.mark.parametrize("start", [1_000_000, -1_000_000, 2**24 + 1])
def test_float32_is_right_far_away(pairing: Pairing, start: int) -> None:
    pairs = WIDTH // 2
    x = draw(1, WIDTH, dtype=torch.float32)
    turned = positions.rotary(x, start, pairing=pairing)
    for i in range(pairs):
        first, second = (i, i + pairs) if pairing == "half" else (2 * i, 2 * i + 1)
        a, b = x[0, first].item(), x[0, second].item()
        angle = start * mpmath.mpf(10000) ** (-mpmath.mpf(2 * i) / WIDTH)
        # Cosine, product and sum are rounded, each by at most 2^-24 of |a| + |b|; frequency and angle by 2^-52 or so.
        budget = (3 * 2**-24 + 4 * 2**-52 * abs(start)) * (abs(a) + abs(b))
        assert abs(float(a * mpmath.cos(angle) - b * mpmath.sin(angle)) - turned[0, first].item()) <= budget
        assert abs(float(b * mpmath.cos(angle) + a * mpmath.sin(angle)) - turned[0, second].item()) <= budget


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@both
def test_half_precision_is_rounded_once(pairing: Pairing, dtype: torch.dtype) -> None:
    x = draw(BATCH, HEADS, LENGTH, WIDTH).to(dtype)
    turned = positions.rotary(x, 4099, pairing=pairing)
    assert turned.dtype == dtype
    assert torch.equal(turned, positions.rotary(x.float(), 4099, pairing=pairing).to(dtype))
    exact = positions.rotary(x.double(), 4099, pairing=pairing)
    half_a_step = torch.finfo(dtype).eps / 2 * exact.abs() + 4e-7 * x.double().abs().max()
    assert ((turned.double() - exact).abs() <= half_a_step).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@both
def test_autocast_changes_no_bit(pairing: Pairing, dtype: torch.dtype) -> None:
    x = draw(BATCH, HEADS, LENGTH, WIDTH).to(dtype)
    plain = positions.rotary(x, 1009, width=10, pairing=pairing)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = positions.rotary(x, 1009, width=10, pairing=pairing)
    assert under.dtype == plain.dtype
    assert torch.equal(under, plain)


def test_default_device_and_dtype_change_no_bit() -> None:
    x = draw(HEADS, LENGTH, WIDTH, dtype=torch.float32)
    plain = positions.rotary(x, 5)
    with torch.device("meta"):
        assert torch.equal(positions.rotary(x, 5), plain)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(positions.rotary(x, 5), plain)
    finally:
        torch.set_default_dtype(torch.float32)


@both
def test_one_graph_under_compile(pairing: Pairing) -> None:
    stretch = YaRN(4.0, original_length=64)
    x = draw(HEADS, LENGTH, WIDTH, dtype=torch.float32)

    def turn(x: Tensor, start: int) -> Tensor:
        return positions.rotary(x, start, pairing=pairing, stretch=stretch)

    compiled: Callable[[Tensor, int], Tensor] = torch.compile(turn, backend="eager", fullgraph=True)
    for start in (0, 3, 8):
        assert torch.equal(compiled(x, start), turn(x, start))


@both
def test_shared_tables_are_the_same_rotation(pairing: Pairing) -> None:
    x = draw(BATCH, HEADS, LENGTH, WIDTH, dtype=torch.float32)
    starts = torch.tensor([17, -3, 0])
    rows = starts[:, None] + torch.arange(LENGTH)
    cos, sin = positions.rotary_tables(rows, 10, stretch=Linear(2.0))
    assert cos.shape == sin.shape == (BATCH, LENGTH, 5)
    assert cos.dtype == sin.dtype == torch.float64
    shared = positions.rotate(x, cos[:, None].float(), sin[:, None].float(), pairing)
    assert torch.equal(shared, positions.rotary(x, starts, width=10, pairing=pairing, stretch=Linear(2.0)))


def test_empty_lengths_and_strided_inputs() -> None:
    assert positions.rotary(draw(BATCH, HEADS, 0, WIDTH)).shape == (BATCH, HEADS, 0, WIDTH)
    x = draw(BATCH, LENGTH, HEADS, WIDTH).transpose(1, 2)
    assert torch.equal(positions.rotary(x, 5), positions.rotary(x.contiguous(), 5))


class Crooked:
    def frequencies(self, width: int, base: float) -> tuple[Tensor, float]:
        return torch.ones(1, dtype=torch.float64), 1.0

    def __repr__(self) -> str:
        return "Crooked()"


@pytest.mark.parametrize(
    ("x", "arguments", "error", "text"),
    [
        (
            torch.ones(2, 4, dtype=torch.int64),
            {},
            TypeError,
            "rotary wants x to be a float16, bfloat16, float32 or float64 tensor, got torch.int64",
        ),
        ([1.0], {}, TypeError, "rotary wants x to be a float16, bfloat16, float32 or float64 tensor, got list"),
        (torch.ones(4), {}, ValueError, "rotary wants x of shape (..., length, width), got (4,)"),
        (
            torch.ones(2, 5),
            {},
            ValueError,
            "rotary wants an even width, got x (2, 5); pass width= to rotate the first few dimensions only",
        ),
        (torch.ones(2, 4), {"width": 2.0}, TypeError, "rotary wants width to be an int or None, got 2.0"),
        (
            torch.ones(2, 4),
            {"width": 3},
            ValueError,
            "rotary wants width to be even, at least 2 and at most the 4 of x, got 3",
        ),
        (
            torch.ones(2, 4),
            {"width": 6},
            ValueError,
            "rotary wants width to be even, at least 2 and at most the 4 of x, got 6",
        ),
        (
            torch.ones(2, 4),
            {"pairing": "halves"},
            ValueError,
            "pairing wants 'half' (i with i + width/2) or 'interleaved' (2i with 2i + 1), got 'halves'",
        ),
        (
            torch.ones(2, 4),
            {"start": 1.0},
            TypeError,
            "rotary wants start to be an int or an integer tensor (batch,), got 1.0",
        ),
        (torch.ones(2, 4), {"start": True}, TypeError, "rotary wants start to be an int"),
        (
            torch.ones(3, 2, 4),
            {"start": torch.ones(3)},
            TypeError,
            "start wants an integer tensor, got torch.float32; floats lose whole positions, "
            "and fractions of one are what stretch=Linear(factor) is for",
        ),
        (
            torch.ones(3, 2, 4),
            {"start": torch.ones(3, 2, dtype=torch.int64)},
            ValueError,
            "rotary wants start to be an int or a tensor (batch,), got (3, 2); "
            "a position for each row goes to positions=",
        ),
        (
            torch.ones(3, 2, 4),
            {"start": torch.ones(5, dtype=torch.int64)},
            ValueError,
            "rotary wants one row of positions per batch row of x (batch, ..., length, width), got 5 for x (3, 2, 4)",
        ),
        (
            torch.ones(2, 4),
            {"start": torch.ones(2, dtype=torch.int64)},
            ValueError,
            "rotary wants one row of positions per batch row of x (batch, ..., length, width), got 2 for x (2, 4)",
        ),
        (
            torch.ones(3, 2, 4),
            {"positions": torch.arange(3)},
            ValueError,
            "rotary wants positions (length,) or (batch, length) for the 2 rows of x (3, 2, 4), got (3,); "
            "one start per batch row goes to start=",
        ),
        (
            torch.ones(2, 4),
            {"positions": [0, 1]},
            TypeError,
            "positions wants an integer tensor, got list; wrap it in torch.tensor",
        ),
        (
            torch.ones(2, 4),
            {"positions": torch.arange(2), "start": 3},
            ValueError,
            "rotary wants start or positions, not both, got start=3 and positions; drop one",
        ),
        (
            torch.ones(2, 4),
            {"stretch": "yarn"},
            TypeError,
            "stretch wants a value such as Linear(4.0) or YaRN(4.0, original_length=4096), got 'yarn'",
        ),
        (torch.ones(2, 4), {"stretch": Linear}, TypeError, "stretch wants a value such as Linear(4.0)"),
        (
            torch.ones(2, 4),
            {"stretch": Crooked()},
            ValueError,
            "stretch wants to give one frequency per pair, (2,) for width 4, got (1,) from Crooked()",
        ),
        (torch.ones(2, 4), {"base": 0.5}, ValueError, "base wants a finite number greater than 1, got 0.5"),
    ],
)
def test_errors_say_what_was_wanted(x: Any, arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        positions.rotary(x, **arguments)


@pytest.mark.parametrize(
    ("cos", "sin", "error", "text"),
    [
        (
            torch.ones(2, 3),
            torch.ones(2, 2),
            ValueError,
            "rotate wants cos and sin of one shape and dtype, got (2, 3) torch.float32 and (2, 2) torch.float32; "
            "take both from one call of rotary_tables",
        ),
        (
            torch.ones(2, 2).bfloat16(),
            torch.ones(2, 2).bfloat16(),
            TypeError,
            "rotate wants tables of torch.float32 or more for an x of torch.bfloat16, got torch.bfloat16; "
            "keep them as rotary_tables gives them",
        ),
        (
            torch.ones(3, 2, 2),
            torch.ones(3, 2, 2),
            ValueError,
            "rotate wants tables that broadcast over x (3, 5, 2, 4), with at most 2 pairs, got (3, 2, 2); "
            "tables with a batch axis need one for the heads too: cos[:, None]",
        ),
        (torch.ones(2, 3), torch.ones(2, 3), ValueError, "with at most 2 pairs, got (2, 3)"),
        (torch.ones(7, 3, 5, 2, 2), torch.ones(7, 3, 5, 2, 2), ValueError, "tables that broadcast over x"),
    ],
)
def test_tables_that_do_not_fit_are_refused(cos: Tensor, sin: Tensor, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        positions.rotate(torch.ones(3, 5, 2, 4).bfloat16(), cos, sin)


def test_tables_want_an_even_width() -> None:
    with pytest.raises(ValueError, match="a rotation wants an even width of at least 2, got 3"):
        positions.rotary_tables(torch.arange(2), 3)
