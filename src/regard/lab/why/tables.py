"""Tables and the picture of what was recalled, near and far, and how far each model sees."""

from regard.inspection.records import Cell, Line, Lines, Panel, Picture, Table
from regard.lab.curves import curve
from regard.lab.why import measure
from regard.lab.why.found import KEPT, Found, lengths, octaves, of, over
from regard.lab.why.models import KERNEL, KINDS, LAYERS, REACH, Recaller, parameters
from regard.lab.why.task import SYMBOLS


def main_table(found: list[Found], length: int) -> Table:
    """Right answers near and far."""
    edges = (1, REACH // 2 + 1, REACH + 1)
    rows: list[tuple[Cell, ...]] = [
        (
            each.kind,
            each.kept,
            each.accuracy(),
            each.accuracy(edges[0], edges[1]),
            each.accuracy(edges[1], edges[2]),
            each.accuracy(edges[2]),
        )
        for each in found
    ]
    trainings = len(found[0].trained)
    what = f"{trainings} trainings" if trainings > 1 else "the sequences of one training"
    columns = (
        "model",
        "to keep",
        "right",
        f"1 to {REACH // 2} back",
        f"{REACH // 2 + 1} to {REACH}",
        f"{REACH + 1} or more",
    )
    title = f"Trained and asked at {length} tokens (guessing: {1 / SYMBOLS:.3f}); mean and 95% interval over {what}"
    return Table(columns, rows, title)


def length_table(found: list[Found], length: int) -> Table:
    """Right answers at other lengths."""
    rows: list[tuple[Cell, ...]] = [
        (each.kind, each.kept, *(over(each.others[other]) for other in lengths(length))) for each in found
    ]
    columns = ("model", "to keep", *(f"{other} tokens" for other in lengths(length)))
    return Table(columns, rows, f"The same models at other lengths than the {length} of their training")


def way_table(found: list[Found], length: int) -> Table:
    """How far each sees, and over how many steps."""
    formula = {
        "attention": ("all", "1"),
        "convolution": (f"layers × (kernel − 1) = {REACH}", f"distance / {KERNEL - 1}, at most {LAYERS}"),
        "recurrence": ("all, through one state", "distance"),
    }
    rows: list[tuple[Cell, ...]] = [
        (
            kind,
            parameters(of(found, kind, 1).trained[0].model),
            of(found, kind, 1).reach,
            *formula[kind],
            *chains(found, kind, length),
        )
        for kind in KINDS
    ]
    columns = (
        "model",
        "parameters",
        "reach here",
        "reach",
        "steps on the way",
        f"chain at {length}",
        f"at {2 * length}",
    )
    title = (
        "Reach: how far back gradients are not 0. Chain: the longest row of operations each of which waits for the one "
        "before"
    )
    return Table(columns, rows, title)


def chains(found: list[Found], kind: str, length: int) -> tuple[int, int]:
    """The longest chains at the trained length and at its double."""
    model = of(found, kind, 1).trained[0].model
    assert isinstance(model, Recaller)
    first, second = (measure.chain(model.body, size, model.marks.embedding_dim) for size in (length, 2 * length))
    return first, second


def distance_picture(found: list[Found], length: int) -> Picture:
    """Right answers against the distance."""
    parts = []
    starts = octaves(length)
    for kept in KEPT:
        lines = [
            curve(kind, starts, [of(found, kind, kept).accuracy(low, 2 * low) for low in starts]) for kind in KINDS
        ]
        lines.append(Line("guessing", starts, [1 / SYMBOLS] * len(starts)))
        title = "one token to keep" if kept == 1 else f"{kept} tokens to keep"
        parts.append(Lines(lines, "tokens back (to the double)", "share right", title, log_x=True))
    return Panel(parts, f"Trained: what is recalled, by how far back it stands, in {length} tokens")
