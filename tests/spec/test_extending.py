"""Parts defined outside the package, one class each, work everywhere: the examples of docs/extending.md."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import attend, explain, matrix, plan
from regard.engine import tiled
from regard.engine.request import Request, request
from regard.spec.plane import Selection
from regard.spec.serialize import REGISTERED
from regard.testing import assert_within

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "extending"
INPUTS = [torch.randn(2, 4, 9, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]


def load(name: str) -> Any:
    """The module of an example, imported once."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def spec_of(name: str) -> Any:
    return {
        "checkerboard": lambda: {"mask": load("checkerboard").Checkerboard(2) & regard.masks.Causal()},
        "token_prior": lambda: {"bias": load("token_prior").TokenPrior(torch.linspace(-1, 1, 36).view(4, 9))},
        "squares": lambda: {"normalizer": load("squares").Squares()},
    }[name]()


ENGINES = {
    "checkerboard": ("tiled", "native", "flex", "auto"),
    "token_prior": ("tiled", "native", "flex", "auto"),
    "squares": ("tiled", "auto"),
}
PARTS = pytest.mark.parametrize("name", ENGINES)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@PARTS
def test_every_engine(name: str) -> None:
    spec = spec_of(name)
    truth = attend(*(tensor.double() for tensor in INPUTS), **_double(spec), engine="reference")
    plain = attend(*INPUTS, **spec, engine="reference")
    for engine in ENGINES[name]:
        assert_within(attend(*INPUTS, **spec, engine=engine), plain, truth, engine)


def _double(spec: dict[str, Any]) -> dict[str, Any]:
    bias = spec.get("bias")
    return spec if bias is None else {"bias": type(bias)(bias.prior.double())}


@PARTS
def test_plan_matrix_and_pictures(name: str, tmp_path: Path) -> None:
    spec = spec_of(name)
    assert plan(*INPUTS, **spec).engine == ("tiled" if name == "squares" else "native")
    whole = matrix(*INPUTS[:2], **spec)
    head = matrix(*INPUTS[:2], **spec)[1, 2]
    torch.testing.assert_close(head.dense(), whole.dense()[1, 2])
    torch.testing.assert_close(head.entropy(), whole.entropy()[1, 2])
    for file in ("head.png", "head.svg", "head.html"):
        head.save(tmp_path / file)
        assert (tmp_path / file).stat().st_size


@PARTS
def test_a_single_head_is_computed_alone(name: str) -> None:
    request = request_of(name)
    alone = request.sliced(Selection.of(request.plane, slice(1, 2), 2))
    assert (alone.plane.batch, alone.plane.heads) == (1, 1)
    whole = tiled.run(request).out
    torch.testing.assert_close(tiled.run(alone).out[0, 0, 0], whole[1, 2, 0])


def request_of(name: str) -> Request:
    settings: Any = {"score": regard.scores.ScaledDot(), "mask": None, "bias": None, "temperature": 1.0}
    settings |= {"normalizer": regard.normalizers.Softmax(), "dropout": 0.0, "query_start": None, "aux": ()}
    return request(*INPUTS, **{**settings, **spec_of(name)})


@PARTS
def test_capture_saves_and_loads(name: str, tmp_path: Path) -> None:
    spec = spec_of(name)
    layer = regard.nn.MultiHeadAttention(16, 4, **spec)
    captured = regard.capture(layer, torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(3)))
    captured.save(tmp_path / "run.safetensors")
    found: Any = regard.load(tmp_path / "run.safetensors")
    before: Any = captured[0]
    assert torch.equal(found[0].dense(), before.dense())
    (argument,) = spec
    assert getattr(found[0]._source.request, argument) == getattr(before._source.request, argument)


@PARTS
def test_a_file_of_a_class_that_is_not_registered(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix(*INPUTS[:2], **spec_of(name)).save(tmp_path / "a.safetensors")
    stored = {
        "checkerboard": "masks.Checkerboard",
        "token_prior": "biases.TokenPrior",
        "squares": "normalizers.Squares",
    }
    monkeypatch.delitem(REGISTERED, stored[name])
    text = f"the part '{stored[name]}' is not registered; import the module that defines the class"
    with pytest.raises(ValueError, match=re.escape(text)):
        regard.load(tmp_path / "a.safetensors")


@PARTS
def test_compiled(name: str) -> None:
    spec = spec_of(name)
    run = torch.compile(lambda q, k, v: attend(q, k, v, **spec), backend="eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(run(*INPUTS), attend(*INPUTS, **spec))


@PARTS
def test_explain(name: str) -> None:
    found = explain(*INPUTS, **spec_of(name))
    formula = {
        "checkerboard": "⌊i/size⌋ + ⌊j/size⌋ is even",
        "token_prior": "prior[key]",
        "squares": "A = x² / sum of x²",
    }
    assert formula[name] in found.text()
    assert "lfloor" in found.latex() or name != "checkerboard"


@PARTS
def test_the_page_shows_the_file(name: str) -> None:
    page, source = (ROOT / "docs" / "extending.md").read_text(), (FOLDER / f"{name}.py").read_text()
    assert f"{name}.py" in page
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        if "Checkerboard" in code and name == "checkerboard":
            assert code.strip() in source


def test_a_name_is_registered_once() -> None:
    kind = load("checkerboard").Checkerboard
    assert regard.spec.register(kind) is kind
    other = type(
        "Checkerboard", (kind,), {"__dataclass_fields__": kind.__dataclass_fields__, "__module__": "elsewhere"}
    )
    with pytest.raises(ValueError, match=r"masks\.Checkerboard is the name of checkerboard\.Checkerboard; give"):
        regard.spec.register(other)
    with pytest.raises(TypeError, match="register takes a dataclass"):
        regard.spec.register(type("Plain", (regard.masks.Mask,), {}))
