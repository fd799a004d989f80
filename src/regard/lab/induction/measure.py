"""Texts that repeat themselves, and what a model makes of them: losses, and what its heads look at."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.inspection.capture import capture
from regard.inspection.heads import head_table


def drawn(rows: int, length: int, vocabulary: int, generator: torch.Generator) -> Tensor:
    """(rows, length): random tokens, and then the same again. A token may come twice in a half."""
    first = torch.randint(vocabulary, (rows, length // 2), generator=generator)
    return torch.cat([first, first], 1)


def repeated(rows: int, length: int, vocabulary: int, generator: torch.Generator) -> Tensor:
    """(rows, length): different tokens in random order, and then the same again: each has one right successor."""
    half = length // 2
    if half > vocabulary:
        raise ValueError(f"a half of {half} different tokens needs as many in the vocabulary, which has {vocabulary}")
    first = torch.rand(rows, vocabulary, generator=generator).argsort(1)[:, :half]
    return torch.cat([first, first], 1)


def second_half(logits: Tensor, tokens: Tensor) -> Tensor:
    """The mean cross-entropy of the tokens that can be known: all of the second half but its first."""
    half = tokens.shape[1] // 2
    return cross_entropy(logits[:, half:-1].flatten(0, 1), tokens[:, half + 1 :].flatten())


def first_half(logits: Tensor, tokens: Tensor) -> Tensor:
    """The mean cross-entropy of the tokens of the first half, which nothing foretells."""
    half = tokens.shape[1] // 2
    return cross_entropy(logits[:, : half - 1].flatten(0, 1), tokens[:, 1:half].flatten())


@dataclass(frozen=True)
class Seen:
    """Losses of both halves, the share of known tokens that are likeliest, and two scores of each (layer, head).

    `induction` is the mean weight of the second half on tokens that followed the same token before, `previous` that of
    all tokens on the one before.
    """

    first: float
    second: float
    right: float
    induction: Tensor
    previous: Tensor


def seen(model: nn.Module, tokens: Tensor) -> Seen:
    """What a model makes of repeated texts."""
    half = tokens.shape[1] // 2
    with torch.no_grad():
        found = capture(model, tokens)
        logits = found.output
        asked = torch.arange(tokens.shape[1]) >= half
        induction = head_table(found, which=("induction",), ids=tokens, queries=asked)
        previous = head_table(found, which=("previous",), ids=tokens)
        right = (logits[:, half:-1].argmax(-1) == tokens[:, half + 1 :]).double().mean()
    shape = (len(found), -1)
    return Seen(
        float(first_half(logits, tokens)),
        float(second_half(logits, tokens)),
        float(right),
        torch.tensor(induction["induction"], dtype=torch.float64).view(shape),
        torch.tensor(previous["previous"], dtype=torch.float64).view(shape),
    )
