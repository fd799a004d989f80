"""Llama-type GGUF files: a transformers model written as GGUF comes back as itself, and odd files are refused."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize
from torch import Tensor

pytest.importorskip("transformers")

from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from regard.models import gguf, store
from regard.models.catalog import Converted
from regard.progress import reporting_to_user

F32 = GGMLQuantizationType.F32

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}

TOKENIZER = {"model": "gpt2", "pre": "gpt-2", "tokens": ["<s>", "a", "b", "ab"], "merges": ["a b"]}


def llama(**changed: Any) -> LlamaForCausalLM:
    """A small model with weights that are not near zero; sizes are multiples of 32, as quantization wants."""
    torch.manual_seed(3)
    settings = {
        "vocab_size": 4,
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 77,
        "rms_norm_eps": 1e-5,
        "rope_theta": 5000.0,
        "tie_word_embeddings": True,
    }
    model = LlamaForCausalLM(LlamaConfig(**(settings | changed))).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight)
    return model


def tensors(model: LlamaForCausalLM) -> dict[str, Tensor]:
    """The weights as llama.cpp names and orders them: rows (0 d/2 1 d/2+1 …) in each head of queries and keys."""
    found = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        place, _, kind = name.rpartition(".")
        layer = re.match(r"model\.layers\.(\d+)\.", place)
        place = place[layer.end() :] if layer else place
        if place in ("self_attn.q_proj", "self_attn.k_proj"):
            half = model.config.head_dim // 2
            order = [part * half + pair for pair in range(half) for part in (0, 1)]
            tensor = tensor.unflatten(0, (-1, model.config.head_dim))[:, order].flatten(0, 1)
        found[f"{f'blk.{layer[1]}.' if layer else ''}{NAMES[place]}.{kind}"] = tensor
    return found


def fields(model: LlamaForCausalLM) -> dict[str, Any]:
    """What the file says about the model, by the name without `llama.`."""
    config = model.config
    return {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "rope.dimension_count": config.head_dim,
        "rope.freq_base": config.rope_parameters["rope_theta"],
    }


def write(
    path: Path,
    weights: Mapping[str, Tensor],
    fields: Mapping[str, Any],
    kind: GGMLQuantizationType = F32,
    tokenizer: Mapping[str, Any] = TOKENIZER,
    architecture: str = "llama",
) -> Path:
    writer = GGUFWriter(path, architecture)
    named = {f"{architecture}.{key}" if key != "split.count" else key: value for key, value in fields.items()}
    for key, value in named.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    writer.add_tokenizer_model(tokenizer["model"])
    writer.add_tokenizer_pre(tokenizer["pre"])
    writer.add_token_list(tokenizer["tokens"])
    writer.add_token_types([3, *[1] * (len(tokenizer["tokens"]) - 1)])
    writer.add_token_merges(tokenizer["merges"])
    writer.add_bos_token_id(0)
    for name, tensor in weights.items():
        if tensor.dim() < 2 or kind == F32:
            writer.add_tensor(name, tensor.numpy())
        else:
            writer.add_tensor(name, quantize(tensor.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"tie_word_embeddings": False},
        {"num_key_value_heads": 6},
        {"num_key_value_heads": 1, "head_dim": 32},
        {"attention_bias": True, "mlp_bias": True},
        {"rope_theta": 1e6, "rms_norm_eps": 1e-6},
    ],
    ids=str,
)
def test_a_model_comes_back_bit_for_bit(changed: dict[str, Any], tmp_path: Path) -> None:
    model = llama(**changed)
    file = write(tmp_path / "model.gguf", tensors(model), fields(model))
    folder = gguf.convert(file, tmp_path / "folder")
    back, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values())
    assert back.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    for name in ("rms_norm_eps", "rope_parameters", "head_dim", "max_position_embeddings", "tie_word_embeddings"):
        assert getattr(back.config, name) == getattr(model.config, name)
    tokens = torch.tensor([[0, 3, 1, 2, 2]])
    with torch.no_grad():
        assert torch.equal(back.eval()(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_quantized_weights_are_the_numbers_they_stand_for(kind: str, tmp_path: Path) -> None:
    model = llama()
    quantization = GGMLQuantizationType[kind]
    originals = tensors(model)
    file = write(tmp_path / "model.gguf", originals, fields(model), quantization)
    back = AutoModelForCausalLM.from_pretrained(gguf.convert(file, tmp_path / "folder")).state_dict()
    theirs = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=llama())["tensors"]
    for name, tensor in theirs.items():
        assert torch.equal(back[name], tensor), name
    assert len(theirs) == len(originals)
    values = originals["blk.1.ffn_up.weight"].numpy()
    expected = dequantize(quantize(values, quantization), quantization)
    assert numpy.array_equal(back["model.layers.1.mlp.up_proj.weight"].numpy(), expected)
    assert not numpy.array_equal(expected, values)


def test_linear_stretching_of_positions(tmp_path: Path) -> None:
    model = llama()
    stretched = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    file = write(tmp_path / "model.gguf", tensors(model), fields(model) | stretched)
    folder = gguf.convert(file, tmp_path / "folder")
    read = LlamaConfig.from_pretrained(folder).rope_parameters
    assert read == {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}


def test_what_may_be_left_out(tmp_path: Path) -> None:
    model = llama(num_key_value_heads=6, rope_theta=10000.0)
    optional = ("head_count_kv", "key_length", "value_length", "dimension_count", "freq_base")
    said = {key: value for key, value in fields(model).items() if not key.endswith(optional)}
    folder = gguf.convert(write(tmp_path / "model.gguf", tensors(model), said), tmp_path / "folder")
    full = gguf.convert(write(tmp_path / "full.gguf", tensors(model), fields(model)), tmp_path / "other")
    assert (folder / "config.json").read_text() == (full / "config.json").read_text()


def test_config_holds_decimals_as_people_write_them(tmp_path: Path) -> None:
    model = llama(rms_norm_eps=1e-6)
    folder = gguf.convert(write(tmp_path / "model.gguf", tensors(model), fields(model)), tmp_path / "folder")
    config = json.loads((folder / "config.json").read_text())
    assert (config["rms_norm_eps"], config["rope_theta"], config["bos_token_id"]) == (1e-6, 5000.0, 0)


@pytest.mark.parametrize(
    "changed, text",
    [
        ({"rope.scaling.type": "yarn"}, "rotary positions stretched by 'yarn' cannot be converted, only 'linear'"),
        ({"attention.sliding_window": 8}, "the file has settings that regard does not know: attention.sliding_window"),
        ({"expert_count": 8}, "models with several experts cannot be converted"),
        ({"rope.dimension_count": 8}, "llama.rope.dimension_count must be 16, the width of a head, got 8"),
        ({"attention.head_count_kv": [2, 1]}, "llama.attention.head_count_kv must be one number for all layers"),
        ({"attention.head_count_kv": 4}, "6 heads cannot share 4 key and value heads"),
        ({"block_count": 3}, "the file has no tensor blk.2.attn_norm.weight (and 8 more)"),
        ({"block_count": 1}, "the file has a tensor that regard does not know, blk.1.attn_q.weight (and 8 more)"),
        ({"block_count": 0}, "llama.block_count must be at least 1, got 0"),
        ({"feed_forward_length": 128}, "ffn_gate.weight should have the shape (128, 96), got (160, 96)"),
        ({"context_length": None}, "the file does not say llama.context_length"),
        ({"attention.layer_norm_rms_epsilon": None}, "the file does not say llama.attention.layer_norm_rms_epsilon"),
        ({"split.count": 2}, "the model is split over several GGUF files; merge them into one first"),
    ],
    ids=str,
)
def test_files_that_are_refused(changed: dict[str, Any], text: str, tmp_path: Path) -> None:
    model = llama()
    said = {key: value for key, value in (fields(model) | changed).items() if value is not None}
    file = write(tmp_path / "model.gguf", tensors(model), said)
    with pytest.raises(ValueError, match=re.escape(text)):
        gguf.convert(file, tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    model = llama()
    file = write(tmp_path / "model.gguf", tensors(model), fields(model), architecture="qwen2")
    with pytest.raises(ValueError, match="only GGUF files of the architecture 'llama' can be converted, got 'qwen2'"):
        gguf.convert(file, tmp_path / "folder")


def test_tensors_without_numbers_are_refused(tmp_path: Path) -> None:
    model = llama()
    weights = tensors(model) | {"output_norm.weight": torch.zeros(96, dtype=torch.int32)}
    file = write(tmp_path / "model.gguf", weights, fields(model))
    with pytest.raises(ValueError, match=r"output_norm\.weight is of a kind that the package gguf cannot read: .*I32"):
        gguf.convert(file, tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


@pytest.mark.parametrize("size", [0, 10, 1000, 100_000], ids="{} bytes".format)
def test_a_broken_file_is_refused(size: int, tmp_path: Path) -> None:
    model = llama()
    file = write(tmp_path / "model.gguf", tensors(model), fields(model))
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"model\.gguf is not a whole GGUF file: "):
        gguf.convert(file, tmp_path / "folder")


def test_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"PK\3\4" * 1000)
    with pytest.raises(ValueError, match=r"model\.gguf is not a whole GGUF file: GGUF magic invalid"):
        gguf.convert(tmp_path / "model.gguf", tmp_path / "folder")


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="is there already; name a folder that is not"):
        gguf.convert(tmp_path / "model.gguf", tmp_path)
    with pytest.raises(FileNotFoundError):
        gguf.convert(tmp_path / "model.gguf", tmp_path / "folder")


def test_a_wheel_with_a_gguf_file_becomes_a_folder(make_model: Any, cache: Path, tmp_path: Path) -> None:
    model = llama()
    file = write(tmp_path / "model.gguf", tensors(model), fields(model), GGMLQuantizationType.Q4_1)
    recipe = Converted("tiny_model/data/model.gguf", (("tiny_model/data/terms.txt", "LICENSE"),))
    packed = make_model({"model.gguf": file.read_bytes(), "terms.txt": b"free", "other": b"not wanted"}, recipe=recipe)
    reports: list[str] = []
    with reporting_to_user(lambda what, done, total: reports.append(what), "bytes"):
        folder, made = store.ensure(packed)
    assert made
    assert list(dict.fromkeys(reports)) == ["downloading", "unpacking", "converting", "checking"]
    names = {"LICENSE", "config.json", "generation_config.json", "model.safetensors", "regard.json"}
    assert {path.name for path in folder.iterdir()} == names | {"tokenizer.json", "tokenizer_config.json"}
    other = gguf.convert(file, tmp_path / "folder")
    assert (folder / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
