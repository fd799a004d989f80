"""Relations: what is wanted is where it is said to be, and the variants of the model are what they are called."""

from dataclasses import replace

import pytest
import torch

from regard.lab.tasks.relations import NOWHERE, ItemTexts, Relater, Relating, draw_texts, places, right, right_answers


def _texts() -> ItemTexts:
    return ItemTexts(torch.tensor([[2, 0, 3, 1]]), torch.tensor([[5, 6, 7, 4]]))


def test_every_type_comes_equally_often() -> None:
    texts = draw_texts(5, 4, 3, 7, torch.Generator().manual_seed(0))
    assert texts.types.shape == texts.payloads.shape == (5, 12)
    assert all(sorted(row) == sorted(list(range(4)) * 3) for row in texts.types.tolist())
    assert int(texts.payloads.max()) < 7


def test_places_of_each_relation() -> None:
    texts = _texts()
    assert places(texts, "previous").tolist() == [[-1, 0, 1, 2]]
    assert places(texts, "first").tolist() == [[-1, 0, 0, 0]]
    assert places(texts, "next").tolist() == [[2, 3, 1, 0]]
    assert places(texts, "partner").tolist() == [[2, 3, 0, 1]]
    assert places(texts, "twin").tolist() == [[-1, -1, -1, -1]]
    twins = ItemTexts(torch.tensor([[0, 1, 1, 0]]), torch.zeros(1, 4, dtype=torch.long))
    assert places(twins, "twin").tolist() == [[3, 2, 1, 0]]


def test_answers_are_payloads_and_sums_of_payloads() -> None:
    texts = _texts()
    assert right_answers(texts, "next", 8).tolist() == [[7, 4, 6, 5]]
    assert right_answers(texts, "previous", 8).tolist() == [[NOWHERE, 5, 6, 7]]
    assert right_answers(texts, "previous+next", 8).tolist() == [[NOWHERE, (5 + 4) % 8, (6 + 6) % 8, (7 + 5) % 8]]


PLAIN = Relating(
    seed=0,
    steps=5,
    rate=1e-2,
    rise=0.1,
    looks=1,
    questions=("next", "partner"),
    types=4,
    copies=1,
    payloads=6,
    placed=False,
    width=16,
    heads=2,
    shared=False,
    joined=True,
    reading="linear",
    batch=8,
)


def test_an_oracle_is_always_right_and_a_constant_rarely() -> None:
    task = PLAIN
    texts = task.texts(50, torch.Generator().manual_seed(1))

    class Oracle(torch.nn.Module):
        def forward(self, types: torch.Tensor, payloads: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(task.answers(ItemTexts(types, payloads)), 6).float()

    assert right(task, Oracle(), texts) == {"next": 1.0, "partner": 1.0}
    model = task.model()
    assert all(found < 0.5 for found in right(task, model, texts).values())


def test_variants_of_the_model() -> None:
    shared, apart, plain = replace(PLAIN, shared=True).model(), replace(PLAIN, joined=False).model(), PLAIN.model()
    assert isinstance(shared, Relater)
    assert isinstance(apart, Relater)
    assert shared.attention.k_proj is shared.attention.q_proj
    assert isinstance(apart.attention.out_proj, torch.nn.Identity)
    counts = [sum(each.numel() for each in model.parameters()) for model in (shared, apart, plain)]
    assert counts == [counts[2] - 16 * 16, counts[2] - 16 * 16, counts[2]]
    texts = _texts()
    held = texts.payloads - 2
    assert plain(texts.types, held).shape == (1, 4, 2, 6)
    # without places the order of the items does not matter
    order = torch.tensor([3, 1, 0, 2])
    turned = plain(texts.types[:, order], held[:, order])
    assert torch.allclose(turned, plain(texts.types, held)[:, order], atol=1e-6)


def test_an_unknown_reading_is_refused() -> None:
    with pytest.raises(ValueError, match="reading must be one of linear, each, mixed, got 'deep'"):
        replace(PLAIN, reading="deep")
