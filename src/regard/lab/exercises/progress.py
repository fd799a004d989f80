"""Progress: which parts of which exercises were answered right, kept in a file of the cache folder."""

import json
from pathlib import Path

from regard.inspection.files import cache_folder, replace
from regard.lab.exercises.exercise import Exercise, Verdict

Done = dict[int, set[str]]  # by exercise, the parts that were right


def file() -> Path:
    """Where it is kept."""
    return cache_folder() / "exercises.json"


def done() -> Done:
    """What was right so far; a file that cannot be read counts as none."""
    try:
        kept = json.loads(file().read_text(encoding="utf-8"))
        return {int(number): {str(part) for part in parts} for number, parts in dict(kept).items()}
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def keep(exercise: Exercise, verdicts: tuple[Verdict, ...]) -> None:
    """Add the parts that are right."""
    right = {verdict.part for verdict in verdicts if verdict.right}
    kept = done()
    if right <= kept.get(exercise.number, set()):
        return
    kept[exercise.number] = kept.get(exercise.number, set()) | right
    file().parent.mkdir(parents=True, exist_ok=True)
    listed = {str(number): sorted(parts) for number, parts in sorted(kept.items())}
    replace(file(), (json.dumps(listed, ensure_ascii=False, indent=1) + "\n").encode())


def reset(number: int | None = None) -> None:
    """Forget one exercise, or all."""
    kept = done() if number is not None else {}
    kept.pop(number or 0, None)
    if file().exists():
        listed = {str(each): sorted(parts) for each, parts in sorted(kept.items())}
        replace(file(), (json.dumps(listed, ensure_ascii=False, indent=1) + "\n").encode())


def mark(exercise: Exercise, kept: Done) -> str:
    """`✓` if all parts were right, else how many of them, or nothing."""
    count = len(kept.get(exercise.number, set()) & exercise.parts.keys())
    return "✓" if count == len(exercise.parts) else f"{count}/{len(exercise.parts)}" if count else ""
