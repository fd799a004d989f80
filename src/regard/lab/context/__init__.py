"""context: one word in different sentences, as MiniLM reads it.

Twelve words with two senses stand in sixteen sentences each. A word's own embedding is the same in all of them; what
tells its senses apart later has come from the words around it, and there is no way to it but attention. Neighbors are
found by cosine among the sentences of the same word. Nothing is trained here: the model is as published.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.cached import cached_property
from regard.inspection.interventions import Ablate, Change, Forbid
from regard.inspection.records import Bars, Estimate, Grid, Line, Lines, Panel, Picture, SignedGrid, Table
from regard.lab.context.reading import Heads, Reading, Senses, SenseSentence, closeness, minilm, read, sentences, words
from regard.lab.report import (
    MINI_COURSE,
    Claim,
    DecisionRule,
    Evidence,
    Report,
    Takeaway,
    above,
    compared,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import correlation, curve, mean, number, share
from regard.progress import report

SHOWN = 5  # sentences of a sense
READERS = 6  # heads that are called readers of the cues
AS_IS, LESS, CONTROL = "as it is", "without the readers", "without as many others"
BLIND, CONTROL_BLIND, DEAF = "cues not read", "as many others not read", "without attention"


@dataclass(frozen=True)
class ContextResults:
    """What was read, the senses under each change, and `lost`, the share of the separation lost without each head:
    (layer, head)."""

    reading: Reading
    readers: Heads
    changed: dict[str, Senses]
    lost: Tensor

    @cached_property
    def layers(self) -> list[Senses]:
        """Before any attention and after each layer."""
        return [self.reading.senses(self.reading.vectors(state)) for state in self.reading.states]

    @cached_property
    def static(self) -> Senses:
        """Senses by the word's own embedding, the same in every sentence."""
        return self.reading.senses(self.reading.vectors(self.reading.embeddings()))

    @cached_property
    def around(self) -> Senses:
        """Senses by the mean embedding of the words around, which knows the context without attention."""
        others = (self.reading.others | self.reading.cues).double()
        embeddings = self.reading.embeddings().double()
        return self.reading.senses((embeddings * others.unsqueeze(-1)).sum(1) / others.sum(1, keepdim=True))

    def fall(self, name: str) -> Estimate:
        """The separation lost by a change, in shares of the mean separation, over words."""
        whole = self.changed[AS_IS].separation
        return mean((whole - self.changed[name].separation) / whole.mean())

    def agreement(self) -> float:
        """The correlation, over heads, of the weight on cues with the separation that is lost without the head."""
        return float(torch.corrcoef(torch.stack([self.reading.cue_weight.flatten(), self.lost.flatten()]))[0, 1])


def run(setting: Setting) -> Report:
    """Run the experiment."""
    generator = setting.generator()
    encoder = minilm()
    chosen = drawn(setting.choose(full=12, quick=5), setting.choose(full=8, quick=4), generator)
    report(f"{len(chosen)} sentences", 0, 1)
    results = measured(setting, encoder, chosen, generator)
    first = torch.randint(len(chosen), (2,), generator=generator).tolist()
    return Report(
        "context",
        "Does a word with two senses get two kinds of vectors, by which other words, and which heads read those?",
        (layer_table(results), change_table(results), neighbor_table(results, first)),
        (
            near(results.reading, results.changed[AS_IS]),
            by_layer(results.layers, results.reading.chance),
            by_head(results.reading.cue_weight, results.lost),
            from_the_word(results.reading),
        ),
        finding(results),
        compared(*claims(results)),
        setting.record(len(words(chosen)), model="minilm", sentences=len(chosen)),
        why="“Bank” is one word in the dictionary of a model, but a river bank and a bank for money must not have one "
        "meaning; this shows where the difference comes from.",
        setup=f"{len(words(chosen))} words with two senses stand in sentences, in which the words that tell the sense "
        "(the cues) are marked. MiniLM, as published, reads them. Two sentences are near each other if the vectors of "
        "the word in them have a large cosine; the separation is how much nearer sentences of one sense are than those "
        "of two.",
        takeaway=takeaway(results),
    )


