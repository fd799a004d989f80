"""Capture of models of transformers: the weights are those that eager models return, under any implementation."""

import copy
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.testing import assert_close

import regard.hf
from regard.inspection.capture import Capture, capture
from regard.inspection.capture.spill import AppendedTensor
from regard.inspection.load import load

PLAIN: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "intermediate_size": 20,
    "vocab_size": 31,
    "max_position_embeddings": 40,
}
GROUPED = {**PLAIN, "num_key_value_heads": 2, "head_dim": 8}
SEQUENCE = {"d_model": 24, "vocab_size": 31, "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": None}
CAUSAL, BASE = "AutoModelForCausalLM", "AutoModel"
FAMILIES: dict[str, tuple[str, Callable[[], Any]]] = {
    "bert": (BASE, lambda: transformers.BertConfig(**PLAIN)),
    "roberta": (BASE, lambda: transformers.RobertaConfig(**PLAIN)),
    "distilbert": (BASE, lambda: transformers.DistilBertConfig(dim=24, n_layers=2, n_heads=4, hidden_dim=20)),
    "gpt2": (CAUSAL, lambda: transformers.GPT2Config(n_embd=24, n_layer=2, n_head=4, vocab_size=31, n_positions=40)),
    "opt": (CAUSAL, lambda: transformers.OPTConfig(**PLAIN, ffn_dim=20, word_embed_proj_dim=24)),
    "gpt_neox": (CAUSAL, lambda: transformers.GPTNeoXConfig(**PLAIN)),
    "llama": (CAUSAL, lambda: transformers.LlamaConfig(**GROUPED)),
    "mistral": (CAUSAL, lambda: transformers.MistralConfig(**GROUPED, sliding_window=4)),
    "gemma2": (
        CAUSAL,
        lambda: transformers.Gemma2Config(
            **GROUPED, sliding_window=4, attn_logit_softcapping=2.0, query_pre_attn_scalar=5
        ),
    ),
    "qwen2": (CAUSAL, lambda: transformers.Qwen2Config(**GROUPED)),
    "qwen3": (CAUSAL, lambda: transformers.Qwen3Config(**GROUPED)),
    "gpt_oss": (
        CAUSAL,
        lambda: transformers.GptOssConfig(**GROUPED, sliding_window=4, num_local_experts=2, num_experts_per_tok=1),
    ),
    "vit": (BASE, lambda: transformers.ViTConfig(**PLAIN, image_size=12, patch_size=4)),
    "t5": (
        "AutoModelForSeq2SeqLM",
        lambda: transformers.T5Config(**SEQUENCE, d_kv=6, d_ff=20, num_layers=2, num_heads=4),
    ),
    "whisper": (
        "AutoModelForSpeechSeq2Seq",
        lambda: transformers.WhisperConfig(
            **SEQUENCE,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=2,
            encoder_ffn_dim=20,
            decoder_ffn_dim=20,
            num_mel_bins=8,
            max_source_positions=13,
            max_target_positions=40,
            suppress_tokens=[],
            begin_suppress_tokens=[],
        ),
    ),
}
NO_SDPA = ("gemma2", "gpt_oss")
GENERATING = [name for name, (auto, _) in FAMILIES.items() if auto != BASE]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    regard.hf.register()
    yield
    regard.hf.unregister()


def made(name: str, implementation: str) -> Any:
    """A model whose attention is far from even, the same for every implementation."""
    auto, config = FAMILIES[name]
    torch.manual_seed(0)
    settings = copy.deepcopy(config())
    if auto == CAUSAL:
        settings.eos_token_id = settings.pad_token_id = settings.bos_token_id = None
    model = getattr(transformers, auto).from_config(settings, attn_implementation=implementation).eval()
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return model


def inputs(name: str) -> tuple[dict[str, Any], Tensor]:
    """What it takes, padded where it can be, and which of its tokens are there."""
    make = torch.Generator().manual_seed(2)
    seen = torch.ones(2, 9, dtype=torch.long)
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 12, 12, generator=make)}, torch.ones(2, 10)
    ids = torch.randint(1, 31, (2, 9), generator=make)
    if name == "whisper":
        return {"input_features": torch.randn(2, 8, 26, generator=make), "decoder_input_ids": ids}, seen
    seen[1, :3] = 0 if FAMILIES[name][0] == CAUSAL else 1
    seen[1, 6:] = 1 if FAMILIES[name][0] == CAUSAL else 0
    if name == "t5":
        return {"input_ids": ids, "attention_mask": seen, "decoder_input_ids": ids[:, :7]}, seen
    return {"input_ids": ids, "attention_mask": seen}, seen


def returned(name: str, given: dict[str, Any]) -> list[Tensor]:
    """The weights of the eager model, in the order in which its layers run."""
    out = made(name, "eager")(**given, output_attentions=True)
    if "attentions" in out:
        return list(out.attentions)
    decoder = zip(out.decoder_attentions, out.cross_attentions, strict=True)
    return [*out.encoder_attentions, *chain.from_iterable(decoder)]


