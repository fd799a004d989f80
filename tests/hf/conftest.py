"""Fifteen families of transformers with random weights and small random sizes, each under eager and under regard."""

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import regard.hf

VOCABULARY = 61
TOLERANCE = 1e-5


class Sizes:
    """Sizes of a model drawn from a seed: layers, heads, key heads that divide them, and their width."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.layers = draw.choice((1, 2, 3))
        self.kv_heads = draw.choice((1, 2, 3))
        self.heads = self.kv_heads * draw.choice((1, 2, 3))
        self.head_width = draw.choice((4, 8, 12))
        self.window = draw.choice((3, 4, 6))
        self.batch = draw.choice((2, 3))
        self.length = draw.choice((9, 11, 14))
        self.seed = seed

    @property
    def width(self) -> int:
        """Of the hidden states."""
        return self.heads * self.head_width

    @property
    def plain(self) -> dict[str, int]:
        """The names most configs share."""
        return {
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": 24,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 64,
        }

    @property
    def grouped(self) -> dict[str, int]:
        """The same with key heads."""
        return {**self.plain, "num_key_value_heads": self.kv_heads, "head_dim": self.head_width}


@dataclass(frozen=True)
class Family:
    """A family: its config for given sizes, its auto class, and the class of its attention layers."""

    name: str
    config: Callable[[Sizes], Any]
    auto: str
    layer: str
    layers: Callable[[Any], int]
    kind: str = "decoder"  # decoder, encoder, sequence (encoder and decoder), image, audio
    sides: tuple[str, ...] = ("left", "right")

    def pair(self, seed: int) -> "Pair":
        """The same weights under eager and under regard."""
        sizes = Sizes(seed)
        config = self.config(sizes)
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            setattr(config, name, None if self.kind == "decoder" else 0)
        config.decoder_start_token_id = 0 if self.kind in ("sequence", "audio") else None
        torch.manual_seed(seed)
        auto = getattr(transformers, self.auto)
        ours = auto.from_config(copy.deepcopy(config), attn_implementation="regard").eval()
        _widen(ours)
        eager = auto.from_config(copy.deepcopy(config), attn_implementation="eager").eval()
        eager.load_state_dict(ours.state_dict())
        for model in (ours, eager):
            model.requires_grad_(False)
            if model.can_generate():
                model.generation_config.eos_token_id = None
                model.generation_config.pad_token_id = 0
        return Pair(self, sizes, eager, ours)


def _widen(model: nn.Module) -> None:
    """Weights large enough that attention is far from even."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
        elif parameter.ndim == 1:
            parameter.data += 0.1 * torch.randn_like(parameter)


@dataclass(frozen=True)
class Pair:
    """Both models of a family."""

    family: Family
    sizes: Sizes
    eager: Any
    ours: Any
    made: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(5))

    @property
    def count(self) -> int:
        """Attention layers of the model."""
        return self.family.layers(self.ours.config)

    def tokens(self, length: int) -> Tensor:
        """Random token ids, (batch, length)."""
        return torch.randint(1, VOCABULARY, (self.sizes.batch, length), generator=self.made)

    def normal(self, *size: int) -> Tensor:
        """Random numbers."""
        return torch.randn(*size, generator=self.made)

    def padding(self, side: str, length: int) -> Tensor:
        """A different number of pads in each batch row, none in the first."""
        seen = torch.ones(self.sizes.batch, length, dtype=torch.long)
        for row in range(1, self.sizes.batch):
            pads = min(2 * row, length - 2)
            seen[row, :pads] = 0 if side == "left" else 1
            seen[row, length - pads :] = 0 if side == "right" else 1
        return seen

    @contextmanager
    def once_each(self, forwards: int = 1, count: int | None = None) -> Iterator[None]:
        """Assert that every attention layer calls exactly once in each forward, and nothing else does."""
        with regard.hf.counting() as calls:
            yield
        layers = [module for module in self.ours.modules() if type(module).__name__ == self.family.layer]
        assert len(layers) == self.count
        expected = self.count if count is None else count
        times = Counter(map(id, calls))
        assert set(times) <= set(map(id, layers))
        assert len(times) == expected
        assert set(times.values()) == {forwards}


def _decoders(config: Any) -> int:
    return int(config.num_hidden_layers)


