"""scores: costs by hand, what is refused, why additive needs a bias, and verdicts that follow from the numbers."""

from collections.abc import Callable

import pytest
import torch

from regard.inspection.records import Estimate
from regard.lab.report import Report
from regard.lab.scores import cost, experiment
from regard.lab.setting import Setting
from regard.spec.scores import Additive, ConcatMLP, General

Quick = Callable[[str], Report]


@pytest.mark.parametrize("d", [8, 64])
def test_parameters_by_hand(d: int) -> None:
    generator = torch.Generator().manual_seed(0)
    found = {name: cost.parameters(made(generator, d)) for name, made in cost.SCORES.items()}
    assert found == {
        "additive": 2 * d * d + d,
        "dot": 0,
        "scaled dot": 0,
        "general": d * d,
        "cosine": 0,
        "MLP of [q; k]": 2 * d * d + 2 * d,
    }


def test_work_by_hand() -> None:
    generator = torch.Generator().manual_seed(0)
    n, d = 10, 8
    found = {name: cost.work(made(generator, d), n, d) for name, made in cost.SCORES.items()}
    assert found["dot"] == found["scaled dot"] == found["cosine"] == 2 * d * n * n
    assert found["general"] == 2 * d * n * n + 2 * d * d * n
    assert found["additive"] == found["MLP of [q; k]"] == 2 * d * n * n + 4 * d * d * n


def test_a_sum_holds_its_hidden_layer_for_every_pair() -> None:
    generator = torch.Generator().manual_seed(0)
    made = {name: cost.SCORES[name](generator, 64) for name in ("additive", "scaled dot")}
    dense = {name: cost.forward_bytes(score, 128, 64, "reference") for name, score in made.items()}
    assert dense["additive"] > 128 * 128 * 64 * 4
    assert dense["scaled dot"] < 8 * 128 * 128 * 4
    assert (
        cost.forward_bytes(made["additive"], 512, 64, "tiled")
        < cost.forward_bytes(made["additive"], 512, 64, "reference") / 4
    )


def test_products_refuse_different_widths_and_learned_scores_take_them() -> None:
    for score in experiment.BARE.values():
        assert "their widths must be equal: query has 24, key has 16" in experiment.refusal(score)
    assert experiment.refusal(General(torch.zeros(24, 16))) == ""
    assert experiment.refusal(Additive(torch.zeros(5, 24), torch.zeros(5, 16), torch.zeros(5))) == ""


def test_additive_is_odd_and_a_bias_mends_it() -> None:
    assert experiment.oddness(torch.Generator().manual_seed(0)) == 0
    generator = torch.Generator().manual_seed(0)
    a, b, v, offset = (torch.randn(*size, generator=generator) for size in ((5, 4), (5, 3), (5,), (5,)))
    query, key = torch.randn(4, generator=generator), torch.randn(3, generator=generator)

    def formula(sign: int, offset: torch.Tensor) -> float:
        return float(v @ torch.tanh(a @ (sign * query) + b @ (sign * key) + offset))

    assert formula(1, torch.zeros(5)) == -formula(-1, torch.zeros(5))
    assert abs(formula(1, offset) + formula(-1, offset)) > 0.1
    biased = experiment.training_task(Setting(), "additive + bias", experiment.OTHER, 0).model()
    assert isinstance(biased.score(), ConcatMLP)  # type: ignore[operator]


def test_bare_products_answer_as_well_as_can_be() -> None:
    """Without noise between them, dot and best differ by a factor: the same largest weight, another loss."""
    setting = Setting(quick=True, seed=5)
    problem = experiment.training_task(setting, "dot", experiment.SAME, 0).problem
    new = problem.draw(200, setting.generator())
    best = problem.best(new)
    right = float((best.argmax(-1) == new.shown).double().mean())
    for score in experiment.BARE:
        assert experiment.bare(setting, score)[1] == pytest.approx(right)
    least = float(torch.nn.functional.cross_entropy(best.flatten(0, 1), new.shown.flatten()))
    assert all(experiment.bare(setting, score)[0] > least for score in experiment.BARE)


def test_trained_scores_learn_and_additive_does_not(quick: Quick) -> None:
    rows = {str(row[0]): row for row in quick("scores").tables[1].rows}
    right = {name: row[4].mean for name, row in rows.items() if isinstance(row[4], Estimate)}
    assert right["additive"] < 0.15
    for name in ("dot", "scaled dot", "general", "cosine × 10", "MLP of [q; k]"):
        assert right[name] > 0.45
    assert rows["scaled dot"][2] == 24 * 16 + 16 * 16
    losses = {name: row[3].mean for name, row in rows.items() if isinstance(row[3], Estimate)}
    assert losses["cosine"] > losses["cosine × 10"] + 0.5


def test_verdicts_follow_from_the_numbers() -> None:
    assert experiment._power("x", "O(d²)", 1.0, 2).verdict == "corrected: O(d)"
    assert experiment._power("x", "O(d²)", 1.99, 2).verdict == "confirmed"
    assert experiment._power("x", "O(d)", 2.0, 1).verdict == "corrected: O(d²)"
    best = torch.tensor([0.75, 0.75])

    def found(right: float) -> experiment.TrainedScores:
        rights = torch.full((2,), right)
        return {("additive", experiment.OTHER): experiment.TrainedScore([], best, rights, 0.7, 0.75)}

    assert experiment.learns(found(0.7), "additive", experiment.OTHER)
    assert not experiment.learns(found(0.5), "additive", experiment.OTHER)


def test_every_score_is_timed_against_both(quick: Quick) -> None:
    timing = quick("scores").timing
    assert timing is not None
    for axis, table in zip("nd", timing.tables, strict=True):
        assert table.columns == (axis, *cost.SCORES)
        assert all(isinstance(cell, float) and cell > 0 for row in table.rows for cell in row[1:])


def test_memory_grows_with_the_pairs_and_for_sums_with_the_width() -> None:
    lengths, widths = (
        cost.by_size(torch.Generator().manual_seed(0), sizes) for sizes in (cost.BY_LENGTH, cost.BY_WIDTH)
    )
    rows = {row[0]: row[1:] for row in cost.memory_table(lengths, widths).rows}
    assert rows["scaled dot"][1:3] == ("n^2.00", "d^0.00")
    assert rows["additive"][1:3] == rows["MLP of [q; k]"][1:3] == ("n^2.00", "d^1.00")
    for name in cost.SCORES:
        assert lengths[name, "dense"] == sorted(lengths[name, "dense"])
        assert lengths[name, "tiled"][-1] < lengths[name, "dense"][-1] / 4