def drawn(count: int, each: int, generator: torch.Generator) -> tuple[SenseSentence, ...]:
    """`count` words, and `each` sentences of each of their senses, in the order of the list."""
    every = sentences()
    named = words(every)
    selected = {named[place] for place in torch.randperm(len(named), generator=generator)[:count].tolist()}
    chosen: list[SenseSentence] = []
    for key in dict.fromkeys((one.word, one.sense) for one in every if one.word in selected):
        of = [one for one in every if (one.word, one.sense) == key]
        chosen += [of[place] for place in sorted(torch.randperm(len(of), generator=generator)[:each].tolist())]
    return tuple(chosen)


def measured(
    setting: Setting, encoder: object, chosen: tuple[SenseSentence, ...], generator: torch.Generator
) -> ContextResults:
    """Read the sentences, with every change, and without each head in turn."""
    reading = read(encoder, chosen)
    readers = reading.readers(READERS)
    draws = range(setting.choose(full=8, quick=2))

    def after(change: Change, heads: Heads | None = None, of: Reading = reading) -> Senses:
        """The senses after the last layer when heads, or all, are changed."""
        return of.senses(of.changed(change, heads))

    changed = {
        AS_IS: reading.senses(reading.vectors(reading.states[-1])),
        LESS: after(Ablate(), readers),
        CONTROL: mean_of([after(Ablate(), reading.other_heads(readers, generator)) for _ in draws]),
        BLIND: after(Forbid(reading.cues)),
        CONTROL_BLIND: mean_of([after(Forbid(reading.other_words(generator))) for _ in draws]),
        DEAF: after(Ablate()),
    }
    tried = words(chosen)[: setting.choose(full=12, quick=2)]  # without a head at a time: as many runs as heads
    few = read(encoder, tuple(each for each in chosen if each.word in tried)) if setting.quick else reading
    intact = few.senses(few.vectors(few.states[-1])).separation.mean()
    lost = torch.zeros_like(reading.cue_weight)
    for layer in setting.each("without each head of layer", range(1, len(lost) + 1)):
        for head in range(lost.shape[1]):
            separation = after(Ablate(), {layer - 1: [head]}, few).separation
            lost[layer - 1, head] = 1 - float(separation.mean() / intact)
    return ContextResults(reading, readers, changed, lost)


def mean_of(several: Sequence[Senses]) -> Senses:
    """The mean of several, word by word."""
    parts = ("accuracy", "separation", "closeness")
    return Senses(*(torch.stack([getattr(each, part) for each in several]).mean(0) for part in parts))


def layer_table(results: ContextResults) -> Table:
    """Neighbors by sense, layer by layer."""
    named = {"embedding": results.static, "and position": results.layers[0]}
    named |= {f"layer {layer}": each for layer, each in enumerate(results.layers[1:], 1)}
    named["words around"] = results.around
    rows = [(name, share(each.accuracy), mean(each.separation), mean(each.closeness)) for name, each in named.items()]
    title = (
        f"The same word in other sentences: by chance {results.reading.chance:.1%} of the neighbors would be right; "
        f"mean and 95% interval over {len(results.static.accuracy)} words. Last row: no attention, the mean embedding "
        "of all other words of the sentence"
    )
    return Table(("vector", "nearest has the sense", "separation", "cosine of all pairs"), rows, title)


def change_table(results: ContextResults) -> Table:
    """What the last layer is worth when attention is changed."""
    rows = [
        (name, share(each.accuracy), mean(each.separation), results.fall(name))
        for name, each in results.changed.items()
    ]
    named = ", ".join(f"{layer + 1}.{head + 1}" for layer, heads in results.readers.items() for head in heads)
    title = (
        f"The last layer with attention changed. Readers are the {READERS} heads that give most weight to the cues "
        f"(layer.head): {named}; the others are of the same layers"
    )
    return Table(("attention", "nearest has the sense", "separation", "share of it lost"), rows, title)