@pytest.mark.parametrize("implementation", ["sdpa", "eager", "regard"])
@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_family(name: str, implementation: str) -> None:
    if implementation == "sdpa" and name in NO_SDPA:
        pytest.skip("transformers has no sdpa for it")
    given, seen = inputs(name)
    model = made(name, implementation)
    want = model(**given)[0]
    c = capture(model, **given)
    assert torch.equal(c.output[0], want)
    assert c.refused == {}
    assert c.missed == ()
    weights = returned(name, given)
    assert len(c) == len(weights) == len(set(c.layers))
    for layer, found, theirs in zip(c.layers, c, weights, strict=True):
        assert layer in dict(model.named_modules())
        rows = torch.ones(theirs.shape[0], theirs.shape[2])
        rows = seen if rows.shape == seen.shape else rows
        there = rows.bool().view(len(rows), 1, -1, 1)
        assert_close(found.dense() * there, theirs * there, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("implementation", ["sdpa", "eager", "regard"])
@pytest.mark.parametrize("name", GENERATING)
@torch.no_grad()
def test_generation_is_one_matrix(name: str, implementation: str) -> None:
    if implementation == "sdpa" and name in NO_SDPA:
        pytest.skip("transformers has no sdpa for it")
    given, seen = inputs(name)
    given.pop("decoder_input_ids", None)
    model = made(name, implementation)
    settings = {"max_new_tokens": 14, "min_new_tokens": 14, "do_sample": False, "pad_token_id": 0}
    want = model.generate(**given, **settings)
    with capture(model) as c:
        ids = model.generate(**given, **settings)
    assert torch.equal(ids, want)
    if FAMILIES[name][0] == CAUSAL:
        seen = torch.cat([seen, torch.ones(2, 13, dtype=torch.long)], 1)
        again = {"input_ids": ids[:, :-1], "attention_mask": seen}
        if name != "opt":
            again["position_ids"] = (seen.cumsum(1) - 1).clamp(min=0)
    else:
        again = {**given, "decoder_input_ids": nn.functional.pad(ids, (15 - ids.shape[1], 0))[:, :-1]}
    weights = returned(name, again)
    assert c.missed == ()
    assert len(c) == len(weights)
    for found, theirs in zip(c, weights, strict=True):
        rows = torch.ones(theirs.shape[0], theirs.shape[2])
        rows = seen if rows.shape == seen.shape else rows
        there = rows.bool().view(len(rows), 1, -1, 1)
        assert_close(found.dense() * there, theirs * there, atol=1e-5, rtol=1e-5)


def test_training_with_dropout() -> None:
    model = made("bert", "eager").train()
    given, _ = inputs("bert")
    torch.manual_seed(3)
    want = model(**given)[0]
    torch.manual_seed(3)
    c = capture(model, **given)
    assert torch.equal(c.output[0], want)
    assert c.refused == {}


def test_an_eager_function_that_does_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = transformers.models.llama.modeling_llama
    original = module.eager_attention_forward

    def hotter(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "scaling": 2.0 * kwargs["scaling"]})

    monkeypatch.setattr(module, "eager_attention_forward", hotter)
    with pytest.raises(ValueError, match=r"its weights are \S+ away from those of its queries, keys, mask and scale"):
        capture(made("llama", "eager"), **inputs("llama")[0])


def test_the_interface_is_left_as_it_was() -> None:
    before = transformers.AttentionInterface.get_interface
    capture(made("llama", "eager"), **inputs("llama")[0])
    assert transformers.AttentionInterface.get_interface is before


@pytest.mark.parametrize("dtype, padded", [(torch.float64, False), (torch.bfloat16, False), (torch.bfloat16, True)])
@pytest.mark.parametrize("name", ["llama", "gemma2", "t5"])
@torch.no_grad()
def test_other_precisions(name: str, dtype: torch.dtype, padded: bool) -> None:
    model, given = made(name, "eager").to(dtype), inputs(name)[0]
    if not padded:
        given["attention_mask"] = torch.ones_like(given["attention_mask"])
    want = model(**given)[0]
    c = capture(model, **given)
    assert torch.equal(c.output[0], want)
    assert c.refused == {}


SETTINGS: dict[str, Any] = {"max_new_tokens": 14, "min_new_tokens": 14, "do_sample": False, "pad_token_id": 0}


