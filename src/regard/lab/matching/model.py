"""Matcher: one attention whose weights are the answer, with any of the scores."""

from collections.abc import Callable

from torch import Tensor
from torch import nn as torch_nn

from regard import nn
from regard.lab.draws import weights
from regard.spec.scores import Cosine, Dot, ScaledDot, Score

SCALED = "scaled dot"
# scores without parameters of their own: they compare what projections make of queries and keys
PRODUCTS: dict[str, Score] = {"dot": Dot(), SCALED: ScaledDot(), "cosine": Cosine(), "cosine × 10": Cosine(10.0)}
# scores that own their parameters, by query width, key width and hidden width
LEARNED: dict[str, Callable[[int, int, int], torch_nn.Module]] = {
    "general": lambda d_query, d_key, hidden: nn.General(d_query, d_key),
    "additive": lambda d_query, d_key, hidden: nn.Additive(d_query, hidden, d_key),
    "additive + bias": lambda d_query, d_key, hidden: nn.ConcatMLP(d_query, hidden, d_key, activation="tanh"),
    "MLP of [q; k]": lambda d_query, d_key, hidden: nn.ConcatMLP(d_query, hidden, d_key, activation="relu"),
}


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
