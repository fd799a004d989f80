"""Exercises: a task, a check that says what is wrong and why, and a worked answer."""

import importlib

from regard.lab.exercises.exercise import Exercise, Verdict, check

__all__ = ["EXERCISES", "Exercise", "Verdict", "check", "exercise"]

# number: the file regard/lab/exercises/<name>.py, which defines EXERCISE
EXERCISES = {1: "three_words", 2: "reading_a_map"}


def exercise(number: int) -> Exercise:
    """The exercise of that number."""
    if number not in EXERCISES:
        raise ValueError(f"the exercises are {', '.join(map(str, EXERCISES))}; got {number}")
    found: Exercise = importlib.import_module(f"regard.lab.exercises.{EXERCISES[number]}").EXERCISE
    return found
