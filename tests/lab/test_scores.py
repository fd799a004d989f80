"""scores: costs by hand, what is refused, why additive needs a bias, and verdicts that follow from the numbers."""

import math
from collections.abc import Callable

import pytest
import torch

from regard.inspection.records import Estimate, Lines, Panel
from regard.lab import scores
from regard.lab.report import Report
from regard.lab.scores import learning
from regard.lab.scores.figures import FORMULAS
from regard.lab.setting import Setting
from regard.spec.scores import Additive, General

Quick = Callable[[str], Report]


@pytest.mark.parametrize("d", [8, 64])
def test_parameters_by_hand(d: int) -> None:
    counts = {name: scores.numbers(score) for name, score in scores.score_functions(d).items()}
    assert counts == {
        "additive": 2 * d * d + d,
        "dot": 0,
        "scaled dot": 0,
        "general": d * d,
        "cosine": 0,
        "MLP of [q; k]": 2 * d * d + 2 * d,
    }


def test_work_by_hand() -> None:
    n, d = 10, 8
    counts = {name: scores.work(score, n, d) for name, score in scores.score_functions(d).items()}
    assert counts["dot"] == counts["scaled dot"] == counts["cosine"] == 2 * d * n * n
    assert counts["general"] == 2 * d * n * n + 2 * d * d * n
    assert counts["additive"] == counts["MLP of [q; k]"] == 2 * d * n * n + 4 * d * d * n


def test_a_sum_holds_its_hidden_layer_for_every_pair() -> None:
    made = scores.score_functions(64)
    dense = {name: scores.forward_bytes(score, 128, 64, "reference") for name, score in made.items()}
    assert dense["additive"] > 128 * 128 * 64 * 4
    assert dense["scaled dot"] < 8 * 128 * 128 * 4
    assert (
        scores.forward_bytes(made["additive"], 512, 64, "tiled")
        < scores.forward_bytes(made["additive"], 512, 64, "reference") / 4
    )


def test_products_refuse_different_widths_and_learned_scores_take_them() -> None:
    for score in learning.BARE.values():
        assert "their widths must be equal: query has 24, key has 16" in learning.refusal(score)
    assert learning.refusal(General(torch.zeros(24, 16))) == ""
    assert learning.refusal(Additive(torch.zeros(5, 24), torch.zeros(5, 16), torch.zeros(5))) == ""


def test_additive_is_odd_and_a_bias_mends_it() -> None:
    assert learning.oddness(torch.Generator().manual_seed(0)) == 0
    generator = torch.Generator().manual_seed(0)
    a, b, v, offset = (torch.randn(*size, generator=generator) for size in ((5, 4), (5, 3), (5,), (5,)))
    query, key = torch.randn(4, generator=generator), torch.randn(3, generator=generator)

    def formula(sign: int, offset: torch.Tensor) -> float:
        return float(v @ torch.tanh(a @ (sign * query) + b @ (sign * key) + offset))

    assert formula(1, torch.zeros(5)) == -formula(-1, torch.zeros(5))
    assert abs(formula(1, offset) + formula(-1, offset)) > 0.1
    biased = learning.training_task(Setting(), "additive + bias", learning.OTHER, 0).model()
    score = biased.score()  # type: ignore[operator]
    assert isinstance(score, Additive)
    assert score.b is not None


def test_bare_products_answer_as_well_as_can_be() -> None:
    """Without noise between them, dot and best differ by a factor: the same largest weight, another loss."""
    setting = Setting(quick=True, seed=5)
    problem = learning.training_task(setting, "dot", learning.SAME, 0).problem
    new = problem.draw(200, setting.generator())
    best = problem.best(new)
    right = float((best.argmax(-1) == new.shown).double().mean())
    for score in learning.BARE:
        assert learning.without_training(setting, score)[1] == pytest.approx(right)
    least = float(torch.nn.functional.cross_entropy(best.flatten(0, 1), new.shown.flatten()))
    assert all(learning.without_training(setting, score)[0] > least for score in learning.BARE)


def test_trained_scores_learn_and_additive_does_not(quick: Quick) -> None:
    rows = {str(row[0]): row for row in quick("scores").tables[1].rows}
    right = {name: row[4].mean for name, row in rows.items() if isinstance(row[4], Estimate)}
    assert right["additive"] < 0.15
    for name in ("dot", "scaled dot", "general", "cosine × 10", "MLP of [q; k]"):
        assert right[name] > 0.45
    assert rows["scaled dot"][2] == 24 * 16 + 16 * 16
    losses = {name: row[3].mean for name, row in rows.items() if isinstance(row[3], Estimate)}
    assert losses["cosine"] > losses["cosine × 10"] + 0.5


def test_a_quick_run_shows_no_failure() -> None:
    of = learning.TrainedScore([], [0.75], Estimate(0.7, 0.7, 0.7), 0.7, 0.75)
    full, quick = (learning.learning_rule(Setting(quick=quick), of) for quick in (False, True))
    assert [full.verdict(right) for right in (0.06, 0.3, 0.7)] == ["corrected", "partly", "confirmed"]
    assert [quick.verdict(right) for right in (0.06, 0.3, 0.7)] == ["not shown", "not shown", "confirmed"]


def test_costs_are_those_of_the_formulas(quick: Quick) -> None:
    said = {claim.measured: claim.verdict for part in quick("scores").compared for claim in part.claims}
    power = "power of d with which"
    assert said[f"{power} the operations of a pair grow, additive"] == "corrected"
    assert said[f"{power} the operations of a pair grow, scaled dot"] == "confirmed"
    assert said[f"{power} the parameters grow, additive"] == "confirmed"


def test_every_score_is_timed_against_both(quick: Quick) -> None:
    timing = quick("scores").timing
    assert timing is not None
    for axis, table in zip("nd", timing.tables, strict=True):
        assert table.columns == (axis, *FORMULAS)
        assert all(isinstance(cell, float) and cell > 0 for row in table.rows for cell in row[1:])


def test_memory_grows_with_the_pairs_and_for_sums_with_the_width() -> None:
    memory = {axis: scores.bytes_by_size(axis) for axis in scores.SIZES}
    rows = {row[0]: row[1:] for row in scores.memory_table(memory).rows}
    assert rows["scaled dot"][1:3] == ("n^2.00", "d^0.00")
    assert rows["additive"][1:3] == rows["MLP of [q; k]"][1:3] == ("n^2.00", "d^1.00")
    for name in FORMULAS:
        dense = memory["n"][name, "dense"]
        assert dense == sorted(dense)
        assert memory["n"][name, "tiled"][-1] < dense[-1] / 4


def test_the_first_picture_shows_the_six_formulas(quick: Quick) -> None:
    panel = quick("scores").pictures[0]
    assert isinstance(panel, Panel)
    turned, grown = panel.pictures
    assert isinstance(turned, Lines)
    assert isinstance(grown, Lines)
    by_angle = {line.name: dict(zip(line.x, line.y, strict=True)) for line in turned.lines}
    assert by_angle["dot"][60.0] == pytest.approx(4 * math.cos(math.radians(60)))
    assert by_angle["scaled dot"][0.0] == pytest.approx(4 / math.sqrt(2))
    assert by_angle["cosine"][180.0] == pytest.approx(-1)
    assert max(by_angle["general"], key=lambda angle: by_angle["general"][angle]) == 45
    by_length = {line.name: list(line.y) for line in grown.lines}
    assert by_length["cosine"] == pytest.approx([1.0] * len(by_length["cosine"]))
    assert by_length["additive"][-1] < 2 < by_length["dot"][-1]
