"""Every column of the table of heads against its formula, written out in NumPy on dense weights in float64."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import biases, masks, matrix, normalizers
from regard.inspection.heads import head_table, layer_table
from regard.inspection.matrix import AttentionMatrix

Array = np.ndarray[Any, Any]
SHARES = ("previous", "first", "diagonal", "duplicate", "induction", "punctuation")
NEAREST = ("nearest_layer", "nearest_head", "nearest_similarity")


@dataclass
class Matrices:
    """Matrices as a capture holds them."""

    matrices: Sequence[AttentionMatrix]
    layers: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    channels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.layers = self.layers or tuple(f"layer.{number}" for number in range(len(self.matrices)))

    def __getitem__(self, number: int) -> AttentionMatrix:
        return self.matrices[number]

    def numbers(self, layer: int) -> tuple[int, ...]:
        return tuple(range(self.matrices[layer].shape[1]))


Layers: Any = Matrices  # it stands for a Capture


@dataclass
class Case:
    """One layer: queries and keys, which pairs are visible as a dense array, and the same as a spec."""

    query: torch.Tensor
    key: torch.Tensor
    seen: Array  # (batch, query, key)
    padding: Array  # (batch, query)
    tokens: list[list[str]]
    spec: dict[str, Any]
    sink: Array | None = None
    start: int = 0

    @property
    def matrix(self) -> AttentionMatrix:
        found: AttentionMatrix = matrix(self.query, self.key, **self.spec)
        return found

    @property
    def weights(self) -> tuple[Array, Array]:
        """(batch, head, query, key), and the sink's share."""
        query, key = self.query.double().numpy(), self.key.double().numpy()
        key = np.repeat(key, query.shape[1] // key.shape[1], axis=1)
        logits = np.einsum("bhid,bhjd->bhij", query, key) / math.sqrt(query.shape[-1])
        logits = np.where(self.seen[:, None], logits, -np.inf)
        sink = np.full(query.shape[1], -np.inf) if self.sink is None else self.sink
        top = np.maximum(logits.max(-1), sink[:, None])
        top = np.where(np.isfinite(top), top, 0.0)
        parts, rest = np.exp(logits - top[..., None]), np.exp(sink[:, None] - top)
        total = parts.sum(-1) + rest
        total = np.where(total == 0, 1.0, total)
        return parts / total[..., None], rest / total


MARKS = ".,!"


@st.composite
def cases(draw: Any, square: bool = True) -> Case:
    batch, kv, group, width = (draw(st.integers(1, most)) for most in (3, 2, 3, 4))
    keys = draw(st.integers(2, 9))
    queries = keys if square else draw(st.integers(1, 9).filter(lambda n: n != keys))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    query = torch.randn(batch, kv * group, queries, width, generator=generator, dtype=torch.float64) * 2
    key = torch.randn(batch, kv, keys, width, generator=generator, dtype=torch.float64)
    i, j = np.arange(queries)[:, None], np.arange(keys)[None]
    form = draw(st.sampled_from(("full", "causal", "window"))) if square else "full"
    before, after = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    seen = {"full": i + j >= 0, "causal": j <= i, "window": (j >= i - before) & (j <= i + after)}[form]
    mask: masks.Mask = {"full": masks.Full(), "causal": masks.Causal(), "window": masks.Window(before, after)}[form]
    first = np.zeros(batch, dtype=int)
    last = np.full(batch, keys)
    side = draw(st.sampled_from(("none", "left", "right")))
    if side == "left":
        first = np.array([draw(st.integers(0, keys - 1)) for _ in range(batch)])
    if side == "right":
        last = np.array([draw(st.integers(1, keys)) for _ in range(batch)])
    real = (j >= first[:, None]) & (j < last[:, None])  # (batch, key)
    if side == "right":
        mask = mask & masks.Lengths(last.tolist())
    if side == "left":
        mask = mask & masks.Dense(torch.as_tensor(real)[:, None, None])
    spec: dict[str, Any] = {"mask": mask, "query_start": 0}
    sink = None
    if draw(st.booleans()):
        sink = np.array([draw(st.floats(-2, 2)) for _ in range(kv * group)])
        spec["normalizer"] = normalizers.Softmax(sink=torch.as_tensor(sink))
    words = [[draw(st.sampled_from("ab.,")) for _ in range(keys)] for _ in range(batch)]
    padding = ~real if square else np.zeros((batch, queries), dtype=bool)
    return Case(query, key, seen[None] & real[:, None, :], padding, words, spec, sink)


def expected(case: Case, within: bool = True) -> list[dict[str, float]]:
    """Row by row and head by head, as the page defines the columns: first batch rows, then heads."""
    weights, sink = case.weights
    batch, heads, queries, keys = weights.shape
    found = []
    for b in range(batch):
        columns = case.seen[b].any(0)
        first = int(np.argmax(columns))
        for h in range(heads):
            cells: dict[str, list[float]] = {name: [] for name in ("entropy", "relative", "distance", "sink", *SHARES)}
            for i in range(queries):
                visible = [j for j in range(keys) if case.seen[b, i, j]]
                if not visible or case.padding[b, i]:
                    continue
                w = weights[b, h, i]
                entropy = -sum(w[j] * math.log(w[j]) for j in visible if w[j] > 0)
                cells["entropy"].append(entropy)
                if len(visible) > 1:
                    cells["relative"].append(entropy / math.log(len(visible)))
                cells["distance"].append(sum(w[j] * abs(i - j) for j in visible))
                cells["sink"].append(float(sink[b, h, i]))
                token = case.tokens[b]
                kinds = {
                    "previous": [j for j in visible if j == i - 1],
                    "first": [j for j in visible if j == first],
                    "diagonal": [j for j in visible if j == i],
                    "punctuation": [j for j in visible if token[j] in MARKS],
                }
                if within:
                    kinds["duplicate"] = [j for j in visible if j != i and token[j] == token[i]]
                    follows = [j for j in visible if j > 0 and j - 1 != i and token[j - 1] == token[i]]
                    kinds["induction"] = follows
                for name, some in kinds.items():
                    if some:
                        cells[name].append(sum(w[j] for j in some))
            means = {name: float(np.mean(values)) if values else math.nan for name, values in cells.items()}
            if not within:
                means |= dict.fromkeys(("previous", "diagonal", "distance", "duplicate", "induction"), math.nan)
            if case.sink is None:
                means["sink"] = math.nan
            found.append(means)
    return found


def cosines(case: Case, b: int, centered: bool, others: Case | None = None) -> Array:
    """(head, head) of the patterns of one batch row; of two layers, their heads one after the other."""
    patterns = []
    for each in (case,) if others is None else (case, others):
        weights = each.weights[0][b].copy()
        if centered:
            count = np.maximum(each.seen[b].sum(-1, keepdims=True), 1)
            weights -= np.where(each.seen[b], weights.sum(-1, keepdims=True) / count, 0.0)
        patterns.append((weights * ~each.padding[b][:, None]).reshape(len(weights), -1))
    flat = np.concatenate(patterns)
    size = np.linalg.norm(flat, axis=-1)
    size = np.where(size > 1e-12, size, 0.0)
    both = size[:, None] * size
    return np.where(both > 0, flat @ flat.T / np.where(both > 0, both, 1.0), 0.0)


def close(found: Any, wanted: float, tolerance: float = 1e-9) -> bool:
    """NaN only where it is wanted."""
    assert isinstance(found, float)
    if math.isnan(wanted) or math.isnan(found):
        return math.isnan(wanted) and math.isnan(found)
    return abs(found - wanted) <= tolerance * (1 + abs(wanted))


@settings(max_examples=60)
@given(case=cases())
def test_each_column_is_its_formula(case: Case) -> None:
    table = head_table(Layers([case.matrix]), tokens=case.tokens, per_batch=True)
    for row, wanted in zip(table, expected(case), strict=True):
        for name, value in wanted.items():
            assert close(row[name], value), (name, row[name], value)


@settings(max_examples=20)
@given(case=cases(square=False))
def test_cross_attention_has_what_makes_sense_there(case: Case) -> None:
    table = head_table(Layers([case.matrix], ("cross",)), tokens=case.tokens, per_batch=True)
    for row, wanted in zip(table, expected(case, within=False), strict=True):
        for name, value in wanted.items():
            assert close(row[name], value), (name, row[name], value)


@settings(max_examples=30)
@given(case=cases(), centered=st.booleans())
def test_similarity_is_the_mean_cosine_with_the_other_heads(case: Case, centered: bool) -> None:
    heads = case.query.shape[1]
    table = head_table(Layers([case.matrix]), which="similarity", centered=centered, per_batch=True)
    for row in table:
        b, h = row["batch"], row["head"]
        assert isinstance(b, int)
        assert isinstance(h, int)
        alike = cosines(case, b, centered)[h]
        wanted = 1.0 if heads == 1 else (alike.sum() - alike[h]) / (heads - 1)
        if not (case.seen[b].any(-1) & ~case.padding[b]).any():
            wanted = math.nan
        assert close(row["similarity"], float(wanted), 1e-6)


@settings(max_examples=30)
@given(case=cases(), centered=st.booleans(), seed=st.integers(0, 1000))
def test_the_nearest_head_is_that_of_the_largest_cosine(case: Case, centered: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(case.query.shape, generator=generator, dtype=torch.float64)
    other = Case(query, case.key, case.seen, case.padding, case.tokens, case.spec, case.sink)
    heads, batch = case.query.shape[1], case.query.shape[0]
    counts = [(case.seen[b].any(-1) & ~case.padding[b]).any() for b in range(batch)]
    alike = np.mean([cosines(case, b, centered, other) for b in range(batch) if counts[b]], axis=0)
    table = head_table(Layers([case.matrix, other.matrix]), which=NEAREST, centered=centered)
    for place, row in enumerate(table):
        others = np.delete(alike[place], place)
        assert close(row["nearest_similarity"], float(others.max()), 1e-6)
        layer, head = row["nearest_layer"], row["nearest_head"]
        assert isinstance(layer, int)
        assert isinstance(head, int)
        assert layer * heads + head != place
        assert alike[place, layer * heads + head] >= others.max() - 1e-6


@settings(max_examples=20)
@given(case=cases())
def test_batch_rows_and_heads_are_averaged(case: Case) -> None:
    rows = expected(case)
    heads = case.query.shape[1]
    table = head_table(Layers([case.matrix]), tokens=case.tokens)
    means = []
    for h, row in enumerate(table):
        wanted = {name: mean([each[name] for each in rows[h::heads]]) for name in rows[0]}
        assert row["head"] == h
        assert all(close(row[name], value) for name, value in wanted.items())
        means.append(wanted)
    (layer,) = layer_table(Layers([case.matrix]), tokens=case.tokens)
    assert layer["heads"] == heads
    assert all(close(layer[name], mean([each[name] for each in means])) for name in rows[0])


def mean(values: Sequence[float]) -> float:
    there = [value for value in values if not math.isnan(value)]
    return sum(there) / len(there) if there else math.nan


def long(n: int) -> Case:
    """Several blocks of weights, in float32 and two batch rows."""
    generator = torch.Generator().manual_seed(3)
    query, key = (torch.randn(2, heads, n, 8, generator=generator) for heads in (4, 2))
    ids = torch.randint(0, 40, (2, n), generator=generator)
    tokens = [
        [".,abcdefgh"[number % 10] + "x" * (number // 10 % 4) * (number % 10 > 1) for number in row] for row in ids
    ]
    j = np.arange(n)
    seen = np.broadcast_to(j[None] <= j[:, None], (2, n, n))
    return Case(query, key, seen, np.zeros((2, n), dtype=bool), tokens, {"mask": "causal"})


def test_many_queries_in_float32() -> None:
    case = long(270)
    table = head_table(Layers([case.matrix]), tokens=case.tokens, per_batch=True)
    for row, wanted in zip(table, expected(case), strict=True):
        assert all(close(row[name], value, 1e-5) for name, value in wanted.items())
    for row in table:
        assert isinstance(row["batch"], int)
        assert isinstance(row["head"], int)
        alike = cosines(case, row["batch"], centered=False)[row["head"]]
        assert close(row["similarity"], (alike.sum() - 1.0) / 3, 1e-5)


def test_a_sample_of_queries_finds_the_nearest_head() -> None:
    case = long(1100)
    twin = Case(case.query.flip(1), case.key.flip(1), case.seen, case.padding, case.tokens, case.spec)
    table = head_table(
        Layers([case.matrix, twin.matrix]), which=("nearest_layer", "nearest_head", "nearest_similarity")
    )
    for row in table:
        assert isinstance(row["layer"], int)
        assert isinstance(row["head"], int)
        assert (row["nearest_layer"], row["nearest_head"]) == (1 - row["layer"], 3 - row["head"])
        assert close(row["nearest_similarity"], 1.0, 1e-6)


def test_a_bias_at_the_lowest_number_hides() -> None:
    case = long(270)
    lowest = torch.finfo(torch.float32).min
    hidden = torch.where(torch.as_tensor(case.seen[0].copy()), 0.0, lowest)
    hidden[5] = lowest  # a row of padding, which such models give even weights
    biased = Case(case.query, case.key, case.seen, case.padding, case.tokens, {"bias": hidden})
    padding = case.padding.copy()
    padding[:, 5] = True
    wanted = expected(Case(case.query, case.key, case.seen, padding, case.tokens, {}))
    table = head_table(Layers([biased.matrix]), tokens=case.tokens, per_batch=True)
    for row, each in zip(table, wanted, strict=True):
        assert all(close(row[name], value, 1e-5) for name, value in each.items())


@pytest.mark.filterwarnings("ignore:regard runs this on 'tiled'")
def test_other_normalizers_and_scores() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 2, 12, 4, generator=generator, dtype=torch.float64)
    spec: dict[str, Any] = {"mask": "causal", "bias": biases.ALiBi(2)}
    for normalizer in (normalizers.Sparsemax(), normalizers.Hard()):
        made = matrix(query, key, normalizer=normalizer, **spec)
        table = head_table(Layers([made]), tokens=list("abcabcabc.ab"))
        dense = made.dense()[0].numpy()
        for head, row in enumerate(table):
            w = dense[head]
            assert close(row["previous"], float(np.mean([w[i, i - 1] for i in range(1, 12)])))
            assert close(row["first"], float(w[:, 0].mean()))
            assert close(row["diagonal"], float(np.trace(w) / 12))
            entropy = -np.where(w > 0, w * np.log(np.where(w > 0, w, 1.0)), 0.0).sum(-1)
            assert close(row["entropy"], float(entropy.mean()))
            assert close(row["similarity"], float((dense[0] * dense[1]).sum() / np.sqrt((dense**2).sum((1, 2)).prod())))