def neighbor_table(results: ContextResults, chosen: list[int]) -> Table:
    """Two sentences, and the nearest to each before and after."""
    reading, rows = results.reading, []
    before, behind = (closeness(reading.vectors(reading.states[layer])) for layer in (0, -1))
    for row in chosen:
        one = reading.sentences[row]
        others = torch.tensor([each.word != one.word for each in reading.sentences])
        others[row] = True
        rows.append(("asked", one.sense, one.text))
        for name, near in (("nearest at first", before), ("nearest at last", behind)):
            other = reading.sentences[int(near[row].masked_fill(others, -2.0).argmax())]
            rows.append((name, other.sense, other.text))
    return Table(("", "sense", "sentence"), rows, "Neighbors before any attention and after the last layer")


def near(reading: Reading, last: Senses) -> Picture:
    """How close the sentences of one word are, before any attention and after the last layer."""
    word, every, same = reading.groups[int(last.separation.argmax())]
    rows = every[same.tril(-1).sum(1) < SHOWN]
    labels = [reading.sentences[row].sense for row in rows.tolist()]
    before, behind = (closeness(reading.vectors(reading.states[layer])[rows]) for layer in (0, -1))
    limits = (float(behind.min()), 1.0)
    grids = [
        Grid(before.tolist(), labels, labels, "before attention", limits=limits),
        Grid(behind.tolist(), labels, labels, "after the last layer", limits=limits),
    ]
    return Panel(grids, f"“{word}”: cosine of its vectors, sentence by sentence")


def by_layer(layers: Sequence[Senses], base: float) -> Picture:
    """Neighbors and separation against the layer."""
    x = list(range(len(layers)))
    right = curve("nearest has the sense", x, [share(each.accuracy) for each in layers])
    chance = Line("chance", x, [base] * len(x))
    apart = curve("", x, [mean(each.separation) for each in layers])
    return Panel(
        (
            Lines([right, chance], "layer", "share of the sentences", "Nearest neighbors"),
            Lines([apart], "layer", "cosine, same − other sense", "Separation of the senses"),
        ),
        "Layer by layer, mean and 95% interval over words",
    )


def by_head(weight: Tensor, lost: Tensor) -> Picture:
    """What each head looks at, and what is lost without it."""
    rows = [f"layer {layer + 1}" for layer in range(len(weight))]
    columns = [str(head + 1) for head in range(weight.shape[1])]
    return Panel(
        (
            Grid(weight.tolist(), rows, columns, "weight on the cues", limits=(0.0, float(weight.max()))),
            SignedGrid(lost.tolist(), rows, columns, "separation lost without it (below 0: gained)"),
        ),
        "Every head: where it looks, and what it is needed for",
    )


def from_the_word(reading: Reading) -> Picture:
    """The attention of one word in a sentence of either sense, in the head that reads cues most."""
    layer, head = divmod(int(reading.cue_weight.argmax()), reading.cue_weight.shape[1])
    on_cues = (reading.weights[layer, :, head] * reading.cues).sum(1)
    word, rows, same = max(reading.groups, key=lambda group: float(on_cues[group[1]].mean()))
    bars = []
    for members in dict.fromkeys(tuple(row.tolist()) for row in same):
        of_sense = rows[[place for place, inside in enumerate(members) if inside]]
        best = int(of_sense[on_cues[of_sense].argmax()])
        tokens = zip(reading.tokens[best], reading.cues[best].tolist(), strict=False)
        labels = [f"*{token}*" if cue else token for token, cue in tokens]
        heights = reading.weights[layer, best, head, : int(reading.lengths[best])].tolist()
        bars.append(Bars(labels, {"": heights}, "weight", reading.sentences[best].sense))
    return Panel(bars, f"Where “{word}” looks: layer {layer + 1}, head {head + 1}; *words that tell its sense*")


