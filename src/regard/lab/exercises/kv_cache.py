"""Exercise 15: what a cache of keys and values holds and saves."""

import torch

from regard.lab.dimensions import MODELS
from regard.lab.exercises.derived import derived
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of
from regard.lab.exercises.questions import Choice, Quantity
from regard.lab.exercises.worked import shown
from regard.nn import KVCache

MODEL, LAYERS = one_of(("Llama 3 8B", 32), ("Llama 3.2 1B", 16), ("Llama 2 70B", 80), ("SmolLM2-135M", 30))
SHAPE = next(shape for shape in MODELS if shape.model == MODEL)
BYTES = 2
TEXT, SHORT = one_of(8192, 4096, 16384), one_of(100, 50, 200)
GIB = 2**30

TASK = f"""\
A model has {LAYERS} layers; each has {SHAPE.heads} query heads that share {SHAPE.kv_heads} heads of keys and
values, d_k = d_v = {SHAPE.d_k}. Numbers take {BYTES} bytes. While it writes, it keeps the
keys and values of all tokens so far. Compute:

  token    bytes that one token adds to the cache, over all layers
  text     GiB (2³⁰ bytes) for {TEXT:,} tokens
  shared   how many times as much it would be if every query head had keys and
           values of its own
  with     how many keys one head of one layer computes in all while {SHORT}
           tokens are written one by one, with the cache
  without  the same if each step recomputes the keys of all tokens so far
  map      bytes of the {TEXT:,} × {TEXT:,} weights of one head, which flash
           attention never holds, at {BYTES} bytes each
  queries  why queries are not kept: too-large, not-asked-again or same-as-keys"""


def cached(tokens: int, layers: int = LAYERS, kv_heads: int = SHAPE.kv_heads) -> int:
    """Bytes of a cache with room for that many tokens, without holding anything."""
    cache = KVCache(capacity=tokens)
    places = [torch.nn.Identity() for _ in range(layers)]
    rows = torch.empty(1, kv_heads, tokens, SHAPE.d_k, dtype=torch.float16, device="meta")
    for place in places:
        cache.layer(place).append(rows, rows)
    return cache.nbytes


TOKEN, WHOLE = cached(1), cached(TEXT) / GIB
SHARED = cached(1, kv_heads=SHAPE.heads) / TOKEN
WITHOUT = sum(range(1, SHORT + 1))
MAP = torch.empty(TEXT, TEXT, dtype=torch.float16, device="meta").nbytes
CHOICE = Choice(
    "who looks at an old query?",
    ("too-large", "a query is as large as a key; it is left out because nothing would ever read it"),
    ("not-asked-again", "a later token brings its own query and looks at old keys and values, never at old queries"),
    (
        "same-as-keys",
        f"W_Q and W_K differ, and there are {SHAPE.heads // SHAPE.kv_heads} query heads for one head of keys",
    ),
    right="not-asked-again",
)
PARTS = {
    "token": Quantity(
        (TOKEN, "keys and values · layers · heads of keys · width · bytes"),
        (TOKEN // 2, "keys alone, or one byte a number: values are kept too, and each number takes two bytes"),
        (TOKEN // LAYERS, "that is one layer"),
        (TOKEN // SHAPE.kv_heads, f"that is one head of keys and values; there are {SHAPE.kv_heads}"),
        (
            TOKEN * SHAPE.heads // SHAPE.kv_heads,
            f"query heads are not kept: {SHAPE.kv_heads} heads of keys and values, not {SHAPE.heads}",
        ),
        (2 * TOKEN, "two bytes a number, not four"),
        (TOKEN / 1024, "that is KiB; asked are bytes"),
        (TOKEN // 2 * 3, "queries are not kept: only keys and values"),
    ),
    "text": Quantity(
        (WHOLE, f"{TEXT:,} times one token"),
        (WHOLE * GIB, "those are bytes; divide by 2³⁰"),
        (WHOLE * 1024, "those are MiB; divide by 1,024 once more"),
        (WHOLE * GIB / 1e9, "that is with 10⁹ bytes, GB; GiB are 2³⁰"),
        (WHOLE * SHAPE.heads / SHAPE.kv_heads, f"query heads are not kept: {SHAPE.kv_heads} heads, not {SHAPE.heads}"),
        (WHOLE / 2, "keys alone; there are values too"),
        follows=derived("token", ("times", TEXT / GIB)),
    ),
    "shared": Quantity(
        (SHARED, f"{SHAPE.heads} heads instead of {SHAPE.kv_heads}"),
        (1 / SHARED, "the other way round: it would be more, not less"),
        (SHAPE.heads, f"there are {SHAPE.kv_heads} heads of keys already, not one"),
        (2 * SHARED, "keys and values both grow by the same factor; the factor is not doubled"),
    ),
    "with": Quantity(
        (SHORT, "each token once, when it comes"),
        (WITHOUT, "that is without the cache"),
        (1, f"that is per token; there are {SHORT}"),
        (SHORT**2, "nothing is computed twice: that is what the cache is for"),
        (2 * SHORT, "keys alone are asked, not values"),
    ),
    "without": Quantity(
        (WITHOUT, f"1 + 2 + … + {SHORT}"),
        (SHORT**2, f"at step i there are i tokens, not {SHORT}: 1 + 2 + … + {SHORT}"),
        (SHORT * (SHORT - 1) // 2, "step i computes the keys of i tokens, the new one included: n(n + 1)/2"),
        (SHORT, "that is with the cache"),
        (SHORT**2 // 2, "nearly: the sum is n(n + 1)/2"),
    ),
    "map": Quantity(
        (MAP, "n² numbers of two bytes"),
        (MAP // 2, "that is how many numbers there are; each takes two bytes"),
        (2 * MAP, "two bytes a number, not four"),
        (TEXT * BYTES, "n² numbers, not n: flash attention holds of the order of n"),
        (MAP / 2**20, "that is MiB; asked are bytes"),
        (MAP * SHAPE.heads, "that is all heads; asked is one"),
    ),
    "queries": CHOICE,
}
SOLUTION = (
    f"token: 2 · {LAYERS} · {SHAPE.kv_heads} · {SHAPE.d_k} · {BYTES} = {TOKEN:,} bytes, {TOKEN // 1024} KiB; "
    f"a `regard.nn.KVCache` with these sizes says the same. text: {TEXT:,} · {TOKEN:,} / 2³⁰ = {shown(WHOLE)} "
    "GiB for one conversation.",
    f"shared: {SHAPE.heads} / {SHAPE.kv_heads} = {shown(SHARED)}, which is why heads share keys and values "
    "(grouped-query attention).",
    f"with: {SHORT}. without: 1 + 2 + … + {SHORT} = {SHORT} · {SHORT + 1} / 2 = {WITHOUT:,}.",
    f"map: {TEXT:,}² · {BYTES} = {MAP:,} bytes, {MAP // 2**20} MiB for one head of one layer. Flash attention "
    "holds a tile of it at a time; exercise 16 shows how that can be exact.",
    f"queries: {CHOICE}.",
)
EXERCISE = Exercise(
    15,
    "The cache of keys and values",
    Chapter("important concepts", "10. Computational tricks: KV caching", ("tricks",)),
    TASK,
    PARTS,
    '{"token": 1, "text": 400, "with": 7, "without": 7, "queries": "too-large"}',
    SOLUTION,
)
