"""Every statistic against its definition, written out with Python numbers, one query at a time."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from regard import attend, biases, masks, normalizers, scores
from regard.engine.request import AUX
from regard.testing import Case, Sizes, error, small_tiles

ENGINES = ["reference", "tiled", "native"]
engines = pytest.mark.parametrize("engine", ENGINES)
BATCH, HEADS, KV_HEADS, QUERIES, KEYS, START = 2, 6, 2, 11, 13, 2


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs() -> list[Tensor]:
    shapes = ((BATCH, HEADS, QUERIES, 5), (BATCH, KV_HEADS, KEYS, 5), (BATCH, KV_HEADS, KEYS, 3))
    return [draw(*shape, seed=seed) for seed, shape in enumerate(shapes)]


def dot(left: list[float], right: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(left, right, strict=True))


def softmax(x: list[float], sink: float) -> tuple[list[float], float]:
    top = max([*x, sink])
    total = math.fsum(math.exp(number - top) for number in [*x, sink])
    lse = top + math.log(total)
    return [math.exp(number - lse) for number in x], lse


def hard(x: list[float], sink: float) -> tuple[list[float], float]:
    return [float(place == x.index(max(x))) for place in range(len(x))], math.nan


def sparsemax(x: list[float], sink: float) -> tuple[list[float], float]:
    ordered = sorted(x, reverse=True)
    thresholds = [(math.fsum(ordered[: count + 1]) - 1) / (count + 1) for count in range(len(x))]
    threshold = [t for number, t in zip(ordered, thresholds, strict=True) if number > t][-1]
    return [max(number - threshold, 0.0) for number in x], math.nan


def by_hand(
    query: Tensor, key: Tensor, seen: Tensor, bias: Tensor, tau: list[float], sink: list[float], weigh: Any
) -> dict[str, Tensor]:
    """All statistics of q·k/√5 + bias over τ, for each batch row, head and query on its own."""
    rows = {name: torch.zeros(BATCH, HEADS, QUERIES, dtype=torch.float64) for name in AUX}
    rows["peak_at"] = torch.full((BATCH, HEADS, QUERIES), -1)
    rows["received"] = torch.zeros(BATCH, HEADS, KEYS, dtype=torch.float64)
    for b in range(BATCH):
        for h in range(HEADS):
            for i in range(QUERIES):
                q = query[b, h, i].tolist()
                visible = [j for j in range(KEYS) if seen[b, h, i, j]]
                logits = [dot(q, key[b, h // 3, j].tolist()) / math.sqrt(5) + float(bias[b, h, i, j]) for j in visible]
                if not visible:
                    rows["lse"][b, h, i], rows["max_logit"][b, h, i] = sink[h], -math.inf
                    continue
                w, lse = weigh([logit / tau[h] for logit in logits], sink[h])
                rows["lse"][b, h, i] = lse
                rows["entropy"][b, h, i] = -math.fsum(one * math.log(one) for one in w if one > 0)
                rows["peak"][b, h, i] = max(w)
                rows["peak_at"][b, h, i] = visible[logits.index(max(logits))]
                rows["distance"][b, h, i] = math.fsum(
                    one * abs(i + START - j) for one, j in zip(w, visible, strict=True)
                )
                rows["max_logit"][b, h, i] = max(logits)
                for one, j in zip(w, visible, strict=True):
                    rows["received"][b, h, j] += one
    return rows


def agrees(actual: Tensor, expected: Tensor, what: str) -> None:
    """A few hundred operations in another order, each with one rounding. Fails on NaN."""
    finite = expected.detach()[expected.isfinite()].double()
    size = 1.0 + float(finite.abs().max() if finite.numel() else 0.0)
    assert error(actual, expected) <= 512 * torch.finfo(torch.float64).eps * size, what


NONE = [-math.inf] * HEADS
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mask and bias": {"mask": True, "bias": True},
    "temperature per head": {"bias": True, "tau": [0.3, 0.5, 0.8, 1.0, 1.7, 4.0]},
    "one temperature": {"tau": [2.5] * HEADS},
    "sink per head": {"mask": True, "sink": [-3.0, -1.0, 0.0, 0.5, 2.0, 9.0]},
    "sink and temperature": {"sink": [0.0] * HEADS, "tau": [0.3, 0.5, 0.8, 1.0, 1.7, 4.0], "bias": True},
    "dropout": {"mask": True, "dropout": 0.5},
    "hard": {"mask": True, "bias": True, "normalizer": hard},
    "sparsemax": {"mask": True, "tau": [0.3, 0.5, 0.8, 1.0, 1.7, 4.0], "normalizer": sparsemax, "dropout": 0.5},
}


@engines
@pytest.mark.parametrize("name", SPECS)
def test_every_statistic_is_its_definition(name: str, engine: str) -> None:
    spec = SPECS[name]
    query, key, value = inputs()
    seen = draw(BATCH, 1, QUERIES, KEYS, seed=3) < 0.2 if spec.get("mask") else torch.ones(1, 1, 1, 1) == 1
    bias = draw(HEADS, QUERIES, KEYS, seed=4) if spec.get("bias") else torch.zeros(1, 1)
    tau, sink = spec.get("tau", [1.0] * HEADS), spec.get("sink", NONE)
    weigh = spec.get("normalizer", softmax)
    normalizer: normalizers.Normalizer = {"hard": normalizers.Hard(), "sparsemax": normalizers.Sparsemax()}.get(
        weigh.__name__, normalizers.Softmax(torch.tensor(sink, dtype=torch.float64) if sink is not NONE else None)
    )
    size = (BATCH, HEADS, QUERIES, KEYS)
    right = by_hand(query, key, seen.expand(size), bias.expand(size), tau, sink, weigh)
    names = AUX if weigh is softmax else AUX[1:]
    with small_tiles():
        _, aux = attend(
            query,
            key,
            value,
            mask=seen,
            bias=bias,
            temperature=tau[0] if len(set(tau)) == 1 else torch.tensor(tau, dtype=torch.float64),
            normalizer=normalizer,
            dropout=spec.get("dropout", 0.0),
            query_start=START,
            aux=names,
            engine=engine,
        )
    for statistic in names:
        agrees(getattr(aux, statistic), right[statistic], statistic)


@engines
@pytest.mark.parametrize("normalizer", [normalizers.Softmax(), normalizers.Hard(), normalizers.Sparsemax()], ids=repr)
def test_ties_go_to_the_lowest_visible_key(normalizer: normalizers.Normalizer, engine: str) -> None:
    """Whole numbers make equal logits; the equals lie in different tiles."""
    logits = torch.tensor([[0, 2, 1, 2, 0, 0, 0, 0, 0, 0, 2, 0, 0, 2.0], [3.0] * 14, [0.0] * 13 + [1.0]])
    shown = torch.ones(3, 14, dtype=torch.bool)
    shown[0, 1] = False
    zero, value = torch.zeros(1, 1, 3, 4), torch.eye(14).view(1, 1, 14, 14)
    with small_tiles(2, 4):
        out, aux = attend(
            zero,
            zero[:, :, :1].expand(-1, -1, 14, -1),
            value,
            bias=logits,
            mask=shown,
            normalizer=normalizer,
            aux="peak_at",
            engine=engine,
        )
    assert torch.equal(torch.as_tensor(aux.peak_at), torch.tensor([[[3, 0, 13]]]))
    if isinstance(normalizer, normalizers.Hard):
        assert torch.equal(out[0, 0], torch.eye(14)[[3, 0, 13]])


@engines
def test_the_largest_logit_is_taken_after_the_bias_and_before_the_temperature(engine: str) -> None:
    zero = torch.zeros(1, 2, 3, 4)
    bias = torch.tensor([1.0, 7.0, 3.0])
    _, aux = attend(
        zero, zero, zero, bias=bias, temperature=torch.tensor([0.5, 100.0]), aux=("max_logit", "peak"), engine=engine
    )
    assert (torch.as_tensor(aux.max_logit) == 7.0).all()
    peak = torch.as_tensor(aux.peak)[0, :, 0]
    assert peak[0] > 0.999
    assert 1 / 3 < peak[1] < 0.35


@engines
def test_distance_is_measured_between_absolute_positions(engine: str) -> None:
    zero, value = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 5, 4)
    for start, wanted in ((0, 2.0), (4, 2.0), (-3, 5.0), (100, 98.0)):
        _, aux = attend(zero, value, value, query_start=start, aux="distance", engine=engine)
        assert float(torch.as_tensor(aux.distance)) == pytest.approx(wanted, rel=4e-7)


@engines
def test_only_lse_and_entropy_carry_gradients(engine: str) -> None:
    leaves = [tensor.requires_grad_() for tensor in inputs()]
    with small_tiles():
        out, aux = attend(*leaves, aux=AUX, query_start=0, engine=engine)
    assert out.requires_grad
    assert {name for name in AUX if getattr(aux, name).requires_grad} == {"lse", "entropy"}
    assert torch.as_tensor(aux.peak_at).dtype == torch.int64


GRADIENTS = [
    Case(mask="window", bias="t5"),
    Case(normalizer="sink", temperature="per head", dropout=0.3),
    Case(normalizer="zero sink", mask="combined", temperature="learned"),
    Case(score="additive", bias="hiding", normalizer="sink"),
]


@engines
@pytest.mark.parametrize("case", GRADIENTS, ids=str)
@pytest.mark.parametrize("name", ["lse", "entropy"])
def test_derivatives_of_lse_and_entropy(name: str, case: Case, engine: str) -> None:
    small = replace(case, sizes=Sizes(1, 2, 2, 3, 5, 2, 3, 1), seed=5)
    tensors, spec, leaves = small.build()

    def statistic(*_: Tensor) -> Tensor:
        found: Tensor = getattr(attend(*tensors, **spec, aux=name, engine=engine)[1], name)
        return torch.where(found.isfinite(), found, 0.0)

    used = [leaf for key, leaf in leaves.items() if key != "value"]
    with small_tiles(2, 2):
        assert gradcheck(statistic, tuple(used), atol=1e-7, rtol=1e-5)
        (unused,) = torch.autograd.grad(statistic().sum(), leaves["value"], materialize_grads=True)
    assert not unused.any()


@engines
@pytest.mark.parametrize(
    "normalizer", [normalizers.Softmax(), normalizers.Softmax(0.5), normalizers.Sparsemax()], ids=repr
)
def test_a_row_that_sees_nan_says_so(normalizer: normalizers.Normalizer, engine: str) -> None:
    query, key, value = inputs()
    key[0, 0, 6] = torch.nan
    names = AUX if isinstance(normalizer, normalizers.Softmax) else AUX[1:]
    with small_tiles():
        _, aux = attend(
            query,
            key,
            value,
            mask=masks.Window(3, 0),
            bias=biases.ALiBi(HEADS),
            normalizer=normalizer,
            query_start=START,
            aux=names,
            engine=engine,
        )
    i, j = torch.arange(QUERIES) + START, torch.arange(KEYS)
    sees = (i >= 6) & (i <= 9)
    for name in names:
        found = getattr(aux, name)
        if name == "peak_at":
            assert (found[0, :3, sees] == 6).all()
        elif name == "received":
            seen_with_it = (j >= 3) & (j <= 9)
            assert torch.equal(found.isnan()[0, :3], seen_with_it.expand(3, -1))
        else:
            assert torch.equal(found.isnan()[0, :3], sees.expand(3, -1)), name
        assert not found[0, 3:].isnan().any()
        assert not found[1].isnan().any()


@engines
@pytest.mark.parametrize("sink", [None, 2.0**20 + 1])
def test_large_logits_keep_what_each_key_receives(engine: str, sink: float | None) -> None:
    """2²⁰ + small integers are exact in float32, but the lse of such logits is not."""
    small = torch.randint(-2, 3, (2, 1, 1, 40, 1), generator=torch.Generator().manual_seed(0))
    query, key = torch.cat([torch.full_like(small, 1024), small], -1).unbind(0)
    normalizer = normalizers.Softmax() if sink is None else normalizers.Softmax(sink)
    found, exact = (
        attend(q, k, k, score=scores.Dot(), normalizer=normalizer, aux="received", engine=name)[1].received
        for name, q, k in (
            (engine, query.float(), key.float()),
            ("reference", query.double(), key.double()),
        )
    )
    assert found is not None
    assert exact is not None
    assert error(found.double(), exact) < 1e-6
