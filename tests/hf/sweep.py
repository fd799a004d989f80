"""Try every model type of transformers that can be made small: `python tests/hf/sweep.py [name ...] > table.md`.

Each is built with random weights under eager attention and under regard, run on padded inputs, and compared. The table
in docs/hf.md comes from here; a run takes some minutes, and what cannot be built small or run on plain inputs is said.
"""

import copy
import logging
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor

import regard.hf
from regard.hf.source import Kind, kind

SECONDS = 60
SMALL = {
    2: "num_experts_per_tok moe_topk index_topk "
    "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers depth "
    "num_decoder_layers num_key_value_heads num_kv_heads encoder_num_hidden_layers decoder_num_hidden_layers",
    32: "hidden_size d_model n_embd dim embed_dim word_embed_proj_dim embedding_size encoder_hidden_size image_size "
    "encoder_ffn_dim decoder_ffn_dim intermediate_size d_ff ffn_dim hidden_dim n_inner moe_intermediate_size "
    "shared_expert_intermediate_size max_source_positions n_ctx n_positions ffn_hidden_size",
    16: "q_lora_rank kv_lora_rank index_head_dim",
    4: "qk_rope_head_dim qk_nope_head_dim index_n_heads "
    "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads sliding_window "
    "num_experts num_local_experts n_routed_experts patch_size attention_chunk_size",
    8: "v_head_dim head_dim d_kv num_mel_bins attention_head_dim",
    64: "max_position_embeddings max_target_positions vocab_size max_sequence_length",
    0: "pad_token_id bos_token_id eos_token_id decoder_start_token_id",
}
VALUES = {name: value for value, names in SMALL.items() for name in names.split()}


def small(config_class: Any) -> Any:
    """The config with every size it has by a known name made small, those of its parts as well."""
    default = config_class()
    fixed = {name for name in VALUES if isinstance(getattr(config_class, name, None), property)}
    has = {name for name in VALUES if isinstance(getattr(default, name, None), int)}
    chosen: dict[str, Any] = {name: VALUES[name] for name in has - fixed}
    if hasattr(default, "kv_lora_rank"):  # one latent key for all heads
        chosen |= {name: 4 for name in ("num_key_value_heads", "head_dim") if name in chosen}
    chosen |= {name: None for name in ("layer_types", "mlp_layer_types") if getattr(default, name, None) is not None}
    for name in config_class.sub_configs:
        part = getattr(default, name, None)
        if part is not None:
            chosen[name] = small(type(part)).to_dict()
    if isinstance(getattr(default, "image_size", None), list | tuple):
        chosen["image_size"] = [32, 32]
    return config_class(**chosen)


def inputs(model: Any, config: Any) -> Iterator[dict[str, Tensor]]:
    """Tokens padded on the left in one row and on the right in another; an image; both; or sound."""
    made = torch.Generator().manual_seed(0)
    image = getattr(getattr(config, "vision_config", config), "image_size", 32)
    image = image if isinstance(image, int) else image[0]
    seen = torch.ones(2, 11, dtype=torch.long)
    seen[0, :3] = 0
    seen[1, 8:] = 0
    tokens = {"input_ids": torch.randint(3, 60, (2, 11), generator=made), "attention_mask": seen}
    pixels = {"pixel_values": torch.randn(2, getattr(config, "num_channels", 3), image, image, generator=made)}
    frames, bins = 2 * getattr(config, "max_source_positions", 32), getattr(config, "num_mel_bins", 8)
    features = {"input_features": torch.randn(2, bins, frames, generator=made)}
    values = {"input_values": torch.randn(2, 4000, generator=made)}
    decoded = {"decoder_input_ids": torch.randint(3, 60, (2, 7), generator=made)}
    first = {"pixel_values": pixels, "input_features": features, "input_values": values}
    # a text's pooled token may be the first one, so it is no padding
    both = {**tokens, **pixels, "attention_mask": torch.ones_like(seen).index_fill_(1, torch.tensor([9, 10]), 0)}
    for given in (first.get(model.main_input_name, tokens), tokens, pixels, both):
        yield given | decoded if getattr(config, "is_encoder_decoder", False) else given


