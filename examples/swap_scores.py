"""One small model, six score functions: what changes is one argument.

Each token has a letter and a jump from 0 to 7. The model writes, at every place, the letter that stands so many places
back: a query has to find the key at a distance that its own content names. Positions are sinusoids for all; the
relative score alone knows distances without them. (It warns that it runs on the tiled engine: the native one has no
kernel for it.)

    python examples/swap_scores.py                                 a minute or two
    python examples/swap_scores.py --only additive --steps 1000    one of them, longer
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import regard
from regard import plot, scores
from regard.inspection.records import Table

LETTERS, JUMPS = 26, 8
WIDTH, HEADS, LAYERS = 64, 4, 2
D = WIDTH // HEADS

#: A value is used as it is; a module has parameters, and the function makes one for each layer.
SCORES: dict[str, scores.Score | Callable[[], nn.Module]] = {
    "scaled dot": scores.ScaledDot(),
    "cosine": scores.Cosine(10.0),
    "general": lambda: regard.nn.General(D, heads=HEADS),
    "additive": lambda: regard.nn.Additive(D, 32, heads=HEADS),
    "concat-MLP": lambda: regard.nn.ConcatMLP(D, 32, activation="relu", heads=HEADS),
    "relative": lambda: regard.nn.Relative(D, JUMPS),
}


class Jumper(nn.Module):
    """Letters and jumps in, a letter for each place out."""

    def __init__(self, score: scores.Score | Callable[[], nn.Module]) -> None:
        super().__init__()
        self.letters = regard.nn.Embedding(LETTERS, WIDTH, position=regard.nn.Sinusoidal(WIDTH))
        self.jumps = regard.nn.Embedding(JUMPS, WIDTH)
        self.encoder = regard.nn.Encoder(LAYERS, WIDTH, HEADS, mask="causal", score=score)
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, letters: Tensor, jumps: Tensor) -> Tensor:
        """Logits (batch, place, letter)."""
        out: Tensor = self.head(self.encoder(self.letters(letters) + self.jumps(jumps)))
        return out


def examples(count: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Letters, jumps that stay inside the text, and the letters that they lead to."""
    letters, places = torch.randint(LETTERS, (count, length)), torch.arange(length)
    jumps = torch.randint(JUMPS, (count, length)).minimum(places)
    return letters, jumps, letters.gather(1, places - jumps)


def trained(score: scores.Score | Callable[[], nn.Module], steps: int, length: int) -> tuple[int, float, float, float]:
    """Parameters, loss and share of right letters on new texts, and the seconds that training took."""
    torch.manual_seed(0)
    model = Jumper(score)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    start = time.perf_counter()
    for _ in range(steps):
        *given, answer = examples(32, length)
        loss = cross_entropy(model(*given).flatten(0, 1), answer.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    seconds = time.perf_counter() - start
    *given, answer = examples(500, length)
    with torch.no_grad():
        logits = model(*given)
    left = cross_entropy(logits.flatten(0, 1), answer.flatten())
    right = (logits.argmax(-1) == answer).float().mean()
    return sum(p.numel() for p in model.parameters()), float(left), float(right), seconds


def main() -> None:
    """Train the model with each score, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--length", type=int, default=24)
    parser.add_argument("--only", choices=SCORES, help="one score instead of all")
    args = parser.parse_args()
    rows = []
    for name in [args.only] if args.only else SCORES:
        parameters, loss, right, seconds = trained(SCORES[name], args.steps, args.length)
        print(f"{name}: {right:.0%} right after {args.steps} steps, {seconds:.1f} s", flush=True)
        rows.append((name, parameters, loss, 100 * right, seconds))
    print("\n" + plot.table(Table(("score", "parameters", "loss", "% right", "seconds"), rows)))


if __name__ == "__main__":
    main()
