"""language: heads of real models that link a verb to its subject, or a word to its synonym.

MiniLM reads a text in both directions, SmolLM2 from left to right; both are as published. A head is chosen on one half
of the sentences and judged on the other, both ways round, so that the best of many heads is not the luckiest one.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard import models
from regard.inspection.records import Bars, Cell, Estimate, Grid, Panel, Picture, Table
from regard.lab.language.sentences import CONDITIONS, Synonyms, VerbSentence, synonyms, verb_sentences, word_weights
from regard.lab.report import (
    MINI_COURSE,
    RESULTS,
    Claim,
    DecisionRule,
    Evidence,
    Report,
    Takeaway,
    above,
    all_of,
    compared,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import proportion, share
from regard.models.catalog import find
from regard.models.store import state
from regard.progress import report

MODELS = {"minilm": "MiniLM", "smollm2": "SmolLM2"}
HALF = 0.5  # of the pairs: a head that does not know synonyms gives the synonym more weight as often as the control

Head = tuple[int, int]  # layer and head, from 0


@dataclass(frozen=True)
class Linked:
    """What the heads of one model do with sentences whose links are known.

    `verbs` is (sentence, layer, head, word), the weight of the verb on every word; `pairs` is the weight of a synonym
    on the first word by condition, (pair, layer, head).
    """

    model: str
    sentences: tuple[VerbSentence, ...]
    verbs: Tensor
    pairs: dict[str, Tensor]

    def hits(self, place: str = "subject") -> Tensor:
        """(sentence, layer, head): whether the verb's largest weight is on its subject, or on the `other` noun.

        Words count, the verb itself and the first word do not: language models give the first token what they do not
        need elsewhere.
        """
        weights = self.verbs.clone()
        weights[..., 0] = -1.0
        for row, sentence in enumerate(self.sentences):
            weights[row, :, :, sentence.verb] = -1.0
        right = torch.tensor([getattr(sentence, place) for sentence in self.sentences])
        return weights.argmax(-1) == right[:, None, None]

    def by_offset(self) -> Tensor:
        """(sentence, offset): whether the subject stands so many words before the verb, 1 first."""
        far = max(sentence.verb for sentence in self.sentences)
        distance = torch.tensor([sentence.verb - sentence.subject for sentence in self.sentences])
        return distance[:, None] == torch.arange(1, far + 1)

    def gain(self) -> Tensor:
        """(pair, layer, head): weight on the synonym less that on an unrelated word in its place."""
        return self.pairs["synonym"] - self.pairs["unrelated"]


def folds(count: int) -> tuple[Tensor, Tensor]:
    """Two halves that both hold every form of sentence: pairs of neighbors go to either half in turn."""
    rows = torch.arange(count)
    first = (rows // 4) % 2 == 0
    return rows[first], rows[~first]


def judged(values: Tensor) -> tuple[Tensor, list[int]]:
    """Values (case, candidate) of the candidate that is best in the other half, for every case; and the candidates."""
    one, other = folds(len(values))
    result = torch.empty(len(values), dtype=values.dtype)
    chosen = []
    for test, choose in ((one, other), (other, one)):
        chosen.append(int(values[choose].double().mean(0).argmax()))
        result[test] = values[test, chosen[-1]]
    return result, chosen


def counted(hits: Tensor) -> Estimate:
    """The share of cases with a hit."""
    return proportion(int(hits.sum()), len(hits))


def run(setting: Setting) -> Report:
    """Run the experiment."""
    sentences = verb_sentences(setting.choose(full=400, quick=48), setting.seed)
    pairs = synonyms()[:: setting.choose(full=1, quick=3)]
    linked = [measured(name, sentences, pairs) for name in available()]
    missing = ", ".join(MODELS[name] for name in MODELS if name not in available())
    more = {"not_here": f"{missing} (regard models get)"} if missing else {}
    return Report(
        "language",
        "Do heads of real models link verbs to their subjects, and words to their synonyms?",
        (verb_table(linked), synonym_table(linked), head_table(linked)),
        (sentence_picture(linked[-1]), verb_picture(linked), synonym_picture(linked)),
        finding(linked),
        compared(*(claim for each in linked for claim in claims(each)), both_claim(linked)),
        setting.record(len(sentences), pairs_of_synonyms=len(pairs), models=", ".join(available()), **more),
        why="That heads “capture syntax” or “find synonyms” is often said from one striking picture; a test needs "
        "sentences whose subjects are known, and controls.",
        setup=f"{len(sentences)} made-up sentences have a second noun that is not the subject: in half of them it "
        "stands between subject and verb (“the king behind the old doors sleeps”), in half before the subject (“behind "
        "the old doors the king sleeps”), so a head cannot do well by looking at the first noun, the nearest noun or a "
        f"fixed number of words back. {len(pairs)} pairs of synonyms stand in sentences with two places (“the big "
        "house … the large garden”); the control is the same sentence with an unrelated word (“the green house … the "
        "large garden”). Each head is chosen on one half of the cases and judged on the other.",
        takeaway=takeaway(linked),
    )


def available() -> list[str]:
    """The models that are here; MiniLM is needed, and without it the error says how to get it."""
    models.path("minilm")
    return [name for name in MODELS if name == "minilm" or state(find(name)) == "yes"]


def measured(name: str, sentences: tuple[VerbSentence, ...], pairs: tuple[Synonyms, ...]) -> Linked:
    """Have a model read all sentences."""
    model: Any = models.load(models.path(name))
    report(f"{MODELS[name]} reads sentences", 0, 1 + len(CONDITIONS))
    places = [sentence.verb for sentence in sentences]
    verbs = word_weights(model, [each.text for each in sentences], [each.words for each in sentences], places)
    by_condition = {}
    for done, condition in enumerate(CONDITIONS, 1):
        report(f"{MODELS[name]} reads synonyms", done, 1 + len(CONDITIONS))
        texts = [text for pair in pairs for text in pair.texts(condition)]
        words = [(pair.first_word(condition), pair.synonym) for pair in pairs for _ in pair.frames]
        weights = word_weights(model, texts, words, [1] * len(texts))[..., 0]
        by_condition[condition] = weights.unflatten(0, (len(pairs), -1)).mean(1)
    return Linked(MODELS[name], sentences, verbs, by_condition)


def subject_share(each: Linked) -> tuple[Estimate, list[Head]]:
    """How often the verb's largest weight is on its subject, in the head that is best on other sentences."""
    hits, chosen = judged(each.hits().flatten(1))
    return counted(hits), [divmod(place, each.verbs.shape[2]) for place in chosen]


