"""self-cross: laws by other means, changes that do what they say, and verdicts that follow from the numbers."""

from collections.abc import Callable

import pytest
import torch
from torch import nn as torch_nn

from regard.inspection.capture import capture
from regard.inspection.records import Estimate, Grid, Panel
from regard.lab import layers, self_cross
from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.lab.training import train
from regard.lab.translation import grammar, training_task
from regard.lab.translation.task import ATTENTIONS, DECODER, SCALED, Translating, attention_maps

Quick = Callable[[str], Report]


@pytest.fixture(scope="module")
def untrained() -> torch_nn.Module:
    """A small model: what is tested here holds for any weights."""
    torch.manual_seed(0)
    return (
        Translating(seed=0, steps=1, rate=1e-2, rise=0.1, looks=1, score=SCALED, width=8, batch=2, sentences=2)
        .model()
        .eval()
    )


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("law", self_cross.LAWS, ids=lambda law: law.done)
def test_every_law_holds(law: self_cross.Law, own: bool) -> None:
    generator = torch.Generator().manual_seed(5)
    draws = [self_cross.draw(generator) for _ in range(20)]
    assert self_cross.holds(law, draws, own)


def test_a_law_that_says_otherwise_fails() -> None:
    draws = [self_cross.draw(torch.Generator().manual_seed(0))]
    changed = next(law for law in self_cross.LAWS if law.done == "a key and its value changed")
    wrong = self_cross.Law("wrong", self_cross.STAYS, self_cross.STAYS, changed.difference)
    assert not self_cross.holds(wrong, draws, False)
    assert not self_cross.holds(
        self_cross.Law("wrong", self_cross.MOVES, self_cross.MOVES, self_cross.LAWS[0].difference), draws, True
    )


def test_the_same_sequence_is_self_attention() -> None:
    given = self_cross.draw(torch.Generator().manual_seed(1))
    assert torch.equal(given.layer(given.x, given.x.clone()), given.layer(given.x))


def test_maps_have_the_lengths_of_their_sentences(untrained: torch_nn.Module) -> None:
    pairs = grammar.sentences(6, 2, unseen=True)
    found = attention_maps(untrained, pairs)
    for index, pair in enumerate(pairs):
        english, french = len(pair.english), len(pair.french)
        assert [tuple(found[place.name][index].shape) for place in ATTENTIONS] == [
            (english, english),
            (french, french),
            (french, english),
        ]
        for place in ATTENTIONS:
            assert torch.allclose(found[place.name][index].sum(1), torch.ones(len(found[place.name][index])), atol=1e-5)
        assert not found[DECODER.name][index].triu(1).any()


def test_numbers_of_maps_by_hand() -> None:
    tables = [torch.eye(3), torch.full((2, 4), 0.25)]
    assert self_cross.keys_in_use(tables) == pytest.approx((3 * 1 + 2 * 4) / 5)
    assert self_cross.same_place(tables) == pytest.approx((3 * 1 + 2 * 0.25) / 5)
    assert self_cross.square(tables) == 0.5


def test_words_are_shuffled_within_their_sentence() -> None:
    source = grammar.sources(grammar.sentences(8, 2, unseen=True))
    moved = source.gather(1, self_cross.word_order(source, torch.Generator().manual_seed(0)))
    assert torch.equal(moved.sort(1).values, source.sort(1).values)
    assert torch.equal(moved == 0, source == 0)
    assert not torch.equal(moved, source)


def test_shuffled_outputs_of_the_encoder_are_the_same_sentence(untrained: torch_nn.Module) -> None:
    pairs = grammar.sentences(8, 2, unseen=True)
    found = self_cross.words_right(untrained, pairs, torch.Generator().manual_seed(0))
    assert found[self_cross.MEMORY] == found[self_cross.INTACT]
    order = self_cross.SHUFFLED
    moved = self_cross.shuffled_map(untrained, grammar.cat(), order)
    assert torch.allclose(moved, attention_maps(untrained, [grammar.cat()])["cross"][0][:, order], atol=1e-6)


def test_trained_attention_is_worth_something(quick: Quick) -> None:
    rows = {str(row[0]): row[1] for row in quick("self-cross").tables[1].rows}
    right = {name: cell.mean for name, cell in rows.items() if isinstance(cell, Estimate)}
    assert right["intact"] > 0.6
    assert right["encoder outputs shuffled"] == pytest.approx(right["intact"], abs=1e-9)
    for worse in ("cross: output removed", "cross: equal weights", "another sentence's outputs"):
        assert right[worse] < right["intact"] / 2
    assert right["English words shuffled"] < right["intact"] - 0.1


def test_the_map_is_that_of_the_translation_experiment(quick: Quick) -> None:
    """The same training serves both: one map, by two ways."""
    panel = quick("self-cross").pictures[0]
    assert isinstance(panel, Panel)
    cross = panel.pictures[2]
    assert isinstance(cross, Grid)
    seed = int(torch.randint(2**31, (2,), generator=torch.Generator().manual_seed(3))[0])
    task = training_task(Setting(quick=True, seed=3), SCALED, seed)
    model = train(task).model
    pair = grammar.cat()
    with torch.no_grad():
        seen = capture(model, grammar.sources([pair]), grammar.targets([pair])[:, :-1])
    table = seen.cross[0, 0].dense()[0, : len(pair.french)]
    assert torch.allclose(torch.tensor(cross.values, dtype=table.dtype), table, atol=1e-6)


def test_costs_are_those_of_the_layers() -> None:
    for each, row in zip(layers.EXAMPLES, layers.cost_table().rows, strict=True):
        assert row[2] == each.queries * each.keys
        wide = each.other or each.width
        weights = 2 * each.width**2 + 2 * each.width * wide
        assert row[4] == weights + 4 * each.width
    assert [row[0] for row in layers.example_table().rows if row[1] == "self"] == ["BERT", "ViT"]
