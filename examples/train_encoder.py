"""A six-layer encoder learns to write text backwards, and one of its heads shows how: an antidiagonal.

Random letters go in, 4 to 20 of them, and come out reversed, all at once. A place has to find out how long its text is,
look at the one letter that belongs there, and write it; nobody says how. The program measures, head by head, how much
places look at the letter that they need, and draws the head that does it most, before training and after.

    python examples/train_encoder.py                                 about a minute
    python examples/train_encoder.py --text "ABLE WAS I" --steps 1200
"""

import argparse
import copy
import shutil
import string
import time

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import regard
from regard import masks, plot
from regard.inspection.records import Grid, Panel

LETTERS = string.ascii_uppercase + " "
HEADS, WIDTH, NOTHING = 4, 64, -100


class Reverser(nn.Module):
    """Letters in, a letter for each place out."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = regard.nn.Embedding(len(LETTERS), WIDTH, position=regard.nn.Sinusoidal(WIDTH))
        self.encoder = regard.nn.Encoder(layers, WIDTH, HEADS)
        self.head = nn.Linear(WIDTH, len(LETTERS))

    def forward(self, letters: Tensor, lengths: Tensor) -> Tensor:
        """Logits (batch, place, letter); what lies behind a text's length is not looked at."""
        out: Tensor = self.head(self.encoder(self.embedding(letters), mask=masks.Lengths(lengths)))
        return out


def texts(count: int, longest: int) -> tuple[Tensor, Tensor]:
    """Random letters, and how many of each row are text."""
    return torch.randint(len(LETTERS), (count, longest)), torch.randint(4, longest + 1, (count,))


def needed(lengths: Tensor, longest: int) -> Tensor:
    """Where place i of a text finds its letter: n − 1 − i, and −1 or less behind the text."""
    return lengths.unsqueeze(1) - 1 - torch.arange(longest)


def answer(letters: Tensor, lengths: Tensor) -> Tensor:
    """The texts reversed."""
    at = needed(lengths, letters.shape[1])
    return letters.gather(1, at.clamp(0)).where(at >= 0, NOTHING)


def looked(model: Reverser, letters: Tensor, lengths: Tensor) -> list[regard.AttentionMatrix]:
    """The attention of each layer, from the queries and keys that it makes."""
    found: list[regard.AttentionMatrix] = []

    def note(layer: regard.nn.MultiHeadAttention, inputs: tuple[Tensor, ...]) -> None:
        projected = (part(inputs[0]).unflatten(-1, (HEADS, -1)) for part in (layer.q_proj, layer.k_proj))
        query, key = (heads.transpose(1, 2) for heads in projected)
        found.append(regard.matrix(query, key, mask=masks.Lengths(lengths)))

    layers = [layer for layer in model.encoder.modules() if isinstance(layer, regard.nn.MultiHeadAttention)]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    with torch.no_grad():
        model(letters, lengths)
    for hook in hooks:
        hook.remove()
    return found


def shares(model: Reverser, letters: Tensor, lengths: Tensor) -> Tensor:
    """For each layer and head, how much of their attention places give to the letter that they need."""
    at = needed(lengths, letters.shape[1])
    mask = masks.Dense((at.unsqueeze(2) == torch.arange(letters.shape[1])).unsqueeze(1))
    total = torch.stack([layer.mass(mask).sum((0, 2)) for layer in looked(model, letters, lengths)])
    return total / lengths.sum()


def right(model: Reverser, letters: Tensor, lengths: Tensor) -> tuple[float, float, float]:
    """Loss, and the shares of letters and of whole texts that are right."""
    with torch.no_grad():
        logits, wanted = model(letters, lengths), answer(letters, lengths)
    inside = wanted != NOTHING
    hit = logits.argmax(-1) == wanted
    loss = cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=NOTHING)
    return loss.item(), hit[inside].float().mean().item(), (hit | ~inside).all(1).float().mean().item()


def train(model: Reverser, steps: int, longest: int, batch: int, test: tuple[Tensor, Tensor]) -> None:
    """Train on new random letters in every step, and tell how it goes."""
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    start = time.perf_counter()
    for step in range(steps + 1):
        if step % max(1, steps // 10) == 0:
            off, letters, whole = right(model, *test)
            text = f"step {step:4}  loss {off:.3f}  {letters:4.0%} of letters, {whole:4.0%} of texts right"
            print(f"{text}  {time.perf_counter() - start:3.0f} s", flush=True)
        if step < steps:
            given = texts(batch, longest)
            loss = cross_entropy(model(*given).flatten(0, 1), answer(*given).flatten(), ignore_index=NOTHING)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


def main() -> None:
    """Train, say how well it reverses, and draw the head that finds the letters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--longest", type=int, default=20, help="letters of the longest text")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--text", default="THE QUICK BROWN FOX", help="letters A to Z and blanks")
    args = parser.parse_args()
    text = args.text.upper()[: args.longest]
    if not text or set(text) - set(LETTERS):
        parser.error(f"--text takes letters A to Z and blanks, got {args.text!r}")

    torch.manual_seed(0)
    model, test = Reverser(args.layers), texts(500, args.longest)
    untrained = copy.deepcopy(model)
    train(model, args.steps, args.longest, args.batch, test)

    given = torch.tensor([[LETTERS.index(letter) for letter in text]]), torch.tensor([len(text)])
    models = {"before": untrained, "after": model}
    print(f"\ngiven   {text}")
    for name, one in models.items():
        print(f"{name:7} {''.join(LETTERS[letter] for letter in one(*given).argmax(-1)[0])}")

    found = {name: shares(one, *test) for name, one in models.items()}
    layer, head = divmod(int(found["after"].argmax()), HEADS)
    print(f"\nlayer {layer + 1}, head {head + 1}: how much each place (row) looks at each letter (column)\n")
    pictures = [
        Grid(
            looked(one, *given)[layer][0, head].dense().tolist(),
            list(text),
            list(text),
            f"{name}: {found[name][layer, head]:.0%} on the letter needed",
            limits=(0.0, 1.0),
        )
        for name, one in models.items()
    ]
    print(plot.render(Panel(pictures), width=min(72, shutil.get_terminal_size().columns)))


if __name__ == "__main__":
    main()
