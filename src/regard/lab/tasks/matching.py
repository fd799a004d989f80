"""Matching: find the key that a query is a noisy picture of. The best possible answer is known.

Keys lie on a sphere, and a query is one of them with noise:

q = M k + σ ε, where M is the identity or a fixed map to another width that keeps lengths. All keys being equally long,
the probability that a query shows key j is softmax(q · M k / σ²): a bilinear score, which attention can learn.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy

from regard import nn
from regard.cached import cached_property
from regard.lab.maps import normal, weights
from regard.lab.training import Task, train
from regard.spec.scores import Cosine, Dot, ScaledDot, Score

SCALED = "scaled dot"
# scores without parameters of their own: they compare what projections make of queries and keys
PRODUCTS: dict[str, Score] = {"dot": Dot(), SCALED: ScaledDot(), "cosine": Cosine(), "cosine × 10": Cosine(10.0)}
# scores that own their parameters, by query width, key width and hidden width
LEARNED: dict[str, Callable[[int, int, int], torch_nn.Module]] = {
    "general": lambda d_query, d_key, hidden: nn.General(d_query, d_key),
    "additive": lambda d_query, d_key, hidden: nn.Additive(d_query, hidden, d_key),
    "additive + bias": lambda d_query, d_key, hidden: nn.Additive(d_query, hidden, d_key, bias=True),
    "MLP of [q; k]": lambda d_query, d_key, hidden: nn.ConcatMLP(d_query, hidden, d_key, activation="relu"),
}
WATCHED = 64  # sets that are watched during training


@dataclass(frozen=True)
class MatchingExamples:
    """Queries (set, query, d_q), keys (set, key, d_k), and which key each query shows, (set, query)."""

    query: Tensor
    key: Tensor
    shown: Tensor


@dataclass(frozen=True)
class MatchingProblem:
    """`keys` of width `d_key` at a time, as many queries of width `d_query`, noise σ. `mapped` hides a map M between
    the two; without it the widths are equal and M is the identity. The map is drawn from `seed`."""

    keys: int
    d_query: int
    d_key: int
    noise: float
    mapped: bool
    seed: int

    def __post_init__(self) -> None:
        if self.d_query < self.d_key or (self.d_query != self.d_key and not self.mapped):
            raise ValueError(
                f"a map that keeps lengths goes from {self.d_key} numbers to as many or more, got {self.d_query}; "
                "without a map the widths are equal"
            )

    def map(self) -> Tensor:
        """M, (d_q, d_k), with orthonormal columns."""
        if not self.mapped:
            return torch.eye(self.d_query, dtype=torch.float64)
        random = normal(torch.Generator().manual_seed(self.seed), self.d_query, self.d_key)
        columns: Tensor = torch.linalg.qr(random).Q
        return columns

    def draw(self, sets: int, generator: torch.Generator) -> MatchingExamples:
        """`sets` sets of keys with their queries."""
        key = normal(generator, sets, self.keys, self.d_key)
        key = key * (self.d_key**0.5 / key.norm(dim=-1, keepdim=True))
        shown = torch.randint(self.keys, (sets, self.keys), generator=generator)
        picture = key.gather(1, shown.unsqueeze(-1).expand(-1, -1, self.d_key)) @ self.map().T
        return MatchingExamples(picture + self.noise * normal(generator, sets, self.keys, self.d_query), key, shown)

    def best(self, given: MatchingExamples) -> Tensor:
        """The logits of the true probabilities, (set, query, key)."""
        return given.query @ self.map() @ given.key.mT / self.noise**2


def loss(weights: Tensor, shown: Tensor) -> Tensor:
    """The mean of −ln of the weight on the right key."""
    return -weights.gather(-1, shown.unsqueeze(-1)).log().mean()


def right(weights: Tensor, shown: Tensor) -> float:
    """The share of queries whose largest weight is on the right key."""
    return float((weights.argmax(-1) == shown).double().mean())


def best_loss(problem: MatchingProblem, given: MatchingExamples) -> float:
    """The loss of the true probabilities: on average nothing can be lower."""
    return float(cross_entropy(problem.best(given).flatten(0, 1), given.shown.flatten()))


class Matcher(torch_nn.Module):
    """Weights over the keys. Products stand behind W_Q and W_K, learned scores see queries and keys as they are.

    `width` is what W_Q and W_K make, or the hidden width of a learned score.
    """

    def __init__(self, score: str, d_query: int, d_key: int, width: int, temperature: float = 1.0) -> None:
        super().__init__()
        if score not in PRODUCTS and score not in LEARNED:
            raise ValueError(f"score must be one of {', '.join((*PRODUCTS, *LEARNED))}, got {score!r}")
        product = PRODUCTS.get(score)
        self.temperature = temperature
        self.score: Score | torch_nn.Module = LEARNED[score](d_query, d_key, width) if product is None else product
        self.w_query = None if product is None else _projection(d_query, width)
        self.w_key = None if product is None else _projection(d_key, width)
        self.double()

    def forward(self, query: Tensor, key: Tensor, temperature: float | None = None) -> Tensor:
        """(set, query, d_q) and (set, key, d_k) to weights (set, query, key); another temperature may be asked for."""
        if self.w_query is not None and self.w_key is not None:
            query, key = self.w_query(query), self.w_key(key)
        score: Score = self.score if isinstance(self.score, Score) else self.score()
        tau = self.temperature if temperature is None else temperature
        return weights(query.unsqueeze(1), key.unsqueeze(1), score=score, temperature=tau).squeeze(1)

    def product(self) -> Tensor:
        """W_Qᵀ W_K, (d_q, d_k): the one matrix through which projections act on the scores."""
        if self.w_query is None or self.w_key is None:
            raise ValueError("a learned score has no projections before it")
        return self.w_query.weight.detach().T @ self.w_key.weight.detach()


def _projection(given: int, width: int) -> torch_nn.Linear:
    """Without bias, Xavier uniform."""
    made = torch_nn.Linear(given, width, bias=False)
    torch_nn.init.xavier_uniform_(made.weight)
    return made


@dataclass(frozen=True)
class Matching(Task):
    """A matcher that sees which key is shown."""

    keys: int
    d_query: int
    d_key: int
    noise: float
    mapped: bool
    score: str
    width: int
    temperature: float
    sets: int

    @property
    def name(self) -> str:
        """Name with the score, τ and the seed."""
        return f"matching {self.score.replace('[q; k]', 'qk')} τ {self.temperature:g} {self.seed}"

    @property
    def problem(self) -> MatchingProblem:
        """What it is about."""
        return MatchingProblem(self.keys, self.d_query, self.d_key, self.noise, self.mapped, self.seed)

    def model(self) -> torch_nn.Module:
        """One attention."""
        return Matcher(self.score, self.d_query, self.d_key, self.width, self.temperature)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Loss on new examples."""
        given = self.problem.draw(self.sets, generator)
        return loss(model(given.query, given.key), given.shown)

    def look(self, model: torch_nn.Module) -> dict[str, float]:
        """The loss on examples that are always the same."""
        return {"new examples": float(loss(model(self._watched.query, self._watched.key), self._watched.shown))}

    @cached_property
    def _watched(self) -> MatchingExamples:
        return self.problem.draw(WATCHED, torch.Generator().manual_seed(self.seed + 1))


