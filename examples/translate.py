"""A Transformer learns to translate: numbers in English words to numbers in German words.

The order differs: "forty-seven" is "siebenundvierzig", seven and forty; and one is "eins" at the end, "ein" inside. An
encoder reads the English words, a decoder writes the German ones, and in between stands only cross-attention. Numbers
that 11 divides are never trained on: those are translated at the end, word by word with a cache. Then the
cross-attention of one number is drawn.

    python examples/translate.py                      about half a minute
    python examples/translate.py --number 747474      a number of your own
"""

import argparse
import shutil
import time
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import regard
from regard import masks, plot
from regard.inspection.records import Grid

ENGLISH_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand and"
)
GERMAN_WORDS = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig hundert tausend und ein"
)
ENGLISH, GERMAN = ENGLISH_WORDS.split(), GERMAN_WORDS.split()
PAD, START, END = (len(GERMAN) + index for index in range(3))
HEADS, LARGEST = 4, 999_999


def english(number: int) -> list[str]:
    """The number in English words."""
    thousands, rest = divmod(number, 1000)
    if thousands:
        joined = ["and"] if 0 < rest < 100 else []
        return [*english(thousands), "thousand", *joined, *(english(rest) if rest else [])]
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return [ENGLISH[hundreds], "hundred", *(["and", *english(rest)] if rest else [])]
    if number < 20:
        return [ENGLISH[number]]
    return [ENGLISH[18 + number // 10], *([ENGLISH[number % 10]] if number % 10 else [])]


def german(number: int, last: bool = True) -> list[str]:
    """The number in German words; a one that is not the last word is "ein"."""
    thousands, rest = divmod(number, 1000)
    if thousands:
        return [*german(thousands, False), "tausend", *(german(rest) if rest else [])]
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return [*german(hundreds, False), "hundert", *(german(rest, last) if rest else [])]
    if number < 20:
        return ["ein"] if number == 1 and not last else [GERMAN[number]]
    return [*([*german(number % 10, False), "und"] if number % 10 else []), GERMAN[18 + number // 10]]


def padded(rows: list[list[int]], with_: int) -> Tensor:
    """Rows of one length, filled up on the right."""
    longest = max(map(len, rows))
    return torch.tensor([row + [with_] * (longest - len(row)) for row in rows])


def sources(numbers: list[int]) -> tuple[Tensor, masks.Lengths]:
    """English words as integers, and a mask that hides the padding."""
    rows = [[ENGLISH.index(word) for word in english(number)] for number in numbers]
    return padded(rows, 0), masks.Lengths(torch.tensor([len(row) for row in rows]))


def targets(numbers: list[int]) -> Tensor:
    """German words as integers, between a start and an end."""
    return padded([[START, *(GERMAN.index(word) for word in german(number)), END] for number in numbers], PAD)


def drawn(count: int, unseen: bool) -> list[int]:
    """Random numbers: multiples of 11 are kept from training."""
    found: list[int] = []
    while len(found) < count:
        numbers = torch.randint(1, LARGEST + 1, (count,))
        found += numbers[(numbers % 11 == 0) == unseen].tolist()
    return found[:count]


def translated(model: regard.nn.Transformer, numbers: list[int]) -> list[list[str]]:
    """Greedy: the source is read once, its keys and values are kept, and each new word costs one row of attention."""
    source, mask = sources(numbers)
    with torch.no_grad():
        memory = model.encode(source, mask=mask)
    decode = partial(model.decode, memory=memory, memory_mask=mask)
    start = torch.full((len(numbers), 1), START)
    rows = regard.nn.generate(decode, start, 16, stop={END}, cache=regard.nn.KVCache()).tolist()
    return [[GERMAN[word] for word in row if word < len(GERMAN)] for row in rows]


def crossing(model: regard.nn.Transformer, number: int) -> Tensor:
    """What each German word looks at while it is chosen: (layer, head, German word, English word)."""
    found: list[Tensor] = []

    def note(layer: regard.nn.MultiHeadAttention, inputs: tuple[Tensor, ...]) -> None:
        parts = layer.q_proj(inputs[0]), layer.k_proj(inputs[1])
        query, key = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        found.append(regard.matrix(query, key)[0].dense())

    layers = [block.cross for block in model.decoder.modules() if isinstance(block, regard.nn.Block) and block.cross]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    with torch.no_grad():
        model(sources([number])[0], targets([number])[:, :-2])
    for hook in hooks:
        hook.remove()
    return torch.stack(found)


def train(model: regard.nn.Transformer, steps: int, batch: int) -> None:
    """Train on new numbers in every step, and tell how it goes."""
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.1)
    start = time.perf_counter()
    for step in range(1, steps + 1):
        numbers = drawn(batch, unseen=False)
        (source, mask), target = sources(numbers), targets(numbers)
        logits = model(source, target[:, :-1], mask=mask)
        loss = cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 8) == 0:
            print(f"step {step:4}  loss {loss.item():.3f}  {time.perf_counter() - start:3.0f} s", flush=True)


def main() -> None:
    """Train, translate numbers that were never seen, and draw where the decoder looked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--number", type=int, default=747_373, help="whose cross-attention is drawn")
    args = parser.parse_args()
    if not 0 < args.number <= LARGEST:
        parser.error(f"--number takes 1 to {LARGEST:,}, got {args.number:,}")
    torch.manual_seed(0)
    model = regard.nn.Transformer(
        len(ENGLISH), target_vocabulary=len(GERMAN) + 3, layers=args.layers, d_model=64, heads=HEADS
    )
    test = drawn(500, unseen=True)

    def share() -> float:
        found = translated(model, test)
        return sum(words == german(number) for words, number in zip(found, test, strict=True)) / len(test)

    print(f"before: {share():.0%} of {len(test)} numbers right")
    train(model, args.steps, args.batch)
    print(f"after:  {share():.0%} of {len(test)} numbers right, none of which was trained on\n")
    for number, words in zip(test[:4], translated(model, test[:4]), strict=True):
        print(f"{number:,}: {' '.join(english(number))}")
        print(f"  expected  {''.join(german(number))}")
        print(f"  produced  {''.join(words)}")

    weights = crossing(model, args.number)[-1].mean(0)
    title = f"{args.number:,}: the last layer's cross-attention, heads averaged"
    grid = Grid(weights.tolist(), german(args.number), english(args.number), title)
    print("\n" + plot.render(grid, width=min(100, shutil.get_terminal_size().columns)))


if __name__ == "__main__":
    main()
