"""matching: examples are what the problem says, the best answer is the best, and students learn from a teacher."""

import pytest
import torch

from regard.lab.tasks.matching import (
    LEARNED,
    PRODUCTS,
    SCALED,
    Distilling,
    Matcher,
    Matching,
    MatchingProblem,
    best_loss,
    loss,
    right,
)

NARROW = MatchingProblem(keys=6, d_query=8, d_key=8, noise=1.0, mapped=False, seed=0)
WIDE = MatchingProblem(keys=6, d_query=12, d_key=8, noise=1.0, mapped=True, seed=0)


@pytest.mark.parametrize("problem", [NARROW, WIDE])
def test_queries_are_pictures_of_the_key_they_show(problem: MatchingProblem) -> None:
    given = problem.draw(400, torch.Generator().manual_seed(1))
    shown = given.key[torch.arange(400).unsqueeze(1), given.shown]
    noise = given.query - shown @ problem.map().T
    assert float(noise.std()) == pytest.approx(1.0, rel=0.02)
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.02)
    assert torch.allclose(given.key.norm(dim=-1), torch.tensor(8.0, dtype=torch.float64).sqrt())


@pytest.mark.parametrize("problem", [NARROW, WIDE])
def test_the_best_answer_is_bayes_rule(problem: MatchingProblem) -> None:
    """Densities of the noise around each key's picture, by torch's own normal distribution."""
    given = problem.draw(50, torch.Generator().manual_seed(2))
    pictures = given.key @ problem.map().T
    density = torch.distributions.Normal(pictures.unsqueeze(1), problem.noise)
    likely = density.log_prob(given.query.unsqueeze(2)).sum(-1).softmax(-1)
    assert torch.allclose(problem.best(given).softmax(-1), likely, atol=1e-12)
    assert best_loss(problem, given) == pytest.approx(float(loss(likely, given.shown)))


def test_a_map_to_fewer_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="goes from 8 numbers to as many or more, got 4"):
        MatchingProblem(keys=6, d_query=4, d_key=8, noise=1.0, mapped=True, seed=0)
    with pytest.raises(ValueError, match="without a map the widths are equal"):
        MatchingProblem(keys=6, d_query=12, d_key=8, noise=1.0, mapped=False, seed=0)


def test_loss_and_right_by_hand() -> None:
    weights = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]], dtype=torch.float64)
    shown = torch.tensor([[0, 1]])
    assert float(loss(weights, shown)) == pytest.approx(-(torch.tensor(0.5).log() + torch.tensor(0.1).log()).item() / 2)
    assert right(weights, shown) == 0.5


@pytest.mark.parametrize("score", [*PRODUCTS, *LEARNED])
def test_every_score_gives_weights_for_different_widths(score: str) -> None:
    torch.manual_seed(0)
    model = Matcher(score, 12, 8, 10)
    given = WIDE.draw(3, torch.Generator().manual_seed(0))
    weights = model(given.query, given.key)
    assert torch.allclose(weights.sum(-1), torch.ones(3, 6, dtype=torch.float64))
    loss(weights, given.shown).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_projections_act_as_one_matrix() -> None:
    torch.manual_seed(0)
    model = Matcher(SCALED, 12, 8, 10)
    given = WIDE.draw(3, torch.Generator().manual_seed(0))
    by_hand = (given.query @ model.product() @ given.key.mT / 10**0.5 / 2).softmax(-1)
    assert torch.allclose(model(given.query, given.key, 2.0), by_hand)
    with pytest.raises(ValueError, match="has no projections"):
        Matcher("general", 12, 8, 10).product()


def test_unknown_scores_are_named() -> None:
    with pytest.raises(ValueError, match=r"score must be one of dot, scaled dot, .* got 'product'"):
        Matcher("product", 8, 8, 8)


def task(soft: float) -> Distilling:
    """A short one."""
    return Distilling(
        seed=0,
        steps=3,
        rate=1e-2,
        rise=0.1,
        looks=1,
        keys=6,
        d_query=8,
        d_key=8,
        noise=1.0,
        mapped=False,
        score=SCALED,
        width=8,
        temperature=1.0,
        sets=2,
        examples=3,
        soft=soft,
        taught=5,
    )


def test_students_learn_from_the_teacher_and_not_from_themselves() -> None:
    given = task(2.0)
    teacher = given.teacher()
    assert type(teacher) is Matching
    assert (teacher.steps, teacher.seed, teacher.problem) == (5, 0, given.problem)
    examples, told = given._lesson
    assert told.shape == (3, 6, 6)
    torch.manual_seed(1)
    model = given.model()
    said = model(examples.query, examples.key, 2.0)
    wanted = -4 * (told * said.log()).sum(-1).mean()
    assert torch.allclose(given.loss(model, torch.Generator()), wanted)
    answers = task(0.0)
    first = model(examples.query, examples.key)
    assert torch.allclose(answers.loss(model, torch.Generator()), loss(first, examples.shown))
