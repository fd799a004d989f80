"""Users' functions in a spec: what they must return, in the same words on every engine."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import attend, explain, masks, matrix, plan, scores
from regard.testing import assert_within

pytestmark = [
    pytest.mark.filterwarnings("ignore:regard runs this on"),
    pytest.mark.filterwarnings("ignore:`torch.jit"),  # torch's own, while it compiles
]

generator = torch.Generator().manual_seed(0)
QUERY, KEY, VALUE = (torch.randn(2, 2, 6, 4, generator=generator, dtype=torch.float64) for _ in range(3))
ENGINES = ("reference", "tiled", "flex")

SCORES: dict[str, tuple[type[Exception], str, Callable[..., Any]]] = {
    "too few": (ValueError, "must return one number per pair", lambda s, b, h, i, j: s[..., :3]),
    "one more axis": (ValueError, "got (1, 2, 2, 1, 6, 6); use elementwise", lambda s, b, h, i, j: s[None]),
    "integers": (TypeError, "got int64; convert it with .to(score.dtype)", lambda s, b, h, i, j: i - j),
    "bools": (TypeError, "got bool; to hide pairs use masks.Where", lambda s, b, h, i, j: j <= i),
    "complex numbers": (TypeError, "got complex128; convert", lambda s, b, h, i, j: s + 1j),
    "nothing": (TypeError, "as a tensor, got NoneType; end it with a return", lambda s, b, h, i, j: None),
    "an array": (TypeError, "as a tensor, got ndarray", lambda s, b, h, i, j: s.detach().numpy()),
    "two tensors": (TypeError, "as a tensor, got tuple", lambda s, b, h, i, j: (s, s)),
    "a sparse tensor": (TypeError, "must be a dense tensor", lambda s, b, h, i, j: s.to_sparse()),
    "a tensor without numbers": (ValueError, "on the device meta", lambda s, b, h, i, j: s.to("meta")),
}
MASKS: dict[str, tuple[type[Exception], str, Callable[..., Any]]] = {
    "too few": (ValueError, "must return one bool per pair, got shape (6, 3)", lambda b, h, i, j: (j <= i)[..., :3]),
    "one more axis": (
        ValueError,
        "one bool per pair, got shape (1, 1, 1, 1, 6, 6)",
        lambda b, h, i, j: (j <= i)[None, None, None, None],
    ),
    "integers": (TypeError, "must return bools (True = visible), got int64", lambda b, h, i, j: i - j),
    "nothing": (TypeError, "must return a bool tensor (True = visible), got NoneType", lambda b, h, i, j: None),
    "a sparse tensor": (TypeError, "must be a dense tensor", lambda b, h, i, j: (j <= i).to_sparse()),
    "a tensor without numbers": (ValueError, "on the device meta", lambda b, h, i, j: (j <= i).to("meta")),
}


def asked(engine: str, spec: Any) -> Callable[[], object]:
    return lambda: attend(QUERY, KEY, VALUE, engine=engine, **spec)


def calls(spec: Any) -> list[Callable[[], object]]:
    query, key, value = (tensor[:1, :1] for tensor in (QUERY, KEY, VALUE))
    return [
        *(asked(engine, spec) for engine in ENGINES),
        lambda: matrix(QUERY, KEY, **spec)[0, 0, :2, :3],
        lambda: explain(query, key, value, **spec).text(),
    ]


@pytest.mark.parametrize("name", SCORES)
def test_scores_of_a_wrong_kind(name: str) -> None:
    kind, text, fn = SCORES[name]
    every = calls({"score": scores.Modified(scores.Dot(), fn)})
    for call in every[:4] if name == "one more axis" else every:  # explain has one head: its shape is another
        with pytest.raises(kind, match=re.escape(text)):
            call()


@pytest.mark.parametrize("name", MASKS)
def test_masks_of_a_wrong_kind(name: str) -> None:
    kind, text, fn = MASKS[name]
    mask = masks.Where(fn)
    more: list[Callable[[], object]] = [lambda: plan(QUERY, KEY, VALUE, mask=mask), lambda: mask.pairs(6)]
    for call in [*calls({"mask": mask}), *more]:
        with pytest.raises(kind, match=re.escape(text)):
            call()


@pytest.mark.parametrize(
    "fn, engine",
    [
        (lambda s, b, h, i, j: 0.1, "tiled"),
        (lambda s, b, h, i, j: torch.tensor(0.1, dtype=torch.float64), "tiled"),
        (lambda s, b, h, i, j: 0.1 * i, "tiled"),
        (lambda s, b, h, i, j: (h + 1.0) * (b - 0.5), "tiled"),
        (lambda s, b, h, i, j: 0.1 * i, "flex"),
        pytest.param(lambda s, b, h, i, j: 0.1, "flex", marks=pytest.mark.slow),
    ],
)
def test_answers_that_broadcast(fn: Callable[..., Any], engine: str) -> None:
    """One number for all pairs, or one for each row or head: the tiled engine took none of them, and torch's compiled
    kernel for CPUs is wrong for scores that are the same for all keys of a row."""
    score = scores.Modified(scores.Dot(), fn)
    inputs = [tensor.float() for tensor in (QUERY, KEY, VALUE)]
    found = attend(*inputs, score=score, mask="causal", engine=engine)
    plain = attend(*inputs, score=score, mask="causal", engine="reference")
    assert_within(found, plain, attend(QUERY, KEY, VALUE, score=score, mask="causal", engine="reference"))


def test_a_number_keeps_its_digits() -> None:
    """0.1 for some pairs of float64 scores is 0.1, not the nearest float32."""

    def fn(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> float:
        return 0.1

    bias = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    score = scores.Modified(scores.Dot(), fn)  # type: ignore[arg-type]
    _, found = attend(QUERY, KEY, VALUE, score=score, bias=bias, aux="max_logit", engine="reference")
    assert found.max_logit is not None
    assert torch.equal(found.max_logit, (0.1 + bias).amax(-1).expand(2, 2, 6))


def test_what_torchs_compiler_refuses_is_told() -> None:
    """A function that reduces over keys has no kernel; its error names the function."""
    score = scores.Modified(scores.Dot(), lambda s, b, h, i, j: s - s.sum())
    inputs = [tensor.float() for tensor in (QUERY, KEY, VALUE)]
    with pytest.raises(ValueError, match=r"engine 'flex' cannot do this: .*<lambda>"):
        attend(*inputs, score=score, engine="flex")
