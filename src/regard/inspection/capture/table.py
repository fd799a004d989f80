"""The table that a capture prints: one line for each layer."""

from collections.abc import Sequence

from regard.inspection.capture.kept import Kept, Refused
from regard.inspection.hooks.missed import Missed

NAMED = 8  # layers that were missed, and are named for each reason
HEAD = ("", "layer", "heads", "queries × keys", "mechanism", "row sums off by")


def table(model: str, layers: Sequence[Kept | Refused], missed: Sequence[Missed] = ()) -> str:
    """All layers with their sizes, where they were heard, and the self-check; and those that were missed."""
    end = [f"not captured: {listed(missed)}"] if missed else []
    if not layers:
        return "\n".join([f"<Capture of {model}: nothing yet>", *end])
    rounded = [layer for layer in layers if isinstance(layer, Kept) and layer.rounded is not None]
    lines: list[tuple[str, ...]] = [(*HEAD, "rounding moved by") if rounded else HEAD]
    for number, layer in enumerate(layers):
        if isinstance(layer, Refused):
            lines.append((str(number), layer.name, "", "", f"refused: {layer.reason}", *[""] * (len(lines[0]) - 5)))
            continue
        size = f"{layer.queries:,} × {layer.keys:,}"
        cells = (str(number), layer.name, _heads(layer), size, layer.mechanism, f"{layer.off:.1e}")
        lines.append((*cells, "" if layer.rounded is None else f"{layer.rounded:.1e}") if rounded else cells)
    columns = range(len(lines[0]))
    widths = [max(len(line[column]) for line in lines if line[4][:7] != "refused") for column in columns]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    kinds = sorted({str(layer.query.dtype).removeprefix("torch.") for layer in rounded})
    note = f", queries and keys rounded to {', '.join(kinds)}" if kinds else ""
    title = f"<Capture of {model}: {len(layers)} {'layer' if len(layers) == 1 else 'layers'}{note}>"
    return "\n".join([title, *(row.rstrip() for row in rows), *end])


def listed(missed: Sequence[Missed]) -> str:
    """Layers that were missed, by reason."""
    reasons: dict[str, list[str]] = {}
    for each in missed:
        reasons.setdefault(each.reason, []).append(each.layer)
    return "; ".join(f"{_named(layers)} ({reason})" for reason, layers in reasons.items())


def _named(layers: Sequence[str]) -> str:
    more = len(layers) - NAMED
    return ", ".join(layers[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _heads(layer: Kept) -> str:
    """Their count, or their numbers where some were left out."""
    return str(layer.total) if len(layer.heads) == layer.total else ",".join(map(str, layer.heads))
