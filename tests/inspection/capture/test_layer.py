"""Encoder, decoder and cross attention; tokens of two sequences and of batch rows; patches of images."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import regard
from regard.inspection.capture import Capture, capture
from regard.inspection.capture.layer import PatchGrid
from regard.spec.scores import Modified, ScaledDot

SIZES: dict[str, Any] = {
    "d_model": 16,
    "vocab_size": 31,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}


def t5() -> Any:
    config = transformers.T5Config(
        d_model=16,
        d_kv=4,
        d_ff=20,
        num_layers=2,
        num_decoder_layers=1,
        num_heads=4,
        vocab_size=31,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config).eval()


def ids(length: int) -> Tensor:
    return torch.randint(2, 31, (2, length), generator=torch.Generator().manual_seed(length))


def of(name: str, source: int, target: int) -> Capture:
    match name:
        case "t5":
            return capture(t5(), ids(source), decoder_input_ids=ids(target))
        case "bart":
            model = transformers.BartForConditionalGeneration(transformers.BartConfig(**SIZES)).eval()
            return capture(model, ids(source), decoder_input_ids=ids(target))
        case "marian":
            model = transformers.MarianMTModel(transformers.MarianConfig(**SIZES)).eval()
            return capture(model, ids(source), decoder_input_ids=ids(target))
        case "bert2bert":
            small: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 20}
            both = [transformers.BertConfig(**small, num_hidden_layers=n, vocab_size=31) for n in (2, 1)]
            config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(*both)
            model = transformers.EncoderDecoderModel(config).eval()
            return capture(model, input_ids=ids(source), decoder_input_ids=ids(target))
        case "torch":
            given = torch.randn(2, source, 16), torch.randn(2, target, 16)
            mask = nn.Transformer.generate_square_subsequent_mask(target)
            return capture(nn.Transformer(16, 2, 2, 1, 20, batch_first=True).eval(), *given, tgt_mask=mask)
    model = regard.nn.Transformer(31, layers=2, decoder_layers=1, d_model=16, heads=2)
    return capture(model, ids(source), ids(target))


@pytest.mark.parametrize("source, target", [(7, 5), (6, 6)])
@pytest.mark.parametrize("name", ["t5", "bart", "marian", "bert2bert", "torch", "regard"])
@torch.no_grad()
def test_encoder_decoder(name: str, source: int, target: int) -> None:
    c = of(name, source, target)
    assert len(c) == 4
    assert c.encoder.layers + c.decoder.layers + c.cross.layers == c.layers
    sizes = [tuple(part[0].shape[-2:]) for part in (c.encoder, c.decoder, c.cross)]
    assert sizes == [(source, source), (target, target), (target, source)]
    assert c.cross[0] is c[3]
    c.tokens = {"encoder": [f"s{n}" for n in range(source)], "decoder": [f"t{n}" for n in range(target)]}
    first: Any = (c.encoder[0], c.decoder[0], c.cross[0])
    assert [(part.query_tokens[0], part.key_tokens[0]) for part in first] == [("s0", "s0"), ("t0", "t0"), ("t0", "s0")]


@torch.no_grad()
def test_generation() -> None:
    model = t5()
    with capture(model) as c:
        model.generate(ids(7), max_new_tokens=4, min_new_tokens=4)
    assert [len(part) for part in (c.encoder, c.decoder, c.cross)] == [2, 1, 1]
    assert (c.decoder[0].shape[-2:], c.cross[0].shape[-2:]) == ((4, 4), (4, 7))


@torch.no_grad()
def test_models_of_one_side() -> None:
    small: dict[str, Any] = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 31, "n_positions": 20}
    c = capture(transformers.GPT2Model(transformers.GPT2Config(**small)).eval(), ids(6))
    assert c.decoder.layers == c.layers
    with pytest.raises(
        ValueError, match=r"no layer of GPT2Model is self-attention of an encoder; there are h\.0\.attn"
    ):
        c.encoder  # noqa: B018
    with pytest.raises(ValueError, match="is attention from one sequence to another"):
        c.cross  # noqa: B018
    config = transformers.DistilBertConfig(dim=16, n_layers=2, n_heads=2, hidden_dim=20, vocab_size=31)
    c = capture(transformers.DistilBertModel(config).eval(), ids(6))
    assert c.encoder.layers == c.layers
    c = capture(regard.nn.LanguageModel(31, layers=2, d_model=16, heads=2), ids(6))
    assert c.decoder.layers == c.layers


class Looks(nn.Module):
    """Attention under a name that says nothing."""

    def forward(self, q: Tensor, k: Tensor, causal: bool = False) -> Tensor:
        return scaled_dot_product_attention(q, k, k, is_causal=causal)


@pytest.mark.parametrize(
    "queries, keys, causal, kind", [(5, 5, True, "decoder"), (5, 5, False, "encoder"), (5, 7, False, "cross")]
)
def test_names_that_say_nothing(queries: int, keys: int, causal: bool, kind: str) -> None:
    c = capture(Looks(), torch.randn(1, 2, queries, 4), torch.randn(1, 2, keys, 4), causal=causal)
    assert len(getattr(c, kind)) == 1


@torch.no_grad()
def test_tokens_of_batch_rows() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval(), torch.randn(2, 3, 16)
    c = capture(model, x, tokens=[["a", "b", "c"], ["d", "e", "[PAD]"]])
    assert c[0].query_tokens is None
    assert c[0][1].key_tokens == c[0][1, 2].query_tokens == c[0, 3][1].query_tokens == ("d", "e", "[PAD]")
    assert c[0, 3][0].key_tokens == ("a", "b", "c")
    assert c[0][:, 1].key_tokens is None
    assert torch.equal(c[0][1, 2].dense(), c[0].dense()[1, 2])
    assert c.tokens == [["a", "b", "c"], ["d", "e", "[PAD]"]]
    c.tokens = list("xyz")
    assert c[0][1].key_tokens == tuple("xyz")
    with pytest.raises(ValueError, match="tokens has 3 lists, the batch has 2 rows; give one list, or so many"):
        c.tokens = [list("abc")] * 3
    with pytest.raises(ValueError, match="must have lists of one length, padding included, got 3, 2"):
        c.tokens = [list("abc"), list("ab")]
    with pytest.raises(ValueError, match="of two sequences have the names 'encoder' and 'decoder', got"):
        c.tokens = {"source": list("abc")}
    with pytest.raises(ValueError, match=r"tokens\['decoder'\] has 3 entries, the layers have no queries or keys"):
        c.tokens = {"decoder": list("abc")}
    c.tokens = None
    assert c[0][1].key_tokens is None


def vit(**more: Any) -> Any:
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 20,
    }
    return transformers.ViTModel(transformers.ViTConfig(**{**sizes, "image_size": 12, "patch_size": 4, **more})).eval()


@torch.no_grad()
def test_patches() -> None:
    model = vit()
    with capture(model) as block:
        model(torch.randn(1, 3, 12, 12))
    for c in (block, capture(model, torch.randn(1, 3, 12, 12))):
        assert c.grid == PatchGrid(rows=3, columns=3, special=1)
        assert list(c.grids) == list(c.layers)
        assert c[1].key_tokens == ("[CLS]", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2", "2,0", "2,1", "2,2")
        assert c[1].query_tokens == c[1].key_tokens
    wide = capture(model, pixel_values=torch.randn(1, 3, 8, 20), interpolate_pos_encoding=True)
    assert wide.grid == PatchGrid(2, 5, 1)
    assert capture(vit(image_size=(8, 16)), torch.randn(1, 3, 8, 16)).grid == PatchGrid(2, 4, 1)
    assert capture(model, torch.randn(1, 3, 12, 12), tokens=list("abcdefghij"))[0].key_tokens == tuple("abcdefghij")


@torch.no_grad()
def test_patches_are_of_their_tower() -> None:
    text: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 20,
    }
    config = transformers.CLIPConfig(
        text_config={**text, "vocab_size": 31, "eos_token_id": 1, "bos_token_id": 0, "pad_token_id": 0},
        vision_config={**text, "image_size": 12, "patch_size": 4},
        projection_dim=8,
    )
    model = transformers.CLIPModel(config).eval()
    c = capture(model, input_ids=ids(10), pixel_values=torch.randn(2, 3, 12, 12))
    assert len(c) == 2
    assert list(c.grids) == [name for name in c.layers if name.startswith("vision")]
    assert c.grid == PatchGrid(3, 3, 1)
    with capture(model) as c:
        model(input_ids=ids(10), pixel_values=torch.randn(2, 3, 12, 12))
    assert c.grid == PatchGrid(3, 3, 1)


def test_no_patches() -> None:
    assert capture(Looks(), *torch.randn(2, 1, 2, 5, 4)).grid is None


class Scored(nn.Module):
    """Attention whose score hides the future."""

    def forward(self, x: Tensor) -> Tensor:
        past = Modified(ScaledDot(), lambda s, b, h, i, j: torch.where(j <= i, s, -torch.inf))
        return regard.attend(x, x, x, score=past)


@torch.no_grad()
def test_a_score_may_hide_the_future() -> None:
    assert len(capture(Scored(), torch.randn(1, 2, 5, 4)).decoder) == 1


@torch.no_grad()
def test_all_heads_of_a_layer_by_an_ellipsis() -> None:
    c = capture(Looks(), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4))
    assert c[0, ...].shape == c[0].shape
