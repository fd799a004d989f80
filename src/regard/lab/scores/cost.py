"""What scores cost: parameters, operations and bytes, which are counted, and time, which is measured."""

from collections.abc import Callable
from functools import partial

import torch

from regard.engine.attend import attend
from regard.engine.plan import plan
from regard.inspection.records import Cell, Line, Lines, Panel, Picture, Table
from regard.lab.cost import growth_order, milliseconds
from regard.lab.maps import normal
from regard.lab.report import Timing
from regard.lab.setting import Setting
from regard.spec.scores import Additive, ConcatMLP, Cosine, Dot, General, ScaledDot, Score

WIDTH, LENGTH = 64, 256
FORMULAS = {
    "additive": "v · tanh(W₁q + W₂k)",
    "dot": "q · k",
    "scaled dot": "q · k / √d",
    "general": "q · W · k",
    "cosine": "q · k / (‖q‖ ‖k‖)",
    "MLP of [q; k]": "v · relu(W[q; k] + b)",
}
LENGTHS, WIDTHS = (64, 128, 256, 512, 1024), (16, 32, 64, 128, 256)
BY_LENGTH = [(length, WIDTH) for length in LENGTHS]
BY_WIDTH = [(LENGTH, width) for width in WIDTHS]
DRAWN = ("additive", "scaled dot")  # those that add hold the same, and so do those that multiply
ENGINES = {"dense": "reference", "tiled": "tiled"}
MEBI = 2**20
BytesBySize = dict[tuple[str, str], list[int]]  # by score and engine


def _matrix(generator: torch.Generator, rows: int, columns: int) -> torch.Tensor:
    matrix: torch.Tensor = normal(generator, rows, columns).float() / columns**0.5
    return matrix


