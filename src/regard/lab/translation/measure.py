"""What a model translates, what it looked at for each word, and how far both are from the grammar."""

from collections import Counter
from functools import partial

import torch
from torch import Tensor
from torch import nn as torch_nn

from regard import nn
from regard.inspection.capture import capture
from regard.lab.translation.grammar import Pair
from regard.lab.translation.vocabulary import END, PAD, START, sources, targets, written
from regard.spec.masks import Lengths

LONGEST = 20  # words that a translation may have
CROSS = "decoder.blocks.0.cross"


def translations(model: torch_nn.Module, pairs: list[Pair]) -> list[tuple[str, ...]]:
    """The likeliest word, word after word."""
    assert isinstance(model, nn.Transformer)
    source = sources(pairs)
    mask = Lengths((source != PAD).sum(1))
    with torch.no_grad():
        memory = model.encode(source, mask=mask)
    decode = partial(model.decode, memory=memory, memory_mask=mask)
    start = torch.full((len(pairs), 1), START)
    rows = nn.generate(decode, start, LONGEST, stop={END}, cache=nn.KVCache())
    return [written(row) for row in rows.tolist()]


def maps(model: torch_nn.Module, pairs: list[Pair]) -> list[Tensor]:
    """What the model looks at while it chooses each word of the right translation: (French word, English word)."""
    source, target = sources(pairs), targets(pairs)
    with torch.no_grad():
        seen = capture(model, source, target[:, :-1], mask=Lengths((source != PAD).sum(1)))
        weights = seen[CROSS, 0].dense()
    return [table[: len(pair.french), : len(pair.english)] for pair, table in zip(pairs, weights, strict=True)]


def error_rate(pairs: list[Pair], weights: list[Tensor]) -> float:
    """1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|), the alignment error rate (Och and Ney, 2003).

    A links each French word to the English word with the largest weight, S are the sure links of the grammar, P the
    possible ones.
    """
    hits = links = 0
    for pair, table in zip(pairs, weights, strict=True):
        found = set(enumerate(table.argmax(1).tolist()))
        hits += len(found & pair.sure) + len(found & pair.possible)
        links += len(found) + len(pair.sure)
    return 1 - hits / links


def off(pairs: list[Pair], weights: list[Tensor]) -> float:
    """The share of French words whose largest weight is not on the word of their sure link."""
    found = [set(enumerate(table.argmax(1).tolist())) for table in weights]
    right = sum(len(links & pair.sure) for pair, links in zip(pairs, found, strict=True))
    return 1 - right / sum(map(len, found))


def exact(pairs: list[Pair], found: list[tuple[str, ...]]) -> float:
    """The share of sentences that are right to the last word."""
    return sum(pair.french == words for pair, words in zip(pairs, found, strict=True)) / len(pairs)


def words_right(pairs: list[Pair], found: list[tuple[str, ...]]) -> float:
    """The share of words that stand where they should; missing and surplus words count as wrong."""
    right = sum(sum(map(str.__eq__, pair.french, words)) for pair, words in zip(pairs, found, strict=True))
    return right / sum(max(len(pair.french), len(words)) for pair, words in zip(pairs, found, strict=True))


def word_by_word(training: list[Pair], pairs: list[Pair]) -> list[tuple[str, ...]]:
    """Each English word replaced by the French words it is most often linked to, in the English order; a word that the
    training has not is copied."""
    seen: dict[str, Counter[tuple[str, ...]]] = {}
    for pair in training:
        for place, word in enumerate(pair.english):
            linked = sorted(french for french, english in pair.sure if english == place)
            seen.setdefault(word, Counter())[tuple(pair.french[french] for french in linked)] += 1
    best = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    return [tuple(french for word in pair.english for french in best.get(word, (word,))) for pair in pairs]


def diagonal(pairs: list[Pair]) -> list[Tensor]:
    """Maps that link the words in order, French word t to English word t."""
    return [
        torch.eye(max(len(pair.french), len(pair.english)))[: len(pair.french), : len(pair.english)] for pair in pairs
    ]


TWO = ("est, sont", "assis, couché, debout …", "se", "cache, repose …", "ne, n'", "pas")


def shares(pairs: list[Pair], weights: list[Tensor]) -> dict[str, float]:
    """Where an English expression became two French words: the mean weight of either on it (does not, or a verb)."""
    found: dict[str, list[float]] = {name: [] for name in TWO}
    for pair, table in zip(pairs, weights, strict=True):
        for place in range(len(pair.french)):
            if (name := _kind(pair, place)) is not None:
                linked = [english for french, english in pair.possible if french == place]
                found[name].append(float(table[place, linked].sum()))
    return {name: sum(each) / len(each) if each else float("nan") for name, each in found.items()}


def _kind(pair: Pair, place: int) -> str | None:
    """Which of two words this is."""
    word, words = pair.french[place], pair.french
    if word in ("est", "sont"):
        return TWO[0]
    if word == "se":
        return TWO[2]
    if word in ("ne", "n'"):
        return TWO[4]
    if word == "pas":
        return TWO[5]
    source = next(english for french, english in pair.sure if french == place)
    twins = {words[french] for french, english in pair.sure if english == source} - {word}
    if twins & {"est", "sont"}:
        return TWO[1]
    return TWO[3] if "se" in twins else None
