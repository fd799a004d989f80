"""Hidden pairs have exactly no influence, pair by pair: NaN, Inf or 1e38 stored where it is hidden changes no bit."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import attend, biases, masks, normalizers, scores, testing
from regard.engine.request import AUX
from regard.spec.forms import ScoreFunction
from regard.spec.plane import Plane
from regard.testing import Case, Sizes, small_tiles

ENGINES = ["reference", "tiled", "native"]
# 1e38 is far from harmless: its products overflow. Engines take numbers beyond a quarter of the largest for Inf.
POISONS = {"nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf, "1e38": 1e38, "8e37": 8e37}
POISON = st.sampled_from(sorted(POISONS))


def same_bits(actual: Tensor, expected: Tensor, what: object) -> None:
    """Fails on a different bit, on NaN and on a different shape or dtype."""
    assert actual.dtype == expected.dtype, what
    assert actual.shape == expected.shape, what
    assert not expected.isnan().any(), what
    # zeros compare as equal whatever their sign: 0 · x is −0 for a negative x
    assert torch.equal(actual, expected), what


def visible(case: Case, spec: dict[str, Any]) -> Tensor:
    """The visible pairs, (batch, head, query, key)."""
    size = case.sizes
    start = torch.tensor([size.query_start])
    pairs = Plane(size.batch, size.kv_heads, size.group, size.queries, size.keys, start).all
    seen: Tensor = spec["mask"].visible(pairs).expand(size.batch, size.kv_heads, size.group, size.queries, size.keys)
    if spec["bias"] is not None:
        seen = seen & (spec["bias"].values(pairs) != -torch.inf)
    return seen.flatten(1, 2)


def kv_heads(case: Case, seen: Tensor) -> Tensor:
    """What any query head of the group sees, (batch, kv head, query, key)."""
    size = case.sizes
    return seen.reshape(size.batch, size.kv_heads, size.group, size.queries, size.keys).any(2)


def outcome(
    case: Case, engine: str, places: dict[str, Tensor], number: float, rows: Tensor | None = None
) -> dict[str, Tensor]:
    """Output, statistics and gradients with `number` stored in `places`; the loss looks at `rows` alone."""
    inputs, spec, leaves = case.build(torch.float32)
    with torch.no_grad():
        for name, place in places.items():
            leaves[name].masked_fill_(place, number)
    aux = tuple(name for name in AUX if name != "lse" or "sink" in case.normalizer or case.normalizer == "softmax")
    with small_tiles():
        out, more = attend(*inputs, **spec, aux=aux, engine=engine)
        loss = out.new_zeros(())
        generator = torch.Generator().manual_seed(1)
        for tensor in (out, more.entropy, more.lse):
            if tensor is not None:
                weight = torch.randn(tensor.shape, generator=generator)
                keep = tensor != -torch.inf
                if rows is not None:
                    keep = keep & (rows if tensor.ndim == 3 else rows.unsqueeze(-1))
                loss = loss + torch.where(keep, weight * tensor, 0.0).sum()
        found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    grads = {f"grad {name}": grad for name, grad in zip(leaves, found, strict=True)}
    return {"out": out.detach(), **{name: getattr(more, name).detach() for name in aux}, **grads}


def hidden_places(case: Case) -> dict[str, Tensor]:
    """Every place of query, key, value and a dense bias that no visible pair touches."""
    _, spec, leaves = case.build(torch.float32)
    seen = visible(case, spec)
    unseen = ~kv_heads(case, seen).any(2).unsqueeze(-1)
    found = {"query": ~seen.any(-1, keepdim=True), "key": unseen, "value": unseen}
    if case.bias == "dense":
        found["dense"] = ~seen.any(0)
    if case.bias == "hiding":
        found["dense"] = ~seen.any(1, keepdim=True) & (leaves["dense"] != -torch.inf)
    return found


def holds_when_hidden(case: Case, engine: str, poison: str) -> None:
    places = hidden_places(case)
    clean, found = (outcome(case, engine, places, number) for number in (0.25, POISONS[poison]))
    for name, right in clean.items():
        same_bits(found[name], right, (name, engine, poison, case))


def chosen_places(case: Case) -> tuple[dict[str, Tensor], Tensor]:
    """A few queries, keys and values, and the rows that see none of them, (batch, head, query)."""
    _, spec, _ = case.build(torch.float32)
    seen, size = visible(case, spec), case.sizes
    generator = torch.Generator().manual_seed(case.seed)

    def some(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator) < 0.2

    query = some(size.batch, size.heads, size.queries)
    key, value = some(size.batch, size.kv_heads, size.keys), some(size.batch, size.kv_heads, size.keys)
    touched = (key | value).repeat_interleave(size.group, 1).unsqueeze(2)
    rows = ~((seen & touched).any(-1) | (query & seen.any(-1)))
    return {name: place.unsqueeze(-1) for name, place in (("query", query), ("key", key), ("value", value))}, rows


def holds_pair_by_pair(case: Case, engine: str, poison: str) -> None:
    if case.score == "modified" and poison in ("1e38", "8e37"):
        return  # a user's function meets scores that overflow where they are visible: sin(Inf) has no derivative
    places, rows = chosen_places(case)
    clean, found = (outcome(case, engine, places, number, rows) for number in (0.25, POISONS[poison]))
    for name, right in clean.items():
        if name.startswith("grad"):
            same_bits(found[name], right, (name, engine, poison, case))
        elif name != "received":
            same_bits(found[name][rows], right[rows], (name, engine, poison, case))
    _, spec, _ = case.build(torch.float32)
    unaffected = ~(visible(case, spec) & ~rows.unsqueeze(-1)).any(2)
    same_bits(found["received"][unaffected], clean["received"][unaffected], ("received", engine, poison, case))
    if poison == "nan":
        shown = found["out"].isnan().all(-1)
        assert torch.equal(shown, ~rows), ("a visible NaN must show", engine, case)


def checked(case: Case, engine: str) -> None:
    for poison in POISONS:
        holds_when_hidden(case, engine, poison)
        holds_pair_by_pair(case, engine, poison)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mask", testing.MASKS)
def test_every_mask(mask: str, engine: str) -> None:
    checked(Case(mask=mask, bias="dense", seed=3), engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("score", testing.SCORES)
def test_every_score(score: str, engine: str) -> None:
    checked(Case(score=score, mask="combined", seed=4), engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("normalizer", testing.NORMALIZERS)
def test_every_normalizer(normalizer: str, engine: str) -> None:
    checked(Case(normalizer=normalizer, mask="packed", temperature="per head", dropout=0.3, seed=5), engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bias", testing.BIASES)
def test_every_bias(bias: str, engine: str) -> None:
    checked(Case(bias=bias, mask="past window", temperature="learned", seed=6), engine)


MOST = {"batch": 3, "kv_heads": 2, "group": 3, "queries": 19, "keys": 23, "d_key": 7, "d_value": 6}


def generated(scores: Iterable[str], normalizers: Iterable[str]) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        score=st.sampled_from(sorted(scores)),
        mask=st.sampled_from(sorted(testing.MASKS)),
        bias=st.sampled_from(sorted(testing.BIASES)),
        normalizer=st.sampled_from(sorted(normalizers)),
        temperature=st.sampled_from(sorted(testing.TEMPERATURES)),
        dropout=st.sampled_from([0.0, 0.4]),
        sizes=st.builds(
            Sizes, **{name: st.integers(1, most) for name, most in MOST.items()}, query_start=st.integers(0, 5)
        ),
        seed=st.integers(0, 2**31),
    )


cases = dict.fromkeys(("reference", "tiled"), generated(testing.SCORES, testing.NORMALIZERS))
cases["native"] = generated(testing.PRODUCTS, testing.SOFTMAXES)


@pytest.mark.parametrize("engine", ENGINES)
@given(st.data(), POISON)
@settings(max_examples=30)
def test_generated_cases(engine: str, data: st.DataObject, poison: str) -> None:
    case = data.draw(cases[engine])
    holds_when_hidden(case, engine, poison)
    holds_pair_by_pair(case, engine, poison)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@given(st.data(), POISON)
@settings(max_examples=1000)
def test_many_generated_cases(engine: str, data: st.DataObject, poison: str) -> None:
    case = data.draw(cases[engine])
    holds_when_hidden(case, engine, poison)
    holds_pair_by_pair(case, engine, poison)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def gradients(loss: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("poisoned", ["key", "value"])
def test_nan_in_the_future_leaves_the_past_alone(poisoned: str, dtype: torch.dtype, engine: str) -> None:
    past, length = 9, 13
    runs = []
    for number in (0.25, torch.nan):
        tensors = {
            name: draw(1, 2, length, 5, seed=seed, dtype=dtype) for seed, name in enumerate(("query", "key", "value"))
        }
        tensors[poisoned][0, 1, past] = number
        leaves = [tensor.requires_grad_() for tensor in tensors.values()]
        with small_tiles():
            out = attend(*leaves, mask="causal", engine=engine)
            assert isinstance(out, Tensor)
            runs.append((out[:, :, :past], *gradients(out[:, :, :past].sum(), *leaves)))
            assert torch.equal(out[0, 1].isnan().any(-1), (torch.arange(length) >= past) & (number != 0.25))
            assert not out[0, 0].isnan().any()
    for clean, found in zip(*runs, strict=True):
        same_bits(found, clean, poisoned)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_poisoned_document_leaves_its_neighbor_alone(engine: str) -> None:
    ids = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    first = ids == 0
    runs = []
    for number in (0.25, torch.nan):
        tensors = [draw(1, 2, 11, 5, seed=seed) for seed in range(3)]
        for tensor in tensors:
            tensor[:, :, ~first] = number
        leaves = [tensor.requires_grad_() for tensor in tensors]
        with small_tiles():
            out = attend(*leaves, mask=masks.Documents(ids), engine=engine)
            assert isinstance(out, Tensor)
            runs.append((out[:, :, first], *gradients(out[:, :, first].square().sum(), *leaves)))
    for clean, found in zip(*runs, strict=True):
        same_bits(found, clean, "first document")


@pytest.mark.parametrize("engine", ENGINES)
def test_padding_may_hold_anything(engine: str) -> None:
    length = torch.tensor([4, 7])
    real = torch.arange(9) < length.view(-1, 1)
    mask = masks.Dense((real.unsqueeze(-1) & real.unsqueeze(-2)).unsqueeze(1))
    runs = []
    for number in (0.25, torch.nan):
        leaves = [draw(2, 3, 9, 5, seed=seed) for seed in range(3)]
        for tensor in leaves:
            tensor.masked_fill_(~real[:, None, :, None], number).requires_grad_()
        with small_tiles():
            out, aux = attend(*leaves, mask=mask, aux=("lse", "received", "peak_at"), engine=engine)
            more = [getattr(aux, name) for name in ("lse", "received", "peak_at")]
            runs.append((out, *more, *gradients(out.square().sum(), *leaves)))
    for clean, found in zip(*runs, strict=True):
        same_bits(found, clean, "padding")
    assert not runs[0][0].masked_select(~real[:, None, :, None]).any()


def inputs() -> list[Tensor]:
    return [draw(2, 3, 11, 5, seed=seed).requires_grad_() for seed in range(3)]


@pytest.mark.parametrize("engine", ENGINES)
def test_minus_infinity_in_a_bias_hides_like_a_mask(engine: str) -> None:
    shown = torch.rand((2, 1, 11, 11), generator=torch.Generator().manual_seed(1)) < 0.6
    shown[0, :, 4] = False
    bias = torch.zeros(2, 1, 11, 11).masked_fill(~shown, -torch.inf)
    specs: list[dict[str, Any]] = [{"mask": shown}, {"bias": bias}]
    runs = []
    for spec in specs:
        leaves = inputs()
        with small_tiles():
            out, aux = attend(*leaves, **spec, aux=AUX, query_start=0, engine=engine)
        runs.append((out, *(getattr(aux, name) for name in AUX), *gradients(out.square().sum(), *leaves)))
    for by_mask, by_bias in zip(*runs, strict=True):
        same_bits(by_bias, by_mask, "bias")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_lowest_number_in_a_bias_does_not_hide(engine: str) -> None:
    query, key, value = (tensor.detach() for tensor in inputs())
    bias = torch.zeros(11, 11)
    bias[3] = torch.finfo(torch.float32).min
    out = attend(query, key, value, bias=bias, engine=engine)
    # all logits of the row round to the same number, so the weights are equal
    assert torch.allclose(out[:, :, 3], value.mean(2), rtol=0, atol=8 * torch.finfo(torch.float32).eps)
    bias[3, :5] = 0.0  # now the others are too far behind to weigh anything, but they are seen
    value[:, :, 7] = torch.nan
    assert attend(query, key, value, bias=bias, engine=engine)[:, :, 3].isnan().all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("other", ["mask", "bias"])
@pytest.mark.parametrize("broken", ["dense", "table"])
def test_a_bias_may_fail_where_something_else_hides(broken: str, other: str, engine: str) -> None:
    future = torch.ones(11, 11).triu(1).bool()
    hiding = biases.Dense(torch.zeros(11, 11).masked_fill(future, -torch.inf))
    places = future if broken == "dense" else torch.arange(7) < 3  # offsets i − j from −3 to 3
    runs = []
    for number in (0.0, torch.nan):
        table = torch.zeros(places.shape).masked_fill(places, number).requires_grad_()
        bias = biases.Dense(table) if broken == "dense" else biases.Distance(table)
        leaves = [*inputs(), table]
        spec: dict[str, Any] = {"bias": hiding + bias} if other == "bias" else {"mask": "causal", "bias": bias}
        with small_tiles():
            out = attend(*leaves[:3], **spec, engine=engine)
        runs.append((out, *gradients(out.square().sum(), *leaves)))
    for clean, found in zip(*runs, strict=True):
        same_bits(found, clean, "two biases")


FUNCTIONS: dict[str, ScoreFunction] = {
    "nan": lambda s, b, h, i, j: s * (i - j).float().sqrt(),
    "log": lambda s, b, h, i, j: s + (i - j + 1).float().log(),
    "overflow": lambda s, b, h, i, j: s * torch.where(j > i, torch.inf, 1.0),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("by", ["mask", "bias"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_fails_on_hidden_pairs_does_no_harm(name: str, by: str, engine: str) -> None:
    fn, future = FUNCTIONS[name], torch.ones(11, 11).triu(1).bool()
    spec: dict[str, Any] = {by: ~future if by == "mask" else torch.zeros(11, 11).masked_fill(future, -torch.inf)}
    runs = []
    for function in (fn, lambda s, b, h, i, j: fn(s, b, h, i, j.expand(*s.shape).minimum(i))):
        leaves = inputs()
        with small_tiles():
            out = attend(*leaves, score=scores.Modified(scores.ScaledDot(), function), **spec, engine=engine)
        runs.append((out, *gradients(out.square().sum(), *leaves)))
    for found, clean in zip(*runs, strict=True):
        same_bits(found, clean, name)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_function_hides_with_minus_infinity(engine: str) -> None:
    causal = scores.Modified(scores.ScaledDot(), lambda s, b, h, i, j: torch.where(j < i, s, -torch.inf))
    specs: list[dict[str, Any]] = [{"score": causal}, {"mask": masks.Where(lambda b, h, i, j: j < i)}]
    runs = []
    for spec in specs:
        leaves = [*inputs(), torch.tensor([0.5, 1.0, 2.0], requires_grad=True)]
        with small_tiles():
            out, aux = attend(*leaves[:3], **spec, temperature=leaves[3], aux=AUX, engine=engine)
        runs.append((out, *(getattr(aux, name) for name in AUX), *gradients(out.square().sum(), *leaves)))
    for by_function, by_mask in zip(*runs, strict=True):
        same_bits(by_function, by_mask, "function")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("normalizer", [normalizers.Softmax(0.5), normalizers.Sparsemax()], ids=repr)
def test_gradients_that_will_be_differentiated_again(normalizer: normalizers.Normalizer, engine: str) -> None:
    runs = []
    for number in (0.25, torch.nan):
        leaves = [tensor.detach() for tensor in inputs()]
        for tensor in leaves:
            tensor[:, :, 9] = number
        leaves = [tensor.requires_grad_() for tensor in leaves]
        with small_tiles():
            out = attend(*leaves, mask="causal", normalizer=normalizer, engine=engine)[:, :, :9]
            first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
            loss = torch.stack([grad[:, :, :9].square().sum() for grad in first]).sum()
            runs.append((*first, *gradients(loss, *leaves)))
    for clean, found in zip(*runs, strict=True):
        same_bits(found, clean, "second order")


@pytest.mark.parametrize("engine", ENGINES)
def test_infinity_where_the_score_is_finite(engine: str) -> None:
    """tanh(±Inf) = ±1: the score counts, its gradient is that of a constant."""
    query, key, value = (tensor.detach() for tensor in inputs())
    key[:, :, 4, 0] = torch.inf
    positive = draw(6, 5, seed=3).abs()
    score = scores.Additive(draw(6, 5, seed=4), positive, draw(6, seed=5))
    query.requires_grad_()
    with small_tiles():
        out = attend(query, key, value, score=score, engine=engine)
    key[:, :, 4, 0] = 1e6
    with small_tiles():
        same = attend(query, key, value, score=score, engine=engine)
    same_bits(out, same, "out")
    found, right = (gradients(one.square().sum(), query)[0] for one in (out, same))
    same_bits(found, right, "gradient")


def test_the_comparison_can_fail() -> None:
    clean = torch.tensor([1.0, 2.0])
    for wrong in (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 2.0000002]), clean.double(), clean[:1]):
        with pytest.raises(AssertionError):
            same_bits(wrong, clean, "wrong")
    with pytest.raises(AssertionError):
        same_bits(torch.tensor([torch.nan]), torch.tensor([torch.nan]), "NaN in both")
