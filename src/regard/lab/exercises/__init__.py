"""Exercises: a task, a check that says what is wrong and why, and a worked answer."""

import importlib

from regard.lab.exercises.exercise import Chapter, Exercise, Verdict, check

__all__ = ["EXERCISES", "Chapter", "Exercise", "Verdict", "check", "exercise"]

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


def exercise(number: int) -> Exercise:
    """The exercise of that number."""
    if number not in EXERCISES:
        raise ValueError(f"the exercises are 1 to {len(EXERCISES)}; got {number}")
    chosen: Exercise = importlib.import_module(f"regard.lab.exercises.{EXERCISES[number]}").EXERCISE
    return chosen