def guesses(each: Linked) -> dict[str, Estimate]:
    """How often rules without grammar find the subject."""
    offset, _ = judged(each.by_offset())
    first, nearest = (
        counted(torch.tensor([getattr(one, name) == one.subject for one in each.sentences]))
        for name in ("first_noun", "nearest_noun")
    )
    any_word = sum(1 / (one.verb - 1) for one in each.sentences) / len(each.sentences)
    return {
        "the same number of words back": counted(offset),
        "the first noun": first,
        "the nearest noun": nearest,
        "any word before": Estimate(any_word, any_word, any_word),
    }


def synonym_weights(each: Linked) -> tuple[dict[str, Tensor], list[Head]]:
    """The weight on the first word by condition, (pair,), of the head with the largest gain on other pairs."""
    _, chosen = judged(each.gain().flatten(1))
    halves = folds(len(each.gain()))
    weights = {}
    for condition, values in each.pairs.items():
        flat = values.flatten(1)
        weights[condition] = torch.empty(len(flat), dtype=flat.dtype)
        for test, head in zip(halves, chosen, strict=True):
            weights[condition][test] = flat[test, head]
    return weights, [divmod(place, each.gain().shape[2]) for place in chosen]


def preferred(weights: dict[str, Tensor], control: str) -> Estimate:
    """The share of pairs in which the synonym gets more weight than a control."""
    return counted(weights["synonym"] > weights[control])


def head_names(heads: list[Head]) -> str:
    """`3.5`, or both if the halves chose different ones."""
    return ", ".join(dict.fromkeys(f"{layer + 1}.{head + 1}" for layer, head in heads))


