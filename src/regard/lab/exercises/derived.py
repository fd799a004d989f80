"""Derived: what follows from another part of an answer, as a few named operations that Python and a page both know."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from regard.lab.exercises.worked import tensor

Step = tuple[object, ...]  # the name of an operation and its arguments: numbers, or lists of numbers


def _jacobian(weights: Tensor) -> Tensor:
    return weights.diag() - weights.outer(weights)


# `last` axis: of a list the list itself, of a matrix each row
OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "times": lambda given, factor: given * factor,
    "sum": lambda given: given.sum(),
    "exp": lambda given: given.exp(),
    "softmax": lambda given: given.softmax(-1),  # along the last axis
    "lse": lambda given: given.logsumexp(-1),  # ln Σ e^x along the last axis
    "flatten": lambda given: given.flatten(),
    "matmul": lambda given, other: given @ tensor(other),
    "ratio": lambda given, above, below: given[above] / given[below],
    "difference": lambda given, first, second: given[first] - given[second],
    "jacobian": _jacobian,  # diag(w) − w wᵀ, the derivative of softmax
}


class Derived(NamedTuple):
    """The part it is made from, and the operations in order; none if both are the same."""

    part: str
    steps: tuple[Step, ...] = ()

    def value(self, given: Tensor) -> Tensor | None:
        """What follows from `given`; None if its shape does not fit."""
        value = given
        try:
            for name, *arguments in self.steps:
                value = OPERATIONS[str(name)](value, *arguments)
        except (RuntimeError, IndexError):
            return None
        return value

    def data(self) -> dict[str, object]:
        """As JSON: {"part": "cold", "steps": [["ratio", 0, 1]]}."""
        return {"part": self.part, "steps": [[_plain(each) for each in step] for step in self.steps]}


def derived(part: str, *steps: str | Step) -> Derived:
    """`derived("scores", ("times", 0.5), "softmax")`: an operation without arguments is its name alone."""
    listed = tuple((step,) if isinstance(step, str) else step for step in steps)
    for name, *_ in listed:
        if name not in OPERATIONS:
            raise ValueError(f"an operation is one of {', '.join(OPERATIONS)}; got {name!r}")
    return Derived(part, listed)


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, torch.Tensor) else value
