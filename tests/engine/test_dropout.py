"""Dropout: one pattern for all engines and chunks, the right share and expectation, seeds from torch's generator."""

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard import Dropout, attend, masks
from regard.spec.plane import Plane
from regard.testing import Case, small_tiles

ENGINES = ["reference", "tiled", "native"]
engines = pytest.mark.parametrize("engine", ENGINES)
BATCH, HEADS, LENGTH = 2, 3, 40


def inputs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Values are the identity, so the output is the matrix of kept weights."""
    query, key = torch.randn(2, BATCH, HEADS, LENGTH, 4, generator=torch.Generator().manual_seed(seed))
    return query, key, torch.eye(LENGTH).expand(BATCH, HEADS, -1, -1)


def kept(dropout: float | Dropout, engine: str, rows: slice = slice(0, LENGTH), start: int = 0) -> Tensor:
    query, key, value = inputs()
    with small_tiles():
        return attend(query[:, :, rows], key, value, dropout=dropout, query_start=start, engine=engine) != 0


@engines
def test_the_pattern_belongs_to_absolute_positions(engine: str) -> None:
    dropout = Dropout(0.4, seed=7)
    plane = Plane(BATCH, HEADS, 1, LENGTH, LENGTH, torch.tensor([0]))
    pattern = dropout.kept(plane.all).squeeze(2)
    assert torch.equal(kept(dropout, engine), pattern)
    for rows in (slice(0, 1), slice(5, 17), slice(17, LENGTH)):
        assert torch.equal(kept(dropout, engine, rows, rows.start), pattern[:, :, rows])
    assert torch.equal(kept(dropout, engine, slice(0, 12), start=5), pattern[:, :, 5:17])


@engines
def test_grouped_heads_have_their_own_patterns(engine: str) -> None:
    query, key, value = inputs()
    with small_tiles():
        grouped = attend(query, key[:, :1], value[:, :1], dropout=Dropout(0.4, 7), engine=engine) != 0
    assert torch.equal(grouped, kept(Dropout(0.4, 7), engine))
    assert not torch.equal(grouped[:, 0], grouped[:, 1])


def test_other_seeds_rows_and_heads_differ() -> None:
    pattern = kept(Dropout(0.5, 7), "tiled")
    assert not torch.equal(pattern, kept(Dropout(0.5, 8), "tiled"))
    assert not torch.equal(pattern, kept(Dropout(0.5, 7 + 2**32), "tiled"))
    flat = pattern.flatten(0, 2).double()
    # rows of different (batch, head, i) agree in half of their places: 40 coin flips, no two rows alike
    agree = (flat @ flat.mT + (1 - flat) @ (1 - flat).mT).fill_diagonal_(0)
    assert float(agree.max()) < LENGTH


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_and_the_expectation_are_within_four_sigma(p: float) -> None:
    """Equal scores over m keys and values of 1: each output is a mean of m kept weights, 1 on average."""
    rows, keys = 4 * 8 * 256, 128
    query, key, value = torch.zeros(4, 8, 256, 1), torch.zeros(4, 8, keys, 1), torch.ones(4, 8, keys, 1)
    out = attend(query, key, value, dropout=Dropout(p, 11), engine="tiled").double()
    sigma = (p / (1 - p) / keys) ** 0.5
    assert abs(float(out.mean()) - 1) < 4 * sigma / rows**0.5
    # the variance of the rows, whose own standard deviation is that of a normal sample
    assert abs(float(out.var()) / sigma**2 - 1) < 4 * (2 / rows) ** 0.5


@engines
def test_what_is_kept_is_scaled(engine: str) -> None:
    query, key, value = inputs()
    plain = attend(query, key, value, engine=engine)
    dropped = attend(query, key, value, dropout=Dropout(0.25, 3), engine=engine)
    seen = dropped != 0
    eps = torch.finfo(torch.float32).eps
    assert torch.allclose(dropped[seen], plain[seen] / 0.75, rtol=4 * eps, atol=0)


@engines
def test_gradients_use_the_pattern_of_the_forward_pass(engine: str) -> None:
    (query, key, value), spec, leaves = Case(dropout=0.4, mask="causal").build()
    weight = torch.randn(value.shape[-1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    step = torch.randn(query.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 1e-5

    def loss(moved: Tensor) -> Tensor:
        out: Tensor = attend(moved, key, value, **spec, engine=engine)
        return (out @ weight).sum()

    (grad,) = torch.autograd.grad(loss(query), leaves["query"])
    slope = float((loss(query + step) - loss(query - step)).detach()) / 2
    wanted = float((grad * step).sum())
    # a central difference is off by a third of a derivative times step³; the step is 1e-5
    assert abs(slope - wanted) < 1e-8 * abs(wanted) + 1e-12


def test_a_rate_draws_one_seed_from_the_cpu_generator() -> None:
    torch.manual_seed(5)
    torch.empty((), dtype=torch.int64).random_(-(2**63), None)
    after_one_draw = torch.get_rng_state()
    results = []
    for engine in (*ENGINES, "tiled"):
        torch.manual_seed(5)
        results.append(kept(0.5, engine))
        assert torch.equal(torch.get_rng_state(), after_one_draw)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[1], results[2])
    assert not torch.equal(kept(0.5, "tiled"), results[2])
    torch.manual_seed(5)
    kept(0.0, "tiled")
    kept(Dropout(0.5, 3), "tiled")
    torch.empty((), dtype=torch.int64).random_(-(2**63), None)
    assert torch.equal(torch.get_rng_state(), after_one_draw)


@engines
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_meets_the_same_pattern_again(reentrant: bool, engine: str) -> None:
    def step(*tensors: Tensor) -> Tensor:
        return attend(*tensors, mask=masks.Causal(), dropout=0.5, engine=engine)

    found = []
    for run in (step, lambda *tensors: checkpoint(step, *tensors, use_reentrant=reentrant)):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs()]
        torch.manual_seed(6)
        with small_tiles():
            run(*leaves).square().sum().backward()
        found.append([leaf.grad for leaf in leaves])
    for direct, recomputed in zip(*found, strict=True):
        assert direct is not None
        assert not direct.isnan().any()
        assert torch.equal(direct, torch.as_tensor(recomputed))
