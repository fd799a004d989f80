"""Translating: a Transformer of one layer and one head learns English to French from sentence pairs alone.

Why the map of such a model may be read as an alignment: the only way from the English to the French sentence is one
cross-attention with one head, so what it does not look at it cannot use (several heads or layers could share the work);
row t of the map belongs to the step that chooses French word t, when the decoder has seen the words before it; and the
encoder is one layer deep, so that a place still holds mostly its own word. Nothing tells the model which words belong
together.
"""

from collections import Counter
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.cached import cached_property
from regard.inspection.capture import capture
from regard.lab.training import Task
from regard.lab.translation import grammar
from regard.lab.translation.grammar import END, ENGLISH, FRENCH, PAD, START, Pair, french_words, sources, targets
from regard.spec.masks import Lengths

LONGEST = 20  # words that a translation may have
BE, PARTICIPLE, SE, REFLEXIVE, NE, PAS = (
    "est, sont",
    "assis, couché, debout …",
    "se",
    "cache, repose …",
    "ne, n'",
    "pas",
)
TWO_WORDS = (BE, PARTICIPLE, SE, REFLEXIVE, NE, PAS)
FIRST_WORDS = {"est": BE, "sont": BE, "se": SE, "ne": NE, "n'": NE, "pas": PAS}
SCALED, ADDITIVE = "scaled dot", "additive"
WATCHED = 40  # unseen sentences whose alignment is measured during training


@dataclass(frozen=True)
class AttentionPlace:
    """An attention of the model: its name and path, and the languages of its queries and of its keys."""

    name: str
    path: str
    queries: str
    keys: str


ENCODER = AttentionPlace("encoder self", "encoder.blocks.0.attention", "English", "English")
DECODER = AttentionPlace("decoder self", "decoder.blocks.0.attention", "French", "French")
CROSS = AttentionPlace("cross", "decoder.blocks.0.cross", "French", "English")
ATTENTIONS = (ENCODER, DECODER, CROSS)


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
    return [french_words(row) for row in rows.tolist()]


def attention_maps(model: torch_nn.Module, pairs: list[Pair]) -> dict[str, list[Tensor]]:
    """The weights of every attention while the right translation is chosen, one map per sentence, without padding.

    Row t of the decoder belongs to the step that chooses French word t: its sequence is a start and the words before.
    """
    source, target = sources(pairs), targets(pairs)
    lengths = {"English": [len(pair.english) for pair in pairs], "French": [len(pair.french) for pair in pairs]}
    maps = {}
    with torch.no_grad():
        captured = capture(model, source, target[:, :-1], mask=Lengths((source != PAD).sum(1)))
        for place in ATTENTIONS:
            weights = captured[place.path, 0].dense()
            sizes = zip(weights, lengths[place.queries], lengths[place.keys], strict=True)
            maps[place.name] = [table[:rows, :columns] for table, rows, columns in sizes]
    return maps


def alignment_maps(model: torch_nn.Module, pairs: list[Pair]) -> list[Tensor]:
    """The weights of the cross-attention: (French word, English word)."""
    return attention_maps(model, pairs)[CROSS.name]


def error_rate(pairs: list[Pair], weights: list[Tensor]) -> float:
    """1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|), the alignment error rate (Och and Ney, 2003).

    A links each French word to the English word with the largest weight, S are the sure links of the grammar, P the
    possible ones.
    """
    hits = links = 0
    for pair, table in zip(pairs, weights, strict=True):
        aligned = set(enumerate(table.argmax(1).tolist()))
        hits += len(aligned & pair.sure) + len(aligned & pair.possible)
        links += len(aligned) + len(pair.sure)
    return 1 - hits / links


def off_sure_word(pairs: list[Pair], weights: list[Tensor]) -> float:
    """The share of French words whose largest weight is not on the word of their sure link."""
    aligned = [set(enumerate(table.argmax(1).tolist())) for table in weights]
    right = sum(len(links & pair.sure) for pair, links in zip(pairs, aligned, strict=True))
    return 1 - right / sum(map(len, aligned))


def sentences_right(pairs: list[Pair], translated: list[tuple[str, ...]]) -> float:
    """The share of sentences that are right to the last word."""
    return sum(pair.french == words for pair, words in zip(pairs, translated, strict=True)) / len(pairs)


