"""Exercise: a task in parts. An answer may hold any of the parts; each gets a verdict of its own."""

import difflib
import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from regard.inspection.records import Picture

Answer = Mapping[str, object]


@dataclass(frozen=True)
class Verdict:
    """Whether a part of the answer is right, what to say about it, and where to read more if it is not."""

    part: str
    right: bool
    text: str
    see: str = ""

    def __str__(self) -> str:
        return f"{'✓' if self.right else '✗'} {self.part}: {self.text}" + (f" (see {self.see})" if self.see else "")


class Asked(Protocol):
    """One thing that is asked: what, the right answer as JSON would hold it, and a check that says what is wrong."""

    @property
    def name(self) -> str: ...
    @property
    def asks(self) -> str: ...
    @property
    def right(self) -> object: ...
    def check(self, given: object, answer: Answer) -> Verdict: ...


@dataclass(frozen=True)
class Part:
    """A part with a check of its own: it takes what was given for it and the whole answer."""

    name: str
    asks: str
    right: object
    check: Callable[[object, Answer], Verdict]


@dataclass(frozen=True)
class Chapter:
    """Where the matter is treated: a document of docs/seeds.md, its section, and the experiments that show it."""

    document: str
    section: str
    experiments: tuple[str, ...]

    def __str__(self) -> str:
        runs = " and ".join(f"`regard lab {name}`" for name in self.experiments)
        return f"{self.document}, {self.section}; {runs}"


@dataclass(frozen=True)
class Exercise:
    """`example` is an answer of the right form with wrong content; `solution` writes the worked answer in `width`."""

    number: int
    title: str
    chapter: Chapter
    task: str
    parts: tuple[Asked, ...]
    example: str
    solution: Callable[[int], str]
    picture: Picture | None = None

    @property
    def answer(self) -> dict[str, object]:
        """The right answer to every part, as `check` takes it."""
        return {part.name: part.right for part in self.parts}

    def worked(self, width: int) -> str:
        """The worked answer, and at its end the numbers in the form that `check` takes."""
        return f"{wrapped(self.solution(width).rstrip(), width)}\n\nThe answer:\n\n{written(self.answer, width)}"


def check(exercise: Exercise, answer: object) -> tuple[Verdict, ...]:
    """A verdict for each part the answer holds, in the order they are asked; None leaves a part open."""
    parts = {part.name: part for part in exercise.parts}
    if not isinstance(answer, Mapping) or not answer:
        raise ValueError(f"an answer names at least one of {', '.join(parts)}, as in {exercise.example}")
    for name in answer:
        if name not in parts:
            near = difflib.get_close_matches(str(name), parts, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"it asks for {', '.join(parts)}"
            raise ValueError(f"exercise {exercise.number} does not ask for {name!r}; {hint}")
    return tuple(_verdict(exercise, part, answer) for part in exercise.parts if part.name in answer)


def _verdict(exercise: Exercise, part: Asked, answer: Answer) -> Verdict:
    if answer[part.name] is None:
        return Verdict(part.name, False, "still open: write your answer in place of None")
    found = part.check(answer[part.name], answer)
    return found if found.right else replace(found, see=str(exercise.chapter))


def written(answer: Answer, width: int) -> str:
    """An answer as JSON, a part to a line; longer ones wrap where JSON allows a line to end."""
    lines = [f"{json.dumps(name)}: {json.dumps(given, ensure_ascii=False)}" for name, given in answer.items()]
    wrapped = (textwrap.wrap(line, width - 3, subsequent_indent="   ", break_on_hyphens=False) for line in lines)
    return "{" + ",\n ".join("\n".join(group) for group in wrapped) + "}"


def wrapped(text: str, width: int) -> str:
    """Long sentences wrapped; tables and worked lines are narrower than any terminal in use and stay."""
    lines = [
        textwrap.wrap(line, width) if len(line) > width and not line.startswith(" ") else [line]
        for line in text.split("\n")
    ]
    return "\n".join(part for group in lines for part in group or [""])
