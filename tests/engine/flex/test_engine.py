"""What the flex engine takes, what it does not and why, and when `auto` takes it; GPUs are make-believe here."""

import re
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from regard import Dropout, attend, biases, masks, normalizers, plan, scores
from regard.engine import attend as attending
from regard.engine import flex
from regard.engine.attend import choose
from regard.engine.flex import engine
from regard.engine.flex.engine import mask_refused, score_refused
from regard.engine.request import Request, request
from regard.engine.sdpa import supports as sdpa_supports

DEFAULTS: dict[str, Any] = {
    "score": scores.ScaledDot(),
    "mask": None,
    "bias": None,
    "temperature": 1.0,
    "normalizer": normalizers.Softmax(),
    "dropout": 0.0,
    "query_start": None,
    "aux": (),
}


def on_cuda(dtype: torch.dtype = torch.bfloat16, device: str = "cuda", queries: int = 300) -> list[Tensor]:
    """Tensors without numbers that say that they are on a GPU."""
    with FakeTensorMode():
        return [torch.empty(2, 4, n, 64, device=device, dtype=dtype) for n in (queries, 300, 300)]


def asked(inputs: list[Tensor], **spec: Any) -> Request:
    return request(*inputs, **{**DEFAULTS, **spec})


@pytest.fixture
def _triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with a GPU; nothing was warned of."""
    monkeypatch.setattr(engine, "has_triton", lambda: True)
    monkeypatch.setattr(attending, "_told", set())


with_triton = pytest.mark.usefixtures("_triton")
TABLE = torch.zeros(5)
ADDITIVE = scores.Additive(torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(3))
REASONS: list[tuple[dict[str, Any], str]] = [
    ({"score": ADDITIVE}, f"FlexAttention's scores are q′·k′, and {ADDITIVE!r} does not lower to that"),
    (
        {"score": scores.SoftCapped(ADDITIVE, 2.0)},
        f"FlexAttention's scores are q′·k′, and {scores.SoftCapped(ADDITIVE, 2.0)!r} does not lower to that",
    ),
    (
        {"score": scores.Relative(torch.zeros(3, 4))},
        "FlexAttention's scores are q′·k′, and Relative(<3×4 float32>) does not lower to that",
    ),
    ({"normalizer": normalizers.Hard()}, "FlexAttention has a softmax only, not Hard()"),
    ({"normalizer": normalizers.Sparsemax()}, "FlexAttention has a softmax only, not Sparsemax()"),
    ({"dropout": Dropout(0.1, 3)}, "FlexAttention has no dropout"),
    (
        {"aux": ("lse", "peak", "received")},
        "FlexAttention returns the output and lse only, not peak, received",
    ),
    (
        {"bias": biases.Distance(torch.zeros(5, requires_grad=True))},
        "FlexAttention has no gradients on a CPU; use torch.no_grad() for the output alone",
    ),
]


@pytest.mark.parametrize(("spec", "reason"), REASONS, ids=[reason for _, reason in REASONS])
def test_what_it_does_not_take_it_says(spec: dict[str, Any], reason: str) -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    for function in (attend, plan):
        with pytest.raises(ValueError, match="engine 'flex' cannot do this") as raised:
            function(q, k, v, **spec, engine="flex")
        assert reason in str(raised.value)
    assert plan(q, k, v, **spec, engine="reference").reasons["flex"] == f"It cannot do this: {reason}."


def test_nothing_to_see_is_for_others() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    reason = "FlexAttention needs at least one query and one key"
    for few in ((q[..., :0, :], k, v), (q, k[..., :0, :], v[..., :0, :]), (q[:0], k[:0], v[:0])):
        assert flex.supports(asked(list(few))) == reason


@pytest.mark.parametrize("where", ["query", "key", "value", "sink", "temperature", "function"])
def test_gradients_are_refused_on_a_cpu_wherever_they_are_needed(where: str) -> None:
    given = {name: torch.randn(1, 2, 5, 4) for name in ("query", "key", "value")}
    leaf = given.setdefault(where, torch.ones(2)).requires_grad_()
    specs: dict[str, dict[str, Any]] = {
        "sink": {"normalizer": normalizers.Softmax(leaf)},
        "temperature": {"temperature": leaf},
        "function": {"score": scores.Modified(scores.Dot(), lambda s, b, h, i, j: s * leaf[h])},
    }
    spec = specs.get(where, {})
    inputs = [given[name] for name in ("query", "key", "value")]
    with pytest.raises(ValueError, match=r"FlexAttention has no gradients on a CPU; use torch\.no_grad\(\)"):
        attend(*inputs, **spec, engine="flex")
    with torch.no_grad():
        found = attend(*(tensor.double() for tensor in inputs), **spec, engine="flex")
    assert isinstance(found, Tensor)
    assert not found.requires_grad


def test_under_a_transform_it_says_so() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    with pytest.raises(ValueError, match=r"under torch\.func only plain torch operators run"):
        torch.func.functionalize(lambda x: attend(x, k, v, engine="flex"))(q)


@with_triton
@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ({}, "sdpa"),
        ({"mask": "causal"}, "sdpa"),
        ({"mask": torch.ones(300, 300, dtype=torch.bool)}, "sdpa"),
        ({"mask": masks.Window(64, 0)}, "flex"),
        ({"mask": masks.Documents(torch.zeros(300, dtype=torch.int64)) & masks.Causal()}, "flex"),
        ({"mask": "causal", "bias": biases.ALiBi(4)}, "flex"),
        ({"score": scores.SoftCapped(scores.ScaledDot(), 30.0)}, "flex"),
        ({"normalizer": normalizers.Softmax(0.0)}, "flex"),
        ({"aux": ("lse",)}, "flex"),
        ({"aux": ("entropy",)}, "tiled"),
        ({"normalizer": normalizers.Sparsemax()}, "tiled"),
        ({"dropout": Dropout(0.1, 3)}, "tiled"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:regard runs this on 'tiled'")
def test_auto_on_a_gpu(spec: dict[str, Any], chosen: str) -> None:
    inputs = on_cuda()
    spec = {name: value.to("cpu") if isinstance(value, Tensor) else value for name, value in spec.items()}
    if isinstance(spec.get("mask"), Tensor):
        spec["mask"] = masks.Dense(spec["mask"])
    assert choose(asked(inputs, **spec)) == chosen


@with_triton
def test_auto_on_a_gpu_takes_tiled_for_double_precision_and_tells() -> None:
    message = (
        "regard runs this on 'tiled', which is slower: 'flex' cannot do it, because "
        "FlexAttention's kernels take float32, bfloat16 and float16, not float64 (said once"
    )
    inputs = on_cuda(torch.float64)
    with pytest.warns(UserWarning, match=re.escape(message)):
        assert choose(asked(inputs, mask=masks.Window(3, 0))) == "tiled"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose(asked(inputs, mask=masks.Window(3, 0))) == "tiled"


def test_auto_on_a_gpu_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "has_triton", lambda: False)
    assert flex.supports(asked(on_cuda())) == "FlexAttention's kernels need Triton, which is not installed"


@with_triton
@pytest.mark.filterwarnings("ignore:regard runs this on 'reference'")
def test_auto_on_a_gpu_under_a_transform() -> None:
    wanted = asked(on_cuda())
    assert sdpa_supports(wanted) is None
    with torch.autograd.forward_ad.dual_level():
        assert choose(wanted) == "reference"


@with_triton
def test_auto_on_other_devices_stays_with_torch() -> None:
    wanted = asked(on_cuda(torch.float32, "xpu"), mask=masks.Window(3, 0))
    assert flex.supports(wanted) == "it runs on CUDA, and on a CPU when asked for; the inputs are on xpu:0"
    assert choose(wanted) == "tiled"


@with_triton
def test_a_plan_on_a_gpu() -> None:
    q, k, v = on_cuda(torch.float32)
    found = plan(q, k, v, mask=masks.Window(127, 0))
    assert found.engine == "flex"
    blocks = 128 * 128 + 2 * 128 * 128 + 44 * (128 + 44)
    assert found.computed_pairs == 8 * blocks
    assert found.flops == 2 * 8 * blocks * (64 + 64)
    assert found.bytes is None
    assert found.second_order == "none: FlexAttention has first derivatives only"
    assert found.reasons == {
        "native": "It cannot do this: it runs on the CPU, the inputs are on cuda:0.",
        "tiled": "It could, but it runs only when asked for: engine='tiled'.",
        "sdpa": "It cannot do this: torch takes a mask as a dense tensor only, not Window(127, 0).",
        "reference": "It could, but it runs only when asked for: engine='reference'.",
    }


def test_a_plan_on_a_cpu() -> None:
    """In double precision torch has its dense formula only, and computes every pair."""
    x = torch.zeros(1, 2, 300, 16)
    assert plan(x, x, x, mask="causal", engine="flex").computed_pairs == 2 * (128 * 128 + 128 * 256 + 44 * 300)
    assert plan(x.double(), x.double(), x.double(), mask="causal", engine="flex").computed_pairs == 2 * 300 * 300
    assert plan(x, x, x).engine == "native"


def test_functions_are_tried_on_one_pair() -> None:
    table, cpu = torch.tensor([2]), torch.device("cpu")
    assert mask_refused(lambda b, h, i, j: (j <= i) & (table[b] > 1), cpu) is None
    assert mask_refused(lambda b, h, i, j: True, cpu) is None
    assert score_refused(lambda s, b, h, i, j: s + table[b] * (i - j), cpu) is None
    reason = mask_refused(lambda b, h, i, j: torch.full(i.shape, bool(i.max() > 0)), cpu)
    assert reason is not None
    assert reason.startswith("FlexAttention asks a function pair by pair, and <lambda> does not answer: ")
    reason = score_refused(lambda s, b, h, i, j: s.tolist(), cpu)
    assert reason is not None
    assert "does not answer" in reason


def test_a_row_without_a_key_is_zero() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64)
    visible = torch.ones(5, 5, dtype=torch.bool)
    visible[2] = False
    for sink, lse in ((None, -torch.inf), (0.5, 0.5)):
        out, aux = attend(q, k, v, mask=visible, normalizer=normalizers.Softmax(sink), aux=("lse",), engine="flex")
        assert aux.lse is not None
        assert bool((out[:, :, 2] == 0).all())
        assert bool((aux.lse[:, :, 2] == lse).all())
