"""translation: an encoder and a decoder learn English to French, and their cross-attention aligns the words.

The sentences come from a grammar (`translation/grammar.py`), which knows the right alignment; the models see sentence
pairs only. Every run has its own weights, its own training sentences and its own unseen test sentences.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.inspection.records import Cell, Grid, Lines, Panel, Picture, Table
from regard.lab.maps import TRANSLATION as PRINTED
from regard.lab.report import (
    MINI_COURSE,
    Claim,
    DecisionRule,
    Evidence,
    Report,
    Takeaway,
    Timing,
    above,
    all_of,
    below,
    compared,
    quoted,
)
from regard.lab.setting import Setting
from regard.lab.statistics import during, positive, share, training_times
from regard.lab.training import Trained, train
from regard.lab.translation import grammar, task
from regard.lab.translation.grammar import Pair
from regard.lab.translation.task import ADDITIVE, SCALED, TWO_WORDS, Translating, alignment_maps

SCORES = (SCALED, ADDITIVE)
GOOD = 0.10  # an alignment error rate of at most this counts as an alignment


@dataclass(frozen=True)
class TranslationRun:
    """One training, and what its model does with unseen sentences; `cat` is the map of the seed's sentence."""

    trained: Trained
    exact: float
    words: float
    error: float
    off: float
    cat: Tensor
    shares: dict[str, float]


@dataclass(frozen=True)
class Baselines:
    """What needs no training, on the test sentences of each run: right sentences, right words, alignment error."""

    exact: Tensor
    words: Tensor
    diagonal: Tensor
    diagonal_off: Tensor
    untrained: Tensor
    untrained_off: Tensor


Runs = dict[str, list[TranslationRun]]

# of the printed map, by French word
ROWS = (
    "Le          | 0.8 | 0.1 | 0.0  | 0.0 | 0.1 | 0.0 |",
    "chat        | 0.1 | 0.8 | 0.1  | 0.0 | 0.0 | 0.0 |",
    "est         | 0.0 | 0.1 | 0.4  | 0.3 | 0.1 | 0.1 |",
    "assis       | 0.0 | 0.1 | 0.7  | 0.1 | 0.0 | 0.1 |",
    "sur         | 0.0 | 0.0 | 0.1  | 0.8 | 0.1 | 0.0 |",
    "le          | 0.1 | 0.0 | 0.0  | 0.1 | 0.7 | 0.1 |",
    "tapis       | 0.0 | 0.0 | 0.0  | 0.1 | 0.1 | 0.8 |",
)


def run(setting: Setting) -> Report:
    """Run the experiment."""
    repetitions, tested = setting.choose(full=3, quick=2), setting.choose(full=500, quick=100)
    seeds = setting.seeds(repetitions)
    runs_by_score: Runs = {score: [] for score in SCORES}
    for seed in seeds:
        unseen = grammar.sentences(tested, seed, unseen=True)
        for score in SCORES:
            runs_by_score[score].append(measured(train(training_task(setting, score, seed)), unseen))
    plain = baselines(setting, seeds, tested)
    trained = {score: [each.trained for each in runs] for score, runs in runs_by_score.items()}
    return Report(
        "translation",
        "Does a model that only ever sees sentence pairs find out which words belong together?",
        (main_table(runs_by_score, plain), cat_table(runs_by_score), pair_table(runs_by_score)),
        (cat_picture(runs_by_score), other_picture(runs_by_score), curves(trained)),
        finding(runs_by_score, plain),
        compared(*claims(runs_by_score, plain)),
        setting.record(
            repetitions,
            steps=trained[SCALED][0].task.steps,
            training_sentences=training_task(setting, SCALED, 0).sentences,
            test_sentences=tested,
            sentences_of_the_grammar=f"{grammar.possible():,}",
        ),
        Timing((training_times("score", trained),)),
        why="Attention was invented for translation, and its maps were first read as alignments; this tests how far "
        "that reading holds.",
        setup="A small model learns English to French from sentence pairs of a grammar, which knows the right "
        "alignment; the model is never told it. Its only way from the English to the French sentence is one attention "
        "head. The alignment error is the share of links that are wrong, if each French word is linked to the English "
        "word with its largest weight. The additive score needs no bias here, because vectors of words are not "
        "centered.",
        takeaway=takeaway(runs_by_score, plain),
    )


