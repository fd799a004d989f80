"""Exercises as JSON: complete, and enough for check.js, which gives Python's verdicts in a page."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from regard.lab.exercises import EXERCISES, Exercise, check, data, exercise
from regard.lab.exercises.derived import OPERATIONS, derived
from regard.lab.exercises.numbers import LONGEST
from regard.lab.exercises.questions import Choice, Quantity, Subset

ALL = {number: exercise(number) for number in EXERCISES}
CHECK = Path(__file__).parents[3] / "src" / "regard" / "lab" / "exercises" / "check.js"
RUN = """
import { readFileSync } from "node:fs";
const { check } = await import(process.argv[1]);
const { exercises, cases } = JSON.parse(readFileSync(0, "utf-8"));
console.log(JSON.stringify(cases.map(([number, answer]) => check(exercises[number], answer))));
"""
GARBAGE: list[object] = [True, [], [[]], [None], [[1, 2], [3]], "two words", -1e300, 0, 1, [1], [[1.5]]]
EXPRESSIONS = [
    "1/2",
    "e^2",
    "e²",
    "√2",
    "√(2 + 2)",
    "−1.5",
    "2·3 × 4",
    "exp(-1) + ln(2)",
    "1e-3",
    "pi/2",
    "2^-1^2",
    "-2^2",
]
REFUSED = ["", "x", "1/0", "9^9^9^9", "sqrt(-1)", "1,2", "True", "(" * 150, "1" * 300, "e.real", "2 3", "sqrt 2"]


def answers(of: Exercise) -> Iterator[Mapping[str, object]]:
    """Right, wrong in every known way, and wrong in ways that nobody thought of."""
    yield of.answer
    yield json.loads(of.example)
    yield dict.fromkeys(of.parts)
    for name, part in of.parts.items():
        yield from ({name: garbage} for garbage in GARBAGE)
        if isinstance(part, Quantity):
            truth = part.truth
            for value in (truth, *(mistake.value for mistake in part.mistakes)):
                for given in (value, value.round(decimals=2), value.round(decimals=1), value.round(), -value):
                    yield {name: given.tolist()}
            for given in (truth * 100, truth * 1.01, truth + 0.3, truth.mT if truth.ndim == 2 else truth * 0):
                yield {name: given.tolist()}
            yield from follow_ups(of, name, part)
        elif isinstance(part, Choice):
            yield from ({name: f" {option.upper()} "} for option in part.options)
        elif isinstance(part, Subset):
            every = [item["value"] for item in part.data()["items"]]  # type: ignore[attr-defined]
            yield from ({name: [item]} for item in every)
            yield from ({name: every[:count]} for count in range(len(every)))


def follow_ups(of: Exercise, name: str, part: Quantity) -> Iterator[Mapping[str, object]]:
    """This part as it follows from each mistake in the part before it, and from that part rounded."""
    if part.follows is None:
        return
    before = of.parts[part.follows.part]
    assert isinstance(before, Quantity)
    for value in (*(mistake.value for mistake in before.mistakes), before.truth.round(decimals=2)):
        result = part.follows.value(value)
        if result is not None and bool(result.isfinite().all()):
            yield {part.follows.part: value.tolist(), name: result.tolist()}


def test_every_exercise_is_json() -> None:
    assert json.loads(json.dumps(data(), allow_nan=False)) == data()
    assert [each["number"] for each in data()] == list(EXERCISES)


@pytest.mark.parametrize("of", ALL.values(), ids=lambda of: str(of.number))
def test_the_parts_are_complete(of: Exercise) -> None:
    made = of.data()
    assert made["task"] == of.task
    parts = made["parts"]
    assert isinstance(parts, dict)
    assert {name: part["right"] for name, part in parts.items()} == of.answer
    for name, part in parts.items():
        assert part["hint"] == of.parts[name].hint
        if part["kind"] == "numbers":
            assert len(part["axes"]) == len(part["shape"])
            assert all(step[0] in OPERATIONS for step in (part["follows"] or {"steps": []})["steps"])


def test_a_wrong_operation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"an operation is one of times, sum, .*; got 'mean'"):
        derived("weights", "mean")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_a_page_gives_the_same_verdicts() -> None:
    cases: list[tuple[int, Mapping[str, object]]] = [
        (number, answer) for number, of in ALL.items() for answer in answers(of)
    ]
    cases += [(9, {"ratio": text}) for text in (*EXPRESSIONS, *REFUSED)]
    assert len(cases) > 3000
    result = page_verdicts(cases)
    for (number, answer), verdicts in zip(cases, result, strict=True):
        expected = [
            {"part": each.part, "right": each.right, "follows": each.follows, "text": without_spelling(each.text)}
            for each in check(ALL[number], answer)
        ]
        for verdict in verdicts:
            verdict["text"] = without_spelling(str(verdict["text"]))
        assert verdicts == expected, (number, answer)


def page_verdicts(cases: list[tuple[int, Mapping[str, object]]]) -> list[list[dict[str, object]]]:
    """What check.js says of each answer."""
    node = shutil.which("node")
    assert node is not None
    given = json.dumps({"exercises": {number: of.data() for number, of in ALL.items()}, "cases": cases})
    done = subprocess.run(
        [node, "--input-type=module", "--eval", RUN, CHECK.as_uri()],
        input=given, capture_output=True, text=True, encoding="utf-8", check=True,
    )  # fmt: skip
    verdicts: list[list[dict[str, object]]] = json.loads(done.stdout)
    return verdicts


def without_spelling(text: str) -> str:
    """Without guesses at what was meant, which only Python makes."""
    head, _, rest = text.partition("; did you mean")
    return head if rest else text.partition("; choose from")[0]


def test_the_limits_agree() -> None:
    script = CHECK.read_text(encoding="utf-8")
    assert f"plain.length > {LONGEST}" in script