def claims(results: ContextResults) -> tuple[Claim, ...]:
    """Contextualization, disambiguation and interpretability."""
    before, after = results.static.closeness, results.layers[-1].closeness
    rich = quoted(MINI_COURSE, "Creating rich contextual representations for each word")
    context = quoted(
        MINI_COURSE,
        "**Contextualization**: They allow for creating contextual representations of words, taking into account their "
        "environment",
    )
    relevant = quoted(MINI_COURSE, "**Disambiguation**: They help resolve ambiguities by focusing on relevant words")
    insight = quoted(MINI_COURSE, '**Interpretability**: They provide insight into how the model "reasons" about text')
    nearest, chance = "share of sentences whose nearest neighbor has the sense", results.reading.chance
    blind, control = results.changed[BLIND].separation, results.changed[CONTROL_BLIND].separation
    related = DecisionRule(((0.3, "corrected"), (0.8, "partly"), (math.inf, "confirmed")))
    what = "correlation, over heads, of the weight on telling words and the separation lost without the head"
    return (
        Claim(
            rich,
            "cosine of a word across sentences, by embedding less after the last layer",
            number(before - after),
            above(0),
        ),
        Claim(context, nearest, share(results.changed[AS_IS].accuracy), above(chance), f"chance: {chance:.2f}"),
        Claim(context, f"{nearest}, with attention less without", attention_gain(results), above(0)),
        Claim(
            relevant,
            "separation of the senses without as many other words, less without the telling words",
            number(control - blind),
            above(0),
        ),
        Claim(insight, what, correlation(results.agreement(), results.lost.numel()), related),
    )


def takeaway(results: ContextResults) -> Takeaway:
    """Where the sense comes from."""
    blind, control = results.changed[BLIND].separation, results.changed[CONTROL_BLIND].separation
    return Takeaway(
        "A word gets its sense from the words around it, through attention: it is lost if the telling words cannot be "
        "read, and not if others cannot.",
        "With these words it makes no difference which words attention can read.",
        (
            Evidence(
                "sentences whose nearest neighbor has the sense", share(results.changed[AS_IS].accuracy), above(0.6)
            ),
            Evidence(
                "separation without as many others, less without the telling words", number(control - blind), above(0)
            ),
        ),
    )


def attention_gain(results: ContextResults) -> Estimate:
    """Sentences whose nearest neighbor has the sense: with attention, less with all heads ablated."""
    return number(results.changed[AS_IS].accuracy - results.changed[DEAF].accuracy)


def finding(results: ContextResults) -> str:
    """Sentences, from the numbers."""
    first, last = results.static.accuracy.mean(), results.layers[-1].accuracy.mean()
    weight = results.reading.cue_weight
    layer, head = divmod(int(weight.argmax()), weight.shape[1])
    needed = divmod(int(results.lost.argmax()), weight.shape[1])
    shown = above(0).verdict(attention_gain(results)) == "confirmed"
    deaf = f"{results.changed[DEAF].accuracy.mean():.0%}"
    without = f"without attention in {deaf}" if shown else "that attention is needed is not shown with this many words"
    return (
        f"The nearest neighbor of a word has its sense in {first:.0%} of the sentences by the embedding, "
        f"which is chance, and in {last:.0%} after the last layer; {without}. If the words that tell the "
        f"sense cannot be read, {results.fall(BLIND).mean:.0%} of the separation is lost; if as many others cannot, "
        f"{results.fall(CONTROL_BLIND).mean:.0%}. Head {layer + 1}.{head + 1} gives them most weight "
        f"({weight.max():.2f}; uniform attention {results.reading.uniform:.2f}), and without the {READERS} "
        f"heads that read them most {results.fall(LESS).mean:.0%} is lost, without as many others of the same layers "
        f"{results.fall(CONTROL).mean:.0%}; the single head that is missed most is {needed[0] + 1}.{needed[1] + 1} "
        f"({results.lost.max():.0%})."
    )
