"""Bahdanau's additive attention, trained on sequences of 8,192 tokens, with the memory that it used.

A sequence holds 8,192 tokens. Each has one of 16 names and a colour, and one token of every name is marked. 1,024
queries ask for a name; the answer is the colour of its marked token. The only way from there to the answer is the
attention v · tanh(W₁q + W₂k + b), which has to learn that name *and* mark count. With a (query, key, hidden) tensor, as
textbooks write it, one step would hold 2 GiB for the hidden units alone, and as much again for operations of backward.

    python examples/additive_recall.py                    half a minute
    python examples/additive_recall.py --tokens 65536     the same task, eight times as long
"""

import argparse
import resource
import time

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

import regard
from regard import scores

NAMES, COLOURS, HIDDEN = 16, 8, 64


class Recall(nn.Module):
    """One additive cross-attention; values are the colours themselves."""

    def __init__(self, d_query: int, d_key: int) -> None:
        super().__init__()
        self.w_query = nn.Parameter(torch.randn(HIDDEN, d_query))
        self.w_key = nn.Parameter(torch.randn(HIDDEN, d_key))
        self.bias = nn.Parameter(torch.zeros(HIDDEN))
        self.v = nn.Parameter(torch.randn(HIDDEN) / HIDDEN**0.5)

    def forward(self, query: Tensor, key: Tensor, colours: Tensor) -> Tensor:
        """The colour that each query sees: (batch, head, query, colour), rows of probabilities."""
        score = scores.ConcatMLP(self.w_query, self.w_key, self.bias, self.v, activation="tanh")
        return regard.attend(query, key, colours, score=score)


def sequence(tokens: int, queries: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries (names), keys (names and marks), colours, and the right answers."""
    names, colours = torch.randint(NAMES, (tokens,)), torch.randint(COLOURS, (tokens,))
    marked = torch.randperm(tokens)[:NAMES]
    names[marked] = torch.arange(NAMES)
    marks = torch.zeros(tokens, 1)
    marks[marked] = 1.0
    asked = torch.randint(NAMES, (queries,))
    key = torch.cat([one_hot(names, NAMES).float(), marks], -1)
    answer = colours[marked][asked]
    parts = one_hot(asked, NAMES).float(), key, one_hot(colours, COLOURS).float()
    query, key, value = (part[None, None] for part in parts)
    return query, key, value, answer


def main() -> None:
    """Train, and tell how well it answers and what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Recall(NAMES, NAMES + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    model(*sequence(args.tokens, args.queries)[:3])  # what the first call loads is not what a step takes
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    for step in range(1, args.steps + 1):
        *given, answer = sequence(args.tokens, args.queries)
        seen = model(*given)[0, 0]
        loss = cross_entropy((seen + 1e-6).log(), answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, args.steps // 10) == 0:
            right = (seen.argmax(-1) == answer).float().mean()
            print(f"step {step:4}  loss {loss.detach():.3f}  {right:4.0%} right", flush=True)
    seconds = (time.perf_counter() - start) / args.steps
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    dense = 4 * args.queries * args.tokens * HIDDEN / 2**20
    print(f"{seconds:.2f} s per step; training took {more:.0f} MiB more than one call")
    print(f"the hidden units of all pairs in one tensor would take {dense:,.0f} MiB")


if __name__ == "__main__":
    main()
