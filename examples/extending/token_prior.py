"""A bias of one's own in one class, which works wherever regard\'s own do: python examples/extending/token_prior.py"""

from dataclasses import dataclass

import torch
from torch import Tensor

import regard
from regard import biases
from regard.spec import register
from regard.spec.plane import Pairs, named_axes
from regard.spec.steps import BiasStep, PairTable


@register
@dataclass(frozen=True, eq=False, repr=False)
class TokenPrior(biases.Bias):
    """A learned number for each key of the call, the same for all queries: (head, key)."""

    prior: Tensor

    title = "a prior for each key"
    axes = named_axes(prior=("head", "key"))
    symbols = ("prior[key]", r"\text{prior}[\text{key}]")

    @property
    def positional(self) -> bool:
        return False

    def values(self, pairs: Pairs) -> Tensor:
        return pairs.cut(self.prior.unsqueeze(-2))

    def steps(self) -> tuple[BiasStep, ...]:
        return (PairTable(self.prior[None, :, None]),)


if __name__ == "__main__":
    query, key, value = torch.randn(3, 1, 2, 8, 4, generator=torch.Generator().manual_seed(0))
    prior = torch.zeros(2, 8, requires_grad=True)
    regard.attend(query, key, value, bias=TokenPrior(prior)).sum().backward()
    print(prior.grad)
