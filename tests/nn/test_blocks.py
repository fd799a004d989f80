"""Blocks and stacks: torch's own layers with the same weights, and what each option changes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import masks
from regard.nn import (
    Additive,
    Block,
    Decoder,
    Embedding,
    Encoder,
    FeedForward,
    LanguageModel,
    Learned,
    MultiHeadAttention,
    RMSNorm,
    Rotary,
    Sinusoidal,
    Transformer,
)
from regard.spec.positions import rotary, sinusoidal
from regard.testing import assert_within


def copied(ours: Block, theirs: nn.Module) -> None:
    """The weights of torch's layer into a block."""
    state = theirs.state_dict()
    names = {
        "self_attn": "attention",
        "multihead_attn": "cross",
        "linear1": "feed_forward.up",
        "linear2": "feed_forward.down",
    }
    norms = ["attention_norm", "feed_norm"] if ours.cross is None else ["attention_norm", "cross_norm", "feed_norm"]
    names |= {f"norm{index + 1}": name for index, name in enumerate(norms)}
    ours.load_state_dict({_renamed(key, names): value for key, value in state.items()})


def _renamed(key: str, names: dict[str, str]) -> str:
    first, _, rest = key.partition(".")
    return f"{names[first]}.{rest}"


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_block_is_torchs(order: str, activation: str) -> None:
    options = {"activation": activation, "norm_first": order == "pre", "batch_first": True, "dropout": 0.0}
    theirs = nn.TransformerEncoderLayer(16, 4, 24, dtype=torch.float64, **options)  # type: ignore[arg-type]
    ours = Block(16, 4, d_ff=24, activation=activation, order=order).double()
    copied(ours, theirs)
    x, lengths = torch.randn(2, 7, 16, dtype=torch.float64), torch.tensor([7, 4])
    padding = torch.arange(7) >= lengths[:, None]
    right = theirs(x, src_key_padding_mask=padding)
    found = ours(x, mask=masks.Lengths(lengths))
    torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_decoder_block_is_torchs(order: str) -> None:
    options = {"activation": "relu", "norm_first": order == "pre", "batch_first": True, "dropout": 0.0}
    theirs = nn.TransformerDecoderLayer(16, 4, 24, dtype=torch.float64, **options)  # type: ignore[arg-type]
    ours = Block(16, 4, d_ff=24, activation="relu", order=order, looks_at="both", mask="causal").double()
    copied(ours, theirs)
    x, memory = torch.randn(2, 5, 16, dtype=torch.float64), torch.randn(2, 9, 16, dtype=torch.float64)
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    right = theirs(x, memory, tgt_mask=causal, memory_key_padding_mask=torch.arange(9).expand(2, 9) > 6)
    found = ours(x, memory, memory_mask=masks.Prefix(7))
    torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-11)


def test_an_encoder_is_torchs() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
    theirs = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(16), enable_nested_tensor=False).double()
    ours = Encoder(3, 16, 4, d_ff=24).double()
    for block, one in zip(ours.blocks, theirs.layers, strict=True):
        assert isinstance(block, Block)
        copied(block, one)
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-10, atol=1e-11)


def test_a_block_may_look_at_a_memory_alone() -> None:
    block = Block(16, 4, looks_at="memory", memory_width=10)
    assert block.attention is None
    assert block(torch.randn(1, 3, 16), torch.randn(1, 5, 10)).shape == (1, 3, 16)
    with pytest.raises(ValueError, match="pass memory="):
        block(torch.randn(1, 3, 16))


def test_norms() -> None:
    assert isinstance(Block(16, 4, norm="rms").feed_norm, nn.RMSNorm)
    with pytest.raises(ValueError, match="'layer' or 'rms', got 'batch'"):
        Block(16, 4, norm="batch")
    with pytest.raises(ValueError, match="'pre'"):
        Block(16, 4, order="middle")
    with pytest.raises(ValueError, match="'self', 'memory' or 'both'"):
        Block(16, 4, looks_at="nothing")


PHI: dict[str, Callable[[FeedForward, Tensor], Tensor]] = {
    "relu": lambda f, x: f.up(x).relu(),
    "gelu": lambda f, x: nn.functional.gelu(f.up(x)),
    "gelu_tanh": lambda f, x: nn.functional.gelu(f.up(x), approximate="tanh"),
    "silu": lambda f, x: nn.functional.silu(f.up(x)),
    "swiglu": lambda f, x: nn.functional.silu(f.gate(x)) * f.up(x),  # type: ignore[misc]
    "geglu": lambda f, x: nn.functional.gelu(f.gate(x)) * f.up(x),  # type: ignore[misc]
}


@pytest.mark.parametrize("name", PHI)
def test_feed_forward(name: str) -> None:
    layer, x = FeedForward(8, 12, activation=name), torch.randn(2, 3, 8)
    torch.testing.assert_close(layer(x), layer.down(PHI[name](layer, x)))
    assert FeedForward(8).up.out_features == 32
    with pytest.raises(ValueError, match="swiglu"):
        FeedForward(8, activation="swish")


def test_positions_are_added() -> None:
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(Sinusoidal(8, length=2)(x, 3), x + sinusoidal(5, 8, start=3))
    learned = Learned(9, 8)
    torch.testing.assert_close(learned(x, 4), x + learned.weight[4:9])
    starts = torch.tensor([0, 4])
    torch.testing.assert_close(learned(x, starts)[1], x[1] + learned.weight[4:9])
    torch.testing.assert_close(Sinusoidal(8)(x, starts)[1], x[1] + sinusoidal(5, 8, start=4))
    with pytest.raises(ValueError, match="positions 0 to 8, position 9 came"):
        learned(x, 5)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("width", [8, 6])