def _sum(generator: torch.Generator, d: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _matrix(generator, d, d), _matrix(generator, d, d), _matrix(generator, 1, d)[0]


def _mlp(generator: torch.Generator, d: int) -> Score:
    w_query, w_key, v = _sum(generator, d)
    return ConcatMLP(w_query, w_key, torch.zeros(d), v, "relu")


SCORES: dict[str, Callable[[torch.Generator, int], Score]] = {
    "additive": lambda generator, d: Additive(*_sum(generator, d)),
    "dot": lambda generator, d: Dot(),
    "scaled dot": lambda generator, d: ScaledDot(),
    "general": lambda generator, d: General(_matrix(generator, d, d)),
    "cosine": lambda generator, d: Cosine(),
    "MLP of [q; k]": _mlp,
}


def parameters(score: Score) -> int:
    """How many numbers it holds."""
    return sum(tensor.numel() for tensor in score.parameters.values())


def work(score: Score, length: int, width: int) -> int:
    """Operations of the scores of n queries and n keys, in products."""
    return length**2 * score.flops(width, width) + score.prepare_flops(length, length, width, width)


def forward_bytes(score: Score, length: int, width: int, engine: str) -> int:
    """Peak memory of a forward pass beyond inputs and outputs, in bytes."""
    query, key, value = (torch.zeros(1, 1, length, width) for _ in range(3))
    nbytes = plan(query, key, value, score=score, engine=engine).bytes
    assert nbytes is not None
    return nbytes


def powers(name: str, generator: torch.Generator) -> tuple[float, float]:
    """The powers of d with which the operations of one more pair, and the parameters, grow."""
    scores = {d: SCORES[name](generator, d) for d in (WIDTH, 2 * WIDTH)}
    pair = growth_order(*(float(score.flops(d, d)) for d, score in scores.items()))
    counts = [float(parameters(score)) for score in scores.values()]
    return pair, growth_order(*counts) if all(counts) else 0.0


def cost_table(generator: torch.Generator) -> Table:
    """Counted, the same on any machine."""
    rows: list[tuple[Cell, ...]] = []
    for name, made in SCORES.items():
        score = made(generator, WIDTH)
        once = score.prepare_flops(LENGTH, LENGTH, WIDTH, WIDTH) / (2 * LENGTH)
        nonlinear = WIDTH if score.form == "sum" else 0
        counts = (parameters(score), score.flops(WIDTH, WIDTH), nonlinear, round(once))
        memory = [forward_bytes(score, LENGTH, WIDTH, engine) / MEBI for engine in ENGINES.values()]
        rows.append((name, FORMULAS[name], *counts, work(score, LENGTH, WIDTH) / 1e6, *memory))
    columns = (
        *("score", "formula", "parameters", "FLOPs a pair", "tanh, relu a pair", "FLOPs a token"),
        *("MFLOPs in all", "MiB, dense", "MiB, tiled"),
    )
    return Table(columns, rows, f"Counted for {LENGTH} queries and {LENGTH} keys of width {WIDTH}, one head")


def clock(setting: Setting) -> Timing:
    """Milliseconds of one forward pass against n and against d: one head, all on one engine, taken in turn."""
    lengths = setting.choose(full=LENGTHS, quick=(64, 256))
    widths = setting.choose(full=WIDTHS, quick=(16, 64))
    by_length = [_measured(setting, length, WIDTH) for length in setting.each("n =", lengths)]
    by_width = [_measured(setting, LENGTH, width) for width in setting.each("d =", widths)]
    tables, pictures = [], []
    for axis, sizes, measured, fixed in (
        ("n", lengths, by_length, f"d = {WIDTH}"),
        ("d", widths, by_width, f"n = {LENGTH}"),
    ):
        rows = [(size, *times.values()) for size, times in zip(sizes, measured, strict=True)]
        title = f"Milliseconds on the tiled engine against {axis}, {fixed}, one head, one thread; best of several"
        tables.append(Table((axis, *SCORES), rows, title))
        lines = [Line(name, sizes, [times[name] for times in measured]) for name in SCORES]
        pictures.append(Lines(lines, axis, "ms", f"Time against {axis}, {fixed}", log_x=True, log_y=True))
    return Timing(tuple(tables), tuple(pictures))


def _measured(setting: Setting, length: int, width: int) -> dict[str, float]:
    generator = setting.generator()
    query, key, value = (normal(generator, 1, 1, length, width).float() for _ in range(3))
    works = {
        name: partial(attend, query, key, value, score=made(generator, width), engine="tiled")
        for name, made in SCORES.items()
    }
    return milliseconds(works, rounds=setting.choose(full=4, quick=2))


def by_size(generator: torch.Generator, sizes: list[tuple[int, int]]) -> BytesBySize:
    """Bytes at each length and width."""
    return {
        (name, shown): [forward_bytes(made(generator, width), length, width, engine) for length, width in sizes]
        for name, made in SCORES.items()
        for shown, engine in ENGINES.items()
    }


def memory_table(lengths: BytesBySize, widths: BytesBySize) -> Table:
    """At the largest sizes, and how it grows there when the size doubles."""
    rows: list[tuple[Cell, ...]] = []
    for name in SCORES:
        cells: list[Cell] = [name]
        for shown in ENGINES:
            far, wide = lengths[name, shown], widths[name, shown]
            cells += [far[-1] / MEBI, f"n^{growth_order(*far[-2:]):.2f}", f"d^{growth_order(*wide[-2:]):.2f}"]
        rows.append(tuple(cells))
    named = [
        (f"{shown}, n = {LENGTHS[-1]:,}", f"{shown} grows from n = {LENGTHS[-2]}", f"… from d = {WIDTHS[-2]}")
        for shown in ENGINES
    ]
    title = (
        f"MiB of a forward pass beyond inputs and outputs: one head, d = {WIDTH} where n grows, n = {LENGTH} where d"
    )
    return Table(("score", *(column for group in named for column in group)), rows, title)


def memory_picture(lengths: BytesBySize, widths: BytesBySize) -> Picture:
    """Bytes against n and d, of a score that adds and one that multiplies."""
    pictures = []
    for axis, sizes, bytes_by_size, fixed in (
        ("n", LENGTHS, lengths, f"d = {WIDTH}"),
        ("d", WIDTHS, widths, f"n = {LENGTH}"),
    ):
        lines = [
            Line(f"{name}, {shown}", sizes, [each / MEBI for each in bytes_by_size[name, shown]])
            for name in DRAWN
            for shown in ENGINES
        ]
        pictures.append(Lines(lines, axis, "MiB", f"Memory against {axis}, {fixed}", log_x=True, log_y=True))
    return Panel(pictures)
