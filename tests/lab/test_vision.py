"""vision: pictures and their words, combinations kept apart, models that look where they are told, and the report."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from regard.inspection.capture import capture
from regard.inspection.records import Estimate, Grid, Image, Panel
from regard.lab import vision
from regard.lab.report import Report
from regard.lab.setting import Setting
from regard.lab.vision import scenes, task

Quick = Callable[[str], Report]


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_every_thing_is_drawn_and_recognized() -> None:
    assert scenes.things().shape == (16, 3, 6, 6)
    assert len({tuple(each.flatten().tolist()) for each in scenes.things()}) == 16
    cells = torch.arange(-1, 15).view(1, 16)
    drawn = scenes.drawn(cells.expand(20, -1), _generator())
    assert drawn.shape == (20, 3, 24, 24)
    assert torch.equal(scenes.recognized(drawn), cells.expand(20, -1))
    # the disc of the second cell is at the top, beside the empty first
    assert float(drawn[0, :, :6, :6].abs().mean()) < 0.2
    assert float(drawn[0, 0, 2:4, 6:12].mean()) > 0.5
    assert torch.equal(scenes.from_patches(scenes.to_patches(drawn)), drawn)


def test_twins_are_pairs() -> None:
    scene = scenes.twinned(50, _generator())
    occupied = scene.about >= 0
    assert torch.equal(occupied, scene.cells >= 0)
    assert occupied.sum(1).tolist() == [2 * scenes.PAIRS] * 50
    there = scene.about.clamp(min=0)
    assert torch.equal(scene.cells.gather(1, there)[occupied], scene.cells[occupied])
    assert torch.equal(there.gather(1, there)[occupied], torch.arange(16).expand(50, -1)[occupied])
    assert not bool((scene.about == torch.arange(16)).any())


@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("draw", [scenes.captioned, scenes.described])
def test_words_are_about_what_stands_there(draw: Callable[..., scenes.Scene], unseen: bool) -> None:
    scene = draw(40, _generator(), unseen=unseen)
    for cells, words, about in zip(scene.cells.tolist(), scene.words, scene.about.tolist(), strict=True):
        spoken = [word for word in scenes.decode(words) if word != scenes.START]
        assert len(spoken) == len(about)
        for color, shape, cell in zip(spoken[::2], spoken[1::2], about[::2], strict=True):
            assert scenes.NAMES[cells[cell]] == f"{color} {shape}"
        assert sorted(set(about)) == [cell for cell, thing in enumerate(cells) if thing >= 0]


def test_tests_have_combinations_that_never_come_in_training() -> None:
    generator = _generator()

    def sets(unseen: bool) -> set[tuple[int, ...]]:
        found = scenes.captioned(3000, generator, unseen=unseen)
        return {tuple(sorted(thing for thing in row if thing >= 0)) for row in found.cells.tolist()}

    def places(unseen: bool) -> set[tuple[int, int]]:
        found = scenes.described(3000, generator, unseen=unseen)
        return {pair for row in found.cells.tolist() for pair in enumerate(row) if pair[1] >= 0}

    assert not sets(False) & sets(True)
    assert not places(False) & places(True)
    assert {thing for _, thing in places(False)} == {thing for _, thing in places(True)} == set(range(16))


def test_patches_are_the_grid_that_capture_knows() -> None:
    torch.manual_seed(0)
    model = task.Twins(16, 2)
    found = capture(model, torch.randn(1, 3, 24, 24))
    assert found.grid is not None
    assert (found.grid.rows, found.grid.columns, found.grid.special) == (4, 4, 0)


def test_a_perfect_denoiser_makes_the_picture_that_was_asked_for() -> None:
    class Known(torch.nn.Module):
        def forward(
            self, noisy: torch.Tensor, level: torch.Tensor, words: torch.Tensor, where: torch.Tensor
        ) -> torch.Tensor:
            return clean

    scene = scenes.described(5, _generator(), unseen=True)
    clean = scenes.drawn(scene.cells, _generator(), noise=0.0)
    made = task.denoised(Known(), torch.randn(5, 3, 24, 24, generator=_generator()), scene)
    assert torch.allclose(made, clean, atol=1e-5)


def test_untrained_models_know_nothing() -> None:
    torch.manual_seed(0)
    model = task.Captioner(len(scenes.VOCABULARY), 6, 16, 2).eval()
    with torch.no_grad():
        found = task.captions(model, 40, _generator())
    assert float(found.right.mean()) < 0.5
    assert float(found.weight.mean()) < 0.3


def test_weights_are_laid_out_as_the_picture_is() -> None:
    weights = torch.zeros(16)
    weights[6] = 0.8
    grid = vision.weight_map(weights, "weights")
    assert vision.place(6) == "b3"
    assert grid.values[grid.row_labels.index("b")][grid.column_labels.index("3")] == pytest.approx(0.8)
    picture = torch.zeros(3, 24, 24)
    picture[0, 6:12, 12:18] = 1.0
    image = vision.colored(picture, "red at b3", (6,))
    assert image.pixels[6][12] == [1.0, 0.0, 0.0]
    assert image.pixels[5][12] == image.pixels[6][11] == [0.0, 0.0, 0.0]
    assert list(image.marks) == [(1, 2)]


def test_pictures_are_colored_and_their_panels_named(quick: Quick) -> None:
    for panel in quick("vision").pictures:
        assert isinstance(panel, Panel)
        first, *maps = panel.pictures
        assert isinstance(first, Image)
        assert maps
        assert all(isinstance(each, Grid) and each.title for each in maps)


def test_quick_models_look_where_they_should(quick: Quick) -> None:
    report = quick("vision")
    for row in report.tables[0].rows:
        right, without, weight, uniform = row[2], row[3], row[5], row[6]
        assert isinstance(right, Estimate)
        assert isinstance(without, Estimate)
        assert isinstance(weight, Estimate)
        assert right.low > without.high
        assert weight.low > float(str(uniform)) + 0.2
    assert [claim.verdict for claim in report.compared[0].claims] == ["confirmed"] * 7


def test_verdicts_follow_the_numbers() -> None:
    torch.manual_seed(0)
    model = task.Twins(16, 2).eval()
    with torch.no_grad():
        found = task.twins(model, 30, _generator())
    blind = vision.VisionRun(vision.KINDS[0], [], [replace(found, right=found.without, weight=torch.full((15,), 0.02))])
    sure = vision.VisionRun(vision.KINDS[0], [], [replace(found, right=torch.ones(30), weight=torch.full((15,), 0.9))])
    verdicts = [claim.verdict for claim in vision.claims([blind, sure, blind])[:6]]
    assert verdicts == ["corrected", "corrected", "confirmed", "confirmed", "corrected", "corrected"]


def test_trainings_are_short(quick: Quick) -> None:
    for kind in vision.KINDS:
        assert (
            vision.training_task(Setting(quick=True), kind, 0).steps
            < vision.training_task(Setting(), kind, 0).steps
            <= 500
        )
