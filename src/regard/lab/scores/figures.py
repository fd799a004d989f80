"""The six scores as figures: when each was proposed, and how each answers to the direction and the length of a key."""

import math

import torch

from regard.inspection.records import Arrow, Box, Diagram, Line, Lines, Panel
from regard.lab.maps import attend_statistics
from regard.spec.scores import Additive, ConcatMLP, Cosine, Dot, General, ScaledDot, Score

FORMULAS = {
    "additive": "v · tanh(W₁q + W₂k)",
    "dot": "q · k",
    "scaled dot": "q · k / √d",
    "general": "q · W · k",
    "cosine": "q · k / (‖q‖ ‖k‖)",
    "MLP of [q; k]": "v · relu(W[q; k] + b)",
}
# dates of the papers; a run cannot decide them
TIMELINE = (
    ("2014", "additive", "Bahdanau, Cho and Bengio", "first neural attention", "regard.scores.Additive"),
    ("2015", "dot, general, concat", "Luong, Pham and Manning", "simpler, faster", "Dot, General, ConcatMLP"),
    ("2017", "scaled dot", "Vaswani and others", "keeps the variance at 1", "regard.scores.ScaledDot"),
)
LENGTH = 2.0  # of the query, and of the key that turns
TURN = math.pi / 4  # by which the matrix of the general score turns a key


def timeline() -> Diagram:
    """Years, authors and formulas."""
    formulas = {"additive": ("additive",), "dot, general, concat": ("dot", "general"), "scaled dot": ("scaled dot",)}
    boxes, arrows = [], []
    for place, (year, names, authors, new, _) in enumerate(TIMELINE):
        x = 1.55 + 3.4 * place
        boxes.append(Box(year, x, 0.25, 0.8, 0.34))
        told = [*(FORMULAS[name] for name in formulas[names]), *(["v · tanh(W[q; k])"] if "concat" in names else [])]
        text = "\n".join([names, *told, f"{authors}:", new])
        boxes.append(Box(text, x, 1.35, 2.7, 1.3, place))
        arrows += [Arrow(2 * place - 2, 2 * place)] if place else []
    return Diagram(boxes, arrows, "Score functions by year (literature)")


def plane_scores() -> dict[str, Score]:
    """The six over vectors of two numbers; matrices are the identity, that of the general score turns by 45°."""
    unit, ones = torch.eye(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    cos, sin = math.cos(TURN), math.sin(TURN)
    turn = torch.tensor([[cos, sin], [-sin, cos]], dtype=torch.float64)
    return {
        "additive": Additive(unit, unit, ones),
        "dot": Dot(),
        "scaled dot": ScaledDot(),
        "general": General(turn),
        "cosine": Cosine(),
        "MLP of [q; k]": ConcatMLP(unit, unit, 0 * ones, ones, "relu"),
    }


def response_picture() -> Panel:
    """The scores of one query as a key turns around it, and as a key of its direction grows."""
    query = torch.tensor([LENGTH, 0.0], dtype=torch.float64)
    degrees = torch.arange(-180, 181, 15, dtype=torch.float64)
    angle = degrees.deg2rad()
    turned = LENGTH * torch.stack((angle.cos(), angle.sin()), -1)
    lengths = torch.linspace(0.25, 4, 16, dtype=torch.float64)
    grown = lengths.unsqueeze(-1) * query / LENGTH
    pictures = []
    for x, keys, label, title in (
        (degrees, turned, "angle from q to k (degrees)", "A key that turns"),
        (lengths, grown, "length of k", "A key that grows"),
    ):
        lines = [Line(name, x.tolist(), _scores(score, query, keys)) for name, score in plane_scores().items()]
        pictures.append(Lines(lines, label, "score", title))
    return Panel(pictures, "Six scores of one query: by the direction and by the length of a key")


def _scores(score: Score, query: torch.Tensor, keys: torch.Tensor) -> list[float]:
    """Scores of one query with each key: attention over that key alone."""
    key = keys.view(-1, 1, 1, 2)
    _, seen = attend_statistics(query.expand_as(key), key, key, "max_logit", score=score, engine="tiled")
    logits: list[float] = seen["max_logit"].flatten().tolist()
    return logits