FAMILIES = (
    Family(
        "bert", lambda s: transformers.BertConfig(**s.plain), "AutoModel", "BertSelfAttention", _decoders, "encoder"
    ),
    Family(
        "roberta",
        lambda s: transformers.RobertaConfig(**s.plain),
        "AutoModelForMaskedLM",
        "RobertaSelfAttention",
        _decoders,
        "encoder",
    ),
    Family(
        "distilbert",
        lambda s: transformers.DistilBertConfig(
            dim=s.width, n_layers=s.layers, n_heads=s.heads, hidden_dim=24, vocab_size=VOCABULARY
        ),
        "AutoModel",
        "DistilBertSelfAttention",
        lambda config: config.n_layers,
        "encoder",
    ),
    Family(
        "gpt2",
        lambda s: transformers.GPT2Config(
            n_embd=s.width, n_layer=s.layers, n_head=s.heads, n_inner=24, vocab_size=VOCABULARY, n_positions=64
        ),
        "AutoModelForCausalLM",
        "GPT2Attention",
        lambda config: config.n_layer,
    ),
    Family(
        "opt",
        lambda s: transformers.OPTConfig(
            hidden_size=s.width,
            num_hidden_layers=s.layers,
            num_attention_heads=s.heads,
            ffn_dim=24,
            vocab_size=VOCABULARY,
            max_position_embeddings=64,
            word_embed_proj_dim=s.width,
        ),
        "AutoModelForCausalLM",
        "OPTAttention",
        _decoders,
    ),
    Family(
        "t5",
        lambda s: transformers.T5Config(
            d_model=s.width,
            d_kv=s.head_width,
            d_ff=24,
            num_layers=s.layers,
            num_decoder_layers=s.layers,
            num_heads=s.heads,
            vocab_size=VOCABULARY,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=12,
        ),
        "AutoModelForSeq2SeqLM",
        "T5Attention",
        lambda config: config.num_layers + 2 * config.num_decoder_layers,
        "sequence",
        ("right",),
    ),
    Family(
        "gpt_neox",
        lambda s: transformers.GPTNeoXConfig(**s.plain),
        "AutoModelForCausalLM",
        "GPTNeoXAttention",
        _decoders,
    ),
    Family(
        "llama", lambda s: transformers.LlamaConfig(**s.grouped), "AutoModelForCausalLM", "LlamaAttention", _decoders
    ),
    Family(
        "mistral",
        lambda s: transformers.MistralConfig(**s.grouped, sliding_window=s.window),
        "AutoModelForCausalLM",
        "MistralAttention",
        _decoders,
    ),
    Family(
        "gemma2",
        lambda s: transformers.Gemma2Config(
            **s.grouped,
            sliding_window=s.window,
            attn_logit_softcapping=2.0,
            query_pre_attn_scalar=s.head_width + 3,
        ),
        "AutoModelForCausalLM",
        "Gemma2Attention",
        _decoders,
    ),
    Family(
        "qwen2", lambda s: transformers.Qwen2Config(**s.grouped), "AutoModelForCausalLM", "Qwen2Attention", _decoders
    ),
    Family(
        "qwen3", lambda s: transformers.Qwen3Config(**s.grouped), "AutoModelForCausalLM", "Qwen3Attention", _decoders
    ),
    Family(
        "gpt_oss",
        lambda s: transformers.GptOssConfig(
            **s.grouped, sliding_window=s.window, num_local_experts=2, num_experts_per_tok=1
        ),
        "AutoModelForCausalLM",
        "GptOssAttention",
        _decoders,
    ),
    Family(
        "vit",
        lambda s: transformers.ViTConfig(
            hidden_size=s.width,
            num_hidden_layers=s.layers,
            num_attention_heads=s.heads,
            intermediate_size=24,
            image_size=12,
            patch_size=3,
        ),
        "AutoModel",
        "ViTAttention",
        _decoders,
        "image",
        (),
    ),
    Family(
        "whisper",
        lambda s: transformers.WhisperConfig(
            d_model=s.width,
            encoder_layers=s.layers,
            decoder_layers=s.layers + 1,
            encoder_attention_heads=s.heads,
            decoder_attention_heads=s.kv_heads,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            vocab_size=VOCABULARY,
            num_mel_bins=8,
            max_source_positions=13,
            max_target_positions=40,
            suppress_tokens=[],
            begin_suppress_tokens=[],
        ),
        "AutoModelForSpeechSeq2Seq",
        "WhisperAttention",
        lambda config: config.encoder_layers + 2 * config.decoder_layers,
        "audio",
        ("right",),
    ),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`family` runs over all of them, `padded` also over the sides they are padded on; `decoder` over those that only
    decode, `generator` over those that generate."""
    for name, kinds in (
        ("family", None),
        ("decoder", ("decoder",)),
        ("generator", ("decoder", "sequence", "audio")),
    ):
        if name in metafunc.fixturenames:
            chosen = [family for family in FAMILIES if kinds is None or family.kind in kinds]
            metafunc.parametrize(name, chosen, ids=[family.name for family in chosen])
    if "padded" in metafunc.fixturenames:
        sides = [(family, side) for family in FAMILIES for side in (None, *family.sides)]
        metafunc.parametrize("padded", sides, ids=[f"{family.name}-{side}" for family, side in sides])


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Every test starts with regard registered, and leaves transformers as it was."""
    regard.hf.register()
    yield
    regard.hf.unregister()


@pytest.fixture
def close() -> Callable[[Tensor, Tensor], None]:
    """Assert that two results are equal to 1e-5, as a share where they are above 1."""

    def compare(ours: Tensor, theirs: Tensor) -> None:
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=TOLERANCE)

    return compare


@pytest.fixture
def family_named() -> Callable[[str], Family]:
    """`family_named("llama")`."""
    return lambda name: next(family for family in FAMILIES if family.name == name)
