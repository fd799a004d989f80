"""induction: repeated texts, scores of hand-made heads, and a report that follows from the trained models."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.inspection.records import Estimate, Grid, Lines, Panel
from regard.lab import induction
from regard.lab.induction import GAIN, REACH, AttentionOnly, Near
from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.nn import MultiHeadAttention
from regard.spec.biases import ALiBi

Quick = Callable[[str], Report]


def test_texts_repeat_themselves_without_repeating_a_token() -> None:
    tokens = induction.repeated(3, 20, 16, torch.Generator().manual_seed(0))
    assert torch.equal(tokens[:, :10], tokens[:, 10:])
    assert all(len(set(row[:10])) == 10 for row in tokens.tolist())
    with pytest.raises(ValueError, match="a half of 17 different tokens needs as many in the vocabulary, which has 16"):
        induction.repeated(1, 34, 16, torch.Generator())


def test_losses_are_of_what_can_and_cannot_be_known() -> None:
    tokens = induction.repeated(2, 12, 8, torch.Generator().manual_seed(0))
    oracle = torch.zeros(2, 12, 8)
    oracle[:, 5:11] = 50.0 * nn.functional.one_hot(tokens[:, 6:], 8)
    assert float(induction.second_half(oracle, tokens)) == pytest.approx(0.0, abs=1e-6)
    assert float(induction.first_half(oracle, tokens)) == pytest.approx(torch.log(torch.tensor(8.0)).item())


class Known(nn.Module):
    """Two layers that look where they are told: at the previous token, and at what followed the same token."""

    def __init__(self, length: int, vocabulary: int) -> None:
        super().__init__()
        layers = [MultiHeadAttention(4, 1, mask="causal") for _ in range(2)]
        for layer in layers:
            nn.init.zeros_(layer.q_proj.weight)
        self.layers = nn.ModuleList(layers)
        place = torch.arange(length)
        half = length // 2
        self.biases = [torch.zeros(length, length), torch.zeros(length, length)]
        self.biases[0][place[1:], place[:-1]] = 50.0
        self.biases[1][place[half:-1], place[1:half]] = 50.0
        self.vocabulary = vocabulary

    def forward(self, tokens: Tensor) -> Tensor:
        x = torch.ones(*tokens.shape, 4)
        for layer, bias in zip(self.layers, self.biases, strict=True):
            x = layer(x, bias=bias)
        return torch.zeros(*tokens.shape, self.vocabulary)


def test_scores_of_heads_that_look_where_they_are_told() -> None:
    tokens = induction.repeated(2, 16, 8, torch.Generator().manual_seed(0))
    scores = induction.scores(Known(16, 8), tokens)
    assert scores.previous.shape == scores.induction.shape == (2, 1)
    assert float(scores.previous[0]) > 0.99
    # the first token of the second half follows the last of the first: its key is itself a query of the second half
    assert float(scores.induction[1]) > 0.85
    assert float(scores.induction[0]) < 0.2
    assert float(scores.previous[1]) < 0.5


def test_the_model_is_attention_only_and_any_length_will_do() -> None:
    torch.manual_seed(0)
    model = AttentionOnly(40, 16, 2)
    first, second = model.layers
    assert isinstance(first, MultiHeadAttention)
    assert isinstance(second, MultiHeadAttention)
    assert isinstance(first.bias, ALiBi)
    assert second.bias is None
    assert {type(part).__name__ for part in model.modules()} == {
        *("AttentionOnly", "Embedding", "ModuleList", "MultiHeadAttention", "Near", "Linear", "LayerNorm", "Dropout")
    }
    near = first.position
    assert isinstance(near, Near)
    with torch.no_grad():
        near.table[:, REACH - 1] = 7.0
        assert float(near().table.max()) == GAIN * 7.0
    tokens = torch.randint(40, (1, 70))
    assert torch.allclose(model(tokens)[:, :30], model(tokens[:, :30]), atol=1e-5)


def test_quick_models_grow_an_induction_head(quick: Quick) -> None:
    report = quick("induction")
    trained = report.tables[0].rows[0]
    assert isinstance(trained[4], Estimate)
    assert trained[4].mean > 0.5
    assert isinstance(trained[1], Estimate)
    assert isinstance(trained[2], Estimate)
    assert trained[2].mean < trained[1].mean / 2


def test_the_map_has_a_stripe_where_the_text_was_before(quick: Quick) -> None:
    panel = quick("induction").pictures[0]
    assert isinstance(panel, Panel)
    _, grid = panel.pictures
    assert isinstance(grid, Grid)
    length = len(grid.values)
    stripe = [grid.values[query][query - length // 2 + 1] or 0.0 for query in range(length // 2, length - 1)]
    assert sum(stripe) / len(stripe) > 0.4
    assert grid.values[0][1] is None


def test_the_longest_text_is_far_past_the_training(quick: Quick) -> None:
    report = quick("induction")
    lengths = [int(str(row[0]).replace(",", "")) for row in report.tables[0].rows]
    task = induction.training_task(Setting(quick=True), 0)
    assert lengths[0] == task.length == report.settings["trained length"]
    assert lengths[-1] >= 16 * task.length
    picture = report.pictures[2]
    assert isinstance(picture, Lines)
    assert list(picture.lines[0].x) == lengths
