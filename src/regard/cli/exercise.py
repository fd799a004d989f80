"""`regard exercise`: lists the exercises by chapter; a number prints the task, checks an answer or works it out."""

import argparse
import itertools
import json
import shutil
import textwrap
from pathlib import Path

from regard.lab.exercises import EXERCISES, Exercise, check, exercise
from regard.plot import render


def run(args: argparse.Namespace) -> int:
    """0, or 1 when an answer that was checked is not right."""
    width = shutil.get_terminal_size().columns
    if args.number is None:
        if args.answer is not None or args.solution:
            raise ValueError("which exercise? regard exercise NUMBER --answer ... or --solution")
        print("regard exercise NUMBER:")
        for document, group in itertools.groupby(map(exercise, EXERCISES), key=lambda each: each.chapter.document):
            print("", document.capitalize(), *(f"  {each.number:>2}  {each.title}" for each in group), sep="\n")
        return 0
    chosen = exercise(args.number)
    if args.solution:
        print(chosen.worked(width))
        return 0
    if args.answer is not None:
        return _check(chosen, args.answer, width)
    parts = [f"Exercise {chosen.number}: {chosen.title}", chosen.task]
    if chosen.picture is not None:
        parts.append(render(chosen.picture, width=max(width, 20)))
    parts.append(
        f"Check any part:  regard exercise {chosen.number} --answer '{chosen.example}'\n"
        f"The way there:   regard exercise {chosen.number} --solution\n"
        f"To read and run: {chosen.chapter}"
    )
    print("\n\n".join(parts))
    return 0


def _check(chosen: Exercise, answer: str, width: int) -> int:
    verdicts = check(chosen, read(answer))
    widest = max(len(verdict.part) for verdict in verdicts)
    for verdict in verdicts:
        head = f"{'✓' if verdict.right else '✗'} {verdict.part:<{widest}}  "
        print("\n".join(textwrap.wrap(verdict.text, width, initial_indent=head, subsequent_indent=" " * len(head))))
    right, given, parts = sum(verdict.right for verdict in verdicts), len(verdicts), len(chosen.parts)
    print(f"{right} of {given} right" + (f"; {parts - given} of {parts} parts still open" if given < parts else ""))
    if right < given:
        print("\n".join(textwrap.wrap(f"See {chosen.chapter}.", width, subsequent_indent="    ")))
    return 0 if right == given else 1


def read(answer: str) -> object:
    """The answer in a file or in the text itself."""
    text = answer
    if not answer.lstrip().startswith(("{", "[")):
        if not Path(answer).is_file():
            raise ValueError(f"there is no file {answer!r}; give a JSON file, or the JSON itself in quotes")
        text = Path(answer).read_text(encoding="utf-8")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the answer is not JSON (line {error.lineno}, column {error.colno}): {error.msg}") from None
