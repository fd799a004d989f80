"""translation: what the report says follows from the trained models, and an untrained one is never shown as trained."""

import random
from collections.abc import Callable

import pytest
import torch

from regard.inspection.records import Estimate, Grid, Panel
from regard.lab import maps, translation
from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.lab.translation import grammar, task
from regard.lab.translation.grammar import ENGLISH, FRENCH, Pair, french_words, sources, targets
from regard.lab.translation.task import ADDITIVE, SCALED, Translating

Quick = Callable[[str], Report]


def test_quick_models_align_far_better_than_what_is_not_trained(quick: Quick) -> None:
    rows = {row[0]: row[1:] for row in quick("translation").tables[0].rows}
    errors = {name: cells[2].mean for name, cells in rows.items() if isinstance(cells[2], Estimate)}
    for score in (SCALED, ADDITIVE):
        assert errors[f"trained, {score}"] < 0.25
    assert errors[f"not trained, {SCALED}"] > 0.6
    assert errors["word by word, word t to word t"] > 0.3


def test_the_map_stands_beside_the_printed_one(quick: Quick) -> None:
    panel = quick("translation").pictures[0]
    assert isinstance(panel, Panel)
    printed, *trained = panel.pictures
    assert isinstance(printed, Grid)
    assert printed.values == maps.TRANSLATION.weights
    for grid in trained:
        assert isinstance(grid, Grid)
        assert list(grid.row_labels) == list(maps.TRANSLATION.rows)
        assert list(grid.column_labels) == list(maps.TRANSLATION.columns)
        assert [sum(value or 0 for value in row) for row in grid.values] == pytest.approx([1.0] * 7, abs=1e-5)


def test_every_word_of_the_printed_map_is_a_claim(quick: Quick) -> None:
    claims = [claim for compared in quick("translation").compared for claim in compared.claims]
    assert [claim.note[-3:] for claim in claims[:7]] == ["0.8", "0.8", "0.4", "0.7", "0.8", "0.7", "0.8"]
    assert claims[2].quote.plain.startswith("est · 0.0 · 0.1 · 0.4")
    assert claims[2].measured.endswith("in which 'est' looks most at 'sits'")
    assert claims[7].note.endswith("printed 1.3")


def test_settings_name_the_training(quick: Quick) -> None:
    settings = quick("translation").settings
    asked = translation.training_task(Setting(quick=True), SCALED, 0)
    assert settings["steps"] == asked.steps
    assert settings["training sentences"] == asked.sentences


def test_words_are_numbers_and_back() -> None:
    pairs = grammar.sentences(200, 3, unseen=True)
    assert [french_words(row[1:]) for row in targets(pairs).tolist()] == [pair.french for pair in pairs]
    assert list(ENGLISH.values()) == list(range(len(ENGLISH)))
    assert list(FRENCH.values()) == list(range(len(FRENCH)))
    assert sources(pairs).max() < len(ENGLISH)


def test_every_word_of_the_grammar_has_a_number() -> None:
    chance = random.Random(2)
    pairs = [grammar.draw(chance).pair() for _ in range(4000)]
    assert {word for pair in pairs for word in pair.english} == ENGLISH.keys() - set(grammar.SPECIAL)
    assert {word for pair in pairs for word in pair.french} <= FRENCH.keys() - set(grammar.SPECIAL)


def one(sure: set[tuple[int, int]], possible: set[tuple[int, int]]) -> Pair:
    """A pair of three words each."""
    return Pair(("a", "b", "c"), ("x", "y", "z"), frozenset(sure), frozenset(sure | possible))


def test_error_rate_by_hand() -> None:
    pair = one({(0, 0), (1, 1), (2, 1)}, {(2, 2)})
    assert task.error_rate([pair], [torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 1, 0]])]) == 0
    # x is right, y is wrong, z is only possible: 1 − (1 + 2) / (3 + 3)
    table = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 0, 1]])
    assert task.error_rate([pair], [table]) == pytest.approx(0.5)
    assert task.off_sure_word([pair], [table]) == pytest.approx(2 / 3)


def test_shares_of_translations_by_hand() -> None:
    pairs = [one({(0, 0)}, set()), one({(0, 0)}, set())]
    found = [("x", "y", "z"), ("x", "z")]
    assert task.sentences_right(pairs, found) == 0.5
    assert task.words_right(pairs, found) == pytest.approx(4 / 6)


def test_one_word_becomes_two() -> None:
    pair = grammar.cat()
    table = torch.zeros(7, 6)
    table[2, 2], table[3, 2] = 0.25, 0.75
    found = task.two_word_shares([pair], [table])
    assert (found["est, sont"], found["assis, couché, debout …"]) == (0.25, 0.75)


@pytest.mark.parametrize("score", [SCALED, ADDITIVE])
def test_maps_are_those_of_each_sentence_alone(score: str) -> None:
    """Padding is not looked at, and row t is the step that chooses word t."""
    asked = Translating(seed=0, steps=1, rate=1e-2, rise=0.1, looks=1, score=score, width=8, batch=2, sentences=2)
    torch.manual_seed(0)
    model = asked.model().eval()
    pairs = grammar.sentences(5, 1, unseen=True)
    together = task.alignment_maps(model, pairs)
    for pair, table in zip(pairs, together, strict=True):
        assert torch.allclose(table, task.alignment_maps(model, [pair])[0], atol=1e-6)
        assert torch.allclose(table.sum(1), torch.ones(len(pair.french)), atol=1e-5)


def test_translations_follow_the_likeliest_word() -> None:
    asked = Translating(seed=0, steps=1, rate=1e-2, rise=0.1, looks=1, score=SCALED, width=8, batch=2, sentences=2)
    torch.manual_seed(0)
    model = asked.model().eval()
    pairs = grammar.sentences(3, 1, unseen=True)
    found = task.translations(model, pairs)
    for pair, words in zip(pairs, found, strict=True):
        row = torch.tensor([[1]])
        for _ in range(task.LONGEST):
            with torch.no_grad():
                row = torch.cat([row, model(sources([pair]), row)[:, -1:].argmax(-1)], 1)
        assert words == french_words(row[0, 1:].tolist())
