"""Loading: the state dict of torch's own layer under the names of ours."""

from typing import Any


def loaded(state: dict[str, Any], prefix: str) -> None:
    """Split what `nn.MultiheadAttention` keeps fused, in place; a state dict of ours stays as it is."""
    for name in ("bias_k", "bias_v"):
        if state.get(f"{prefix}{name}") is not None:
            raise ValueError(
                f"the state dict has {prefix}{name} (add_bias_kv=True): a learned key beside the given ones, "
                "which this layer has not; append it to the keys yourself"
            )
    names = ("q_proj", "k_proj", "v_proj")
    fused = state.pop(f"{prefix}in_proj_weight", None)
    if fused is not None:
        for name, part in zip(names, fused.chunk(3), strict=True):
            state[f"{prefix}{name}.weight"] = part
    for name in names:
        if (part := state.pop(f"{prefix}{name}_weight", None)) is not None:
            state[f"{prefix}{name}.weight"] = part
    fused = state.pop(f"{prefix}in_proj_bias", None)
    if fused is not None:
        for name, part in zip(names, fused.chunk(3), strict=True):
            state[f"{prefix}{name}.bias"] = part
