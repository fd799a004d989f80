"""Jagged nested tensors are sequences of different length; other nested and sparse tensors are refused by name."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import (
    AttentionMatrix,
    Aux,
    Dropout,
    attend,
    biases,
    explain,
    masks,
    matrix,
    nn,
    normalizers,
    plan,
    positions,
    scores,
    sdpa,
)
from regard.testing import assert_within

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

QUERY, KEY, VALUE = torch.zeros(3, 2, 2, 6, 4)


def wrapped(kind: str, tensor: Tensor) -> Tensor:
    """The tensor in another layout; a jagged one has rows of different length."""
    if kind == "sparse":
        return tensor.to_sparse()
    if kind == "jagged":
        found: Tensor = torch.nested.nested_tensor([tensor[0], tensor[1][:1]], layout=torch.jagged)
        return found
    return torch.nested.nested_tensor(list(tensor), layout=torch.strided)


INPUTS: dict[str, Callable[..., object]] = {
    "attend": attend,
    "attend by name": lambda q, k, v: attend(q, k, v, engine="reference"),
    "plan": plan,
    "sdpa": sdpa,
    "explain": explain,
    "matrix": lambda q, k, v: matrix(q, k),
}


JAGGED = ("attend", "attend by name", "plan", "sdpa")


@pytest.mark.parametrize("kind", ["strided", "jagged", "sparse"])
@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name: str, kind: str) -> None:
    if kind == "jagged" and name in JAGGED:
        return  # taken, see below
    for at, argument in enumerate(("query", "key", "value")[: 2 if name == "matrix" else 3]):
        inputs = [QUERY, KEY, VALUE]
        inputs[at] = wrapped(kind, torch.zeros(2, 2, 6, 4) if kind == "strided" else inputs[at][:, 0])
        with pytest.raises(TypeError, match=f"{argument} must be a dense tensor, got a sparse or nested one"):
            INPUTS[name](*inputs)


FLOATS: dict[str, Callable[[Tensor], object]] = {
    "bias": lambda x: attend(QUERY, KEY, VALUE, bias=x),
    "Dense bias": biases.Dense,
    "Distance": biases.Distance,
    "T5": biases.T5,
    "temperature": lambda x: attend(QUERY, KEY, VALUE, temperature=x),
    "sink": normalizers.Softmax,
    "General": scores.General,
    "Relative": scores.Relative,
    "weights": AttentionMatrix.from_weights,
    "rotary": positions.rotary,
    "layer": lambda x: nn.MultiHeadAttention(4, 2)(x),
}
INTEGERS: dict[str, Callable[[Tensor], object]] = {
    "Lengths": masks.Lengths,
    "Prefix": masks.Prefix,
    "Global": masks.Global,
    "Documents": masks.Documents,
    "Documents of queries": lambda x: masks.Documents([1, 2], x),
    "query_start": lambda x: attend(QUERY, KEY, VALUE, mask="causal", query_start=x),
    "positions": lambda x: positions.rotary(QUERY, positions=x),
    "start": lambda x: positions.rotary(QUERY, start=x),
}
BOOLS: dict[str, Callable[[Tensor], object]] = {
    "mask": lambda x: attend(QUERY, KEY, VALUE, mask=x),
    "Dense mask": masks.Dense,
    "Blocks": lambda x: masks.Blocks(2, x),
}


@pytest.mark.parametrize("kind", ["strided", "jagged", "sparse"])
@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, *BOOLS])
def test_parts(name: str, kind: str) -> None:
    call = {**FLOATS, **INTEGERS, **BOOLS}[name]
    table = (
        torch.ones(2, 4, 4)
        if name in FLOATS
        else torch.ones(2, 3).long()
        if name in INTEGERS
        else torch.ones(2, 6, 6).bool()
    )
    with pytest.raises(TypeError, match="must be a dense tensor, got a sparse or nested one"):
        call(wrapped(kind, table))


QUERIES, KEYS = (3, 6, 1, 4), (5, 6, 2, 9)


def offsets(tensor: Any) -> Tensor:
    found: Tensor = tensor.offsets()
    return found


def jagged(lengths: Sequence[int], width: int, heads: int = 4, like: Tensor | None = None) -> Tensor:
    """(batch, length, head, width), a leaf; with the offsets of `like` if given."""
    rows = [torch.randn(length, heads, width) for length in lengths]
    if like is None:
        found: Tensor = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
        return found
    found = torch.nested.nested_tensor_from_jagged(torch.cat(rows), offsets=offsets(like))
    return found.requires_grad_()


def leaves(queries: Sequence[int] = QUERIES, keys: Sequence[int] = KEYS, kv_heads: int = 2) -> list[Tensor]:
    key = jagged(keys, 5, kv_heads)
    return [jagged(queries, 5), key, jagged(keys, 7, kv_heads, like=key)]


def exact(inputs: Sequence[Tensor]) -> list[Tensor]:
    """The same numbers in float64, leaves as well; jagged ones keep their offsets."""
    rows = [
        torch.nested.nested_tensor_from_jagged(x.detach().values().double(), offsets=offsets(x))
        if x.is_nested
        else x.double()
        for x in inputs
    ]
    return [x.detach().requires_grad_() for x in rows]


def by_row(inputs: list[Tensor], **spec: Any) -> list[Tensor]:
    """The output of each sequence alone, by the reference engine."""
    rows = zip(*(tensor.unbind() for tensor in inputs), strict=True)
    return [attend(*(row.transpose(0, 1) for row in qkv), engine="reference", **spec).transpose(0, 1) for qkv in rows]


TABLE = torch.linspace(-1, 1, 32, dtype=torch.float64).view(8, 4)
SPECS: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"mask": "causal"},
    "causal from 0": {"mask": "causal", "query_start": 0},
    "window and prefix": {"mask": masks.Window(2, 1) | masks.Prefix(1)},
    "global": {"mask": masks.longformer(3, [0])},
    "where": {"mask": masks.Where(lambda b, h, i, j: (i + j + h) % 3 != 0)},
    "alibi": {"bias": biases.ALiBi(4)},
    "t5": {"bias": biases.T5(TABLE, True, 10), "mask": "causal"},
    "additive": {
        "score": scores.Additive(torch.eye(5).double(), torch.eye(5).double(), torch.ones(5, dtype=torch.float64))
    },
    "relative": {"score": scores.Relative(torch.linspace(-1, 1, 35, dtype=torch.float64).view(7, 5))},
    "sink": {"normalizer": normalizers.Softmax(0.5), "temperature": 0.7},
    "sparsemax": {"normalizer": normalizers.Sparsemax(), "mask": "causal"},
}


@pytest.mark.parametrize("engine", ["auto", "tiled", "reference"])
@pytest.mark.parametrize("name", SPECS)
def test_every_sequence_is_a_call_of_its_own(name: str, engine: str) -> None:
    inputs = leaves()
    out = attend(*(tensor.transpose(1, 2) for tensor in inputs), engine=engine, **SPECS[name])
    assert out.is_nested
    assert offsets(out) is offsets(inputs[0])
    doubles = exact(inputs)
    found = out.transpose(1, 2).values()
    plain, truth = (torch.cat(by_row(given, **SPECS[name])) for given in (inputs, doubles))
    assert_within(found, plain, truth, "output")
    direction = torch.randn(truth.shape, dtype=torch.float64)
    results = ((found, inputs), (plain, inputs), (truth, doubles))
    gradients = [torch.autograd.grad(x, leaf, direction.to(x.dtype)) for x, leaf in results]
    for part, mine, theirs, right in zip(("query", "key", "value"), *gradients, strict=True):
        assert_within(mine.values(), theirs.values(), right.values(), f"gradient of {part}")


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_statistics(engine: str) -> None:
    inputs, names = leaves(), ("lse", "entropy", "peak", "peak_at", "received", "distance", "max_logit")
    turned = [tensor.transpose(1, 2) for tensor in inputs]
    _, aux = attend(*turned, mask="causal", aux=names, engine=engine)
    rows = [
        [
            attend(*(row.transpose(0, 1) for row in qkv), mask="causal", aux=names, engine="reference")[1]
            for qkv in zip(*(tensor.unbind() for tensor in given), strict=True)
        ]
        for given in (inputs, exact(inputs))
    ]
    for name in names:
        found = getattr(aux, name)
        assert offsets(found) is offsets(inputs[1 if name == "received" else 0])
        plain, truth = (torch.cat([getattr(row, name).transpose(0, 1) for row in each]) for each in rows)
        if name == "peak_at":
            assert torch.equal(found.transpose(1, 2).values(), truth)
        else:
            assert_within(found.transpose(1, 2).values(), plain, truth, name)
    assert isinstance(aux, Aux)


def test_torchs_own_attention() -> None:
    query = jagged(KEYS, 5)
    inputs = [query, jagged(KEYS, 5, like=query), jagged(KEYS, 5, like=query)]
    q, k, v = turned = [tensor.transpose(1, 2) for tensor in inputs]
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    doubles = exact(inputs)
    truth = torch.cat(by_row(doubles)).transpose(0, 1)
    direction = torch.randn(truth.shape, dtype=torch.float64)
    right = torch.autograd.grad(truth, doubles, direction)
    for ours in (attend(q, k, v), sdpa(q, k, v)):
        assert_within(ours.values(), theirs.values(), truth, "output")
        gradients = [
            torch.autograd.grad(x.values(), inputs, direction.float(), retain_graph=True) for x in (ours, theirs)
        ]
        for part, mine, plain, expected in zip(("query", "key", "value"), *gradients, right, strict=True):
            assert_within(mine.values(), plain.values(), expected.values(), f"gradient of {part}")
        assert (ours + turned[0]).transpose(1, 2).flatten(-2).shape[-1] == 20  # goes on as torch's result would
    plain, truth = (torch.cat(by_row(given, mask="causal", query_start=0)) for given in (inputs, doubles))
    assert_within(sdpa(q, k, v, is_causal=True).transpose(1, 2).values(), plain, truth)


def test_dropout_is_that_of_the_padded_call() -> None:
    inputs = leaves(KEYS, KEYS, 4)
    dropout = Dropout(0.5, 3)
    found = attend(*(tensor.transpose(1, 2) for tensor in inputs), dropout=dropout, mask="causal")
    mask = masks.Causal() & masks.Lengths(torch.tensor(KEYS))

    def padded(given: list[Tensor]) -> Tensor:
        dense = [torch.nn.utils.rnn.pad_sequence(list(x.unbind()), batch_first=True).transpose(1, 2) for x in given]
        out = attend(*dense, dropout=dropout, mask=mask, query_start=0, engine="reference")
        return torch.cat([row[:, :length].transpose(0, 1) for row, length in zip(out, KEYS, strict=True)])

    assert_within(found.transpose(1, 2).values(), padded(inputs), padded(exact(inputs)))


def test_dense_queries_over_nested_keys_and_back() -> None:
    inputs = [torch.randn(1, 4, 2, 5), *leaves()[1:]]
    query, key, value = inputs[0], *(tensor.transpose(1, 2) for tensor in inputs[1:])

    def row_by_row(query: Tensor, *nested: Tensor) -> Tensor:
        rows = zip(*(tensor.unbind() for tensor in nested), strict=True)
        return torch.stack([attend(query[0], *(x.transpose(0, 1) for x in row), engine="reference") for row in rows])

    assert_within(attend(query, key, value), row_by_row(*inputs), row_by_row(*exact(inputs)))
    dense = torch.randn(1, 4, 3, 5)
    assert attend(key.detach().transpose(1, 2).transpose(1, 2), dense[:, :2], dense[:, :2]).is_nested


def test_empty_sequences_and_sequences_with_holes() -> None:
    inputs = leaves((0, 3, 2), (4, 0, 1))
    found = attend(*(tensor.transpose(1, 2) for tensor in inputs))
    plain, truth = (torch.cat(by_row(given)) for given in (inputs, exact(inputs)))
    assert_within(found.transpose(1, 2).values(), plain, truth)
    dense = torch.randn(3, 6, 4, 5)
    starts, lengths = torch.tensor([0, 1, 2]), torch.tensor([2, 3, 4])
    holes = torch.nested.narrow(dense, 1, starts, lengths, layout=torch.jagged).transpose(1, 2)
    out = attend(holes, holes, holes, mask="causal")
    for row, start, length, ours in zip(dense, starts, lengths, out.transpose(1, 2).unbind(), strict=True):
        x = row[start : start + length].transpose(0, 1)
        plain, truth = (attend(y, y, y, mask="causal", engine="reference") for y in (x, x.double()))
        assert_within(ours.transpose(0, 1), plain, truth)


def test_a_plan_counts_the_sequences() -> None:
    inputs = [tensor.transpose(1, 2) for tensor in leaves()]
    assert plan(*inputs).visible_pairs == 4 * sum(q * k for q, k in zip(QUERIES, KEYS, strict=True))


@pytest.mark.parametrize("fullgraph", [False, True])
def test_compiled(fullgraph: bool) -> None:
    inputs = [tensor.detach().transpose(1, 2) for tensor in leaves()]
    torch._dynamo.reset()
    call = torch.compile(lambda *qkv: attend(*qkv, mask="causal"), backend="eager", fullgraph=fullgraph)
    if fullgraph:
        with pytest.raises(Exception, match="a nested tensor or a Ring"):
            call(*inputs)
    else:
        assert torch.equal(call(*inputs).values(), attend(*inputs, mask="causal").values())


def test_refused_shapes() -> None:
    query, key, value = leaves()
    turned = [tensor.transpose(1, 2) for tensor in (query, key, value)]
    dense = torch.randn(4, 2, 5, 7)
    with pytest.raises(
        ValueError, match=r"query must be a nested tensor .*got shape \(4, j\d+, 4, 5\); call .transpose"
    ):
        attend(query, key, value)
    with pytest.raises(ValueError, match="key and value must both be nested or both dense, only key is nested"):
        attend(turned[0], turned[1], dense)
    with pytest.raises(ValueError, match=r"same length in every sequence, got \[5, 6, 2, 9\] and \[3, 6, 1, 4\]"):
        attend(turned[0], turned[1], jagged(QUERIES, 7, 2).transpose(1, 2))
    with pytest.raises(ValueError, match="same number of sequences, got query 2, key 4, value 4"):
        attend(jagged((1, 2), 5).transpose(1, 2), *turned[1:])
    with pytest.raises(
        ValueError, match=r"query must be .* beside nested key and value with 4 sequences, got shape \(2,"
    ):
        attend(torch.randn(2, 4, 3, 5), *turned[1:])
    with pytest.raises(ValueError, match="give it an axis for heads"):
        attend(*(jagged(KEYS, 5, 1).flatten(-2) for _ in range(3)))
    with pytest.raises(ValueError, match="query_start is ambiguous: 6 queries, 5 keys"):
        attend(*(tensor.transpose(1, 2) for tensor in leaves((1, 6), (5, 5))), mask="causal")
    with pytest.raises(ValueError, match="heads of nested tensors do not broadcast; give 4 heads, got 1"):
        sdpa(turned[0], jagged(KEYS, 5, 1).transpose(1, 2), jagged(KEYS, 7, 4).transpose(1, 2))
