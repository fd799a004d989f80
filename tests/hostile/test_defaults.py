"""torch's default device and default dtype change nothing: every tensor that the library makes names both."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Outcome

SOURCE = Path(__file__).parents[2] / "src" / "regard"
# factories that take the default device, and those whose dtype does not follow from their arguments
DEVICE = {"arange", "as_tensor", "asarray", "empty", "empty_strided", "eye", "full", "linspace", "logspace", "ones"}
DEVICE |= {"rand", "randint", "randn", "randperm", "scalar_tensor", "tensor", "zeros"}
DTYPE = DEVICE - {"arange", "as_tensor", "asarray", "randint", "randperm"}
# parameters follow the defaults, as torch's own layers do
PARAMETERS = {"nn/positions.py", "nn/scores.py"}
# programs that run experiments and measurements under torch's own defaults (see `lab.run`)
PROGRAMS = {"lab", "bench"}

CHANGES = {
    "meta": 'torch.device("meta")',
    "float64": "default(torch.float64)",
    "float16": "default(torch.float16)",
}

SETTING = """
import contextlib
import sys
import torch
import regard
from regard.engine.request import AUX
from regard.testing import mechanisms, small_tiles

@contextlib.contextmanager
def default(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)

def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)

def compare(what, expected, found):
    assert len(expected) == len(found), what
    for number, (one, other) in enumerate(zip(expected, found)):
        kinds = [(tensor.dtype, tensor.device) for tensor in (one, other)]
        assert kinds[0] == kinds[1], (what, number, kinds)
        assert torch.equal(bits(one), bits(other)), (what, number, (one - other).abs().max())

def under(change, work, what):
    expected = work()
    with change:
        found = work()
    compare(what, expected, found)
"""

ENGINES = """
def outcome(case, engine, dtype):
    inputs, spec, leaves = case.build(dtype)
    softmax = case.normalizer in ("softmax", "sink", "zero sink")
    aux = tuple(name for name in AUX if name != "lse" or softmax)
    weights = torch.randn(4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    def work():
        with small_tiles():
            plain = regard.attend(*inputs, **spec, engine=engine)
            out, more = regard.attend(*inputs, **spec, aux=aux, engine=engine)
            loss = (torch.where(out.isfinite(), out, 0) * out.detach().sign()).sum()
            grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
            again = regard.attend(*inputs, **spec, engine=engine)
        found = [plain, out, again, *(getattr(more, name) for name in aux)]
        return found + [grad for grad in grads if grad is not None]
    return work

tried = 0
for case in mechanisms():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for engine in ("reference", "tiled", "native"):
            if case.score == "modified" and not META:
                continue  # the function itself computes in the default dtype
            if dtype != torch.float32 and engine != "native":
                continue
            try:
                work = outcome(case, engine, dtype)
                expected = work()
            except ValueError as error:
                assert "cannot do this" in str(error), error
                continue
            under(CHANGE, work, f"{case}, {engine}, {dtype}")
            tried += 1
print("tried", tried)
"""

LIBRARY = """
import numpy
from regard import masks, biases, normalizers, scores, nn

torch.manual_seed(0)
q, k, v = torch.randn(3, 2, 4, 9, 8)
tokens = torch.randint(50, (2, 9))
model = nn.LanguageModel(50, layers=2, d_model=32, heads=4, kv_heads=2, position=nn.Rotary(8), norm="rms").eval()
encoder = torch.nn.TransformerEncoder(
    torch.nn.TransformerEncoderLayer(32, 4, batch_first=True), 2, enable_nested_tensor=False
).eval()
x = torch.randn(2, 7, 32)
spec = dict(mask="causal", bias=biases.ALiBi(4), normalizer=normalizers.Softmax(0.3))

def matrix():
    A = regard.matrix(q, k, **spec)
    reduced = [A[1].entropy(), A[0, 0].received(), A.topk(2)[0], A.pool(3, 3), A.distance().mean, A.similarity()]
    return [A[0, 1, 2:5, 1:7], *reduced]

def layers():
    with torch.no_grad():
        return [model(tokens), nn.generate(model, tokens, 4, cache=nn.KVCache(window=6, sinks=1))]

def captured():
    c = regard.capture(encoder, x)
    return [c.output, c[1, 2][0, 1:4, :], c[0, 0].entropy()]

def capture_of_ours():
    c = regard.capture(model, tokens)
    table = c.heads().to_csv() if hasattr(c.heads(), "to_csv") else str(c.heads())
    return [c[1, 0][0, 3:, 2:5], torch.tensor(list(table.encode()), dtype=torch.uint8, device="cpu")]

def changed():
    # not of `encoder`: torch disables its fast path under a default device, which changes the last bits
    with torch.no_grad(), regard.intervene(model, regard.interventions.Uniform(), layers=1, heads=[0]):
        return [model(tokens)]

def overridden():
    with torch.no_grad(), regard.accelerating():
        return [torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)]