def test_the_rotation_is_the_functions(pairing: Any, dtype: torch.dtype, width: int) -> None:
    x = torch.randn(3, 2, 5, 8).to(dtype)
    module = Rotary(width, pairing=pairing, base=500.0).to(dtype)
    for start in (0, 7, 100, -3, torch.tensor([1, 0, 9])):
        right = rotary(x, start, pairing=pairing, base=500.0, width=width)
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(module(x, start), right, rtol=2 * eps, atol=2 * eps)
    with pytest.raises(ValueError, match="turns the first"):
        module(x[..., :4])
    with pytest.raises(ValueError, match="pairing wants"):
        Rotary(8, pairing="quarter")  # type: ignore[arg-type]


def test_embeddings_refuse_what_is_no_token() -> None:
    with pytest.raises(TypeError, match=r"tokens must be integers, got float32 \(1, 3\)"):
        Embedding(10, 4)(torch.zeros(1, 3))


def test_a_transformer_translates_shapes() -> None:
    model = Transformer(50, target_vocabulary=30, layers=2, decoder_layers=1, d_model=16, heads=4).eval()
    source, target = torch.randint(50, (2, 7)), torch.randint(30, (2, 5))
    logits = model(source, target, mask=masks.Lengths([7, 4]))
    assert logits.shape == (2, 5, 30)
    changed = target.clone()
    changed[:, 4] = (changed[:, 4] + 1) % 30
    assert torch.equal(model(source, changed, mask=masks.Lengths([7, 4]))[:, :4], logits[:, :4])
    other = source.clone()
    other[1, 5] = (other[1, 5] + 1) % 50
    assert torch.equal(model(other, target, mask=masks.Lengths([7, 4])), logits)
    assert model.head.weight is model.target.tokens.weight


def test_a_language_model_sees_no_future() -> None:
    model = LanguageModel(50, layers=2, d_model=16, heads=4, position=Rotary(4), norm="rms", activation="swiglu").eval()
    tokens = torch.randint(50, (2, 9))
    logits = model(tokens)
    changed = tokens.clone()
    changed[:, 6:] = torch.randint(50, (2, 3))
    assert torch.equal(model(changed)[:, :6], logits[:, :6])
    at = torch.tensor([3, 8])
    torch.testing.assert_close(model(tokens, at=at)[:, 0], logits[torch.arange(2), at])


def test_a_head_of_its_own() -> None:
    tied = LanguageModel(50, layers=1, d_model=16, heads=4)
    apart = LanguageModel(50, layers=1, d_model=16, heads=4, tied=False)
    assert sum(p.numel() for p in apart.parameters()) - sum(p.numel() for p in tied.parameters()) == 50 * 16


def test_initialization_is_as_documented() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(64, 4, kv_heads=2)
    assert float(layer.q_proj.weight.detach().abs().max()) <= (6 / 128) ** 0.5
    assert abs(float(layer.q_proj.weight.detach().var()) - 2 / 128) < 1e-3
    assert not layer.q_proj.bias.any()
    assert abs(float(Embedding(1000, 64).tokens.weight.detach().std()) - 1 / 8) < 2e-3


def test_every_parameter_learns() -> None:
    for model, inputs in (
        (Decoder(2, 16, 4), (torch.randn(1, 5, 16), torch.randn(1, 6, 16))),
        (Transformer(20, layers=1, d_model=16, heads=4), (torch.randint(20, (1, 5)), torch.randint(20, (1, 4)))),
    ):
        model(*inputs).square().sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rows", [3, 700])
@pytest.mark.parametrize("learns", [False, True])
def test_rms_norm_is_torchs(dtype: torch.dtype, rows: int, learns: bool) -> None:
    torch.manual_seed(0)
    ours, theirs = RMSNorm(64, 1e-5), nn.RMSNorm(64, 1e-5)
    nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(rows, 64).to(dtype).requires_grad_(learns)
    truth = theirs.double()(x.double())
    plain, found = theirs.to(dtype)(x), ours.to(dtype)(x)
    with torch.set_grad_enabled(learns):
        assert_within(ours(x), plain, truth)
    assert_within(found, plain, truth)
    if learns:
        weight = torch.randn(rows, 64).to(dtype)
        for source in (found, plain):
            grad = torch.autograd.grad((source * weight).sum(), x, retain_graph=True)[0]
            assert grad.isfinite().all()
        right = torch.autograd.grad((plain * weight).sum(), x)[0]
        torch.testing.assert_close(torch.autograd.grad((found * weight).sum(), x)[0], right, rtol=1e-2, atol=1e-4)


def test_cross_attention_has_what_is_not_of_one_sequence() -> None:
    options: dict[str, Any] = {"kv_heads": 2, "d_k": 8, "position": Rotary(8)}
    decoder = Decoder(2, 10, 4, score=lambda: Additive(8, 5), **options)
    scores = set()
    for block in decoder.blocks:
        assert isinstance(block, Block)
        assert block.attention is not None
        assert block.cross is not None
        assert (block.cross.kv_heads, block.cross.d_k, block.cross.mask, block.cross.position) == (2, 8, None, None)
        scores |= {block.attention.score, block.cross.score}
    assert len(scores) == 4
    assert decoder(torch.randn(1, 3, 10), torch.randn(1, 5, 10)).shape == (1, 3, 10)


def test_tokens_out_of_range_are_named() -> None:
    with pytest.raises(ValueError, match="tokens must lie in 0 to 9, got 10"):
        Embedding(10, 4)(torch.tensor([[1, 10]]))
    model = LanguageModel(50, layers=1, d_model=16, heads=4)
    with pytest.raises(ValueError, match="one place for each of the 2 rows"):
        model(torch.randint(50, (2, 4)), at=torch.tensor([1]))
