"""The page's arithmetic against the reference engine in float64: 500 random settings, and dropout bit for bit."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.spec import biases, masks, normalizers, scores
from regard.spec.dropout import Dropout
from regard.spec.positions import rotary, sinusoidal

SETTINGS, LIMIT = 500, 1e-9
Case = tuple[dict[str, Any], dict[str, Any]]  # for the page, for regard

# Runs in the page: settings with parts as [name, arguments] become calls of the module's functions.
COMPUTE = """settings => settings.map((given) => {
  const A = window.regardPlay.attention;
  const made = ([name, ...rest]) => A[name](...rest.map((each) => (each && each.part ? made(each.part) : each)));
  let { query, key } = given;
  if (given.sinusoidal) {
    const add = (rows, table) => rows.map((row, i) => row.map((x, d) => x + table[i][d]));
    query = add(query, A.sinusoidal(query.length, query[0].length, { start: given.start }));
    key = add(key, A.sinusoidal(key.length, key[0].length));
  }
  if (given.rotary) {
    query = A.rotary(query, { start: given.start, pairing: given.rotary });
    key = A.rotary(key, { pairing: given.rotary });
  }
  const sink = given.sink === null ? undefined : given.sink;
  const normalizer = { softmax: (row) => A.softmax(row, sink), sparsemax: A.sparsemax, hard: A.hard }[given.normalizer];
  const result = A.attend({
    query, key, value: given.value, score: made(given.score), mask: made(given.mask), bias: made(given.bias),
    temperature: given.temperature, normalizer, queryStart: given.start, dropout: given.dropout,
  });
  const online = result.logits.map((row) => {
    const tiles = [...A.onlineSoftmax(row.map((x) => x / given.temperature), given.value, given.tile)];
    return tiles.at(-1).result;
  });
  const lse = result.lse.map((x) => (x === -Infinity ? "-" : x));
  return { weights: result.weights, output: result.output, online, lse };
})"""


def _tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def _score(rng: random.Random, d: int) -> tuple[list[Any], Any]:
    hidden = rng.randint(1, 4)
    match rng.choice(["dot", "scaled", "scale", "general", "cosine", "additive", "concat"]):
        case "dot":
            return ["dot"], scores.Dot()
        case "scaled":
            return ["scaled"], scores.ScaledDot()
        case "scale":
            scale = rng.uniform(0.1, 2)
            return ["scaled", scale], scores.ScaledDot(scale)
        case "general":
            weight = _tensor(d, d)
            return ["general", weight.tolist()], scores.General(weight)
        case "cosine":
            scale = rng.uniform(0.5, 8)
            return ["cosine", scale], scores.Cosine(scale)
        case "additive":
            w_query, w_key, v = _tensor(hidden, d), _tensor(hidden, d), _tensor(hidden)
            return ["additive", w_query.tolist(), w_key.tolist(), v.tolist()], scores.Additive(w_query, w_key, v)
        case _:
            w_query, w_key, b, v = _tensor(hidden, d), _tensor(hidden, d), _tensor(hidden), _tensor(hidden)
            phi = rng.choice(["tanh", "relu", "gelu", "sigmoid"])
            page = ["concat", w_query.tolist(), w_key.tolist(), b.tolist(), v.tolist(), phi]
            return page, scores.ConcatMLP(w_query, w_key, b, v, phi)


def _mask(rng: random.Random, keys: int, last: int, depth: int = 0) -> tuple[list[Any], Any]:
    kinds = ["full", "causal", "windowed", "dilated", "globals", "prefix", "documents", "both", "either", "not"]
    match rng.choice(kinds[: 7 if depth else None]):
        case "full":
            return ["full"], masks.Full()
        case "causal":
            return ["causal"], masks.Causal()
        case "windowed":
            before, after = rng.choice([None, rng.randint(0, 4)]), rng.choice([None, rng.randint(0, 4)])
            return ["windowed", before, after], masks.Window(before, after)
        case "dilated":
            width, step = 2 * rng.randint(0, 3) + 1, rng.randint(1, 3)
            return ["dilated", width, step], masks.Dilated(width, step)
        case "globals":
            positions = sorted(rng.sample(range(keys), min(2, keys)))
            return ["globals", positions], masks.Global(positions)
        case "prefix":
            length = rng.randint(0, keys)
            return ["prefix", length], masks.Prefix(length)
        case "documents":
            ids = sorted(rng.randint(0, 2) for _ in range(max(keys, last)))
            key_ids, query_ids = torch.tensor(ids[:keys]), torch.tensor(ids[:last])
            return ["documents", ids], (key_ids, query_ids)
        case "not":
            page, mask = _mask(rng, keys, last, 1)
            return ["not", {"part": page}], ("~", mask)
        case kind:
            one, other = _mask(rng, keys, last, 1), _mask(rng, keys, last, 1)
            return [kind, {"part": one[0]}, {"part": other[0]}], ("&" if kind == "both" else "|", one[1], other[1])


def _made_mask(mask: Any, start: int, queries: int) -> Any:
    """Documents need the ids of the queries, which stand at `start` and after."""
    match mask:
        case ("~", one):
            return ~_made_mask(one, start, queries)
        case ("&", one, other):
            return _made_mask(one, start, queries) & _made_mask(other, start, queries)
        case ("|", one, other):
            return _made_mask(one, start, queries) | _made_mask(other, start, queries)
        case (key_ids, query_ids):
            return masks.Documents(key_ids, query_ids[start : start + queries])
    return mask


def _bias(rng: random.Random) -> tuple[list[Any], Any]:
    match rng.choice(["none", "none", "alibi", "byDistance", "t5", "added"]):
        case "none":
            return ["none"], None
        case "alibi":
            return ["alibi", 2.0**-8], biases.ALiBi(1)
        case "byDistance":
            table = _tensor(2 * rng.randint(0, 4) + 1)
            return ["byDistance", table.tolist()], biases.Distance(table)
        case "added":
            table = _tensor(5)
            page = ["added", {"part": ["alibi", 2.0**-8]}, {"part": ["byDistance", table.tolist()]}]
            return page, biases.ALiBi(1) + biases.Distance(table)
        case _:
            buckets, both = 4 * rng.randint(1, 4), rng.random() < 0.5
            most = rng.randint(buckets, 40)
            table = _tensor(buckets, 1)
            page = ["t5", table[:, 0].tolist(), {"bidirectional": both, "maxDistance": most}]
            return page, biases.T5(table, bidirectional=both, max_distance=most)


def case(number: int) -> Case:
    """A random setting of everything, for the page and for `attend`."""
    rng = random.Random(number)
    torch.manual_seed(number)
    queries, keys, half, d_v = rng.randint(1, 12), rng.randint(1, 12), rng.randint(1, 4), rng.randint(1, 5)
    start, size = rng.randint(0, 6), rng.choice([0.3, 1, 3])
    query, key, value = size * _tensor(queries, 2 * half), size * _tensor(keys, 2 * half), _tensor(keys, d_v)
    (score, own_score), (bias, own_bias) = _score(rng, 2 * half), _bias(rng)
    mask, own_mask = _mask(rng, keys, start + queries)
    temperature, normalizer = (
        rng.choice([1.0, rng.uniform(0.2, 5)]),
        rng.choice(["softmax"] * 3 + ["sparsemax", "hard"]),
    )
    sink = rng.uniform(-2, 2) if normalizer == "softmax" and rng.random() < 0.2 else None
    dropout = {"p": rng.uniform(0.05, 0.9), "seed": rng.randrange(1 << 31)} if rng.random() < 0.3 else None
    turned, added = rng.choice([None, None, "half", "interleaved"]), rng.random() < 0.2
    page = {
        "query": query.tolist(),
        "key": key.tolist(),
        "value": value.tolist(),
        "score": score,
        "mask": mask,
        "bias": bias,
        "temperature": temperature,
        "normalizer": normalizer,
        "sink": sink,
        "dropout": dropout,
        "start": start,
        "rotary": turned,
        "sinusoidal": added,
        "tile": rng.randint(1, 5),
    }
    if added:
        query = query + sinusoidal(queries, 2 * half, start=start, dtype=torch.float64)
        key = key + sinusoidal(keys, 2 * half, dtype=torch.float64)
    if turned is not None:
        query, key = rotary(query, start, pairing=turned), rotary(key, pairing=turned)  # type: ignore[arg-type]
    rows = {"softmax": normalizers.Softmax(sink), "sparsemax": normalizers.Sparsemax(), "hard": normalizers.Hard()}
    own = {
        "query": query[None, None],
        "key": key[None, None],
        "value": value[None, None],
        "score": own_score,
        "mask": _made_mask(own_mask, start, queries),
        "bias": own_bias,
        "temperature": temperature,
        "normalizer": rows[normalizer],
        "query_start": start,
        "dropout": 0.0 if dropout is None else Dropout(float(dropout["p"]), int(dropout["seed"])),
    }
    return page, own


@pytest.fixture
def page(open_chapter: Callable[..., Any]) -> Any:
    return open_chapter("").page


def test_the_page_computes_what_the_reference_computes(page: Any) -> None:
    cases = [case(number) for number in range(SETTINGS)]
    computed = page.evaluate(COMPUTE, [given for given, _ in cases])
    largest = 0.0
    for (given, own), result in zip(cases, computed, strict=True):
        spec = {name: value for name, value in own.items() if name not in ("query", "key", "value", "dropout")}
        inputs = own["query"], own["key"], own["value"]
        output = regard.attend(*inputs, **spec, dropout=own["dropout"], engine="reference")
        eye = torch.eye(own["key"].shape[-2], dtype=torch.float64)[None, None]
        weights = regard.attend(own["query"], own["key"], eye, **spec, engine="reference")
        pairs = [(result["weights"], weights[0, 0]), (result["output"], output[0, 0])]
        if given["normalizer"] == "softmax" and given["sink"] is None:
            plain, aux = regard.attend(*inputs, **spec, aux="lse", engine="reference")
            pairs.append((result["online"], plain[0, 0]))
            lse = [float("-inf") if each == "-" else each for each in result["lse"]]
            expected = aux.lse[0, 0]
            assert [each == float("-inf") for each in lse] == expected.isneginf().tolist()
            finite = ~expected.isneginf()
            pairs.append((torch.tensor(lse, dtype=torch.float64)[finite].tolist(), expected[finite]))
        for found, right in pairs:
            error = (torch.tensor(found, dtype=torch.float64).reshape(right.shape) - right).abs()
            largest = max(largest, float(error.max()) if error.numel() else 0.0)
            assert largest <= LIMIT, given
    assert largest > 0  # equal to the last bit everywhere would mean that nothing was compared


def test_dropout_numbers_are_those_of_our_generator(page: Any) -> None:
    seeds = [0, 1, 2**31, 2**53 + 1, 2**64 - 1, -5]
    script = """seeds => seeds.map((seed) => [0, 1, 7].map((head) => [0, 3, 4095, 2 ** 33].map((i) => {
      const row = window.regardPlay.attention.dropoutRow(BigInt(seed), i, head, 2);
      return [0, 1, 999, 2 ** 31, 2 ** 32 + 5].map((j) => window.regardPlay.attention.dropoutNumber(row, j));
    })))"""
    found = page.evaluate(script, [str(seed) for seed in seeds])
    expected = [
        [
            [[_number(seed, 2, head, i, j) for j in (0, 1, 999, 2**31, 2**32 + 5)] for i in (0, 3, 4095, 2**33)]
            for head in (0, 1, 7)
        ]
        for seed in seeds
    ]
    assert found == expected


def _mix64(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def _number(seed: int, b: int, h: int, i: int, j: int) -> int:
    """docs/dropout.md, in plain integers."""
    row = _mix64(seed % 2**64)
    for part in (b, h, i):
        row = _mix64((row + part) % 2**64)
    x = (j % 2**32 + row % 2**32) % 2**32
    x = (x ^ x >> 17) * 0xED5AD4BB % 2**32
    x = (x ^ x >> 11) ^ row >> 32
    x = x * 0xAC4C1B51 % 2**32
    x = (x ^ x >> 15) * 0x31848BAB % 2**32
    return x ^ x >> 14


@pytest.mark.parametrize("heads", [1, 3, 8, 12])
def test_slopes_of_alibi_are_ours(page: Any, heads: int) -> None:
    found = page.evaluate("heads => window.regardPlay.attention.alibiSlopes(heads)", heads)
    assert torch.allclose(torch.tensor(found, dtype=torch.float64), biases.ALiBi(heads).slopes, rtol=1e-15, atol=0)


def test_buckets_of_t5_are_ours(page: Any) -> None:
    script = """([buckets, bidirectional, maxDistance]) => Array.from({ length: 601 }, (_, n) =>
      window.regardPlay.attention.t5Bucket(n - 300, buckets, { bidirectional, maxDistance }))"""
    offsets = torch.arange(-300, 301)
    for buckets, both, most in [(32, True, 128), (32, False, 128), (16, True, 64), (8, False, 20), (64, True, 256)]:
        own = biases.T5(torch.zeros(buckets, 1), bidirectional=both, max_distance=most).bucket(offsets)
        assert page.evaluate(script, [buckets, both, most]) == own.tolist(), (buckets, both, most)
