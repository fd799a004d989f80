"""Every engine against the formula written a second time (`formula.py`), on generated calls (`specs.py`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import biases, masks, normalizers, scores
from regard.spec.part import Part
from regard.testing import error
from tests.oracles import compare, formula, parts, specs

FAST = range(60)
MANY = range(60, 1100)


@pytest.mark.parametrize("seed", FAST)
def test_the_engines_agree_with_the_formula(seed: int) -> None:
    compare.agree(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
def test_the_engines_agree_with_the_formula_on_many_calls(seed: int) -> None:
    compare.agree(seed)


def classes(part: object) -> set[str]:
    """The names of all classes in a part of a spec."""
    found = {type(part).__name__}
    if isinstance(part, scores.Modified | scores.SoftCapped):
        found |= classes(part.score)
    elif isinstance(part, masks.And | masks.Or):
        found |= classes(part.left) | classes(part.right)
    elif isinstance(part, masks.Not):
        found |= classes(part.mask)
    elif isinstance(part, biases.Total):
        found |= {type(inner).__name__ for inner in part.parts}
    return found


def test_the_fast_calls_hold_every_part() -> None:
    """And every kind of place, size and question."""
    calls = [specs.make(seed) for seed in FAST]
    met = {name for call in calls for name in ("score", "mask", "normalizer") for name in classes(call.spec[name])}
    known: list[Any] = [part for module in (scores, masks, normalizers) for part in vars(module).values()]
    names = {
        part.__name__
        for part in known
        if isinstance(part, type) and issubclass(part, Part) and hasattr(part, "__dataclass_fields__")
    }
    assert names - met == set()
    added = {name for call in calls for name in classes(call.spec["bias"])}
    assert {"ALiBi", "T5", "Distance", "Dense", "Total", "Tensor", "NoneType"} <= added
    sizes = [call.sizes for call in calls]
    assert {type(call.spec["query_start"]) for call in calls} == {int, type(None), Tensor}
    assert {bool(call.spec["dropout"]) for call in calls} == {True, False}
    assert {type(call.spec["temperature"]) for call in calls} == {float, Tensor}
    assert {call.through for call in calls} == {(), ("lse",), ("entropy",), ("lse", "entropy")}
    assert {call.exact for call in calls} == {call.second for call in calls} == {True, False}
    assert any(size.low < 0 for size in sizes)
    assert any(size.queries > size.keys for size in sizes)
    assert any(0 in (size.queries, size.keys, size.kv_heads, size.d_query, size.d_value) for size in sizes)
    assert any(size.d_query != size.d_key for size in sizes)
    assert any(size.d_value != size.d_key for size in sizes)
    assert any(size.group > 1 for size in sizes)
    assert any(len(size.leading) == 2 for size in sizes)


def test_a_call_is_the_same_in_every_precision() -> None:
    for seed in FAST:
        one, other = specs.make(seed), specs.make(seed, torch.float32)
        assert one.leaves.keys() == other.leaves.keys()
        assert all(torch.equal(leaf, other.leaves[name].double()) for name, leaf in one.leaves.items())
        assert (one.tiles, one.second, one.through) == (other.tiles, other.second, other.through)


# ------------------------------------------------------------------------------------------- the oracle notices faults

Wrong = Callable[[Any], Any]


def shifted_mask(right: Any) -> Any:
    """Every query sees what the one before it should."""

    def wrong(mask: Any, pairs: parts.Pairs, leading: torch.Size) -> Tensor:
        seen: Tensor = right(mask, pairs, leading).expand(pairs.shape)
        return seen.roll(1, 2)

    return wrong


def clipped_one_early(right: Any) -> Any:
    """Offsets are off by one."""

    def wrong(table: Tensor, entry: Tensor, pairs: parts.Pairs) -> Tensor:
        found: Tensor = right(table, (entry - 1).clamp(min=0), pairs)
        return found

    return wrong


def other_seed(right: Any) -> Any:
    def wrong(dropout: Any, pairs: parts.Pairs) -> Tensor:
        found: Tensor = right(replace(dropout, seed=dropout.seed - 1), pairs)
        return found

    return wrong


def one_number_off(right: Any) -> Any:
    """A single output number is off by one in 10¹⁰."""

    def wrong(*inputs: Tensor, **spec: Any) -> formula.Answer:
        answer: formula.Answer = right(*inputs, **spec)
        if answer.out.numel():
            factor = torch.ones_like(answer.out)
            factor.view(-1)[answer.out.detach().abs().argmax()] += 1e-10
            answer.out = answer.out * factor
        return answer

    return wrong


FAULTS: dict[str, tuple[str, Wrong]] = {
    "a mask shifted by a row": ("visible_pairs", shifted_mask),
    "ALiBi's sign": ("alibi_slopes", lambda right: lambda heads: -right(heads)),
    "a table read one entry early": ("at_entries", clipped_one_early),
    "no temperature": ("temperatures", lambda right: lambda temperature, like: 1.0),
    "another dropout seed": ("dropout_factors", other_seed),
    "queries that start one later": ("starts", lambda right: lambda *given: right(*given) + 1),
    "the last of equal keys": (
        "first_largest",
        lambda right: lambda x, seen: right(x.flip(-1), seen.flip(-1)).flip(-1),
    ),
    "a scale of 1/d": ("scale_of", lambda right: lambda scale, query: right(scale, query) ** 2),
    "one number of the output": ("evaluate", one_number_off),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_oracle_notices_a_planted_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the fast calls one fails, and without the fault all agree."""
    name, wrong = FAULTS[fault]
    module = formula if hasattr(formula, name) else parts
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))
    for seed in FAST:
        try:
            compare.agree(seed)
        except AssertionError as problem:
            message = str(problem)
            break
    else:
        pytest.fail(f"no call noticed {fault}")
    assert f"tests.oracles.specs.make({seed})" in message


def test_no_comparison_accepts_what_is_not_a_number() -> None:
    right = torch.ones(3)
    for wrong in (torch.tensor([1.0, torch.nan, 1.0]), torch.tensor([1.0, torch.inf, 1.0]), torch.ones(1, 3)):
        with pytest.raises(AssertionError):
            error(wrong, right)