def verb_table(linked: list[Linked]) -> Table:
    """Subjects found by heads and by rules."""
    rows: list[tuple[Cell, ...]] = []
    for each in linked:
        found, heads = subject_share(each)
        flat = each.hits("other").flatten(1)
        wrong = torch.empty(len(flat), dtype=torch.bool)
        for test, (layer, head) in zip(folds(len(flat)), heads, strict=True):
            wrong[test] = flat[test, layer * each.verbs.shape[2] + head]
        rows.append((f"{each.model}, head {head_names(heads)}", found, counted(wrong)))
    rows += [(f"rule: {name}", found, "") for name, found in guesses(linked[0]).items()]
    title = (
        f"{len(linked[0].sentences)} sentences: share in which the verb's largest weight is on its subject, or on the "
        "other noun; 95% interval (Wilson). Heads are layer.head"
    )
    return Table(("who points", "at the subject", "at the other noun"), rows, title)


def synonym_table(linked: list[Linked]) -> Table:
    """Weights on the first word, by what it is."""
    rows: list[tuple[Cell, ...]] = []
    for each in linked:
        weights, heads = synonym_weights(each)
        means = [share(weights[condition]) for condition in CONDITIONS]
        shares = [preferred(weights, control) for control in ("unrelated", "related")]
        rows.append((f"{each.model}, head {head_names(heads)}", *means, *shares))
    columns = ("head", *CONDITIONS, "synonym > unrelated", "synonym > related")
    title = (
        f"{len(linked[0].gain())} pairs: weight of the second word on the first, by what stands there, and share of "
        "the pairs in which the synonym gets more (a coin: 0.5)"
    )
    return Table(columns, rows, title)


def head_table(linked: list[Linked]) -> Table:
    """The five best heads of each kind, over all cases."""
    rows: list[tuple[Cell, ...]] = []
    for each in linked:
        subjects, gains = each.hits().double().mean(0), each.gain().mean(0)
        for name, values in (("verb to subject (share)", subjects), ("synonym (weight gained)", gains)):
            best = values.flatten().topk(5)
            heads = [divmod(place, values.shape[1]) for place in best.indices.tolist()]
            named = (
                f"{layer + 1}.{head + 1} {value:.2f}"
                for (layer, head), value in zip(heads, best.values.tolist(), strict=True)
            )
            rows.append((each.model, name, ", ".join(named)))
    return Table(("model", "link", "best heads"), rows, "The best heads over all cases (not judged on others)")


def sentence_picture(each: Linked) -> Picture:
    """Where the verbs of one sentence of each form look, in the best head."""
    (layer, head), *_ = subject_share(each)[1]
    bars = []
    for row in (0, 1, 2):
        sentence = each.sentences[row]
        weights = each.verbs[row, layer, head, : len(sentence.words)].round(decimals=2).tolist()
        marks = {sentence.subject: "*", sentence.verb: "→"}
        labels = [f"{marks.get(place, '')}{word}" for place, word in enumerate(sentence.words)]
        bars.append(Bars(labels, {"": weights}, "weight", f"“{sentence.words[sentence.verb]}” looks"))
    title = f"{each.model}, layer {layer + 1}, head {head + 1}: where the verb (→) looks; *its subject"
    return Panel(bars, title)


def verb_picture(linked: list[Linked]) -> Picture:
    """Every head's share of subjects found."""
    grids = []
    for each in linked:
        shares = each.hits().double().mean(0)
        layers, heads = ([str(place + 1) for place in range(size)] for size in shares.shape)
        names = ("head", "layer", "share of the sentences")
        grids.append(Grid(shares.T.tolist(), heads, layers, each.model, limits=(0.0, 1.0), names=names))
    return Panel(grids, "Every head: how often the verb's largest weight is on its subject")


def synonym_picture(linked: list[Linked]) -> Picture:
    """Weights by what stands in the first place."""
    series = {}
    for each in linked:
        weights, heads = synonym_weights(each)
        series[f"{each.model}, head {head_names(heads)}"] = [float(weights[name].mean()) for name in CONDITIONS]
    return Bars(list(CONDITIONS), series, "weight", "Weight of a word on an earlier word, by what that is")


