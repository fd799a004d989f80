"""Folders that transformers writes run on our blocks and give its numbers: BERT-, GPT-2- and Llama-type."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from regard import masks, models
from regard.models.families.bert import Bert
from regard.nn import KVCache, LanguageModel, generate

LLAMA = {
    "vocab_size": 60,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
WIDE = LLAMA | {"hidden_size": 32, "pad_token_id": 0}
BERT = LLAMA | {"type_vocab_size": 2, "hidden_dropout_prob": 0.1}
GPT2 = {"vocab_size": 60, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 64}
LINEAR = {"rope_type": "linear", "factor": 3.0, "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "rope_theta": 500.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CAUSAL: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", LLAMA),
    "llama, tied": ("Llama", LLAMA | {"tie_word_embeddings": True}),
    "llama with biases": ("Llama", LLAMA | {"attention_bias": True, "mlp_bias": True}),
    "llama with wide heads": ("Llama", LLAMA | {"head_dim": 10}),
    "llama, linear": ("Llama", LLAMA | {"rope_parameters": LINEAR}),
    "llama, yarn": ("Llama", LLAMA | {"rope_parameters": YARN}),
    "llama 3": ("Llama", LLAMA | {"rope_parameters": LLAMA3}),
    "mistral": ("Mistral", LLAMA | {"sliding_window": 5}),
    "mistral without a window": ("Mistral", LLAMA | {"sliding_window": None}),
    "qwen 2": ("Qwen2", LLAMA),
    "qwen 2 with windows": (
        "Qwen2",
        LLAMA | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0},
    ),
    "qwen 2 with windows nowhere": (
        "Qwen2",
        LLAMA | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 3},
    ),
    "qwen 3": ("Qwen3", LLAMA | {"head_dim": 8}),
    "phi 3": ("Phi3", WIDE),
    "phi 3, a part turned, with windows": ("Phi3", WIDE | {"partial_rotary_factor": 0.75, "sliding_window": 5}),
    "stablelm": ("StableLm", WIDE | {"use_qkv_bias": True}),
    "stablelm, half turned, yarn": ("StableLm", WIDE | {"rope_parameters": YARN | {"partial_rotary_factor": 0.5}}),
    "glm": ("Glm", WIDE | {"head_dim": 8}),
    "glm, a quarter turned, linear": (
        "Glm",
        WIDE | {"head_dim": 8, "attention_bias": False, "rope_parameters": LINEAR | {"partial_rotary_factor": 0.25}},
    ),
    "gpt-2": ("GPT2", GPT2),
    "gpt-2, untied": ("GPT2", GPT2 | {"tie_word_embeddings": False, "n_inner": 50, "activation_function": "relu"}),
}


def written(kind: str, settings: dict[str, Any], folder: Path, **options: Any) -> Any:
    """A model of random weights, biases too, and the folder that transformers makes of it."""
    torch.manual_seed(4)
    made = getattr(transformers, f"{kind}Config")(**settings)
    name = (
        f"{kind}Model" if kind in ("Bert", "Roberta") else {"GPT2": "GPT2LMHeadModel"}.get(kind, f"{kind}ForCausalLM")
    )
    model = getattr(transformers, name)._from_config(made, attn_implementation="eager").eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder, **options)
    return model


def close(found: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_language_models(name: str, tmp_path: Path) -> None:
    kind, settings = CAUSAL[name]
    theirs = written(kind, settings, tmp_path)
    ours = models.build(tmp_path)
    assert isinstance(ours, LanguageModel)
    tokens = torch.randint(60, (2, 30))
    right = theirs(tokens).logits
    close(ours(tokens), right)
    cache = KVCache()
    close(torch.cat([ours(piece, cache=cache) for piece in tokens.split(7, 1)], 1), right)
    written_by_them = theirs.generate(
        tokens[:1, :9], max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    assert torch.equal(generate(ours, tokens[:1, :9], 12), written_by_them[:, 9:])


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("Bert", BERT),
        ("Bert", BERT | {"hidden_act": "gelu_new", "num_attention_heads": 3}),
        ("Roberta", BERT | {"pad_token_id": 1}),
    ],
    ids=["bert", "bert, gelu_new", "roberta"],
)
@torch.no_grad()
def test_encoders(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    theirs = written(kind, settings, tmp_path)
    ours = models.build(tmp_path)
    assert isinstance(ours, Bert)
    tokens, lengths = torch.randint(2, 60, (3, 20)), torch.tensor([20, 7, 1])
    seen = torch.arange(20) < lengths[:, None]
    tokens[~seen] = 1
    right = theirs(tokens, attention_mask=seen.long()).last_hidden_state
    close(ours(tokens, mask=masks.Lengths(lengths))[seen], right[seen])
    types = torch.randint(2, (3, 20)) if kind == "Bert" else torch.zeros(3, 20, dtype=torch.long)
    right = theirs(tokens, attention_mask=seen.long(), token_type_ids=types).last_hidden_state
    close(ours(tokens, types=types, mask=masks.Lengths(lengths))[seen], right[seen])


@torch.no_grad()
def test_a_share_that_turns_as_older_folders_write_it(tmp_path: Path) -> None:
    theirs = written("Phi3", WIDE | {"partial_rotary_factor": 0.5}, tmp_path)
    changed(tmp_path, rope_parameters=None, rope_theta=10000.0, partial_rotary_factor=0.5)
    ours, tokens = models.build(tmp_path), torch.randint(60, (2, 30))
    close(ours(tokens), theirs(tokens).logits)
    changed(tmp_path, partial_rotary_factor=1.0)
    assert not torch.allclose(models.build(tmp_path)(tokens), ours(tokens), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("kind", ["Llama", "Mistral", "Qwen2", "Qwen3"])
@torch.no_grad()
def test_a_share_that_transformers_ignores(kind: str, tmp_path: Path) -> None:
    theirs = written(kind, WIDE | {"partial_rotary_factor": 0.5}, tmp_path)
    with pytest.warns(UserWarning, match=f"partial_rotary_factor=0.5 is ignored, .* of type {kind.lower()}"):
        ours = models.build(tmp_path)
    tokens = torch.randint(60, (2, 30))
    close(ours(tokens), theirs(tokens).logits)


@torch.no_grad()
def test_weights_in_several_files(tmp_path: Path) -> None:
    theirs = written("Llama", LLAMA, tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    tokens = torch.randint(60, (1, 9))
    close(models.build(tmp_path)(tokens), theirs(tokens).logits)


@torch.no_grad()
def test_a_head_for_another_task_is_left_out(tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**BERT)).eval()
    theirs.save_pretrained(tmp_path)
    tokens = torch.randint(60, (1, 9))
    close(models.build(tmp_path)(tokens), theirs.bert(tokens).last_hidden_state)


@torch.no_grad()
def test_a_model_saved_without_its_head(tmp_path: Path) -> None:
    theirs = written("Llama", LLAMA | {"tie_word_embeddings": True}, tmp_path / "whole")
    theirs.model.save_pretrained(tmp_path / "bare")
    tokens = torch.randint(60, (1, 9))
    close(models.build(tmp_path / "bare")(tokens), theirs(tokens).logits)


@torch.no_grad()
def test_half_precision_stays(tmp_path: Path) -> None:
    written("Llama", LLAMA, tmp_path)
    folder = tmp_path / "half"
    transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).save_pretrained(folder)
    model = models.build(folder)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model(torch.randint(60, (1, 9))).isfinite().all()


def changed(folder: Path, **settings: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "t5"}, "holds a model of type 't5'; known are bert"),
        ({"hidden_act": "mish"}, "hidden_act='mish' is not built here"),
        ({"num_hidden_layers": 4}, "missing: blocks.blocks.3"),
        ({"num_hidden_layers": 2}, "not known: blocks.blocks.2"),
        ({"intermediate_size": 41}, r"should be \(41, 24\) by its config.json, got \(40, 24\)"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type='dynamic' is not built here"),
        ({"hidden_size": None}, "has no 'hidden_size'"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
            "layers differ in their masks",
        ),
        ({"rope_parameters": YARN | {"mscale": 0.7}}, "yarn's mscale"),
        ({"model_type": "glm", "partial_rotary_factor": 0.5}, "turns 3 of the 6 numbers of a head is not built here"),
        ({"model_type": "phi3", "partial_rotary_factor": 2.0}, "turns 12 of .*; an even number from 2 to 6 can turn"),
        ({"model_type": "stablelm", "use_parallel_residual": True}, "use_parallel_residual=True is not built here"),
        ({"model_type": "stablelm", "qk_layernorm": True}, "qk_layernorm=True is not built here"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    written("Llama", LLAMA, tmp_path)
    changed(tmp_path, **settings)
    with pytest.raises(ValueError, match=message):
        models.build(tmp_path)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*; a model is a folder with config.json"):
        models.build(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"has no config.json"):
        models.build(tmp_path)
    written("Llama", LLAMA, tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"has no tokenizer.json, vocab.txt, or vocab.json with merges.txt; models.build"
    ):
        models.load(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        models.build(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(
        FileNotFoundError,
        match=r"has no model.safetensors; weights that are pickled, which can run code, are not read: save",
    ):
        models.build(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        models.build(tmp_path)
