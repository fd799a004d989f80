"""Figures for documents and slides as SVG files: the same drawings as in the playground, standing still.

The page draws them; `tests/playground/test_figures.py` takes them from it and
fails if they differ from the stored ones.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.inspection import files as written_files
from regard.lab.scores.figures import timeline
from regard.plot.save import save

DRAWINGS = Path(__file__).with_name("drawings")


@dataclass(frozen=True)
class PagePicture:
    """One picture of a chapter: its label in the page, what is written above it, and the state in which it is taken."""

    label: str
    caption: str
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawing:
    """Pictures of one chapter in rows, below a title; `scale` makes them smaller."""

    title: str
    chapter: str
    rows: tuple[tuple[PagePicture, ...], ...]
    scale: float = 1.0


PLANE, MASK = "Query, keys and output in the plane", "The mask, drawn on with pointer or keys"
TAUS = (0.1, 0.5, 1, 2, 10)
FIGURES = {
    "score-functions": Drawing(
        "Six scores of a query q; shading: the score of a key there",
        "query-and-keys",
        tuple(
            tuple(PagePicture(PLANE, caption, {"score": score}) for score, caption in line)
            for line in (
                (("dot", "dot: q · k"), ("scaled", "scaled dot: q · k / √d"), ("general", "general: q · W k")),
                (
                    ("cosine", "cosine: q · k / |q||k|"),
                    ("additive", "additive: v · tanh(W₁q + W₂k)"),
                    ("concat", "MLP: v · relu(W[q; k] + b)"),
                ),
            )
        ),
        0.6,
    ),
    "sqrt-dk": Drawing(
        "Why √d_k: scores and weights at d_k = 64",
        "scaling",
        tuple(
            (
                PagePicture(f"Scores {way}", f"Scores {way}"),
                PagePicture(f"Weights of 20 keys, {way}", "Weights of 20 keys"),
            )
            for way in ("as they are: q · k", "divided by √d_k", "divided by d_k")
        ),
    ),
    "dimensions": Drawing(
        "Sizes of a layer with d_model = 768 and 12 heads",
        "sizes",
        ((PagePicture("Shapes through an attention layer", "512 tokens"),),),
    ),
    "separate-qkv": Drawing(
        "Why separate Q, K and V",
        "separate",
        tuple(
            (
                PagePicture("Scores of all pairs", f"{name}: scores", state),
                PagePicture("Weights of all pairs", "weights", state),
            )
            for name, state in (("W_K = W_Q", {"shared": True}), ("W_K turned by 90°", {"shared": False, "k": 90}))
        ),
    ),
    "temperature": Drawing(
        "Temperature: the same five scores",
        "temperature",
        (
            tuple(PagePicture(f"Weights at temperature {tau}", f"τ = {tau}") for tau in TAUS),
            (PagePicture("Weights against the temperature", "Weights against τ"),),
        ),
    ),
    "n-by-n": Drawing(
        "The n × n matrix",
        "matrix",
        ((PagePicture("Weights of every word with every word", "Rows read, columns are read; sums at the margins"),),),
    ),
    "scaling": Drawing(
        "The effect of scaling over d_k",
        "scaling",
        (
            (
                PagePicture("Entropy of the weights against d_k for the three ways", "Entropy of the weights"),
                PagePicture("Gradient of the weights against d_k for the three ways", "Gradient of the weights"),
            ),
        ),
    ),
    "patterns": Drawing(
        "Patterns: which query (row) sees which key (column)",
        "masks",
        tuple(
            tuple(PagePicture(MASK, kind, {"kind": kind}) for kind in line)
            for line in (("full", "causal", "window"), ("dilated", "global", "document"))
        ),
        0.65,
    ),
}
NAMES = (*FIGURES, "timeline")


def figures(folder: str | Path) -> list[Path]:
    """Write all figures into the folder. The timeline does not move; it is the one of `regard lab scores`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in FIGURES:
        written_files.replace(folder / f"{name}.svg", (DRAWINGS / f"{name}.svg").read_bytes())
    save(timeline(), folder / "timeline.svg")
    return [folder / f"{name}.svg" for name in NAMES]