@dataclass(frozen=True)
class Distilling(Matching):
    """A student that sees `examples` sets, over and over, and what a trained teacher of another seed says of them.

    `soft` is the temperature of both distributions, teacher's and student's, and the loss is multiplied by its square,
    as the gradients shrink with it (Hinton et al., 2015). At 0 the student sees the right answers instead.
    """

    examples: int
    soft: float
    taught: int

    @property
    def name(self) -> str:
        """Name with the temperature and the seed."""
        return f"student {'labels' if not self.soft else f'τ {self.soft:g}'} {self.seed}"

    def teacher(self) -> Matching:
        """What the teacher learned: the same problem, with new examples at every step."""
        sizes = (self.keys, self.d_query, self.d_key, self.noise, self.mapped, self.score, self.width)
        return Matching(self.seed, self.taught, self.rate, self.rise, self.looks, *sizes, self.temperature, self.sets)

    def loss(self, model: torch_nn.Module, generator: torch.Generator) -> Tensor:
        """Loss on the few examples."""
        given, target = self._lesson
        if not self.soft:
            return loss(model(given.query, given.key), given.shown)
        output = model(given.query, given.key, self.soft)
        surprise: Tensor = -(target * output.log()).sum(-1).mean()
        return surprise * self.soft**2

    @cached_property
    def _lesson(self) -> tuple[MatchingExamples, Tensor]:
        given = self.problem.draw(self.examples, torch.Generator().manual_seed(self.seed + 2))
        if not self.soft:
            return given, given.query
        teacher = train(self.teacher()).model
        with torch.no_grad():
            return given, teacher(given.query, given.key, self.soft)
