"""Scores made from another score: soft-capped, or changed by a user's function."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.checks import positive
from regard.spec.closures import captured_tensors
from regard.spec.forms import Form, ScoreFunction, called, capped_form, modified_form
from regard.spec.plane import SAME_FOR_ALL, Pairs
from regard.spec.scores.base import Score
from regard.spec.serialize import register
from regard.spec.steps import Cap, ScoreRule, ScoreStep


class Wrapped(Score):
    """A score that changes another, and what it takes over from it."""

    axes = SAME_FOR_ALL

    score: Score

    @property
    def positional(self) -> bool:
        return self.score.positional

    def change(self, score: Tensor, pairs: Pairs) -> Tensor:
        """The scores made from the inner ones."""
        raise NotImplementedError(f"{type(self).__name__} must define change(score, pairs)")

    def steps(self) -> tuple[ScoreStep, ...]:
        """The steps of the inner score and its own; none if one has none."""
        inner = self.score.steps()
        return () if not inner or self.step is None else (*inner, self.step)

    @property
    def functions(self) -> tuple[ScoreFunction, ...]:
        return self.score.functions

    def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
        return self.change(self.score.formula(query, key, pairs), pairs)

    def check(self, d_query: int, d_key: int, kv_heads: int, group: int) -> None:
        self.score.check(d_query, d_key, kv_heads, group)

    def flops(self, d_query: int, d_key: int) -> int:
        return self.score.flops(d_query, d_key)

    def prepare_flops(self, queries: int, keys: int, d_query: int, d_key: int) -> int:
        return self.score.prepare_flops(queries, keys, d_query, d_key)

    @property
    def parameters(self) -> dict[str, Tensor]:
        return self.score.parameters


@register
@dataclass(frozen=True, eq=False, repr=False)
class SoftCapped(Wrapped):
    """cap · tanh(score / cap): never beyond ±cap (Gemma 2)."""

    score: Score
    cap: float

    def __post_init__(self) -> None:
        _inner("SoftCapped(score, cap)", self.score)
        positive("SoftCapped's cap", self.cap)

    @property
    def form(self) -> str:  # type: ignore[override]
        return self.score.form

    def change(self, score: Tensor, pairs: Pairs) -> Tensor:
        return float(self.cap) * torch.tanh(score / float(self.cap))

    def lower(self, query: Tensor, key: Tensor) -> Form:
        return capped_form(self.score.lower(query, key), float(self.cap))

    steps = Wrapped.steps

    @property
    def step(self) -> ScoreStep:  # type: ignore[override]
        return Cap(float(self.cap))


@dataclass(frozen=True, eq=False, repr=False)
class Modified(Wrapped):
    """fn(score, b, h, i, j), FlexAttention's `score_mod`, with absolute positions i and j.

    The function is elementwise: it gets tensors that broadcast to (batch, kv head, group, query, key) for some of the
    pairs at a time, and must not reduce over queries or keys. Tensors that it closes over get gradients. A result of
    −inf hides the pair.
    """

    score: Score
    fn: ScoreFunction

    form = "function"

    def __post_init__(self) -> None:
        _inner("Modified(score, fn)", self.score)
        if not callable(self.fn):
            raise TypeError(f"Modified takes a function of (score, b, h, i, j), got {type(self.fn).__name__}")

    @property
    def positional(self) -> bool:
        return True

    def change(self, score: Tensor, pairs: Pairs) -> Tensor:
        return called(self.fn, score, pairs)

    def lower(self, query: Tensor, key: Tensor) -> Form:
        return modified_form(self.score.lower(query, key), self.fn, captured_tensors(self.fn))

    steps = Wrapped.steps

    @property
    def step(self) -> ScoreStep:  # type: ignore[override]
        return ScoreRule(self.fn)

    @property
    def functions(self) -> tuple[ScoreFunction, ...]:
        return (*self.score.functions, self.fn)


def _inner(name: str, score: object) -> None:
    if not isinstance(score, Score):
        raise TypeError(f"{name} changes one of regard.scores, got {type(score).__name__}; it comes first")
