"""The table of heads as a user meets it: captured models, options, what is refused."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import capture, masks, matrix
from regard.inspection.heads import COLUMNS, head_table, layer_table
from regard.inspection.heads.statistics import EXACT, SAMPLE, sampled
from regard.inspection.matrix import AttentionMatrix
from regard.inspection.records import Table


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


def made(*sizes: int, seed: int = 0, **spec: Any) -> AttentionMatrix:
    """(batch, head, query, key) of random queries and keys."""
    batch, heads, queries, keys = sizes
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(batch, heads, queries, 8, generator=generator, dtype=torch.float64)
    key = torch.randn(batch, heads, keys, 8, generator=generator, dtype=torch.float64)
    found: AttentionMatrix = matrix(query, key, **spec)
    return found


def encoder() -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()


def test_heads_keep_their_numbers() -> None:
    model, x = encoder(), torch.randn(1, 10, 16, generator=torch.Generator().manual_seed(1))
    whole, some = head_table(capture(model, x)), head_table(capture(model, x, heads=[3, 1]))
    assert some["head"] == [1, 3] * 3
    for row in some:
        assert row["entropy"] == mean(whole, "entropy", layer=row["layer"], head=row["head"])
        assert row["nearest_head"] in (1, 3)


def mean(table: Table, column: str, **rows: Any) -> float:
    (value,) = table.where(**rows)[column]
    assert isinstance(value, float)
    return value


def test_a_captured_encoder() -> None:
    model, x = encoder(), torch.randn(2, 10, 16, generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([[10], [7]])
    c = capture(model, x, src_key_padding_mask=torch.arange(10) >= lengths)
    table = head_table(c)
    assert table.columns == ("layer", "name", "head", *COLUMNS)
    assert len(table) == 3 * 4
    assert table["name"][4] == "layers.1.self_attn"
    for layer in range(3):
        weights = c[layer].dense()
        for head in range(4):
            rows = [weights[0, head], weights[1, head, :7]]
            first = sum(float(part[:, 0].mean()) for part in rows) / 2
            assert mean(table, "first", layer=layer, head=head) == pytest.approx(first, abs=1e-6)
            before = sum(float(part.diagonal(-1).mean()) for part in rows) / 2
            assert mean(table, "previous", layer=layer, head=head) == pytest.approx(before, abs=1e-6)
    for column in ("sink", "duplicate", "induction", "punctuation"):
        assert all(isinstance(cell, float) and math.isnan(cell) for cell in table[column])
    for column in COLUMNS:
        if column not in ("sink", "duplicate", "induction", "punctuation"):
            assert all(math.isfinite(float(cell)) for cell in table[column])  # type: ignore[arg-type]


def test_a_captured_decoder_knows_its_cross_attention() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerDecoder(layer, 2).eval()
    causal = nn.Transformer.generate_square_subsequent_mask(6)
    c = capture(model, torch.randn(1, 6, 16), torch.randn(1, 6, 16), tgt_mask=causal, tgt_is_causal=True)
    table = head_table(c, which=("entropy", "previous", "first", "diagonal", "distance"))
    own, other = ([row for row in table if str(row["name"]).endswith(end)] for end in ("self_attn", "multihead_attn"))
    assert len(own) == len(other) == 8
    for row in own:
        assert all(math.isfinite(float(row[column])) for column in table.columns[3:])  # type: ignore[arg-type]
    for row in other:
        assert [math.isnan(float(row[column])) for column in table.columns[3:]] == [False, True, False, True, True]  # type: ignore[arg-type]
    (told,) = head_table(c, layers=1, cross=(), which="previous")["previous"][:1]
    assert isinstance(told, float)
    assert told == pytest.approx(float(c[1].dense()[0, 0].diagonal(-1).mean()), abs=1e-6)


def repeated(tokens: int) -> Tensor:
    """A first token, then others that are all different, twice."""
    order = torch.randperm(tokens, generator=torch.Generator().manual_seed(5)) + 1
    return torch.cat([torch.zeros(1, dtype=torch.int64), order, order])


@pytest.mark.parametrize("tokens", [5, 40])
def test_induction_is_the_diagonal_of_a_repeated_sequence(tokens: int) -> None:
    A, ids = made(1, 3, 2 * tokens + 1, 2 * tokens + 1, mask="causal"), repeated(tokens)
    table = head_table(Layers([A]), ids=ids)
    for head in range(3):
        weights = A.dense()[0, head]
        stripe = weights.diagonal(1 - tokens)  # TransformerLens takes the mean of all of it
        assert len(stripe) == tokens + 2
        wanted = float(stripe[2:].mean())  # its first two stand before the repetition
        assert mean(table, "induction", head=head) == pytest.approx(wanted, abs=1e-12)
        assert mean(table, "duplicate", head=head) == pytest.approx(
            float(weights.diagonal(-tokens)[1:].mean()), abs=1e-12
        )


def test_a_perfect_induction_head_scores_one() -> None:
    tokens = 30
    ids = repeated(tokens)
    n = len(ids)
    key, query = torch.eye(n, dtype=torch.float64) * 1e3, torch.eye(n, dtype=torch.float64)
    for i in range(tokens + 1, n):
        query[i] = torch.eye(n, dtype=torch.float64)[i - tokens + 1]
    A = matrix(query[None, None], key[None, None], mask="causal")
    (row,) = head_table(Layers([A]), ids=ids)
    assert row["induction"] == pytest.approx(1.0)
    assert row["duplicate"] == pytest.approx(0.0)
    assert row["similarity"] == 1.0
    assert math.isnan(row["nearest_layer"])  # type: ignore[arg-type]
    assert row["entropy"] == pytest.approx(0.0)


def test_ids_of_a_batch_and_labels_of_the_capture() -> None:
    A = made(2, 2, 6, 6, mask="causal", query_tokens=list("ab.ab,"), key_tokens=list("ab.ab,"))
    by_labels = head_table(Layers([A]), per_batch=True)
    by_ids = head_table(Layers([A]), ids=[[7, 8, 9, 7, 8, 1], [7, 8, 9, 7, 8, 1]], per_batch=True)
    assert by_labels.rows == by_ids.rows  # labels still tell what is punctuation
    other = head_table(Layers([A]), ids=[[7, 8, 9, 7, 8, 1], [1, 2, 3, 4, 5, 6]], per_batch=True)
    assert other["duplicate"][:2] == by_ids["duplicate"][:2]
    assert all(math.isnan(cell) for cell in other["duplicate"][2:])  # type: ignore[arg-type]
    assert other["punctuation"] == by_ids["punctuation"]


def test_queries_that_count_can_be_told() -> None:
    A = made(1, 2, 8, 8, mask="causal")
    told = head_table(Layers([A]), queries=[0, 0, 0, 0, 1, 1, 1, 1], which=("entropy", "previous"))
    weights, entropy = A.dense()[0], A.entropy()[0]
    for head in range(2):
        assert mean(told, "entropy", head=head) == pytest.approx(float(entropy[head, 4:].mean()))
        assert mean(told, "previous", head=head) == pytest.approx(float(weights[head].diagonal(-1)[3:].mean()))


def test_a_mask_that_hides_the_own_token_makes_nobody_padding() -> None:
    A = made(1, 1, 6, 6, mask=masks.Window(None, -1))
    (row,) = head_table(Layers([A]), which=("first", "previous", "diagonal"))
    weights = A.dense()[0, 0]
    assert row["previous"] == pytest.approx(float(weights.diagonal(-1).mean()))
    assert row["first"] == pytest.approx(float(weights[1:, 0].mean()))
    assert math.isnan(row["diagonal"])  # type: ignore[arg-type]


def test_some_columns_and_layers() -> None:
    layers = Layers([made(1, 2, 5, 5, seed=seed, mask="causal") for seed in range(4)])
    everything = head_table(layers)
    assert head_table(layers, which="entropy").columns == ("layer", "name", "head", "entropy")
    some = head_table(layers, which=("first", "entropy"), layers=(-1, "layer.1"))
    assert some.columns == ("layer", "name", "head", "first", "entropy")
    assert some["layer"] == [3, 3, 1, 1]
    for row in some:
        assert row["first"] == everything.where(layer=row["layer"], head=row["head"])["first"][0]
    assert head_table(layers, layers=slice(1, 3), which="first")["layer"] == [1, 1, 2, 2]
    assert len(head_table(layers, layers=2)) == 2
    averages = layer_table(layers, which=("entropy", "similarity"), layers=(0, 2))
    assert averages.columns == ("layer", "name", "heads", "entropy", "similarity")
    assert averages["layer"] == [0, 2]
    alike = layers[0].similarity()[0, 0, 1]
    assert averages["similarity"][0] == pytest.approx(float(alike))


def test_layers_of_other_sizes_are_not_compared() -> None:
    layers = Layers([made(1, 1, 5, 5), made(1, 1, 5, 5, seed=1), made(1, 1, 5, 7), made(1, 1, 4, 4)])
    table = head_table(layers, which=("nearest_layer", "nearest_head", "nearest_similarity"))
    assert table["nearest_layer"][:2] == [1, 0]
    assert all(math.isnan(cell) for cell in table["nearest_layer"][2:])  # type: ignore[arg-type]


def test_samples_reach_from_the_first_query_to_the_last() -> None:
    assert list(sampled(EXACT)) == [slice(0, EXACT)]
    for queries in (EXACT + 1, 8192, 100_000):
        runs = list(sampled(queries))
        assert runs[0].start == 0
        assert runs[-1].stop == queries
        rows = [row for run in runs for row in range(run.start, run.stop)]
        assert len(set(rows)) == len(rows) == SAMPLE


def test_nothing_to_see_is_nan() -> None:
    layers = Layers([made(1, 2, 0, 0), made(1, 2, 3, 0), made(2, 2, 4, 4, mask=masks.Lengths([0, 4]))])
    table = head_table(layers, per_batch=True)
    numbers = [[row[column] for column in COLUMNS] for row in table]
    assert all(math.isnan(float(cell)) for row in numbers[:6] for cell in row)  # type: ignore[arg-type]
    assert all(math.isfinite(float(row["entropy"])) for row in list(table)[6:])  # type: ignore[arg-type]
    blind = head_table(layers, layers=2)
    seeing = head_table(layers, layers=2, per_batch=True).where(batch=1)
    assert blind["first"] == seeing["first"]


def test_what_is_refused_is_left_out_and_named() -> None:
    layers = Layers([made(1, 1, 5, 5)] * 2, ("good", "bad"), {"bad": "its weights are not ours"})
    table = head_table(layers, which="entropy")
    assert table["name"] == ["good"]
    assert table.title == "not shown: bad"


def test_progress_is_told_step_by_step() -> None:
    steps: list[tuple[int, int]] = []
    head_table(Layers([made(1, 2, 5, 5)] * 2), progress=lambda done, of: steps.append((done, of)))
    assert steps == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    "options, kind, text",
    [
        ({"which": "induktion"}, ValueError, "which names columns, entropy, .*; got 'induktion'"),
        ({"layers": 2}, IndexError, "layer 2 of 1"),
        ({"layers": "decoder"}, KeyError, "no layer 'decoder'; there are layer.0"),
        ({"layers": [True]}, TypeError, "a layer is a number or a name, got bool"),
        ({"ids": [1, 2, 3]}, ValueError, r"ids must have one entry for each key of some layer \(5\), got 3"),
        ({"ids": [[1] * 5] * 3}, ValueError, r"ids must have one row or one for each batch row \(2\), got 3 rows"),
        ({"ids": [0.5] * 5}, TypeError, r"ids must be integers, \(key,\) or \(batch, key\), got float64 of shape"),
        ({"ids": [1] * 5, "tokens": ["a"] * 4}, ValueError, "one length, got 5 ids and 4 tokens"),
        ({"tokens": ["a"] * 6}, ValueError, r"tokens must have one entry for each key of some layer \(5\), got 6"),
        ({"tokens": "abcde"}, TypeError, "tokens must be a sequence of strings, got one string"),
        ({"tokens": [["a"] * 5, ["b"] * 4]}, TypeError, "rows of one length; pad the short ones"),
        ({"queries": [True] * 4}, ValueError, r"one entry for each query of some layer \(5\), got 4"),
        ({"queries": [0, 1, 2, 3, 4]}, TypeError, "queries must be True where a query counts"),
        ({"queries": [[True] * 5] * 3}, ValueError, r"one row or one for each batch row \(2\), got 3 rows"),
    ],
)
def test_bad_input_is_named(options: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        head_table(Layers([made(2, 2, 5, 5)]), **options)
