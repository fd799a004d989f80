"""Exercise: a task in parts. An answer may hold any of the parts; each gets a verdict of its own."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from regard.inspection.records import Picture

Answer = Mapping[str, object]


@dataclass(frozen=True)
class Verdict:
    """Whether a part of the answer is right, and what to say about it."""

    part: str
    right: bool
    text: str


@dataclass(frozen=True)
class Part:
    """One thing that is asked. `check` takes what was given for it and the whole answer, and says what is wrong."""

    name: str
    asks: str
    check: Callable[[object, Answer], Verdict]


@dataclass(frozen=True)
class Exercise:
    """`example` is an answer of the right form with wrong content; `solution` writes the worked answer in `width`."""

    number: int
    title: str
    task: str
    parts: tuple[Part, ...]
    example: str
    solution: Callable[[int], str]
    picture: Picture | None = None


def check(exercise: Exercise, answer: object) -> tuple[Verdict, ...]:
    """A verdict for each part the answer holds, in the order they are asked."""
    parts = {part.name: part for part in exercise.parts}
    if not isinstance(answer, Mapping) or not answer:
        raise ValueError(f"an answer names at least one of {', '.join(parts)}, as in {exercise.example}")
    for name in answer:
        if name not in parts:
            near = difflib.get_close_matches(str(name), parts, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"it asks for {', '.join(parts)}"
            raise ValueError(f"exercise {exercise.number} does not ask for {name!r}; {hint}")
    return tuple(part.check(answer[part.name], answer) for part in exercise.parts if part.name in answer)