def sums():
    w = torch.linspace(-1, 1, 48, dtype=torch.float32, device="cpu").view(6, 8)
    return [regard.attend(q, k, v, score=scores.Additive(w, -w, w[:, 0])), regard.sdpa(q, k, v, is_causal=True)]

def sinks():
    sink = normalizers.Softmax(0.1)
    return [regard.attend(q, k, v, normalizer=sink, engine=engine) for engine in ("reference", "tiled", "native")]

def explained():
    text = str(regard.explain(q[:1, :1, :3], k[:1, :1, :3], v[:1, :1, :3], **{**spec, "bias": biases.ALiBi(1)}))
    plan = str(regard.plan(q, k, v, **spec))
    return [torch.tensor(list((text + plan).encode()), dtype=torch.uint8, device="cpu")]

def numpy_arrays():
    arrays = [tensor.numpy() for tensor in (q, k, v)]
    table = regard.masks.Dense(numpy.tril(numpy.ones((9, 9), bool))), biases.Dense(numpy.ones((9, 9)))
    out, aux = regard.attend(*arrays, mask=table[0], bias=table[1], aux="lse")
    A = regard.matrix(*arrays[:2], mask="causal")
    more = [torch.as_tensor(A, device="cpu"), A[0, 1, 2:5], regard.AttentionMatrix.from_weights(arrays[0]).received()]
    results = (out, aux.lse, regard.sdpa(*arrays), regard.attend(*arrays))
    return [*map(torch.from_numpy, results), *more]

def experiment():
    return [torch.tensor(list(str(regard.lab.run("rows", quick=True)).encode()), dtype=torch.uint8, device="cpu")]

library = (matrix, layers, captured, capture_of_ours, changed, overridden, sums, sinks, explained, numpy_arrays)
for work in (experiment, *library):
    under(CHANGE, work, work.__name__)
print("done")
"""


@pytest.mark.parametrize("change", CHANGES)
def test_engines_do_not_look_at_the_defaults(change: str, run: Callable[..., Outcome]) -> None:
    outcome = run(
        SETTING + ENGINES.replace("CHANGE", CHANGES[change]).replace("META", str(change == "meta")), limit=300
    ).ok()
    assert int(outcome.out.split()[-1]) > 200


@pytest.mark.parametrize("change", CHANGES)
def test_the_library_does_not_look_at_the_defaults(change: str, run: Callable[..., Outcome]) -> None:
    assert run(SETTING + LIBRARY.replace("CHANGE", CHANGES[change]), limit=300).ok().out.endswith("done\n")


def _missing(file: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name)) if name in DEVICE:
                given = {keyword.arg for keyword in node.keywords}
                wanted = {"device"} | ({"dtype"} if name in DTYPE else set())
                if None not in given and wanted - given:
                    found.append(f"{file.relative_to(SOURCE)}:{node.lineno} torch.{name} {', '.join(wanted - given)}")
    return found


def test_factories_name_their_device_and_dtype() -> None:
    files = [file for file in SOURCE.rglob("*.py") if file.relative_to(SOURCE).parts[0] not in PROGRAMS]
    files = [file for file in files if file.relative_to(SOURCE).as_posix() not in PARAMETERS]
    assert [line for file in files for line in _missing(file)] == []


def test_the_rule_notices_a_factory_without_a_device() -> None:
    file = SOURCE / "nn" / "scores.py"
    assert any("torch.zeros" in line and "device" in line and "dtype" in line for line in _missing(file))
