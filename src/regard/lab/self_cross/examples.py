"""The examples that the seed gives, with the sizes of the literature: who asks whom, and what that costs."""

from dataclasses import dataclass

from regard import nn
from regard.cached import cached_property
from regard.inspection.records import Cell, Table
from regard.nn.summary import Summary


@dataclass(frozen=True)
class Example:
    """One attention layer of a known model: `queries` and `keys` are its lengths, `width` that of X, `other` of Y."""

    name: str
    asks: str
    looked_at: str
    queries: int
    keys: int
    width: int
    heads: int
    shown: str
    other: int | None = None

    @property
    def own(self) -> bool:
        """Whether it is self-attention."""
        return self.asks == self.looked_at

    @cached_property
    def summary(self) -> Summary:
        """Parameters and operations of the layer."""
        layer = nn.MultiHeadAttention(self.width, self.heads, d_key=self.other, d_value=self.other)
        return layer.summary(self.queries, self.keys)


# BERT-base: Devlin et al., 2019; ViT-B/16 at 224 × 224: Dosovitskiy et al., 2021; the base model of Vaswani et al.,
# 2017, on sentences of 25 words; 14 × 14 places of an image: Xu et al., 2015, as a layer of that base model; Stable
# Diffusion 1, the finest of its layers, 64 × 64 latents and 77 tokens: Rombach et al., 2022
EXAMPLES = (
    Example("BERT", "words", "words", 512, 512, 768, 12, "regard lab context"),
    Example("ViT", "patches", "patches", 197, 197, 768, 12, "regard lab vision"),
    Example("machine translation", "target words", "source words", 25, 25, 512, 8, "regard lab translation"),
    Example("image captioning", "words", "places of an image", 20, 196, 512, 8, "regard lab vision"),
    Example("Stable Diffusion", "places of an image", "words", 4096, 77, 320, 8, "regard lab vision", 768),
)


def example_table() -> Table:
    """Who asks whom."""
    rows = [(each.name, "self" if each.own else "cross", each.asks, each.looked_at, each.shown) for each in EXAMPLES]
    return Table(("example", "kind", "Q from", "K, V from", "small, by"), rows, "The seed's examples")


def cost_table() -> Table:
    """What a layer of each costs, and the same if X looked at itself."""
    rows: list[tuple[Cell, ...]] = []
    for each in EXAMPLES:
        found, pairs = each.summary, each.queries * each.keys
        between = found.flops["scores"] + found.flops["values"]
        rows.append(
            (
                each.name,
                f"{each.queries} × {each.keys}",
                pairs,
                pairs / each.queries**2,
                found.total_parameters,
                found.total_flops / 1e9,
                between / found.total_flops,
            )
        )
    columns = ("example", "n × m", "pairs", "÷ n²", "parameters", "GFLOPs", "on pairs")
    return Table(columns, rows, "One layer of each at the sizes of the literature, computed")