def again(name: str, given: dict[str, Any], seen: Tensor, ids: Tensor) -> dict[str, Any]:
    """What gives the weights of a generation in one call."""
    if FAMILIES[name][0] != CAUSAL:
        repeated = {key: value.repeat_interleave(len(ids) // len(value), 0) for key, value in given.items()}
        return {**repeated, "decoder_input_ids": nn.functional.pad(ids, (15 - ids.shape[1], 0))[:, :-1]}
    seen = torch.cat([seen, torch.ones(2, 13, dtype=torch.long)], 1).repeat_interleave(len(ids) // 2, 0)
    places = {} if name == "opt" else {"position_ids": (seen.cumsum(1) - 1).clamp(min=0)}
    return {"input_ids": ids[:, :-1], "attention_mask": seen, **places}


def there(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Without the rows of padding."""
    if mask is None or weights.shape[-2] != mask.shape[-1]:
        return weights
    return weights * mask.bool()[:, None, :, None]


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt2", "opt", "t5"])
@torch.no_grad()
def test_a_cache_of_fixed_size(name: str, implementation: str) -> None:
    if implementation == "sdpa" and name in NO_SDPA:
        pytest.skip("transformers has no sdpa for it")
    given, seen = inputs(name)
    given.pop("decoder_input_ids", None)
    model = made(name, implementation)
    want = model.generate(**given, **SETTINGS, cache_implementation="static")
    with capture(model) as c:
        ids = model.generate(**given, **SETTINGS, cache_implementation="static")
    assert torch.equal(ids, want)
    once = again(name, given, seen, ids)
    weights = returned(name, once)
    assert len(c) == len(weights)
    mask = once["attention_mask"] if FAMILIES[name][0] == CAUSAL else None
    for found, theirs in zip(c, weights, strict=True):
        assert_close(there(found.dense(), mask), there(theirs, mask), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "t5"])
@torch.no_grad()
def test_beams(name: str, implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, seen = inputs(name)
    given.pop("decoder_input_ids", None)
    model = made(name, implementation)
    options = {**SETTINGS, "num_beams": 3, "num_return_sequences": 3}
    want = model.generate(**given, **options)
    with capture(model) as c:
        ids = model.generate(**given, **options)
    assert torch.equal(ids, want)
    once = again(name, given, seen, ids)
    weights = returned(name, once)
    assert len(c) == len(weights)
    mask = once["attention_mask"] if FAMILIES[name][0] == CAUSAL else None
    for row in range(len(ids)):  # each text that was found is the history of some beam, in all layers
        near = torch.zeros(6)
        for found, theirs in zip(c, weights, strict=True):
            if len(found) == len(ids):
                ours, rows = there(found.dense(), mask), there(theirs, mask)
                near = torch.maximum(near, (ours - rows[row]).abs().flatten(1).amax(1))
        assert float(near.min()) < 1e-5
    monkeypatch.setattr(AppendedTensor, "order", lambda self, tensor: None)
    with capture(model) as broken:
        model.generate(**given, **options)
    assert len(broken) > len(c)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
@torch.no_grad()
def test_a_model_that_gives_no_numbers(name: str) -> None:
    """Left padding in float64 makes transformers' eager models NaN: what is seen is what they compute."""
    model, given = made(name, "eager").double(), inputs(name)[0]
    want = model(**given)[0]
    c = capture(model, **given)
    assert torch.equal(c.output[0].isnan(), want.isnan())
    assert bool(want[1].isnan().all())
    assert c.refused == {}
    assert not bool(c[1].dense()[0].isnan().any())
    assert bool(c[1].dense()[1].isnan().all())


def through(c: Capture, path: Path) -> Capture:
    """Saved and loaded."""
    c.save(path)
    found = load(path)
    assert isinstance(found, Capture)
    return found


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_family_in_a_file(name: str, tmp_path: Path) -> None:
    c = capture(made(name, "eager" if name in NO_SDPA else "sdpa"), **inputs(name)[0])
    found = through(c, tmp_path / "run.safetensors")
    assert repr(found) == repr(c)
    assert (found.layers, found.model, found.grids) == (c.layers, c.model, c.grids)
    for ours, theirs in zip(found, c, strict=True):
        assert torch.equal(ours.dense(), theirs.dense())
        assert torch.equal(ours.entropy(), theirs.entropy())


@torch.no_grad()
def test_grouped_heads_are_small(tmp_path: Path) -> None:
    """Six heads over two: the keys that the model repeats are in the file once."""
    c = capture(made("llama", "sdpa"), **inputs("llama")[0])
    kept: Any = through(c, tmp_path / "run.safetensors")._layers[0]
    assert (kept.query.shape[1], kept.key.shape[1]) == (6, 2)


@torch.no_grad()
def test_a_generation_with_tokens(tmp_path: Path) -> None:
    model, given = made("t5", "sdpa"), inputs("t5")[0]
    del given["decoder_input_ids"]
    with capture(model) as c:
        model.generate(**given, max_new_tokens=5, min_new_tokens=5)
    rows = [[f"{row}{n}" for n in range(9)] for row in "ab"]
    c.tokens = {"encoder": rows, "decoder": list("vwxyz")}
    found = through(c, tmp_path / "run.safetensors")
    assert found.tokens == c.tokens == {"encoder": rows, "decoder": list("vwxyz")}
    assert found.cross[0][1, 2].key_tokens == tuple(rows[1])
    assert found.cross[0].query_tokens == tuple("vwxyz")
    assert [part.layers for part in (found.encoder, found.decoder)] == [c.encoder.layers, c.decoder.layers]
    assert torch.equal(found.cross[0].dense(), c.cross[0].dense())
    assert found.output is None
