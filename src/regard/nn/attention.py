"""MultiHeadAttention: projections around `attend`, with any score, mask, bias, normalizer and positions."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from torch import Tensor, nn

from regard.checks import is_tensor, shape, whole
from regard.engine.partial import KeyChunk, attend_chunks
from regard.nn.cache import CachedKeys, CrossKeys, KVCache
from regard.nn.fused import products
from regard.nn.parts import AnyBias, AnyMask, added, both, made
from regard.nn.positions import Learned, Rotary, Sinusoidal, at_offsets
from regard.nn.torch_layer import TorchArguments, TorchLayerCall, unknown_arguments
from regard.spec.biases import Bias
from regard.spec.dropout import check_rate, drawn
from regard.spec.masks import Mask
from regard.spec.normalizers import Normalizer, Softmax
from regard.spec.scores import ScaledDot, Score

if TYPE_CHECKING:
    from regard.engine.ring import Ring


NAMES = ("query", "key", "value")


def scheme_of(position: nn.Module | Bias | Score | None) -> Bias | Score | None:
    """The bias or score that a position scheme is; None for none, and for a rotation."""
    if position is None or isinstance(position, Rotary):
        return None
    if isinstance(position, (Sinusoidal, Learned)):
        raise TypeError(
            f"{type(position).__name__} is added to embeddings, not to attention; "
            "give it to nn.Embedding or to nn.LanguageModel"
        )
    scheme = made(position)
    if not isinstance(scheme, (Bias, Score)):
        raise TypeError(f"position must be a Rotary, or make a bias or a score, got {type(scheme).__name__}")
    return scheme


@dataclass(frozen=True)
class Summary:
    """One layer over n queries and m keys; a multiply and add count two, softmax and dropout are left out."""

    d_model: int
    heads: int
    kv_heads: int
    d_k: int
    d_v: int
    parameters: dict[str, int]
    queries: int
    keys: int
    flops: dict[str, int]

    @property
    def total_parameters(self) -> int:
        """All parameters."""
        return sum(self.parameters.values())

    @property
    def total_flops(self) -> int:
        """All operations of one forward pass, for one batch row."""
        return sum(self.flops.values())

    def __str__(self) -> str:
        rows = [
            ("d_model", "width of inputs and outputs", f"{self.d_model:,}"),
            ("h", "heads" if self.kv_heads == self.heads else f"heads over {self.kv_heads} of keys", f"{self.heads:,}"),
            ("d_k", "width of a query and key in a head", f"{self.d_k:,}"),
            ("d_v", "width of a value in a head", f"{self.d_v:,}"),
            ("n", "queries" if self.keys == self.queries else f"queries over {self.keys:,} keys", f"{self.queries:,}"),
            *(("", f"parameters of {name}", f"{count:,}") for name, count in self.parameters.items()),
            ("", "parameters", f"{self.total_parameters:,}"),
            *(("", f"FLOPs of {name}", f"{count:,}") for name, count in self.flops.items()),
            ("", "FLOPs", f"{self.total_flops:,}"),
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows)


class MultiHeadAttention(nn.Module):
    """Self- or cross-attention in h heads: (batch, length, width) in, (batch, query, d_out) out.

    Query heads come in groups that share one of `kv_heads` keys and values. A head has `d_k` numbers of its query and
    key and `d_v` of its value, by default d_model / heads. Inputs may differ in width (`d_query`, `d_key`, `d_value`).

    `score`, `mask`, `bias`, `temperature` and `normalizer` are those of `attend`, or modules that make one of their own
    parameters (`nn.Additive`, `nn.T5`, `nn.Sink`, ...). `position` is a scheme: `Rotary`, or a module that makes a bias
    or a score. A mask or bias of the call is joined with the constructor's: both masks apply, biases add up. True is
    visible. `q_norm` and `k_norm` act on each head's queries and keys before a rotation. `dropout` acts in training
    mode only. Weights start Xavier uniform, biases at 0.

    It loads the state dict of torch's `nn.MultiheadAttention`, fused or split, and then gives the same output. A call
    with any of that layer's arguments (`key_padding_mask`, `attn_mask`, `is_causal`, `need_weights`,
    `average_attn_weights`) gives them torch's meaning, where True is hidden, and returns what torch does: (output,
    weights or None).

    >>> import torch, regard
    >>> layer = regard.nn.MultiHeadAttention(64, 8, kv_heads=2, mask="causal")
    >>> layer(torch.randn(1, 10, 64)).shape
    torch.Size([1, 10, 64])
    """

    # what torch's TransformerEncoderLayer asks of its attention before it takes a faster path of its own, or calls it
    batch_first = True
    in_proj_bias = None

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        d_query: int | None = None,
        d_key: int | None = None,
        d_value: int | None = None,
        d_out: int | None = None,
        projection_bias: bool = True,
        out_bias: bool | None = None,
        score: Score | nn.Module | None = None,
        mask: Mask | str | None = None,
        bias: Bias | nn.Module | None = None,
        position: nn.Module | Bias | Score | None = None,
        temperature: float | Tensor = 1.0,
        normalizer: Normalizer | nn.Module | None = None,
        q_norm: nn.Module | None = None,
        k_norm: nn.Module | None = None,
        dropout: float = 0.0,
        engine: "str | Ring" = "auto",
        batch_first: bool = True,
        **unknown: object,
    ) -> None:
        super().__init__()
        if unknown:
            raise unknown_arguments(unknown)
        if batch_first is not True:
            raise ValueError(
                "batch_first=False is not available: inputs are (batch, length, width); call the layer with "
                "x.transpose(0, 1) and transpose the output back"
            )
        if isinstance(bias, bool):
            raise TypeError(f"bias is added to the logits; for biases of the projections write projection_bias={bias}")
        self.d_model, self.heads = whole("d_model", d_model, 1), whole("heads", heads, 1)
        self.kv_heads = heads if kv_heads is None else whole("kv_heads", kv_heads, 1)
        if heads % self.kv_heads:
            raise ValueError(f"kv_heads must divide heads, got {heads} heads and {self.kv_heads} key/value heads")
        if d_k is None and d_model % heads:
            raise ValueError(f"heads must divide d_model, got {d_model} and {heads}; or pass d_k")
        self.d_k = d_model // heads if d_k is None else whole("d_k", d_k, 1)
        self.d_v = self.d_k if d_v is None else whole("d_v", d_v, 1)
        check_rate(dropout)
        self.score, self.bias, self.position = ScaledDot() if score is None else score, bias, position
        scheme = scheme_of(position)
        if score is not None and isinstance(scheme, Score):
            raise ValueError(f"position={type(position).__name__} is a score; leave out score=, a layer has one")
        both(mask, None)
        self.normalizer = Softmax() if normalizer is None else normalizer
        self.q_norm, self.k_norm = q_norm, k_norm
        self.mask, self.temperature, self.dropout, self.engine = mask, temperature, float(dropout), engine
        widths = [
            d_model if width is None else whole(name, width, 1)
            for name, width in (("d_query", d_query), ("d_key", d_key), ("d_value", d_value), ("d_out", d_out))
        ]
        self.widths = tuple(widths[:3])
        self.q_proj = nn.Linear(widths[0], heads * self.d_k, bias=projection_bias)
        self.k_proj = nn.Linear(widths[1], self.kv_heads * self.d_k, bias=projection_bias)
        self.v_proj = nn.Linear(widths[2], self.kv_heads * self.d_v, bias=projection_bias)
        self.out_proj = nn.Linear(heads * self.d_v, widths[3], bias=projection_bias if out_bias is None else out_bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights uniform with the variance 2 / (in + out) (Xavier), biases 0."""
        for layer in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: AnyMask = None,
        bias: AnyBias = None,
        query_start: int | Tensor | None = None,
        cache: KVCache | None = None,
        **arguments: Unpack[TorchArguments],
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        """Attention of `query` over `key` and `value`: over itself if neither is given, over `key` if only that is.

        Query 0 stands at `query_start`, by default 0. With a `cache`, self-attention goes on after the tokens that it
        holds, and cross-attention projects keys and values once. With any of torch's `arguments` the result is that of
        torch's layer: the output, and the weights unless `need_weights=False`.
        """
        torch_call = TorchLayerCall.of(arguments) if arguments else None
        if cache is not None and not isinstance(self.engine, str):
            raise ValueError("a cache holds the keys of one process, a Ring divides them; leave out one of the two")
        key = query if key is None else key
        value = key if value is None else value
        for name, given, width in zip(NAMES, (query, key, value), self.widths, strict=True):
            if is_tensor(name, given).ndim < 2 or given.shape[-1] != width:
                raise ValueError(f"{name} must be (batch, length, {width}), got shape {shape(given)}")
        if torch_call is not None:
            keys = key.shape[-2] if cache is None or key is not query else None
            mask, bias = torch_call.joined(mask, bias, query, keys, self.heads)
        if key is query:
            q, seen = self._self_attention(query, value, query_start, cache)
        else:
            q, seen = self._cross_attention(query, key, value, query_start, cache)
        spec = self._spec(bias) | {
            "mask": both(both(self.mask, seen.mask), mask),
            "temperature": self.temperature,
            "normalizer": made(self.normalizer),
            "dropout": self.dropout if self.training else 0.0,
            "query_start": seen.start,
        }
        need_weights = torch_call is not None and torch_call.need_weights
        if need_weights:
            spec["dropout"] = drawn(spec["dropout"]) or 0.0  # the same for output and weights
        out = attend_chunks(q, seen.chunks, engine=self.engine, **spec)
        joined: Tensor = self.out_proj(out.transpose(-3, -2).flatten(-2))
        if torch_call is None:
            return joined
        return joined, torch_call.weights(q, seen.chunks, self.engine, spec) if need_weights else None

    @property
    def rotary(self) -> Rotary | None:
        """The rotation, if the layer has one."""
        position = self.position
        return position if isinstance(position, Rotary) else None

    def _heads(self, x: Tensor, heads: int, norm: nn.Module | None = None) -> Tensor:
        """(…, length, head · width) as (…, head, length, width)."""
        split = x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)
        normed: Tensor = split if norm is None else norm(split)
        return normed.transpose(-3, -2)

    def _self_attention(
        self, x: Tensor, value: Tensor, start: int | Tensor | None, cache: KVCache | None
    ) -> tuple[Tensor, CachedKeys]:
        """Queries, keys and values of one sequence; keys and values are appended to those of the cache."""
        layer_cache = None if cache is None else cache.layer(self)
        if layer_cache is not None and start is not None:
            raise ValueError("a cache knows where its sequence goes on; leave out query_start")
        if isinstance(start, Tensor):
            raise TypeError("rows that start at different places need a cache: KVCache().truncate(lengths)")
        place = layer_cache.length if layer_cache is not None else start or 0
        if value is x:
            q, k, v = products(x, (self.q_proj, self.k_proj, self.v_proj))
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(value)
        q, k = self._heads(q, self.heads, self.q_norm), self._heads(k, self.kv_heads, self.k_norm)
        v = self._heads(v, self.kv_heads)
        if (rotary := self.rotary) is not None:
            q, k = (at_offsets(rotary, part, place, self.engine) for part in (q, k))
        if layer_cache is not None:
            return q, layer_cache.append(k, v)
        return q, CachedKeys((KeyChunk(k, v, int(place)),), place)

    def _cross_attention(
        self, x: Tensor, key: Tensor, value: Tensor, start: int | Tensor | None, cache: KVCache | None
    ) -> tuple[Tensor, CachedKeys]:
        """Queries of one sequence, keys and values of another; these are projected once if there is a cache."""
        if self.rotary is not None:
            raise ValueError(
                "a rotation tells distances within one sequence, here keys come from another; leave out position="
            )
        cross = None if cache is None else cache.cross(self, (key, value))
        if cross is None:
            k = self._heads(self.k_proj(key), self.kv_heads, self.k_norm)
            cross = CrossKeys((key, value), k, self._heads(self.v_proj(value), self.kv_heads))
            if cache is not None:
                cache.keep_cross(self, cross)
        q = self._heads(self.q_proj(x), self.heads, self.q_norm)
        return q, CachedKeys((KeyChunk(cross.key, cross.value),), 0 if start is None else start)

    def _spec(self, bias: AnyBias) -> dict[str, Any]:
        """Score and bias: the constructor's, the position scheme's and the call's."""
        score, own = made(self.score), made(self.bias)
        scheme = scheme_of(self.position)
        if isinstance(scheme, Score):
            return {"score": scheme, "bias": added(own, bias)}
        return {"score": score, "bias": added(own, scheme, bias)}

    def summary(self, queries: int, keys: int | None = None) -> Summary:
        """Sizes, parameters and operations of one forward pass over so many queries and keys."""
        queries = whole("queries", queries, 0)
        keys = queries if keys is None else whole("keys", keys, 0)
        score, pairs = self._spec(None)["score"], queries * keys * self.heads
        layers = {"q_proj": queries, "k_proj": keys, "v_proj": keys, "out_proj": queries}
        flops = {name: 2 * rows * getattr(self, name).weight.numel() for name, rows in layers.items()}
        flops["scores"] = pairs * score.flops(self.d_k, self.d_k)
        if prepared := score.prepare_flops(queries * self.heads, keys * self.kv_heads, self.d_k, self.d_k):
            flops["scores, once per token"] = prepared
        flops["values"] = 2 * pairs * self.d_v
        counts = {name: sum(p.numel() for p in child.parameters()) for name, child in self.named_children()}
        counts |= {name: p.numel() for name, p in self.named_parameters(recurse=False)}
        counts = {name: count for name, count in counts.items() if count}
        return Summary(self.d_model, self.heads, self.kv_heads, self.d_k, self.d_v, counts, queries, keys, flops)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Split what `nn.MultiheadAttention` keeps fused, in place."""
        for name in ("bias_k", "bias_v"):
            if state_dict.get(f"{prefix}{name}") is not None:
                raise ValueError(
                    f"the state dict has {prefix}{name} (add_bias_kv=True): a learned key beside the given ones, "
                    "which this layer has not; append it to the keys yourself"
                )
        names = ("q_proj", "k_proj", "v_proj")
        for kind in ("weight", "bias"):
            if (fused := state_dict.pop(f"{prefix}in_proj_{kind}", None)) is not None:
                state_dict |= {f"{prefix}{name}.{kind}": part for name, part in zip(names, fused.chunk(3), strict=True)}
        for name in names:
            if (part := state_dict.pop(f"{prefix}{name}_weight", None)) is not None:
                state_dict[f"{prefix}{name}.weight"] = part
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @classmethod
    def from_torch(cls, layer: nn.MultiheadAttention, **options: Any) -> "MultiHeadAttention":
        """The same layer with the same parameters. `add_zero_attn` becomes a sink of 0; `add_bias_kv` is refused."""
        converted = cls(
            layer.embed_dim,
            layer.num_heads,
            d_key=layer.kdim,
            d_value=layer.vdim,
            projection_bias=layer.in_proj_bias is not None,
            dropout=layer.dropout,
            **({"normalizer": Softmax(0.0)} if layer.add_zero_attn else {}) | options,
        )
        converted = converted.to(layer.out_proj.weight).train(layer.training)
        converted.load_state_dict(layer.state_dict())
        return converted

    def extra_repr(self) -> str:
        """The sizes and what is not plain."""
        parts = [f"d_model={self.d_model}, heads={self.heads}, d_k={self.d_k}, d_v={self.d_v}"]
        if self.kv_heads != self.heads:
            parts.append(f"kv_heads={self.kv_heads}")
        parts += [f"mask={self.mask!r}"] if self.mask is not None else []
        parts += [f"dropout={self.dropout}"] if self.dropout else []
        for name in ("score", "bias", "normalizer"):
            part = getattr(self, name)
            if part is not None and not isinstance(part, nn.Module) and repr(part) not in ("ScaledDot()", "Softmax()"):
                parts.append(f"{name}={part!r}")
        return ", ".join(parts)
