"""A tensor of the spec that is changed between forward and backward: an error of torch's, or the right gradients."""

import copy
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

import regard
from regard import biases, masks, normalizers, scores

N = 12


class Changed(NamedTuple):
    """A spec, and what changes one of its tensors in place."""

    spec: dict[str, Any]
    change: Callable[[], object]


TABLE = torch.ones(N, N, dtype=torch.bool)  # a global that a mask's function reads


def dense() -> Changed:
    seen = torch.rand(2, 1, N, N) < 0.6
    return Changed({"mask": seen}, lambda: seen.fill_(True))


def lengths() -> Changed:
    ends = torch.tensor([5, 9])
    return Changed({"mask": masks.Lengths(ends)}, lambda: ends.fill_(N))


def documents() -> Changed:
    ids = torch.randint(0, 3, (2, N))
    return Changed({"mask": masks.Documents(ids)}, lambda: ids.zero_())


def blocks() -> Changed:
    layout = torch.rand(3, 3) < 0.5
    return Changed({"mask": masks.Blocks(4, layout)}, lambda: layout.fill_(True))


def combined() -> Changed:
    places = torch.tensor([1, 4])
    return Changed({"mask": masks.Global(places) | ~masks.Causal()}, lambda: places.add_(2))


def prefix() -> Changed:
    ends = torch.tensor([3, 6])
    return Changed({"mask": masks.Prefix(ends) | masks.Causal()}, lambda: ends.add_(2))


def start() -> Changed:
    places = torch.tensor([0, 3])
    return Changed({"mask": "causal", "query_start": places}, lambda: places.add_(4))


def function() -> Changed:
    seen = torch.rand(N, N) < 0.6
    return Changed({"mask": masks.Where(lambda b, h, i, j: seen[i, j])}, lambda: seen.fill_(True))


def function_of_a_global() -> Changed:
    TABLE.copy_(torch.rand(N, N) < 0.6)
    return Changed({"mask": masks.Where(lambda b, h, i, j: TABLE[i, j])}, lambda: TABLE.fill_(True))


def bias() -> Changed:
    added = torch.randn(4, N, N)
    return Changed({"bias": added}, lambda: added.zero_())


def distance() -> Changed:
    table = torch.randn(4, 7)
    return Changed({"bias": biases.Distance(table)}, lambda: table.zero_())


def temperature() -> Changed:
    tau = torch.rand(4) + 0.5
    return Changed({"temperature": tau}, lambda: tau.fill_(1))


def sink() -> Changed:
    logit = torch.randn(4)
    return Changed({"normalizer": normalizers.Softmax(logit)}, lambda: logit.fill_(1))


def general() -> Changed:
    weight = torch.randn(8, 8)
    return Changed({"score": scores.General(weight)}, lambda: weight.zero_())


def additive() -> Changed:
    w, v = torch.randn(2, 6, 8), torch.randn(6)
    return Changed({"score": scores.Additive(w[0], w[1], v)}, lambda: (w.zero_(), v.zero_()))


def relative() -> Changed:
    keys = torch.randn(7, 8)
    return Changed({"score": scores.Relative(keys)}, lambda: keys.zero_())


def modified() -> Changed:
    factor = torch.randn(4)
    score = scores.Modified(scores.ScaledDot(), lambda s, b, h, i, j: s * factor[h])
    return Changed({"score": score}, lambda: factor.zero_())


CASES: list[Callable[[], Changed]] = [dense, lengths, documents, blocks, combined, prefix, start, function]
CASES += [function_of_a_global, bias, distance, temperature, sink, general, additive, relative, modified]


@pytest.mark.parametrize("second", [False, True], ids=["first order", "as a graph"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.__name__))
@pytest.mark.parametrize("engine", ["reference", "tiled", "native"])
@pytest.mark.filterwarnings("ignore:regard runs this on")
def test_changed_between_the_passes(case: Callable[[], Changed], engine: str, second: bool) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, 4, N, 8, requires_grad=True) for _ in range(3)]
    changed = case()
    if engine == "native" and case in (relative, modified):
        engine = "auto"
    out = regard.attend(*inputs, **changed.spec, engine=engine).sin().sum()
    right = torch.autograd.grad(out, inputs, retain_graph=True)
    changed.change()
    try:
        found = torch.autograd.grad(out, inputs, create_graph=second)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)  # noqa: PT017 - no error is right too
        return
    for one, other in zip(found, right, strict=True):
        assert _equal(one, other)


def _equal(one: Tensor, other: Tensor) -> bool:
    return bool((one.detach() - other).abs().max() <= 1e-5 * (1 + other.abs().max()))


