"""Exercises: a task, a check that says what is wrong and why, and a worked answer."""

import difflib
import importlib

from regard.lab.exercises.exercise import Chapter, Exercise, Verdict, check, hint
from regard.lab.exercises.fresh import redrawn

__all__ = ["EXERCISES", "Chapter", "Exercise", "Verdict", "check", "data", "exercise", "hint"]

# number: the file regard/lab/exercises/<name>.py, which defines EXERCISE
EXERCISES = dict(
    enumerate(
        (
            "three_words",
            "reading_a_map",
            "two_sentences",
            "one_pair",
            "saturation",
            "variance",
            "dimensions",
            "symmetry",
            "temperature",
            "dropout",
            "positions",
            "output_projection",
            "feed_forward",
            "rows_and_columns",
            "kv_cache",
            "two_blocks",
            "reach",
            "entropy",
            "masks",
            "head_similarity",
            "self_and_cross",
        ),
        start=1,
    )
)


def exercise(chosen: int | str, seed: int | None = None) -> Exercise:
    """The exercise of that number or name, with the printed numbers or, with a seed, with fresh ones."""
    numbers = {str(number): number for number in EXERCISES} | {name: number for number, name in EXERCISES.items()}
    number = numbers.get(str(chosen).replace("-", "_"))
    if number is None:
        near = difflib.get_close_matches(str(chosen), numbers, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"the exercises are 1 to {len(EXERCISES)}, or their names; got {chosen}{hint}")
    if seed is not None:
        return redrawn(number, EXERCISES[number], seed)
    made: Exercise = importlib.import_module(f"regard.lab.exercises.{EXERCISES[number]}").EXERCISE
    return made


def data() -> list[dict[str, object]]:
    """All exercises as JSON holds them, each as `Exercise.data` gives it."""
    return [exercise(number).data() for number in EXERCISES]
