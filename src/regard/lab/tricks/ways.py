"""Ways to compute the same attention: as the formula is written, in chunks, and block by block; their memory and work.

Then generation with a KV cache and without: the same tokens, counted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.engine.attend import attend
from regard.engine.native.library import library
from regard.engine.plan import Plan, plan
from regard.lab.cost import operations, peak_bytes
from regard.nn import KVCache, LanguageModel, MultiHeadAttention, Rotary, generate

WIDTH = 64
CHUNK = 64  # queries in a chunk
NAIVE, CHUNKS, AGAIN, TILED, NATIVE = "naive", "chunks", "chunks, again", "flash (tiled)", "flash (native)"
ENGINES = {TILED: "tiled", NATIVE: "native"}
Way = Callable[[Tensor, Tensor, Tensor], Tensor]
VOCABULARY, LAYERS, MODEL_WIDTH, HEADS = 64, 2, 64, 4


def naive(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(QKᵀ / √d_k) · V, with all scores and all weights as tensors."""
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(-1) @ value


def chunked(query: Tensor, key: Tensor, value: Tensor, rows: int = CHUNK, again: bool = False) -> Tensor:
    """The same for some queries at a time; with `again`, backward computes each chunk's weights once more."""
    step = partial(checkpoint, naive, use_reentrant=False) if again else naive
    parts = (step(part, key, value) for part in query.split(rows, -2))
    if not torch.is_grad_enabled():  # the parts are written into one tensor, so that they do not exist twice
        out = torch.empty_like(query)
        for first, part in zip(range(0, query.shape[-2], rows), parts, strict=True):
            out[..., first : first + rows, :] = part
        return out
    return torch.cat(list(parts), -2)


def _ours(engine: str, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    out = attend(query, key, value, engine=engine)
    assert isinstance(out, Tensor)
    return out


def ways() -> dict[str, Way]:
    """By name; the native engine where it was built."""
    by_name: dict[str, Way] = {NAIVE: naive, CHUNKS: chunked, TILED: partial(_ours, "tiled")}
    return by_name if library() is None else by_name | {NATIVE: partial(_ours, "native")}


def forward_bytes(name: str, length: int) -> int:
    """Peak memory of a forward pass over one head beyond inputs and output: counted, or as `plan` estimates."""
    if name in ENGINES:
        nbytes = _plan(name, length).bytes
        assert nbytes is not None
        return nbytes
    inputs = torch.empty(3, 1, 1, length, WIDTH, device="meta")
    with torch.no_grad():
        return peak_bytes(lambda: ways()[name](*inputs)) - 4 * length * WIDTH


def forward_operations(name: str, length: int) -> int:
    """Operations of its products."""
    if name in ENGINES:
        return _plan(name, length).flops
    inputs = torch.empty(3, 1, 1, length, WIDTH, device="meta")
    with torch.no_grad():
        return operations(lambda: ways()[name](*inputs))


def _plan(name: str, length: int) -> Plan:
    inputs = torch.zeros(1, 1, length, WIDTH)
    return plan(inputs, inputs, inputs, engine=ENGINES[name])


def longest(name: str, budget: int, far: int) -> int:
    """About how many tokens' forward pass fits into so many bytes.

    For the formula as written the length is found by bisection. The memory of all others is linear in the length and
    extrapolated from `far` and half of it.
    """
    if name != NAIVE:
        low, high = forward_bytes(name, far // 2), forward_bytes(name, far)
        return int(far + (budget - high) * (far // 2) / (high - low))
    fits, too_long = 1, 1 << 24
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        fits, too_long = (middle, too_long) if forward_bytes(name, middle) <= budget else (fits, middle)
    return fits


def training(name: str, length: int) -> tuple[int, int]:
    """Peak bytes beyond inputs, and operations, of a forward and a backward pass.

    The native engine is not among them: a counter of tensors does not see the memory of its backward pass.
    """
    way: Way = partial(chunked, again=True) if name == AGAIN else ways()[name]
    device = "cpu" if name in ENGINES else "meta"

    def work() -> Tensor:
        inputs = [torch.ones(1, 1, length, WIDTH, device=device, requires_grad=True) for _ in range(3)]
        out = way(*inputs)
        out.backward(torch.ones_like(out))
        return out

    with torch.enable_grad():
        return peak_bytes(work), operations(work)


@dataclass(frozen=True)
class GenerationCost:
    """Operations of generating `count` tokens after a first one, and the bytes of the cache at the end.

    Of every pass all pairs are counted, hidden ones too, as the formula as written computes them.
    """

    count: int
    without: int
    cached: int
    cache_bytes: int


def generation_cost(count: int) -> GenerationCost:
    """The cost by formula: 4 projections of d × d, 8 of the feed-forward layer, and the logits of the last token."""

    def operations(tokens: int, pairs: int) -> int:
        layer = 24 * MODEL_WIDTH**2 * tokens + 4 * MODEL_WIDTH * pairs
        return LAYERS * layer + 2 * MODEL_WIDTH * VOCABULARY * count

    triangle = count * (count + 1) // 2
    return GenerationCost(
        count,
        operations(triangle, triangle * (2 * count + 1) // 3),  # the whole text for each token: 1 + 4 + 9 + … pairs
        operations(count, triangle),  # each token once, with all before it
        2 * 4 * LAYERS * MODEL_WIDTH * count,  # keys and values in float32
    )


def small_model(seed: int, engine: str) -> LanguageModel:
    """A small language model with weights as they start: what it says is nonsense, what it costs is not."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        position = Rotary(MODEL_WIDTH // HEADS)
        return LanguageModel(
            VOCABULARY, layers=LAYERS, d_model=MODEL_WIDTH, heads=HEADS, position=position, engine=engine
        ).eval()


def without(of: LanguageModel, prompt: Tensor, count: int) -> Tensor:
    """The next tokens (batch, count), the whole text read anew for each."""
    tokens = prompt
    with torch.no_grad():
        for _ in range(count):
            last = torch.full(tokens.shape[:1], tokens.shape[1] - 1)
            tokens = torch.cat([tokens, of(tokens, at=last)[:, 0].argmax(-1, keepdim=True)], 1)
    return tokens[:, prompt.shape[1] :]


def generated(of: LanguageModel, count: int) -> tuple[GenerationCost, bool]:
    """The cost as counted while both ways run from a text of one token, and whether they give the same tokens."""
    prompt, cache, outputs = torch.zeros(1, 1, dtype=torch.long), KVCache(capacity=count), []
    anew = operations(lambda: outputs.append(without(of, prompt, count)))
    cached = operations(lambda: outputs.append(generate(of, prompt, count, cache=cache)))
    return GenerationCost(count, anew, cached, cache.nbytes), torch.equal(*outputs)


def projections(before: int) -> float:
    """How many d × d projections of one token a cached step of one layer takes, after so many tokens."""
    with torch.no_grad():
        layer, cache = MultiHeadAttention(MODEL_WIDTH, HEADS, mask="causal", engine="reference"), KVCache()
        layer(torch.zeros(1, before, MODEL_WIDTH), cache=cache)
        step = operations(lambda: layer(torch.zeros(1, 1, MODEL_WIDTH), cache=cache))
    pairs = 4 * (before + 1) * MODEL_WIDTH
    return (step - pairs) / (2 * MODEL_WIDTH**2)
