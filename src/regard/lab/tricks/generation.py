"""Generation with a cache of keys and values and without: the same tokens, counted."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.lab import counted
from regard.nn import KVCache, LanguageModel, MultiHeadAttention, Rotary, generate

VOCABULARY, LAYERS, WIDTH, HEADS = 64, 2, 64, 4


@dataclass(frozen=True)
class Cost:
    """Operations of generating so many tokens after a first one, and the bytes that the cache holds at the end.

    Of every pass all pairs are counted, hidden ones too, as the formula as written computes them.
    """

    count: int

    @property
    def without(self) -> int:
        """The whole text goes through the model for each token."""
        tokens = self.count * (self.count + 1) // 2
        pairs = tokens * (2 * self.count + 1) // 3  # 1 + 4 + 9 + ...
        return self._of(tokens, pairs)

    @property
    def cached(self) -> int:
        """Each token goes through the model once, and meets all before it."""
        return self._of(self.count, self.count * (self.count + 1) // 2)

    @property
    def held(self) -> int:
        """Keys and values of all tokens and layers, in float32."""
        return 2 * 4 * LAYERS * WIDTH * self.count

    def _of(self, tokens: int, pairs: int) -> int:
        """4 projections of d × d, 8 of the feed-forward layer, and the logits of the last token."""
        return LAYERS * (24 * WIDTH**2 * tokens + 4 * WIDTH * pairs) + 2 * WIDTH * VOCABULARY * self.count


def model(seed: int, engine: str) -> LanguageModel:
    """A small language model with weights as they start: what it says is nonsense, what it costs is not."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        position = Rotary(WIDTH // HEADS)
        return LanguageModel(
            VOCABULARY, layers=LAYERS, d_model=WIDTH, heads=HEADS, position=position, engine=engine
        ).eval()


def without(of: LanguageModel, prompt: Tensor, count: int) -> Tensor:
    """The next tokens (batch, count), the whole text read anew for each."""
    tokens = prompt
    with torch.no_grad():
        for _ in range(count):
            last = torch.full(tokens.shape[:1], tokens.shape[1] - 1)
            tokens = torch.cat([tokens, of(tokens, at=last)[:, 0].argmax(-1, keepdim=True)], 1)
    return tokens[:, prompt.shape[1] :]


@dataclass(frozen=True)
class Counted:
    """The same as counted while both ways run, and whether they give the same tokens."""

    without: int
    cached: int
    held: int
    same: bool


def generated(of: LanguageModel, count: int) -> Counted:
    """Both ways from a text of one token."""
    prompt, cache, found = torch.zeros(1, 1, dtype=torch.long), KVCache(capacity=count), []
    anew = counted.operations(lambda: found.append(without(of, prompt, count)))
    kept = counted.operations(lambda: found.append(generate(of, prompt, count, cache=cache)))
    return Counted(anew, kept, cache.nbytes, torch.equal(*found))


def projections(before: int) -> float:
    """How many d × d projections of one token a cached step of one layer takes, after so many tokens."""
    with torch.no_grad():
        layer, cache = MultiHeadAttention(WIDTH, HEADS, mask="causal", engine="reference"), KVCache()
        layer(torch.zeros(1, before, WIDTH), cache=cache)
        step = counted.operations(lambda: layer(torch.zeros(1, 1, WIDTH), cache=cache))
    pairs = 4 * (before + 1) * WIDTH
    return (step - pairs) / (2 * WIDTH**2)
