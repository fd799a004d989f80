"""Limits: what `explain` refuses, because no reader could follow it or because it has no finite numbers."""

from collections.abc import Sequence

from regard import checks
from regard.engine.request import Request
from regard.inspection.explanation.case import Case
from regard.inspection.explanation.project import Projected

MOST_ROWS = 32
MOST_WIDTH = 16
MOST_DIGITS = 10


def check_sizes(asked: Request, projected: Projected | None) -> None:
    """Refuse what no reader could follow."""
    plane = asked.plane
    for what, size in (("queries", plane.queries), ("keys", plane.keys)):
        if not 1 <= size <= MOST_ROWS:
            raise ValueError(
                f"explain shows every number, for 1 to {MOST_ROWS} {what}; got {size}. "
                "Cut the inputs, such as query[..., :8, :], or use attend for the result alone"
            )
    widths = {"query": asked.query, "key": asked.key, "value": asked.value}
    if projected is not None:
        widths |= {"x": projected.x, "memory": projected.source}
    widths |= {f"the score's {name}": tensor for name, tensor in asked.score.parameters.items()}
    for what, tensor in widths.items():
        if tensor.shape[-1] > MOST_WIDTH:
            raise ValueError(
                f"explain shows every number of vectors up to width {MOST_WIDTH}; {what} has {tensor.shape[-1]}. "
                "Project to fewer dimensions, or use attend for the result alone"
            )


def check_finite(case: Case) -> None:
    """Refuse NaN and infinities, but for a score or bias of −inf, which hides its pair."""
    for name, tensor in (("query", case.query), ("key", case.key), ("value", case.value)):
        bad = (~tensor.isfinite()).nonzero()
        if len(bad):
            at, column = bad[0].tolist()
            raise ValueError(
                f"explain needs finite numbers, got {float(tensor[at, column])} in {name} at row {at}, column {column}"
            )
    logits = case.pairs(case.stages.logits)
    bad = (~logits.isfinite()).nonzero()
    if len(bad):
        at, column = bad[0].tolist()
        raise ValueError(
            f"explain needs finite numbers, the logit of query {at} and key {column} is {float(logits[at, column])}; "
            "scale the inputs down"
        )


def index(name: str, value: object, size: int) -> int:
    """A number from 0 to size − 1."""
    index = checks.whole(name, value)
    if not 0 <= index < size:
        raise ValueError(f"{name} must be 0 to {size - 1}, got {index}")
    return index


def labels(name: str, tokens: Sequence[str] | None, size: int, letter: str) -> tuple[str, ...]:
    """The tokens, or numbered names where there are none."""
    if tokens is None:
        return tuple(f"{letter}{index}" for index in range(size))
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
        raise TypeError(f"{name} must be a list of strings, one per row")
    if len(tokens) != size:
        raise ValueError(f"{name} must name each of the {size} rows, got {len(tokens)}")
    return tuple(tokens)


def decimals(digits: object) -> int:
    """How many decimals are shown."""
    if checks.whole("digits", digits, least=1) > MOST_DIGITS:
        raise ValueError(f"digits must be at most {MOST_DIGITS}, got {digits}")
    return checks.whole("digits", digits)