@pytest.mark.parametrize("make", [masks.Dense, lambda seen: masks.Lengths(seen.sum(-1)[:1])], ids=["dense", "lengths"])
@pytest.mark.parametrize("engine", ["tiled", "native"])
def test_a_mask_made_under_inference_mode_is_refused_as_by_torch(make: Any, engine: str) -> None:
    with torch.inference_mode():
        mask = make(torch.rand(5, 5) < 0.7)
    inputs = [torch.randn(1, 2, 5, 4, requires_grad=True) for _ in range(3)]
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        regard.attend(*inputs, mask=mask, engine=engine)
    with torch.no_grad():
        regard.attend(*inputs, mask=mask, engine=engine)


def test_a_global_parameter_of_a_modified_score_gets_its_gradient() -> None:
    query, key, value = torch.randn(3, 1, 2, 5, 4)
    grads = []
    for engine in ("reference", "tiled"):
        out = regard.attend(query, key, value, score=scores.Modified(scores.Dot(), _scaled), engine=engine)
        grads.append(torch.autograd.grad(out.sum(), FACTOR)[0])
    assert _equal(grads[1], grads[0])
    assert float(grads[0]) != 0


FACTOR = torch.tensor(0.7, requires_grad=True)


def _scaled(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return s * FACTOR


def test_a_matrix_notices_that_its_query_was_changed() -> None:
    query, key = torch.randn(2, 1, 2, 9, 4)
    matrix = regard.matrix(query, key)
    before = matrix.entropy()
    query.mul_(2)
    with pytest.raises(RuntimeError, match="changed in place after the matrix was made"):
        matrix[0, 0, 1:3, 2:5]
    with pytest.raises(RuntimeError, match="changed in place after the matrix was made"):
        matrix.received()
    assert torch.equal(matrix.entropy(), before)


@pytest.mark.parametrize("engine", ["reference", "tiled", "native"])
def test_second_derivatives_of_calls_that_see_nothing_are_zero(engine: str) -> None:
    inputs = [torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    out = regard.attend(*inputs, mask=~masks.Full(), engine=engine)
    direction = torch.randn_like(out).requires_grad_()
    first = torch.autograd.grad(out, inputs, direction, create_graph=True)
    second = torch.autograd.grad(torch.stack([grad.sum() for grad in first]).sum(), [*inputs, direction])
    assert all(bool((grad == 0).all()) for grad in (*first, *second))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda matrix: pickle.loads(pickle.dumps(matrix))])
def test_a_copy_of_a_matrix_counts_its_own_changes(copied: Callable[[Any], Any]) -> None:
    query, key = torch.randn(2, 1, 2, 9, 4)
    query.mul_(2)
    matrix = regard.matrix(query, key, mask="causal")
    assert torch.equal(copied(matrix).entropy(), matrix.entropy())


@pytest.mark.parametrize("engine", ["native", "auto"])
@pytest.mark.parametrize("part", ["mask", "lengths", "documents", "blocks", "start", "bias", "query"])
def test_tensors_without_memory_are_refused(part: str, engine: str) -> None:
    query = torch.randn(2, 2, 4, 8)

    def wrapped(tensor: Tensor) -> Tensor:
        made: Tensor = TwoTensor(tensor, tensor)
        return made

    specs: dict[str, Callable[[], dict[str, Any]]] = {
        "mask": lambda: {"mask": wrapped(torch.ones(4, 4, dtype=torch.bool))},
        "lengths": lambda: {"mask": masks.Lengths(wrapped(torch.tensor([3, 4])))},
        "documents": lambda: {"mask": masks.Documents(wrapped(torch.tensor([0, 0, 1, 1])))},
        "blocks": lambda: {"mask": masks.Blocks(2, wrapped(torch.ones(2, 2, dtype=torch.bool)))},
        "start": lambda: {"mask": "causal", "query_start": wrapped(torch.tensor([0, 0]))},
        "bias": lambda: {"bias": wrapped(torch.zeros(4, 4))},
        "query": dict,
    }
    inputs = [wrapped(query) if part == "query" else query, query, query]
    with pytest.raises((TypeError, RuntimeError)):
        regard.attend(*inputs, **specs[part](), engine=engine)


@pytest.mark.parametrize("released", ["mask", "out", "key"])
def test_a_storage_released_between_the_passes_is_noticed(released: str) -> None:
    inputs = [torch.randn(1, 2, 40, 8, requires_grad=True) for _ in range(3)]
    mask = torch.rand(40, 40) < 0.5
    for _ in range(2):  # the second call takes the way of calls seen before
        spec: dict[str, Any] = {"mask": mask} if released == "mask" else {}
        out = regard.attend(*inputs, **spec)
        tensor = {"mask": mask, "out": out.detach(), "key": inputs[1].detach()}[released]
        size = tensor.untyped_storage().nbytes()
        kept = tensor.clone()
        grad = torch.ones(out.shape)
        tensor.untyped_storage().resize_(0)
        with pytest.raises((TypeError, RuntimeError)):
            torch.autograd.grad(out, inputs, grad)
        tensor.untyped_storage().resize_(size)
        tensor.copy_(kept)