def training_task(setting: Setting, score: str, seed: int) -> Translating:
    """What is trained: smaller if quick."""
    return Translating(
        seed=seed,
        steps=setting.choose(full=600, quick=240),
        rate=setting.choose(full=3e-3, quick=1e-2),
        rise=0.1,
        looks=setting.choose(full=20, quick=8),
        score=score,
        width=setting.choose(full=64, quick=32),
        batch=setting.choose(full=64, quick=32),
        sentences=setting.choose(full=20_000, quick=2_000),
    )


def measured(trained: Trained, unseen: list[Pair]) -> TranslationRun:
    """What a trained model makes of unseen sentences."""
    translated, weights = task.translations(trained.model, unseen), alignment_maps(trained.model, unseen)
    return TranslationRun(
        trained,
        task.sentences_right(unseen, translated),
        task.words_right(unseen, translated),
        task.error_rate(unseen, weights),
        task.off_sure_word(unseen, weights),
        alignment_maps(trained.model, [grammar.cat()])[0],
        task.two_word_shares(unseen, weights),
    )


def baselines(setting: Setting, seeds: list[int], tested: int) -> Baselines:
    """Word by word, word t to word t, and models as they start."""
    rows = []
    for seed in seeds:
        untrained = training_task(setting, SCALED, seed)
        unseen = grammar.sentences(tested, seed, unseen=True)
        translated = task.word_by_word(grammar.sentences(untrained.sentences, seed, unseen=False), unseen)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = untrained.model().eval()
        row = [task.sentences_right(unseen, translated), task.words_right(unseen, translated)]
        for weights in (task.diagonal_maps(unseen), alignment_maps(model, unseen)):
            row += [task.error_rate(unseen, weights), task.off_sure_word(unseen, weights)]
        rows.append(row)
    return Baselines(*torch.tensor(rows, dtype=torch.float64).T)


def main_table(runs_by_score: Runs, plain: Baselines) -> Table:
    """Translations and alignments of unseen sentences."""
    rows: list[tuple[Cell, ...]] = []
    for score, runs in runs_by_score.items():
        measures = zip(*((each.exact, each.words, each.error, each.off) for each in runs), strict=True)
        rows.append((f"trained, {score}", *map(share, measures)))
    words = (plain.exact, plain.words, plain.diagonal, plain.diagonal_off)
    rows.append(("word by word, word t to word t", *map(share, words)))
    rows.append((f"not trained, {SCALED}", "", "", share(plain.untrained), share(plain.untrained_off)))
    columns = ("model", "sentences right", "words right", "alignment error", "off the sure word")
    title = f"Unseen sentences; mean and 95% interval over {len(runs_by_score[SCALED])} trainings"
    return Table(columns, rows, title)


def cat_table(runs_by_score: Runs) -> Table:
    """Each word of the seed's sentence: the weight on its English word."""
    pair = grammar.cat()
    english, french = grammar.labels(pair)
    rows: list[tuple[Cell, ...]] = []
    for place, source in sorted(pair.sure):
        weights = [share([float(each.cat[place, source]) for each in runs_by_score[score]]) for score in SCORES]
        right = [sum(int(each.cat[place].argmax()) == source for each in runs_by_score[score]) for score in SCORES]
        marks = " / ".join(f"{count} of {len(runs_by_score[SCALED])}" for count in right)
        rows.append((french[place], english[source], PRINTED.weights[place][source], *weights, marks))
    columns = ("French", "English", "the seed", *SCORES, "largest weight there")
    return Table(columns, rows, "The seed's sentence, which no model has seen: the weight on the right word")


def pair_table(runs_by_score: Runs) -> Table:
    """One English word that becomes two."""
    rows: list[tuple[Cell, ...]] = [
        (name, *(share([each.shares[name] for each in runs_by_score[score]]) for score in SCORES)) for name in TWO_WORDS
    ]
    title = "Two French words for one: weight on the English verb, or on do(es) not; unseen"
    return Table(("French word", *SCORES), rows, title)


def grid(table: Tensor, pair: Pair, title: str) -> Grid:
    """A map with its words."""
    english, french = grammar.labels(pair)
    return Grid(table.tolist(), french, english, title, limits=(0.0, 1.0))


