"""effect: the table of what heads do to the output."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.functional import scaled_dot_product_attention as fused

import regard
from regard.inspection.interventions import Ablate, Uniform, effect, intervene
from regard.inspection.records import Estimate


def language() -> Any:
    torch.manual_seed(0)
    model = regard.nn.LanguageModel(31, layers=2, d_model=24, heads=3).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    return model


IDS = [torch.randint(31, (2, 8), generator=torch.Generator().manual_seed(seed)) for seed in range(3)]


@torch.no_grad()
def test_each_cell_is_what_it_says() -> None:
    model = language()
    table = effect(model, IDS, Ablate(), metric=["change", "kl", "next"])
    assert table.columns == ["layer", "head", "change", "kl", "next"]
    assert len(table) == 6
    row = table.where(head=2).rows[1]
    assert row[0] == "blocks.blocks.1.attention"
    found: dict[str, list[Tensor]] = {"change": [], "kl": [], "next": []}
    for ids in IDS:
        before = model(ids).double()
        with intervene(model, Ablate(), layers=1, heads=2):
            after = model(ids).double()
        found["change"].append((before - after).abs().mean((1, 2)))
        p, q = before.softmax(-1), after.softmax(-1)
        found["kl"].append((p * (p / q).log()).sum(-1).mean(1))
        losses = [cross_entropy(x[:, :-1].mT, ids[:, 1:], reduction="none").mean(1) for x in (before, after)]
        found["next"].append(losses[1] - losses[0])
    for name, cell in zip(found, row[2:], strict=True):
        assert isinstance(cell, Estimate)
        values = torch.cat(found[name])
        assert cell.mean == pytest.approx(float(values.mean()), rel=1e-5, abs=1e-8)
        half = 2.570582 * float(values.std()) / math.sqrt(6)  # Student's t for 6 rows
        assert cell.high - cell.mean == pytest.approx(half, rel=1e-4, abs=1e-8)


@torch.no_grad()
def test_rows_for_layers_and_for_all_together() -> None:
    model = language()
    layers = effect(model, IDS, Ablate(), heads=None, metric="kl")
    assert [row[:2] for row in layers.rows] == [
        ["blocks.blocks.0.attention", "all"],
        ["blocks.blocks.1.attention", "all"],
    ]
    some = effect(model, IDS, Ablate(), heads=[0, 1], layers=1, metric="kl")
    assert [row[:2] for row in some.rows] == [["blocks.blocks.1.attention", "0, 1"]]
    whole = effect(model, IDS, Ablate(), heads=None, together=True, metric="kl")
    assert (whole.columns, whole.rows[0][:2]) == (["layers", "heads", "kl"], ["all", "all"])
    with intervene(model, Ablate()):
        after = model(IDS[0])
    p, q = model(IDS[0]).double().softmax(-1), after.double().softmax(-1)
    first = effect(model, IDS[:1], Ablate(), heads=None, together=True, metric="kl")["kl"][0]
    assert isinstance(first, Estimate)
    assert first.mean == pytest.approx(float((p * (p / q).log()).sum(-1).mean()), rel=1e-5)


def test_padding_and_the_last_position() -> None:
    class Padded(nn.Module):
        def forward(self, x: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
            return {"last_hidden_state": fused(x, x, x).transpose(1, 2).flatten(2)}

    model = Padded().eval()
    x, mask = torch.randn(2, 2, 5, 4), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    before = model(x, mask)["last_hidden_state"]
    size = before.double().abs().mean(-1)
    given = [{"x": x, "attention_mask": mask}]
    found = effect(model, given, Ablate(), heads=None)["change"][0]
    assert isinstance(found, Estimate)
    assert found.mean == pytest.approx(float((size[0].mean() + size[1, :3].mean()) / 2))
    found = effect(model, given, Ablate(), heads=None, at="last")["change"][0]
    assert isinstance(found, Estimate)
    assert found.mean == pytest.approx(float((size[0, 4] + size[1, 2]) / 2))


def test_a_metric_of_ones_own_and_outputs_that_are_tuples() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, int]:
            return fused(x, x, x), 3

    model, x = Two().eval(), torch.randn(2, 2, 5, 4)
    one = effect(model, [(x,)], Uniform(), metric=lambda before, after: (before[0] - after[0]).abs().amax((1, 2, 3)))
    assert one.columns == ["layer", "head", "metric"]
    plain = effect(model, [x], Uniform())
    assert plain.columns == ["layer", "head", "change"]
    single = effect(model, [x[:1]], Uniform(), metric={"far": lambda before, after: 1.0})["far"][0]
    assert isinstance(single, Estimate)
    assert single.mean == 1.0
    assert math.isnan(single.low)


def test_what_is_refused() -> None:
    model = language()
    with pytest.raises(ValueError, match=r"call model\.eval\(\) first"):
        effect(model.train(), IDS, Ablate())
    model.eval()
    with pytest.raises(TypeError, match=r"inputs must be a list of inputs, got one Tensor; write \[input\]"):
        effect(model, IDS[0], Ablate())
    with pytest.raises(ValueError, match="at least one input"):
        effect(model, [], Ablate())
    with pytest.raises(ValueError, match="one of change, kl, loss, next, got 'entropy'"):
        effect(model, IDS, Ablate(), metric="entropy")
    with pytest.raises(ValueError, match="returns no loss; give it labels="):
        effect(model, IDS, Ablate(), metric="loss")
    with pytest.raises(ValueError, match="at must be 'all' or 'last'"):
        effect(model, IDS, Ablate(), at="first")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="layer 7 made no call of attention"):
        effect(model, IDS, Ablate(), layers=7)


def test_an_interrupt_leaves_the_model_as_it_was() -> None:
    model = language()
    before, runs = model(IDS[0]), []

    def interrupting(one: Any, two: Any) -> float:
        runs.append(1)
        if len(runs) == 4:
            raise KeyboardInterrupt
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        effect(model, IDS, Ablate(), metric=interrupting)
    assert torch.equal(model(IDS[0]), before)


def test_progress_is_shown_to_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    from regard import progress

    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    effect(language(), IDS[:1], Ablate(), metric="kl")
    shown = capsys.readouterr().err
    assert "6 of 6 runs" in shown
    assert shown.endswith("\x1b[2K")  # the line is erased
