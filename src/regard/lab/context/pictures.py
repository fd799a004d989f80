"""Pictures of what a model makes of a word in its sentences."""

from collections.abc import Sequence

from torch import Tensor

from regard.inspection.records import Bars, Grid, Line, Lines, Panel, Picture
from regard.inspection.statistics import mean
from regard.lab.context.measure import Senses, closeness, groups
from regard.lab.context.reading import Reading
from regard.lab.curves import curve
from regard.lab.training.over import share

SHOWN = 5  # sentences of a sense


def every(
    reading: Reading, layers: Sequence[Senses], last: Senses, base: float, weight: Tensor, lost: Tensor
) -> tuple[Picture, ...]:
    """All four."""
    return (near(reading, last), by_layer(layers, base), by_head(weight, lost), from_the_word(reading, weight))


def near(reading: Reading, last: Senses) -> Picture:
    """How close the sentences of one word are, before any attention and after the last layer."""
    word, every, same = groups(reading)[int(last.separation.argmax())]
    rows = every[same.tril(-1).sum(1) < SHOWN]
    labels = [reading.sentences[row].sense for row in rows.tolist()]
    before, behind = (closeness(reading.vectors(reading.states[layer])[rows]) for layer in (0, -1))
    limits = (float(behind.min()), 1.0)
    grids = [
        Grid(before.tolist(), labels, labels, "before attention", limits=limits),
        Grid(behind.tolist(), labels, labels, "after the last layer", limits=limits),
    ]
    return Panel(grids, f"“{word}”: cosine of its vectors, sentence by sentence")


def by_layer(layers: Sequence[Senses], base: float) -> Picture:
    """Neighbors and separation against the layer."""
    x = list(range(len(layers)))
    right = curve("nearest has the sense", x, [share(each.accuracy) for each in layers])
    chance = Line("chance", x, [base] * len(x))
    apart = curve("", x, [mean(each.separation) for each in layers])
    return Panel(
        (
            Lines([right, chance], "layer", "share of the sentences", "Nearest neighbors"),
            Lines([apart], "layer", "cosine, same − other sense", "Separation of the senses"),
        ),
        "Layer by layer, mean and 95% interval over words",
    )


def by_head(weight: Tensor, lost: Tensor) -> Picture:
    """What each head looks at, and what is lost without it."""
    rows = [f"layer {layer + 1}" for layer in range(len(weight))]
    columns = [str(head + 1) for head in range(weight.shape[1])]
    return Panel(
        (
            Grid(weight.tolist(), rows, columns, "weight on the cues", limits=(0.0, float(weight.max()))),
            Grid(lost.clamp(min=0).tolist(), rows, columns, "separation lost without it (gains: 0)"),
        ),
        "Every head: where it looks, and what it is needed for",
    )


def from_the_word(reading: Reading, weight: Tensor) -> Picture:
    """The attention of one word in a sentence of either sense, in the head that reads cues most."""
    layer, head = divmod(int(weight.argmax()), weight.shape[1])
    on_cues = (reading.weights[layer, :, head] * reading.cues).sum(1)
    word, rows, same = max(groups(reading), key=lambda group: float(on_cues[group[1]].mean()))
    bars = []
    for members in dict.fromkeys(tuple(row.tolist()) for row in same):
        kept = rows[[place for place, inside in enumerate(members) if inside]]
        shown = int(kept[on_cues[kept].argmax()])
        length = int(reading.lengths[shown])
        labels = [
            f"*{token}*" if cue else token
            for token, cue in zip(reading.tokens[shown], reading.cues[shown].tolist(), strict=False)
        ]
        bars.append(
            Bars(
                labels,
                {"": reading.weights[layer, shown, head, :length].tolist()},
                "weight",
                reading.sentences[shown].sense,
            )
        )
    return Panel(bars, f"Where “{word}” looks: layer {layer + 1}, head {head + 1}; *words that tell its sense*")
