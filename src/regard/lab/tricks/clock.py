"""What a stopwatch says of the ways to compute attention, of training and of generation."""

from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from regard.inspection.records import Cell, Line, Lines, Panel, Picture, Table
from regard.lab import sources
from regard.lab.report import Timing
from regard.lab.setting import Setting
from regard.lab.stopwatch import milliseconds
from regard.lab.tricks import ways
from regard.lab.tricks.generation import model, without
from regard.lab.tricks.ways import AGAIN, NAIVE, WIDTH
from regard.nn import generate


def clock(setting: Setting, flash: str) -> Timing:
    """Milliseconds of every way against n, of training at one length, and of generation."""
    lengths, rounds = setting.choose(full=((256, 512, 1024, 2048, 4096), 7), quick=((256, 512, 1024), 3))
    every = {**ways.ways(), "torch's own": scaled_dot_product_attention}
    forward: dict[int, dict[str, float]] = {}
    for length in setting.each("timing n =", lengths):
        inputs = torch.randn(3, 1, 2, length, WIDTH, generator=setting.generator())
        forward[length] = milliseconds({name: partial(way, *inputs) for name, way in every.items()}, rounds)
    rows: list[tuple[Cell, ...]] = [
        (length, *(times[name] for name in every), f"{times[NAIVE] / times[flash]:.1f}×")
        for length, times in forward.items()
    ]
    speed = f"{NAIVE} ÷ {flash}"
    table = Table(("n", *every, speed), rows, f"Milliseconds forward, 2 heads, one thread, best of {rounds}")
    lines = [Line(name, list(forward), [times[name] for times in forward.values()]) for name in every]
    generation, curves = generation_clock(setting)
    ratios = [times[NAIVE] / times[flash] for times in forward.values()]
    return Timing(
        (table, training_clock(setting), generation, said(ratios)),
        (Panel((Lines(lines, "n", "ms", "Measured time, forward", log_x=True, log_y=True), curves)),),
    )


def said(ratios: list[float]) -> Table:
    """What is said of the speed, beside what the stopwatch says."""
    inside = sum(2 <= ratio <= 4 for ratio in ratios)
    word = "confirmed" if inside == len(ratios) else "partly" if max(ratios) > 1 else "not confirmed"
    verdict = f"{word}: within 2–4× at {inside} of {len(ratios)} lengths"
    row = ("flash is faster than naive", "2–4×", f"{min(ratios):.1f}× to {max(ratios):.1f}×", verdict)
    return Table(("claim", "the seed", "here", "verdict"), [row], f"{sources.CONCEPTS}, section 10, by the stopwatch")


def training_clock(setting: Setting) -> Table:
    """Milliseconds of a forward and a backward pass."""
    length, rounds = setting.choose(full=(2048, 5), quick=(512, 3))
    every = ways.ways() | {AGAIN: partial(ways.chunked, again=True)}
    inputs = torch.randn(3, 1, 2, length, WIDTH, generator=setting.generator()).unbind()
    leaves = [each.clone().requires_grad_() for each in inputs]

    def both(way: ways.Way) -> None:
        with torch.enable_grad():
            torch.autograd.grad(way(*leaves).sum(), leaves)

    times = milliseconds({name: partial(both, way) for name, way in every.items()}, rounds)
    rows: list[tuple[Cell, ...]] = [(name, took, f"{times[NAIVE] / took:.1f}×") for name, took in times.items()]
    return Table(("way", "ms", "faster than naive"), rows, f"Forward and backward, n = {length:,}, best of {rounds}")


def generation_clock(setting: Setting) -> tuple[Table, Picture]:
    """Milliseconds of generation with and without a cache."""
    counts, rounds = setting.choose(full=((16, 32, 64, 128, 256), 3), quick=((16, 48, 96), 2))
    prompt, of, times = torch.zeros(1, 1, dtype=torch.long), model(setting.seed, "auto"), {}
    for count in setting.each("timing generation, n =", counts):
        works = {
            "every token anew": partial(without, of, prompt, count),
            "with a cache": partial(generate, of, prompt, count),
        }
        times[count] = milliseconds(works, rounds)
    names = list(times[counts[0]])
    rows: list[tuple[Cell, ...]] = [
        (count, *took.values(), f"{took[names[0]] / took[names[1]]:.1f}×") for count, took in times.items()
    ]
    table = Table(("n", *names, "saved"), rows, f"Milliseconds of generating n tokens, best of {rounds}")
    lines = [Line(name, list(counts), [took[name] for took in times.values()]) for name in names]
    return table, Lines(lines, "tokens generated", "ms", "Measured time, generation", log_x=True, log_y=True)
