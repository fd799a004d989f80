"""positions: order is lost and found again, distances are read off, and the report follows from the trained models."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.inspection.records import Estimate, Lines
from regard.lab import positions
from regard.lab.maps import weights
from regard.lab.positions import order, schemes
from regard.lab.positions.schemes import SCHEMES, PositionRecall, TransformerXL, named, profile, right
from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.nn import MultiHeadAttention
from regard.spec.positions import rotary, sinusoidal

Quick = Callable[[str], Report]


def test_only_a_layer_without_positions_and_mask_is_equivariant() -> None:
    generator = torch.Generator().manual_seed(0)
    for scheme in SCHEMES:
        changes = order(scheme, 2, generator)
        assert (float(changes.shuffled.max()) < 1e-12) == (scheme.name == "none")
        assert (float(changes.moved.max()) < 1e-12) == (scheme.enters != "embeddings")
        assert (float(changes.values.max()) == 0) == (scheme.enters != "embeddings")
    assert float(order(named("none"), 2, generator, causal=True).shuffled.min()) > 0.1


def test_transformer_xl_is_its_formula() -> None:
    torch.manual_seed(0)
    scheme = TransformerXL(2, 4, 9)
    nn.init.normal_(scheme.u)
    nn.init.normal_(scheme.v)
    score = scheme()
    query, key = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)
    computed = weights(query, key, score=score, engine="reference")
    offsets = scheme.project(sinusoidal(19, 8, start=-9)).view(19, 2, 4)
    logits = torch.empty(2, 5, 5)
    for head in range(2):
        for i in range(5):
            for j in range(5):
                content = (query[0, head, i] + scheme.u[head]) @ key[0, head, j]
                place = (query[0, head, i] + scheme.v[head]) @ offsets[i - j + 9, head]
                logits[head, i, j] = (content + place) / 2  # √4
    assert torch.allclose(computed[0], logits.softmax(-1), atol=1e-5)


class Looking(nn.Module):
    """A layer that looks a known distance back, and names what it sees there."""

    def __init__(self, back: int, vocabulary: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(4, 1, mask="causal", engine="reference")
        nn.init.zeros_(self.attention.q_proj.weight)
        self.back, self.vocabulary = back, vocabulary

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        bias = torch.zeros(length, length)
        place = torch.arange(self.back, length)
        bias[place, place - self.back] = 50.0
        self.attention(torch.ones(*tokens.shape, 4), bias=bias)
        seen = torch.zeros_like(tokens)
        seen[:, self.back :] = tokens[:, : length - self.back]
        return nn.functional.one_hot(seen, self.vocabulary).float()


def test_sinusoids_and_rotations_say_the_same_of_two_places() -> None:
    picture = positions.near_picture()
    assert isinstance(picture, Lines)
    turned = rotary(torch.ones(1, 1, 64, 64, dtype=torch.float64))[0, 0]
    assert torch.allclose(torch.tensor(picture.lines[0].y), (turned @ turned[0] / 64).float(), atol=1e-6)
    assert picture.lines[1].y[20] > picture.lines[0].y[20]


def test_answers_and_profiles_of_a_model_that_looks_where_it_is_told() -> None:
    tokens = torch.randint(16, (4, 12), generator=torch.Generator().manual_seed(0))
    assert right(Looking(2, 16), tokens, 2, 5) == 1.0
    assert right(Looking(3, 16), tokens, 2, 5) < 0.5
    by_distance = profile(Looking(3, 16), tokens, 6)
    assert by_distance.shape == (6,)
    assert float(by_distance[3]) == pytest.approx(1.0)


def test_the_loss_is_of_the_token_asked_for() -> None:
    task = positions.training_task(Setting(quick=True), "rotary", 0)
    assert isinstance(task, PositionRecall)
    model = Looking(schemes.BACK, task.vocabulary)
    sharp = nn.Sequential(model)
    loss = task.loss(lambda tokens: 50 * sharp(tokens), torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    assert float(loss) == pytest.approx(0.0, abs=1e-6)


def test_learned_tables_have_rows_that_training_never_reaches() -> None:
    task = positions.training_task(Setting(quick=True), "learned", 0)
    model = task.model()
    task.loss(model, torch.Generator().manual_seed(0)).backward()
    gradient = model.get_parameter("embedding.position.weight").grad
    assert gradient is not None
    assert len(gradient) == task.longest == schemes.TIMES[-1] * task.length
    assert bool((gradient[: task.length - 1] != 0).any(1).all())
    assert float(gradient[task.length :].abs().max()) == 0


def test_quick_models_learn_distances_and_lose_them(quick: Quick) -> None:
    rows = {row[0]: row[1:] for row in quick("positions").tables[1].rows}
    means = {name: [cell.mean for cell in row if isinstance(cell, Estimate)] for name, row in rows.items()}
    assert means["rotary"][0] > 0.9
    assert means["Transformer-XL"][0] > 0.9
    assert means["learned"][0] > 0.6
    assert means["learned"][-1] < 0.3
    assert means["none"][0] < 0.5


def test_verdicts_and_finding_follow_the_numbers(quick: Quick) -> None:
    generator = torch.Generator().manual_seed(0)
    orders = {scheme.name: order(scheme, 2, generator) for scheme in SCHEMES}
    orders[positions.CAUSAL] = order(SCHEMES[0], 2, generator, causal=True)
    trained = positions.learned(Setting(quick=True, seed=3), "rotary", [1, 2])
    length = min(trained.right)
    able = dataclasses.replace(trained, right={times * length: [1.0, 1.0] for times in schemes.TIMES})
    unable = dataclasses.replace(trained, right={times * length: [0.1, 0.1] for times in schemes.TIMES})
    trainings = {scheme.name: able if scheme.name == "ALiBi" else unable for scheme in SCHEMES}
    assert "ALiBi can tell" in positions.finding(orders, trainings)
    assert "ALiBi still can, nobody no longer." in positions.finding(orders, trainings)
    said = {claim.quote.plain: claim.verdict for claim in positions.claims(orders, trainings)}
    shuffled, through = "If you shuffle input tokens, outputs shuffle the same way", "through Q and K"
    assert said[shuffled] == said["Encodes distance, not absolute"] == "confirmed"
    assert next(word for text, word in said.items() if text.endswith(through)) == "partly"
    orders["none"] = orders["rotary"]
    orders["sinusoidal"] = orders["learned"] = orders["T5"]
    said = {claim.quote.plain: claim.verdict for claim in positions.claims(orders, trainings)}
    assert said[shuffled] == "corrected"
    assert next(word for text, word in said.items() if text.endswith(through)) == "confirmed"
