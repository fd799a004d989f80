"""What training asks of a module: compile, export, autocast, checkpoints, copies, devices and dtypes."""

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import masks
from regard.nn import (
    T5,
    Additive,
    ALiBi,
    ConcatMLP,
    Decoder,
    Encoder,
    General,
    LanguageModel,
    Learned,
    MultiHeadAttention,
    Relative,
    Rotary,
    Sink,
    Sinusoidal,
)

TORCHS_OWN = pytest.mark.filterwarnings("ignore:.*torch.jit.script")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: MultiHeadAttention(16, 4),
    "rotary": lambda: MultiHeadAttention(16, 4, kv_heads=2, mask="causal", position=Rotary(4)),
    "alibi": lambda: MultiHeadAttention(16, 4, mask="causal", position=ALiBi(4)),
    "t5": lambda: MultiHeadAttention(16, 4, position=T5(4)),
    "relative": lambda: MultiHeadAttention(16, 4, position=Relative(4, 5, heads=4)),
    "general": lambda: MultiHeadAttention(16, 4, score=General(4)),
    "additive": lambda: MultiHeadAttention(16, 4, score=Additive(4, 5)),
    "concat": lambda: MultiHeadAttention(16, 4, score=ConcatMLP(4, 5, activation="relu")),
    "sink": lambda: MultiHeadAttention(16, 4, normalizer=Sink(4), mask=masks.Window(3, 3)),
    "encoder": lambda: Encoder(2, 16, 4, norm="rms", activation="swiglu", position=Rotary(4)),
}
INPUT = torch.randn(2, 9, 16)


def grads(model: nn.Module, out: Tensor) -> dict[str, Tensor]:
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad((out * weight).sum(), list(model.parameters()))
    return dict(zip((name for name, _ in model.named_parameters()), found, strict=True))


@pytest.mark.parametrize("name", LAYERS)
def test_compiled_in_one_graph(name: str) -> None:
    model = LAYERS[name]()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for length in (9, 12):
        x = torch.randn(2, length, 16)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)
        right, found = grads(model, model(x)), grads(model, compiled(x))
        for at, grad in right.items():
            torch.testing.assert_close(found[at], grad, rtol=1e-4, atol=1e-5, msg=at)


@TORCHS_OWN
def test_compiled_by_inductor() -> None:
    model = LanguageModel(40, layers=2, d_model=16, heads=4, position=Rotary(4)).eval()
    tokens = torch.randint(40, (2, 9))
    with torch.no_grad():
        found = torch.compile(model, fullgraph=True)(tokens)
    torch.testing.assert_close(found, model(tokens), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
@TORCHS_OWN
def test_exported_saved_and_loaded(name: str) -> None:
    model = LAYERS[name]().eval()
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(model, (INPUT,), dynamic_shapes=({1: length},))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    again = torch.export.load(file).module()
    x = torch.randn(2, 20, 16)
    torch.testing.assert_close(again(x), model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("position", [lambda: Learned(30, 16), lambda: Sinusoidal(16)])
@TORCHS_OWN
def test_models_with_added_positions_export(position: Callable[[], nn.Module]) -> None:
    model = LanguageModel(40, layers=1, d_model=16, heads=4, position=position()).eval()
    tokens = torch.randint(40, (2, 9))
    program = torch.export.export(model, (tokens,))
    torch.testing.assert_close(program.module()(tokens), model(tokens), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_torchs(name: str, dtype: torch.dtype) -> None:
    model = LAYERS[name]()
    with torch.autocast("cpu", dtype=dtype):
        found = model(INPUT)
    if name != "encoder":  # whose last norm autocast runs in float32
        assert found.dtype == dtype
    right = model.double()(INPUT.double())
    error = (found.double() - right).abs().max()
    assert error <= 30 * torch.finfo(dtype).eps * max(1.0, float(right.detach().abs().max()))
    loss = found.float().square().sum()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", LAYERS)
def test_other_dtypes(name: str, dtype: torch.dtype) -> None:
    model = LAYERS[name]().to(dtype)
    assert model(INPUT.to(dtype)).dtype == dtype


def test_on_the_meta_device() -> None:
    with torch.device("meta"):
        model = LanguageModel(40, layers=2, d_model=16, heads=4, position=Rotary(4))
    assert all(p.is_meta for p in model.parameters())
    real = model.to_empty(device="cpu")
    for parameter in real.parameters():
        nn.init.normal_(parameter, std=0.1)
    assert real(torch.randint(40, (1, 5))).isfinite().all()


def test_checkpointing_gives_the_same_gradients() -> None:
    model = Encoder(3, 16, 4, dropout=0.2, position=Rotary(4)).train()
    found = []
    for checkpointing in (False, True):
        model.checkpointing = checkpointing
        torch.manual_seed(5)
        found.append(grads(model, model(INPUT)))
    for name, grad in found[0].items():
        torch.testing.assert_close(found[1][name], grad, rtol=0, atol=0, msg=name)


def test_a_decoder_checkpoints_too() -> None:
    model, memory = Decoder(2, 16, 4, dropout=0.2).train(), torch.randn(2, 5, 16)
    found = []
    for checkpointing in (False, True):
        model.checkpointing = checkpointing
        torch.manual_seed(5)
        found.append(grads(model, model(INPUT, memory)))
    for name, grad in found[0].items():
        torch.testing.assert_close(found[1][name], grad, rtol=0, atol=0, msg=name)


def test_dropout_only_in_training() -> None:
    model = LanguageModel(40, layers=2, d_model=16, heads=4, position=Rotary(4), dropout=0.3)
    tokens = torch.randint(40, (2, 9))
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize("name", LAYERS)
def test_copies_are_apart(name: str) -> None:
    model = LAYERS[name]()
    twin = copy.deepcopy(model)
    assert torch.equal(model(INPUT), twin(INPUT))
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(0.1)
    assert not torch.equal(model(INPUT), twin(INPUT))


@pytest.mark.parametrize("name", LAYERS)
def test_state_dicts_hold_parameters_alone(name: str) -> None:
    model = LAYERS[name]()
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_a_few_steps_learn() -> None:
    model = LanguageModel(12, layers=2, d_model=32, heads=4, position=Rotary(8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[Any] = []
    for _ in range(60):
        half = torch.randint(12, (16, 8))
        tokens = torch.cat([half, half], 1)
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.85 * losses[0]


def test_sinusoids_have_no_end_in_a_graph() -> None:
    module, x = Sinusoidal(7, length=4), torch.randn(2, 30, 7)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), module(x), rtol=1e-6, atol=1e-6)
