"""What a Capture says of itself, and what it refuses."""

import gc
import sys
import weakref

import pytest
import torch
from torch import nn

import regard
from regard.inspection.capture import Capture, capture


def encoder() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


def taken() -> Capture:
    with torch.no_grad():
        return capture(encoder(), torch.randn(3, 6, 16), tokens=list("abcdef"))


def test_table() -> None:
    title, head, *lines = repr(taken()).splitlines()
    assert title == "<Capture of TransformerEncoder: 2 layers>"
    assert head.split() == ["layer", "heads", "queries", "×", "keys", "mechanism", "row", "sums", "off", "by"]
    assert len(lines) == 2
    assert lines[1].split()[:5] == ["1", "layers.1.self_attn", "4", "6", "×"]
    assert float(lines[1].split()[-1]) < 1e-6


def test_layers_by_number_and_name() -> None:
    c = taken()
    assert c["layers.1.self_attn"] is c[1] is c[-1]
    assert (c[0].shape, c[0, 3].shape) == ((3, 4, 6, 6), (3, 6, 6))
    assert c[0].query_tokens == c[1, 2].key_tokens == tuple("abcdef")
    assert [found.shape for found in c] == [(3, 4, 6, 6)] * 2
    assert c.refused == {}


@pytest.mark.parametrize(
    "index, error, words",
    [
        (2, IndexError, "there is no layer 2: there are 2, 0 to 1"),
        ("layers.0", KeyError, "no layer 'layers.0'; there are layers.0.self_attn, layers.1.self_attn"),
        (1.0, TypeError, "a layer is a number or a name, got float"),
        ((0, 1, 2), IndexError, "a capture is indexed by [layer] or [layer, head], got 3 indices"),
    ],
)
def test_an_index_that_is_none(index: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        taken()[index]  # type: ignore[index]
    assert words in str(caught.value)


def test_tokens_that_fit_no_layer() -> None:
    with pytest.raises(ValueError, match="tokens has 4 entries, the layers have 6 queries or keys"):
        capture(encoder(), torch.randn(3, 6, 16), tokens=list("abcd"))
    with pytest.raises(TypeError, match="got one string; split it first"):
        capture(encoder(), torch.randn(3, 6, 16), tokens="abcdef")


def test_a_model_without_attention() -> None:
    with pytest.raises(ValueError, match="Linear made no call of attention that can be intercepted"):
        capture(nn.Linear(3, 3), torch.randn(2, 3))


def test_what_is_no_model() -> None:
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got function; .* with capture\(model\)"):
        capture(taken, torch.randn(2, 3))


def test_a_compiled_model() -> None:
    model = nn.Sequential(encoder())
    model[0].compile(backend="eager")
    with pytest.raises(ValueError, match=r"0 is compiled, .* capture the model as it was before"):
        capture(model, torch.randn(3, 6, 16))


def test_a_call_that_cannot_be_shown_is_named() -> None:
    layer = regard.nn.MultiHeadAttention(16, 4, mask="causal")
    cache = regard.nn.KVCache(window=3)
    model = nn.ModuleDict({"attention": layer})
    with torch.no_grad():
        layer(torch.randn(1, 8, 16), cache=cache)
        with capture(model) as c:
            layer(torch.randn(1, 5, 16))
            layer(torch.randn(1, 1, 16), cache=cache)
        with (
            pytest.raises(ValueError, match="no layer of ModuleDict can be shown; attention: its cache has let go"),
            capture(model),
        ):
            layer(torch.randn(1, 1, 16), cache=cache)
    assert c.layers == ("attention", "attention#2")
    assert "refused: its cache has let go of keys" in repr(c)
    assert c[0].shape == (1, 4, 5, 5)
    assert list(c.refused) == ["attention#2"]
    with pytest.raises(ValueError, match="attention#2 cannot be shown: its cache has let go of keys"):
        c[1]


def test_an_error_of_the_model_leaves_nothing_behind() -> None:
    before = torch.nn.functional.multi_head_attention_forward
    with pytest.raises(AssertionError, match="was expecting embedding dimension"):
        capture(nn.MultiheadAttention(8, 2), *torch.randn(3, 2, 5))
    assert torch.nn.functional.multi_head_attention_forward is before
    pieces = sys.modules["regard.nn.attention"].attend_chunks
    assert pieces is sys.modules["regard.engine.partial"].attend_chunks
    assert len(taken()) == 2


def test_nothing_yet_and_done() -> None:
    model, x = encoder(), torch.randn(3, 6, 16)
    c = capture(model)
    assert repr(c) == "<Capture of TransformerEncoder: nothing yet>"
    with c:
        model(x)
    with pytest.raises(RuntimeError, match="this capture is done; begin another"), c:
        pass


def test_looked_at_while_it_is_open() -> None:
    torch.manual_seed(0)
    model = regard.nn.LanguageModel(23, layers=2, d_model=16, heads=4).eval()
    with torch.inference_mode(), capture(model) as c:
        cache = regard.nn.KVCache()
        model(torch.tensor([[1, 2, 3]]), cache=cache)
        assert (len(c), c[1].shape) == (2, (1, 4, 3, 3))
        model(torch.tensor([[4]]), cache=cache)
        assert (len(c), c[1].shape) == (2, (1, 4, 4, 4))
        model(torch.tensor([[5]]), cache=cache)
    assert (len(c), c[1].shape) == (2, (1, 4, 5, 5))
    assert c[1] is c[1]
    assert not c[1].dense().is_inference()


def test_inside_accelerating() -> None:
    with regard.accelerating(), pytest.raises(RuntimeError, match="capture outside the block"):
        capture(encoder(), torch.randn(3, 6, 16))


def test_the_model_is_let_go() -> None:
    model = encoder()
    gone = weakref.ref(model)
    c = capture(model, torch.randn(3, 6, 16))
    del model
    gc.collect()
    assert gone() is None
    assert c[0].shape == (3, 4, 6, 6)