def words_right(pairs: list[Pair], translated: list[tuple[str, ...]]) -> float:
    """The share of words that stand where they should; missing and surplus words count as wrong."""
    right = sum(sum(map(str.__eq__, pair.french, words)) for pair, words in zip(pairs, translated, strict=True))
    return right / sum(max(len(pair.french), len(words)) for pair, words in zip(pairs, translated, strict=True))


def word_by_word(training: list[Pair], pairs: list[Pair]) -> list[tuple[str, ...]]:
    """Each English word replaced by the French words it is most often linked to, in the English order; a word that the
    training has not is copied."""
    translations: dict[str, Counter[tuple[str, ...]]] = {}
    for pair in training:
        for place, word in enumerate(pair.english):
            linked = sorted(french for french, english in pair.sure if english == place)
            translations.setdefault(word, Counter())[tuple(pair.french[french] for french in linked)] += 1
    best = {word: counts.most_common(1)[0][0] for word, counts in translations.items()}
    return [tuple(french for word in pair.english for french in best.get(word, (word,))) for pair in pairs]


def diagonal_maps(pairs: list[Pair]) -> list[Tensor]:
    """Maps that link the words in order, French word t to English word t."""
    return [torch.eye(len(pair.french), len(pair.english)) for pair in pairs]


def two_word_shares(pairs: list[Pair], weights: list[Tensor]) -> dict[str, float]:
    """Where an English expression became two French words: the mean weight of either on it (does not, or a verb)."""
    weights_by_kind: dict[str, list[float]] = {name: [] for name in TWO_WORDS}
    for pair, table in zip(pairs, weights, strict=True):
        for place in range(len(pair.french)):
            if name := _kind(pair, place):
                linked = [english for french, english in pair.possible if french == place]
                weights_by_kind[name].append(float(table[place, linked].sum()))
    return {name: sum(each) / len(each) if each else float("nan") for name, each in weights_by_kind.items()}


def _kind(pair: Pair, place: int) -> str | None:
    """The kind of a word that translates an English expression together with another; else None."""
    word = pair.french[place]
    if word in FIRST_WORDS:
        return FIRST_WORDS[word]
    source = next(english for french, english in pair.sure if french == place)
    kinds = {FIRST_WORDS.get(pair.french[french]) for french, english in pair.sure if english == source}
    return PARTICIPLE if BE in kinds else REFLEXIVE if SE in kinds else None


@dataclass(frozen=True)
class Translating(Task):
    """`score` is that of every attention; `sentences` are trained on, none of which is held out."""

    score: str
    width: int
    batch: int
    sentences: int

    @property
    def name(self) -> str:
        return f"translation {self.score} {self.seed}"

    def model(self) -> torch_nn.Module:
        """An encoder and a decoder of one layer and one head each, with sinusoids for positions."""
        score = (lambda: nn.Additive(self.width, self.width)) if self.score == ADDITIVE else None
        return nn.Transformer(
            len(ENGLISH),
            target_vocabulary=len(FRENCH),
            layers=1,
            d_model=self.width,
            heads=1,
            d_ff=2 * self.width,
            score=score,
        )

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Cross-entropy of each French word, given the English sentence and the French words before it."""
        rows = torch.randint(self.sentences, (self.batch,), generator=generator)
        batch = [each[rows] for each in self._examples]
        source, target = (each[:, : int((each != PAD).sum(1).max())] for each in batch)  # no column of padding alone
        logits = model(source, target[:, :-1], mask=Lengths((source != PAD).sum(1)))
        return cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)

    def look(self, model: torch_nn.Module) -> dict[str, float]:
        """The alignment error on unseen sentences."""
        return {"alignment error": error_rate(self._watched, alignment_maps(model, self._watched))}

    @cached_property
    def _examples(self) -> tuple[Tensor, Tensor]:
        pairs = grammar.sentences(self.sentences, self.seed, unseen=False)
        return sources(pairs), targets(pairs)

    @cached_property
    def _watched(self) -> list[Pair]:
        return grammar.sentences(WATCHED, self.seed, unseen=True)