def result(output: Any, given: dict[str, Tensor]) -> Tensor:
    """The first float tensor, at the tokens that are no padding."""
    tensors = [part for part in output.to_tuple() if isinstance(part, Tensor) and part.is_floating_point()]
    out = tensors[0]
    seen = given.get("attention_mask")
    if seen is not None and "decoder_input_ids" not in given and out.shape[:2] == seen.shape:
        return out[seen.bool()]
    return out


def tried(config_class: Any) -> tuple[str, str]:
    """What happened, in one word, and the details."""
    try:
        config = small(config_class)
        torch.manual_seed(0)
        model_class = transformers.MODEL_MAPPING[config_class]
        model_class = model_class[0] if isinstance(model_class, tuple) else model_class
        eager = model_class._from_config(copy.deepcopy(config), attn_implementation="eager").eval()
    except Exception as error:
        return "not built", _short(error)
    try:
        ours = model_class._from_config(copy.deepcopy(config), attn_implementation="regard").eval()
    except ValueError as error:
        why = str(error)
        return ("refused", why.split("regard': ")[1].split(";")[0]) if "cannot run" in why else ("error", _short(error))
    except Exception as error:
        return "error", _short(error)
    _reset(eager)
    ours.load_state_dict(eager.state_dict())
    failed = ""
    for given in inputs(eager, config):
        try:
            torch.manual_seed(0)
            with torch.no_grad():
                theirs = result(eager(**given), given)
            break
        except Exception as error:
            failed = failed or _short(error)
    else:
        return "not run", failed
    try:
        torch.manual_seed(0)
        with regard.hf.counting() as calls, torch.no_grad():
            mine = result(ours(**given), given)
    except Exception as error:
        return "error", _short(error)
    if not calls:
        return "no attention", "nothing asked the interface"
    if not bool(theirs.isfinite().all()):
        return "not run", "eager gives NaN on these inputs"
    error_size = float((mine - theirs).abs().max() / theirs.abs().max().clamp(min=1.0))
    word = "equal" if error_size <= 1e-5 else "differs"
    layers = f"{len({id(module) for module in calls})} of {sum(kind(part) is Kind.SERVES for part in ours.modules())}"
    return word, f"{len(calls)} calls of {layers} layers, {error_size:.0e}, {attentions(eager, ours, given)}"


def attentions(eager: Any, ours: Any, given: dict[str, Tensor]) -> str:
    """Whether `output_attentions=True` gives as many as under eager."""
    counts = []
    for model in (eager, ours):
        try:
            torch.manual_seed(0)
            with torch.no_grad():
                out = model(**given, output_attentions=True)
        except Exception as error:
            return f"no attentions ({_short(error)})"
        found = [part for name in out if "attentions" in name for part in (out[name] or ())]
        counts.append(sum(isinstance(part, Tensor) for part in found))
    return f"{counts[1]} attentions" if counts[0] == counts[1] else f"{counts[1]} attentions of {counts[0]}"


def _reset(model: Any) -> None:
    """Weights large enough that attention is far from even."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 and parameter.numel():
                parameter.normal_(std=parameter[0].numel() ** -0.5)


def _short(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:110].replace("|", "/")


def _stop(*_: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def main(names: list[str]) -> None:
    """Print each line as it is done, and then all of them by what happened."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    regard.hf.register()
    signal.signal(signal.SIGALRM, _stop)
    found: dict[str, dict[str, str]] = {}
    for name in names or sorted(transformers.CONFIG_MAPPING.keys()):
        config_class = transformers.CONFIG_MAPPING[name]
        if config_class not in transformers.MODEL_MAPPING:
            continue
        signal.alarm(SECONDS)
        try:
            word, details = tried(config_class)
        except TimeoutError as error:
            word, details = "not run", str(error)
        signal.alarm(0)
        found.setdefault(word, {})[name] = details
        print(f"{name}: {word}, {details}", file=sys.stderr, flush=True)
    for word, families in sorted(found.items()):
        print(f"\n### {word}: {len(families)}\n")
        if word in ("equal", "no attention", "not built", "not run"):
            print(", ".join(families))
        else:
            print("| model type | why |\n| --- | --- |")
            print("\n".join(f"| {name} | {details} |" for name, details in families.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