def subject_rule(each: Linked) -> DecisionRule:
    """Confirmed above every rule without grammar."""
    best = max(guess.mean for guess in guesses(each).values())
    return above(round(best, 3))


def claims(each: Linked) -> tuple[Claim, ...]:
    """What is said of single heads."""
    found, heads = subject_share(each)
    weights, synonym_heads = synonym_weights(each)
    best, value = max(((name, guess.mean) for name, guess in guesses(each).items()), key=lambda pair: pair[1])
    syntax = quoted(RESULTS, 'Head 1: syntactic dependencies ("subject-verb")')
    semantics = quoted(RESULTS, 'Head 2: semantic similarity ("synonyms")')
    return (
        Claim(
            syntax,
            f"{each.model}, head {head_names(heads)}: share of sentences in which the verb points at its subject",
            found,
            subject_rule(each),
            f"best rule without grammar, {best}: {value:.2f}",
        ),
        Claim(
            semantics,
            f"{each.model}, head {head_names(synonym_heads)}: share of pairs in which the synonym gets more weight "
            "than an unrelated word in its place",
            preferred(weights, "unrelated"),
            above(HALF),
            f"weights {weights['synonym'].mean():.2f} and {weights['unrelated'].mean():.2f}",
        ),
        Claim(
            semantics,
            f"{each.model}: the same, than a related word in its place",
            preferred(weights, "related"),
            above(HALF, "partly"),
            f"weights {weights['synonym'].mean():.2f} and {weights['related'].mean():.2f}",
        ),
    )


def both(each: Linked) -> bool:
    """Whether one head captures syntax and another one semantics."""
    found, heads = subject_share(each)
    weights, others = synonym_weights(each)
    syntax = subject_rule(each).verdict(found) == "confirmed"
    semantics = above(HALF).verdict(preferred(weights, "unrelated")) == "confirmed"
    return syntax and semantics and not set(heads) & set(others)


def both_claim(linked: list[Linked]) -> Claim:
    """What is said of all heads together."""
    return Claim(
        quoted(MINI_COURSE, "Some heads may capture syntax, others semantics"),
        f"models, of {len(linked)}, with a head for subjects, another one for synonyms, both by the rules above",
        sum(map(both, linked)),
        all_of(len(linked)),
    )


def takeaway(linked: list[Linked]) -> Takeaway:
    """What single heads do."""
    each = linked[-1]
    found, heads = subject_share(each)
    weights, others = synonym_weights(each)
    return Takeaway(
        f"In {each.model} one head (layer.head {head_names(heads)}) points from verbs to their subjects, also past "
        f"another noun, and another ({head_names(others)}) from words to their synonyms.",
        f"In {each.model} no heads link verbs to subjects and words to synonyms better than chance and rules without "
        "grammar do.",
        (
            Evidence("share of sentences in which the verb points at its subject", found, subject_rule(each)),
            Evidence(
                "share of pairs in which the synonym gets more weight than an unrelated word",
                preferred(weights, "unrelated"),
                above(HALF),
            ),
        ),
    )


def finding(linked: list[Linked]) -> str:
    """Sentences, from the numbers."""
    best = max(guess.mean for guess in guesses(linked[0]).values())
    parts = []
    for each in linked:
        found, heads = subject_share(each)
        weights, others = synonym_weights(each)
        verdict = {"confirmed": "more than", "corrected": "no more than"}.get(
            subject_rule(each).verdict(found), "not shown to be more than"
        )
        parts.append(
            f"{each.model}'s best head ({head_names(heads)}) points from the verb to its subject in {found.mean:.0%} "
            f"[{found.low:.0%}, {found.high:.0%}] of the sentences, {verdict} the {best:.0%} of the best rule without "
            f"grammar; its head {head_names(others)} gives a synonym {weights['synonym'].mean():.2f} of the weight, a "
            f"related word {weights['related'].mean():.2f}, an unrelated one {weights['unrelated'].mean():.2f}"
        )
    return f"{'. '.join(parts)}."
