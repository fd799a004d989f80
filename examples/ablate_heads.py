"""Which heads does a language model need to repeat what it has read? Ablate them and see.

A row of random tokens is written twice. Nothing in the first half can be predicted; in the second everything can, by
looking for the same token before and reading the one after it. Heads that look there are called induction heads:
`capture` finds them by their weights. That a head looks there does not prove that it is needed. So the heads that
look there most are ablated, one by one and all together, and beside them as many others, drawn at random; then all
heads of some layers, with `effect`.

    python examples/ablate_heads.py                 a minute or two; SmolLM2 is fetched once (regard models get smollm2)
    python examples/ablate_heads.py --heads 12      more heads
"""

import argparse
import random
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import regard
from regard.inspection.interventions import Ablate, effect, intervene
from regard.inspection.statistics import mean
from regard.inspection.table import Table

Head = tuple[int, int]


def twice(rows: int, length: int, vocabulary: int) -> Tensor:
    """(rows, 2 · length) random tokens, the second half like the first."""
    half = torch.randint(1000, vocabulary, (rows, length))
    return torch.cat([half, half], 1)


def losses(logits: Tensor, ids: Tensor) -> Tensor:
    """The loss of each row on the tokens of its second half but the first, which cannot be known."""
    start = ids.shape[1] // 2
    return cross_entropy(logits[:, start:-1].mT, ids[:, start + 1 :], reduction="none").mean(1)


def induction(model: nn.Module, ids: Tensor) -> dict[Head, float]:
    """For each head, the mean weight of a token of the second half on the one after its first appearance."""
    length = ids.shape[1] // 2
    queries = torch.arange(length, 2 * length - 1)
    found = {}
    for layer, matrix in enumerate(regard.capture(model, ids)):
        rows = matrix[:, :, length:-1, : length + 1]  # (row, head, query, key)
        weights = rows.diagonal(offset=1, dim1=-2, dim2=-1)[..., : len(queries)].mean((0, 2))
        found |= {(layer, head): float(weight) for head, weight in enumerate(weights)}
    return found


def ablated(model: nn.Module, ids: Tensor, heads: list[Head]) -> Tensor:
    """The loss of each row without these heads: nested blocks, one for each layer."""
    with ExitStack() as stack:
        for layer in sorted({layer for layer, _ in heads}):
            chosen = [head for each, head in heads if each == layer]
            stack.enter_context(intervene(model, Ablate(), layers=layer, heads=chosen))
        return losses(model(ids), ids)


@torch.no_grad()
def main() -> None:
    """Find the heads, ablate them, and print what it does to the loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", type=int, default=6, help="how many are ablated")
    parser.add_argument("--length", type=int, default=32, help="tokens of each half")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--draws", type=int, default=5, help="sets of other heads")
    options = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    model: nn.Module = regard.models.smollm2().model
    ids = twice(options.rows, options.length, 49_000)
    scores = induction(model, ids)
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    top = ranked[: options.heads]
    others = [head for head in ranked if scores[head] < 0.05]
    print(f"{len(scores)} heads; {len(others)} of them look less than 5 % at the token after\n")

    plain = losses(model(ids), ids)
    rows = []
    for kind, heads in (("induction", top), ("other", random.sample(others, options.heads))):
        for head in heads:
            rise = mean(ablated(model, ids, [head]) - plain)
            rows.append([kind, *head, scores[head], rise])
    print(Table(["kind", "layer", "head", "looks there", "loss rises by"], rows, title="one head ablated"))

    together = ablated(model, ids, top)
    drawn = torch.stack([ablated(model, ids, random.sample(others, options.heads)) for _ in range(options.draws)])
    print(f"\n{options.heads} heads ablated together, loss on the second half, nats a token")
    print(f"  none             {plain.mean():.2f}")
    print(f"  induction heads  {together.mean():.2f}")
    worst, usual = drawn.mean(1).max(), drawn.mean()
    print(f"  other heads      {usual:.2f} on average of {options.draws} draws, {worst:.2f} at most")

    def rise(before: Tensor, after: Tensor) -> Tensor:
        return losses(after, ids) - losses(before, ids)

    layers = sorted({layer for layer, _ in top[:2]} | {1, 28})
    print(f"\nall heads of a layer ablated, layers {', '.join(map(str, layers))}")
    print(effect(model, [ids], Ablate(), layers=layers, heads=None, metric={"loss rises by": rise}))


if __name__ == "__main__":
    main()
