"""Whole models in a block: torch's transformers and those of the transformers library, every attention answered."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.engine.sdpa_override import accelerating
from regard.testing import assert_within

transformers = pytest.importorskip("transformers")
PROTOTYPE = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
SMALL = {"vocab_size": 50, "attn_implementation": "sdpa", "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
LAYERS = 3


def bert() -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "intermediate_size": 40}
    return transformers.BertModel(transformers.BertConfig(**SMALL, **sizes))


def gpt2() -> Any:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**SMALL, n_embd=32, n_layer=LAYERS, n_head=4))


def llama() -> Any:
    sizes = {"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "intermediate_size": 40}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, **sizes, num_key_value_heads=2))


MODELS = {"bert": bert, "gpt2": gpt2, "llama": llama}


def made(name: str) -> Any:
    torch.manual_seed(0)
    return MODELS[name]().eval()


def tokens(*shape: int) -> Tensor:
    return torch.randint(3, 50, shape, generator=torch.Generator().manual_seed(1))


def result(model: Any, **inputs: Any) -> Tensor:
    out: Tensor = model(**inputs)[0]
    return out


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_every_attention_layer_of_transformers_is_served(name: str, padded: bool) -> None:
    model, inputs = made(name), {"input_ids": tokens(2, 17)}
    visible = torch.ones(2, 17, dtype=torch.bool)
    if padded:
        visible[1, 12:] = False
        inputs["attention_mask"] = visible.long()
    with torch.no_grad():
        plain = result(model, **inputs)
        with accelerating() as served:
            found = result(model, **inputs)
        truth = result(model.double(), **inputs)
    assert served.served.total() == LAYERS, str(served)
    assert not served.left_alone, str(served)
    assert {call.layer for call in served.served} <= {"BertSelfAttention", "GPT2Attention", "LlamaAttention"}
    assert_within(found[visible], plain[visible], truth[visible])


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_transformers(name: str) -> None:
    model = made(name).double()
    found = []
    for inside in (False, True):
        model.zero_grad()
        if inside:
            with accelerating() as served:
                result(model, input_ids=tokens(2, 9)).square().sum().backward()
            assert served.served.total() == LAYERS
        else:
            result(model, input_ids=tokens(2, 9)).square().sum().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    assert len(found[0]) > 20
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_generation_gives_the_same_tokens(name: str) -> None:
    model = made(name).double()
    options = {"max_new_tokens": 6, "do_sample": False, "min_new_tokens": 6}
    plain = model.generate(tokens(2, 5), **options)
    with accelerating() as served:
        found = model.generate(tokens(2, 5), **options)
    assert torch.equal(found, plain)
    assert served.served.total() == 6 * LAYERS
    assert "6…10, 8)" in str(served).splitlines()[-1]  # a line for all lengths


@PROTOTYPE
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_with_padding(norm_first: bool) -> None:
    """torch's fast path returns zeros at padded places; here they hold what the layers compute, as in training."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first, dtype=torch.float64)
    model = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=not norm_first).eval()
    x, hidden = torch.randn(2, 7, 16, dtype=torch.float64), torch.zeros(2, 7, dtype=torch.bool)
    hidden[1, 4:] = True
    slow = model(x, src_key_padding_mask=hidden).detach()
    with torch.no_grad():
        fast = model(x, src_key_padding_mask=hidden)
        with accelerating() as served:
            found = model(x, src_key_padding_mask=hidden)
    assert [(call.asked, count) for call, count in served.served.items()] == [("padding", LAYERS)]
    torch.testing.assert_close(found[~hidden], fast[~hidden])
    torch.testing.assert_close(found, slow)
    assert bool((fast[hidden] == 0).all()) is not norm_first


def test_a_whole_transformer() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(16, 4, 2, 2, 32, batch_first=True, dtype=torch.float64).eval()
    source, target = torch.randn(2, 7, 16, dtype=torch.float64), torch.randn(2, 5, 16, dtype=torch.float64)
    hidden = torch.zeros(2, 7, dtype=torch.bool)
    hidden[0, 5:] = True
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    options = {"tgt_mask": causal, "src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
    plain = model(source, target, **options)
    with accelerating() as served:
        found = model(source, target, **options)
    torch.testing.assert_close(found, plain)
    assert [(call.asked, count) for call, count in served.served.items()] == [
        ("padding", 2),
        ("causal", 2),
        ("padding", 2),
    ]
    assert not served.left_alone


def losses() -> Tensor:
    """Twenty steps of a decoder layer with a mask and padding, in float64."""
    torch.manual_seed(0)
    model = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True, dtype=torch.float64)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    x, memory = torch.randn(2, 6, 8, dtype=torch.float64), torch.randn(2, 4, 8, dtype=torch.float64)
    causal = nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)
    hidden = torch.zeros(2, 6, dtype=torch.float64).masked_fill(torch.arange(6) > 3, -torch.inf)
    found = []
    for _ in range(20):
        optimizer.zero_grad()
        out = model(x, memory, causal, tgt_is_causal=True, tgt_key_padding_mask=hidden)
        loss = (out - x.flip(1)).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found)


def test_training_learns_the_same() -> None:
    plain = losses()
    with accelerating() as served:
        found = losses()
    assert served.served.total() == 40
    torch.testing.assert_close(found, plain)
    assert float(plain[-1]) < 0.8 * float(plain[0])
