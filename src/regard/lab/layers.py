"""Layers of known models, who asks whom in them and what that costs; and the Transformer block as a diagram."""

from dataclasses import dataclass

from regard import nn
from regard.inspection.records import Arrow, Box, Cell, Diagram, Table

LEFT, RIGHT = 2.3, 5.0  # middles of the columns
INPUT, ATTENTION, FIRST_NORM, FEED, SECOND_NORM, OUTPUT = range(6)
PARTS = (
    ("Input: n tokens of width d", None, ""),
    ("Self-attention\n(mixes tokens)", 0, "4 d² parameters, 8 n d² + 4 n² d operations\nevery token sees every other"),
    ("Add & norm", 2, "input + what attention found"),
    ("Feed-forward\n(each token alone)", 1, "8 d² parameters, 16 n d² operations\nno token sees another"),
    ("Add & norm", 2, "+ what the feed-forward layer made of it"),
    ("Output: n tokens of width d", None, ""),
)


@dataclass(frozen=True)
class LayerExample:
    """One attention layer of a known model: `queries` and `keys` are its lengths, `width` that of X, `other` of Y."""

    name: str
    query_source: str
    key_source: str
    queries: int
    keys: int
    width: int
    heads: int
    shown: str
    other: int | None = None


# BERT-base: Devlin et al., 2019; ViT-B/16 at 224 × 224: Dosovitskiy et al., 2021; the base model of Vaswani et al.,
# 2017, on sentences of 25 words; 14 × 14 places of an image: Xu et al., 2015, as a layer of that base model; Stable
# Diffusion 1, the finest of its layers, 64 × 64 latents and 77 tokens: Rombach et al., 2022
EXAMPLES = (
    LayerExample("BERT", "words", "words", 512, 512, 768, 12, "regard lab context"),
    LayerExample("ViT", "patches", "patches", 197, 197, 768, 12, "regard lab vision"),
    LayerExample("machine translation", "target words", "source words", 25, 25, 512, 8, "regard lab translation"),
    LayerExample("image captioning", "words", "places of an image", 20, 196, 512, 8, "regard lab vision"),
    LayerExample("Stable Diffusion", "places of an image", "words", 4096, 77, 320, 8, "regard lab vision", 768),
)


def example_table() -> Table:
    """Sources of queries, keys and values in each example."""
    rows = []
    for each in EXAMPLES:
        kind = "self" if each.query_source == each.key_source else "cross"
        rows.append((each.name, kind, each.query_source, each.key_source, each.shown))
    return Table(("example", "kind", "Q from", "K, V from", "small, by"), rows, "The seed's examples")


def cost_table() -> Table:
    """What a layer of each costs, and the same if X looked at itself."""
    rows: list[tuple[Cell, ...]] = []
    for each in EXAMPLES:
        layer = nn.MultiHeadAttention(each.width, each.heads, d_key=each.other, d_value=each.other)
        summary, pairs = layer.summary(each.queries, each.keys), each.queries * each.keys
        between, work = summary.flops["scores"] + summary.flops["values"], summary.total_flops
        size, more = f"{each.queries} × {each.keys}", pairs / each.queries**2
        rows.append((each.name, size, pairs, more, summary.total_parameters, work / 1e9, between / work))
    columns = ("example", "n × m", "pairs", "÷ n²", "parameters", "GFLOPs", "on pairs")
    return Table(columns, rows, "One layer of each at the sizes of the literature, computed")


def block_diagram(width: int) -> Diagram:
    """The parts of a block from top to bottom; residual arrows go past each part."""
    boxes, notes = [], []
    for place, (text, series, note) in enumerate(PARTS):
        y = 0.35 + 0.85 * place
        boxes.append(Box(text, LEFT, y, 2.1, 0.5, series))
        if note:
            notes.append(Box(note, RIGHT, y, 3.1, 0.5, border=False))
    arrows = [Arrow(place, place + 1) for place in range(len(PARTS) - 1)]
    arrows += [Arrow(INPUT, FIRST_NORM, bend=1.45), Arrow(FIRST_NORM, SECOND_NORM, bend=1.45)]
    note = f"d_ff = 4 d; biases aside. Attention costs less up to n = 2 d, at d = {width} up to {2 * width:,} tokens."
    return Diagram([*boxes, *notes], arrows, "One Transformer block", note)