def cat_picture(runs_by_score: Runs) -> Picture:
    """The printed map beside those of the first run."""
    printed = Grid(PRINTED.weights, PRINTED.rows, PRINTED.columns, "printed in the seed", limits=(0.0, 1.0))
    trained = [grid(runs_by_score[score][0].cat, grammar.cat(), f"trained, {score}") for score in SCORES]
    return Panel((printed, *trained), "The cat sits on the mat: what each French word looks at")


def other_picture(runs_by_score: Runs) -> Picture:
    """A harder unseen sentence, first run."""
    pair = grammar.friends().pair()
    grids = []
    for score, runs in runs_by_score.items():
        (table,) = alignment_maps(runs[0].trained.model, [pair])
        grids.append(grid(table, pair, f"trained, {score}"))
    return Panel(grids, "Unseen: adjectives change sides, not and the verb become two words each")


def curves(trained: dict[str, list[Trained]]) -> Picture:
    """Loss and alignment error during training."""
    pictures = []
    for column, label, log in (("loss", "loss (nats)", True), ("alignment error", "share", False)):
        lines = [during(group, column, score) for score, group in trained.items()]
        pictures.append(Lines(lines, "step", label, column.capitalize(), log_y=log))
    return Panel(pictures, f"During training, mean and range of {len(trained[SCALED])} runs")


def claims(runs_by_score: Runs, plain: Baselines) -> tuple[Claim, ...]:
    """The printed map, word by word, and what is said of it."""
    pair = grammar.cat()
    english, french = grammar.labels(pair)
    every = [each for runs in runs_by_score.values() for each in runs]
    listed = []
    for place, source in sorted(pair.sure):
        right = sum(int(each.cat[place].argmax()) == source for each in every)
        weight = share([float(each.cat[place, source]) for each in every]).mean
        what = f"models, of {len(every)}, in which {french[place]!r} looks most at {english[source]!r}"
        note = f"weight there {weight:.2f}, printed {PRINTED.weights[place][source]:g}"
        listed.append(Claim(quoted(MINI_COURSE, ROWS[place]), what, right, all_of(len(every)), note))
    two = quoted(
        MINI_COURSE, 'How does attention help in correctly translating "sits" to "est assis" (two words in French)?'
    )
    received = positive([float(each.cat[:, 2].sum()) for each in every])
    note = f"both words look at it; printed {float(PRINTED.tensor()[:, 2].sum()):.1f}"
    listed.append(Claim(two, "what 'sits' receives from all French words", received, above(1), note))
    aligned = quoted(
        MINI_COURSE,
        "**Translation**: In machine translation, they implicitly align words between source and target languages",
    )
    rule = DecisionRule(((GOOD, "confirmed"), (float(plain.diagonal.min()), "partly"), (math.inf, "corrected")))
    note = f"words in order: {share(plain.diagonal).mean:.2f}"
    listed.append(
        Claim(aligned, "alignment error, unseen sentences", share([each.error for each in every]), rule, note)
    )
    return tuple(listed)


def takeaway(runs_by_score: Runs, plain: Baselines) -> Takeaway:
    """What cross-attention finds out."""
    errors = share([each.error for runs in runs_by_score.values() for each in runs])
    return Takeaway(
        "A model that sees sentence pairs alone learns which words belong together: its attention is an alignment.",
        "With this training the attention of the models is no good alignment.",
        (
            Evidence("alignment error on unseen sentences", errors, below(GOOD)),
            Evidence("alignment error of words in order", share(plain.diagonal), above(GOOD)),
        ),
    )


def finding(runs_by_score: Runs, plain: Baselines) -> str:
    """One sentence, from the numbers."""
    error = {score: share([each.error for each in runs]).mean for score, runs in runs_by_score.items()}
    right = {score: share([each.exact for each in runs]).mean for score, runs in runs_by_score.items()}
    tables = [each.cat for runs in runs_by_score.values() for each in runs]
    cat = sum(set(enumerate(table.argmax(1).tolist())) == grammar.cat().sure for table in tables)
    return (
        f"Without being told, cross-attention links French to English words with an alignment error of "
        f"{error[SCALED]:.3f} ({SCALED}) and {error[ADDITIVE]:.3f} ({ADDITIVE}) on unseen sentences, of which "
        f"{right[SCALED]:.1%} and {right[ADDITIVE]:.1%} are translated without a mistake; words in order are off by "
        f"{share(plain.diagonal).mean:.2f} and untrained weights by {share(plain.untrained).mean:.2f}; every word of "
        f"the seed's sentence looks at the right word in {cat} of {len(tables)} models."
    )
