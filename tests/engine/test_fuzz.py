"""Any wrong argument ends in our own words or in a result, never in an error from deep inside torch."""

import dis
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard import Dropout, attend, biases, masks, normalizers, scores

HOME = str(Path(str(regard.__file__)).parent)
SIZES = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 11])
FLOATS = st.sampled_from([0.0, -1.0, 0.5, 1.0, 2.0, 1e30, -1e-45, float("nan"), float("inf"), -float("inf")])
DTYPES = st.sampled_from(
    [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool, torch.int64, torch.uint8, torch.complex64]
)


@st.composite
def tensors(draw: st.DrawFn, least: int = 0, most: int = 5) -> Tensor:
    """A tensor of any shape, usually float32, with one odd number in it."""
    shape = draw(st.lists(SIZES, min_size=least, max_size=most))
    dtype = draw(st.one_of(st.just(torch.float32), DTYPES))
    tensor = torch.ones(shape, dtype=dtype)
    if tensor.numel() and dtype.is_floating_point:
        tensor.view(-1)[0] = draw(FLOATS)
    return tensor


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    FLOATS,
    st.text(max_size=3),
    st.just([1.0]),
    st.just({}),
    st.just(object()),
    st.just(torch.nn.Linear(2, 2)),
    st.sampled_from([masks.Causal, scores.Dot, normalizers.Hard, Dropout, torch.float32]),
    tensors(),
)
# Parts of a spec are made inside the guarded call: their constructors check too.
Maker = Callable[[], Any]


def makers(*kinds: Any) -> st.SearchStrategy[Maker]:
    """Each kind with random arguments, to be called later."""
    arguments = st.lists(st.one_of(JUNK, tensors(1, 3), st.integers(0, 9)), min_size=1, max_size=4)
    return st.builds(lambda kind, args: lambda: kind(*args), st.sampled_from(kinds), arguments)


def given_as(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Maker]:
    """The value itself; now and then a tensor on a device without numbers."""
    elsewhere = tensors().map(lambda tensor: tensor.to("meta"))
    return st.one_of(strategy, strategy, elsewhere).map(lambda value: lambda: value)


WRONG: dict[str, st.SearchStrategy[Maker]] = {
    "query": given_as(st.one_of(tensors(), JUNK)),
    "key": given_as(st.one_of(tensors(), JUNK)),
    "value": given_as(st.one_of(tensors(), JUNK)),
    "mask": st.one_of(given_as(st.one_of(tensors(), JUNK)), makers(masks.Window, masks.Dilated, masks.Dense)),
    "bias": st.one_of(
        given_as(st.one_of(tensors(), JUNK)), makers(biases.ALiBi, biases.T5, biases.Distance, biases.Dense)
    ),
    "score": st.one_of(
        given_as(JUNK),
        makers(
            scores.ScaledDot,
            scores.Cosine,
            scores.General,
            scores.Additive,
            scores.ConcatMLP,
            scores.Relative,
        ),
        st.builds(lambda cap: lambda: scores.SoftCapped(scores.Dot(), cap), JUNK),
    ),
    "temperature": given_as(st.one_of(tensors(), JUNK)),
    "normalizer": st.one_of(given_as(JUNK), makers(normalizers.Softmax)),
    "dropout": st.one_of(given_as(JUNK), makers(Dropout)),
    "query_start": given_as(st.one_of(tensors(), JUNK)),
    "aux": given_as(st.one_of(JUNK, st.lists(st.sampled_from(["lse", "peak", "distance", "none"])))),
    "engine": given_as(st.one_of(st.sampled_from(["tiled", "reference", "sdpa"]), JUNK)),
}


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Maker]:
    """A call that would work, with up to three arguments replaced."""
    call: dict[str, Maker] = {
        "query": lambda: torch.ones(2, 4, 7, 5),
        "key": lambda: torch.ones(2, 2, 11, 5),
        "value": lambda: torch.ones(2, 2, 11, 3),
        "mask": lambda: "causal",
    }
    for name in draw(st.lists(st.sampled_from(sorted(WRONG)), min_size=1, max_size=3, unique=True)):
        call[name] = draw(WRONG[name])
    return call


def outcome(call: dict[str, Maker]) -> Exception | None:
    """The ValueError or TypeError that the call ends with; any other error passes through."""
    try:
        spec = {name: make() for name, make in call.items()}
        query, key, value = (spec.pop(name) for name in ("query", "key", "value"))
        attend(query, key, value, **spec)
    except (ValueError, TypeError) as error:
        return error
    return None


def answered(call: dict[str, Maker]) -> None:
    """It works, or a `raise` of this library ends it, or Python's own complaint about the number of arguments."""
    error = outcome(call)
    if error is not None and "__init__()" not in str(error):
        trace = error.__traceback__
        assert trace is not None
        while trace.tb_next is not None:
            trace = trace.tb_next
        code = trace.tb_frame.f_code
        assert code.co_filename.startswith(HOME), f"raised elsewhere: {error!r}"
        assert dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS", f"not raised on purpose: {error!r}"


@given(calls())
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
def test_every_call_is_answered(call: dict[str, Maker]) -> None:
    answered(call)


@pytest.mark.slow
@given(calls())
@settings(max_examples=10_000, suppress_health_check=[HealthCheck.too_slow])
def test_very_many_calls_are_answered(call: dict[str, Maker]) -> None:
    answered(call)


def test_an_error_from_elsewhere_is_noticed() -> None:
    def broken() -> Tensor:
        raise ValueError("not from the library")

    with pytest.raises(AssertionError, match="raised elsewhere"):
        answered({"query": broken, "key": broken, "value": broken})
    with pytest.raises(RuntimeError):
        answered({"query": lambda: torch.ones(2) @ torch.ones(3), "key": broken, "value": broken})
