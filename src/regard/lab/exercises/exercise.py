"""Exercise: a task in parts, each with its right answer and known mistakes; `check` gives a verdict on each part."""

import difflib
import itertools
import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from regard import plot
from regard.inspection.explain import Explanation
from regard.inspection.records import Picture, Table
from regard.lab.exercises.questions import Answer, Quantity, Question
from regard.plot.save import as_json

FORMAT = 1  # of `Exercise.data`; a change that breaks a reader of it counts up
Paragraph = str | Explanation | Table | Picture


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
    """`example` is an answer of the right form with wrong content; `solution` is the worked answer in paragraphs."""

    number: int
    title: str
    chapter: Chapter
    task: str
    parts: Mapping[str, Question]
    example: str
    solution: tuple[Paragraph, ...]
    picture: Picture | None = None
    seed: int | None = None  # of numbers that are not the printed ones

    @property
    def wrong(self) -> object:
        """The example as a value."""
        return json.loads(self.example)

    @property
    def answer(self) -> dict[str, object]:
        """The right answer to every part, as `check` takes it."""
        return {name: part.right for name, part in self.parts.items()}

    def data(self) -> dict[str, object]:
        """All that a page needs to show the exercise and to check an answer, as JSON holds it (docs/exercises.md)."""
        return {
            "format": FORMAT,
            "number": self.number,
            "title": self.title,
            "seed": self.seed,
            "chapter": {
                "document": self.chapter.document,
                "section": self.chapter.section,
                "experiments": list(self.chapter.experiments),
                "text": str(self.chapter),
            },
            "task": self.task,
            "picture": json.loads(as_json(self.picture)) if self.picture is not None else None,
            "example": self.wrong,
            "parts": {name: part.data() for name, part in self.parts.items()},
            "solution": self.worked(80),
        }

    def worked(self, width: int) -> str:
        """The worked answer as text, and at its end the answer in the form that `check` takes.

        Long sentences wrap; indented lines and tables stay as they are. So does JSON that is short enough.
        """
        text = "\n\n".join(_text(paragraph, width) for paragraph in self.solution)
        lines = [
            textwrap.wrap(line, width) if len(line) > width and not line.startswith(" ") else [line]
            for line in text.rstrip().split("\n")
        ]
        entries = [
            f"{json.dumps(name)}: {json.dumps(right, ensure_ascii=False)}" for name, right in self.answer.items()
        ]
        wrapped = [textwrap.fill(each, width - 3, subsequent_indent="   ", break_on_hyphens=False) for each in entries]
        return "\n".join([*itertools.chain(*lines), "", "The answer:", "", "{" + ",\n ".join(wrapped) + "}"])


def _text(paragraph: Paragraph, width: int) -> str:
    if isinstance(paragraph, str):
        return paragraph
    if isinstance(paragraph, Explanation):
        return paragraph.text(width).rstrip()
    return plot.table(paragraph) if isinstance(paragraph, Table) else plot.render(paragraph, width=max(width, 20))


@dataclass(frozen=True)
class Verdict:
    """Whether a part of the answer is right, what to say about it, and where to read more if it is not.

    `follows` marks a part that is wrong only because an earlier one is; it is no mistake of its own.
    """

    part: str
    right: bool
    text: str
    see: str = ""
    follows: bool = False

    @property
    def mark(self) -> str:
        """✓ right, ↳ follows from an earlier mistake, ✗ wrong."""
        return "✓" if self.right else "↳" if self.follows else "✗"

    def __str__(self) -> str:
        return f"{self.mark} {self.part}: {self.text}" + (f" (see {self.see})" if self.see else "")


def hint(exercise: Exercise, part: str = "") -> str:
    """The hint of a part, without its answer; without a part, which parts there are."""
    if not part:
        return f"which part? {', '.join(exercise.parts)}"
    if part not in exercise.parts:
        raise ValueError(f"exercise {exercise.number} has no part {part!r}; it asks for {', '.join(exercise.parts)}")
    return f"{part}: {exercise.parts[part].hint}"


def _is_right(parts: Mapping[str, Question], name: str, answer: Answer) -> bool:
    return parts[name].check(answer[name], answer).right


def check(exercise: Exercise, answer: object) -> tuple[Verdict, ...]:
    """A verdict for each part the answer holds, in the order of the task; None leaves a part open."""
    parts = exercise.parts
    if not isinstance(answer, Mapping) or not answer:
        raise ValueError(f"an answer names at least one of {', '.join(parts)}, as in {exercise.example}")
    for name in answer:
        if name not in parts:
            near = difflib.get_close_matches(str(name), parts, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"it asks for {', '.join(parts)}"
            raise ValueError(f"exercise {exercise.number} does not ask for {name!r}; {hint}")
    verdicts = []
    for name, part in parts.items():
        if name in answer and answer[name] is None:
            verdicts.append(Verdict(name, False, "still open: write your answer in place of None"))
        elif name in answer:
            right, text, follows = part.check(answer[name], answer)
            if follows and isinstance(part, Quantity) and part.follows and _is_right(parts, part.follows.part, answer):
                right, text, follows = True, f"right, from the rounded {part.follows.part!r}", False
            verdicts.append(Verdict(name, right, text, "" if right else str(exercise.chapter), follows))
    return tuple(verdicts)
