"""The arguments of torch's multi_head_attention_forward."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Arguments:
    """In torch's order and with torch's names.

    query: (length, batch, width), or (length, width). A bool mask is True where *hidden*, a float one is added.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    embed_dim_to_check: int
    num_heads: int
    in_proj_weight: Tensor | None
    in_proj_bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None
    add_zero_attn: bool
    dropout_p: float
    out_proj_weight: Tensor
    out_proj_bias: Tensor | None
    training: bool = True
    key_padding_mask: Tensor | None = None
    need_weights: bool = True
    attn_mask: Tensor | None = None
    use_separate_proj_weight: bool = False
    q_proj_weight: Tensor | None = None
    k_proj_weight: Tensor | None = None
    v_proj_weight: Tensor | None = None
    static_k: Tensor | None = None
    static_v: Tensor | None = None
    average_attn_weights: bool = True
    is_causal: bool = False

    @property
    def trusts_causal(self) -> bool:
        """Whether torch would take the hint for the mask."""
        return self.is_causal and self.key_padding_mask is None and not self.need_weights
