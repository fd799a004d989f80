"""Induction heads in a real model: who copies what came after the last time?

SmolLM2 reads random tokens, and then the same tokens again. Random tokens cannot be guessed, repeated ones can: by a
head that finds the last place where this token stood and looks at the token after it. The table of heads finds those
heads, the ones that look at the token before, and those that rest on the first token; and the loss shows what the
repetition is worth.

    python examples/induction_heads.py                      under a minute, once the model is here
    python examples/induction_heads.py --out heads.png      layer × head maps of four columns
"""

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard import capture, models, plot
from regard.inspection.records import Grid, Panel
from regard.inspection.table import Table

SHOWN = ("induction", "previous", "first", "entropy")
TITLES = {"induction": "induction", "previous": "previous token", "first": "first token", "entropy": "entropy, nats"}


def repeated(texts: int, count: int, vocabulary: Sequence[int], first: int, seed: int) -> Tensor:
    """A first token, then `count` random tokens that all differ, then the same again: (text, 1 + 2 · count)."""
    generator, every = torch.Generator().manual_seed(seed), torch.tensor(vocabulary)
    drawn = torch.stack([every[torch.randperm(len(every), generator=generator)[:count]] for _ in range(texts)])
    return torch.cat([torch.full((texts, 1), first), drawn, drawn], 1)


def losses(logits: Tensor, ids: Tensor, count: int) -> tuple[float, float]:
    """Nats per token, the first time and the second, of which the first token cannot be known."""
    every = cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)
    return float(every[:, :count].mean()), float(every[:, count + 1 :].mean())


def leaders(heads: Table, column: str, top: int) -> str:
    """The heads with the most of a column."""
    best = [
        (row["layer"], row["head"], *(round(row[name], 3) for name in SHOWN)) for row in heads.sort(column).head(top)
    ]
    return Table(("layer", "head", *SHOWN), best, f"most {column}").text()


def maps(heads: Table, columns: Sequence[str], title: str) -> Panel:
    """Layer × head, one map for each column; shares from 0 to 1. A cell has room for one decimal."""
    count = 1 + max(heads["head"])
    grids = []
    for column in columns:
        cells = [round(cell, 1) for cell in heads[column]]
        rows = [cells[start : start + count] for start in range(0, len(cells), count)]
        labels = [str(number) for number in range(len(rows))], [str(number) for number in range(count)]
        limits = None if column == "entropy" else (0.0, 1.0)
        grids.append(Grid(rows, *labels, TITLES[column], "rows: layers, columns: heads", limits))
    return Panel(grids, title)


def main() -> None:
    """Capture, tabulate, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=64, help="random tokens before the repetition")
    parser.add_argument("--texts", type=int, default=8, help="such texts, over which the table is a mean")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--top", type=int, default=6, help="rows of each table")
    parser.add_argument("--out", help="a figure: png, svg or pdf")
    asked = parser.parse_args()
    if not 2 <= asked.tokens <= 4000 or asked.texts < 1:
        parser.error(f"--tokens takes 2 to 4000 and --texts 1 or more, got {asked.tokens} and {asked.texts}")

    writer = models.smollm2()
    special = writer.tokenizer.get_added_tokens_decoder()
    ordinary = [token for token in range(writer.tokenizer.get_vocab_size()) if token not in special]
    first = writer.tokenizer.token_to_id("<|endoftext|>")
    ids = repeated(asked.texts, asked.tokens, ordinary, first, asked.seed)
    with torch.inference_mode():
        c = capture(writer.model, ids)
    before, after = losses(c.output, ids, asked.tokens)
    heads = c.heads(ids=ids)

    print(f"{len(heads)} heads in {len(c)} layers; {asked.texts} texts of 1 + 2 × {asked.tokens} tokens")
    print(f"loss: {before:.2f} nats per token the first time, {after:.2f} the second")
    for column in SHOWN[:3]:
        print(f"\n{leaders(heads, column, asked.top)}")
    strong = [row for row in heads if row["first"] > 0.5]
    print(f"\n{len(strong)} of {len(heads)} heads put more than half of their weight on the first token")
    if asked.out:
        title = f"SmolLM2-135M-Instruct on {asked.tokens} random tokens, twice; mean of {asked.texts} texts"
        plot.save(maps(heads, SHOWN, title), asked.out)
        print(f"\n{asked.out}")


if __name__ == "__main__":
    main()
