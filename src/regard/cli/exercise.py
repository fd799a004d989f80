"""`regard exercise`: lists the exercises and what is done; a number prints the task, a hint, a check or the answer."""

import argparse
import itertools
import json
import secrets
import shutil
import textwrap
from pathlib import Path

from regard.lab.exercises import EXERCISES, Exercise, check, data, exercise, progress
from regard.plot import render


def run(args: argparse.Namespace) -> int:
    """0, or 1 when an answer that was checked is not right."""
    width = shutil.get_terminal_size().columns
    if args.reset:
        chosen_number = None if args.number is None else exercise(args.number).number
        progress.reset(chosen_number)
        print("Nothing is done." if chosen_number is None else f"Exercise {chosen_number} is open again.")
        return 0
    if args.number is None:
        if args.answer is not None or args.solution or args.hint is not None or args.new is not None:
            raise ValueError("which exercise? regard exercise NUMBER --answer ..., --hint, --new or --solution")
        if args.json:
            print(json.dumps(data(), ensure_ascii=False))
            return 0
        return _list()
    if args.new is not None and args.new < 0 and (args.answer is not None or args.hint is not None or args.solution):
        raise ValueError(f"which numbers? regard exercise {args.number} --new SEED, as the task was printed")
    chosen = exercise(args.number, _seed(args.new))
    if args.json:
        print(json.dumps(chosen.data(), ensure_ascii=False))
        return 0
    if args.hint is not None:
        return _hint(chosen, args.hint, width)
    if args.solution:
        print(chosen.worked(width))
        return 0
    if args.answer is not None:
        return _check(chosen, args.answer, width)
    new = "" if chosen.seed is None else f" --new {chosen.seed}"
    seed = "" if chosen.seed is None else f" (fresh numbers, seed {chosen.seed})"
    parts = [f"Exercise {chosen.number}: {chosen.title}{seed}", chosen.task]
    if chosen.picture is not None:
        parts.append(render(chosen.picture, width=max(width, 20)))
    parts.append(
        f"Check any part:  regard exercise {chosen.number}{new} --answer '{chosen.example}'\n"
        f"A hint:          regard exercise {chosen.number}{new} --hint {next(iter(chosen.parts))}\n"
        f"The way there:   regard exercise {chosen.number}{new} --solution\n"
        f"Fresh numbers:   regard exercise {chosen.number} --new\n"
        f"To read and run: {chosen.chapter}"
    )
    print("\n\n".join(parts))
    return 0


def _seed(given: int | None) -> int | None:
    """The seed that was given, or a short one of this moment where fresh numbers are asked for without any."""
    return secrets.randbelow(10_000) if given is not None and given < 0 else given


def _list() -> int:
    """Every exercise, and how far it is done."""
    kept = progress.done()
    print("regard exercise NUMBER:")
    for document, group in itertools.groupby(map(exercise, EXERCISES), key=lambda each: each.chapter.document):
        print("", document.capitalize(), sep="\n")
        for each in group:
            print(f"  {each.number:>2}  {each.title}  {progress.mark(each, kept)}".rstrip())
    whole = sum(progress.mark(exercise(number), kept) == "✓" for number in EXERCISES)
    print(f"\n{whole} of {len(EXERCISES)} done" + ("; regard exercise --reset begins anew" if kept else ""))
    return 0


def _hint(chosen: Exercise, part: str, width: int) -> int:
    """The hint of one part, or of all."""
    if part and part not in chosen.parts:
        raise ValueError(f"exercise {chosen.number} has no part {part!r}; it asks for {', '.join(chosen.parts)}")
    widest = max(map(len, chosen.parts))
    for name in [part] if part else chosen.parts:
        head = f"{name:<{widest}}  "
        hint = chosen.parts[name].hint
        print("\n".join(textwrap.wrap(hint, width, initial_indent=head, subsequent_indent=" " * len(head))))
    return 0


def _check(chosen: Exercise, answer: str, width: int) -> int:
    verdicts = check(chosen, read(answer))
    progress.keep(chosen, verdicts)
    widest = max(len(verdict.part) for verdict in verdicts)
    for verdict in verdicts:
        head = f"{verdict.mark} {verdict.part:<{widest}}  "
        print("\n".join(textwrap.wrap(verdict.text, width, initial_indent=head, subsequent_indent=" " * len(head))))
    right, given, parts = sum(verdict.right for verdict in verdicts), len(verdicts), len(chosen.parts)
    follows = sum(verdict.follows for verdict in verdicts)
    print(
        f"{right} of {given} right"
        + (f"; {follows} only follow{'s' * (follows == 1)} from an earlier mistake" if follows else "")
        + (f"; {parts - given} of {parts} parts still open" if given < parts else "")
    )
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
