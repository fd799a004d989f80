"""Models that go past the interface are refused by name, however regard is asked for."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModel, LlamaConfig, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import regard.hf
from regard.hf.source import Kind, kind_of, tables

# DeBERTa scripts some of its functions when it is imported
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

PAST = {
    "bloom": (transformers.BloomConfig(hidden_size=16, n_head=2, n_layer=1, vocab_size=64), "BloomAttention computes"),
    "mpt": (transformers.MptConfig(d_model=16, n_heads=2, n_layers=1, vocab_size=64), "MptAttention computes"),
    "gptj": (
        transformers.GPTJConfig(n_embd=16, n_head=2, n_layer=1, vocab_size=64, rotary_dim=4),
        "picks its attention from GPTJ_ATTENTION_CLASSES",
    ),
    "gpt_neo": (
        transformers.GPTNeoConfig(
            hidden_size=16, num_layers=1, num_heads=2, vocab_size=64, attention_types=[[["global"], 1]]
        ),
        "picks its attention from GPT_NEO_ATTENTION_CLASSES",
    ),
    "falcon": (
        transformers.FalconConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=64),
        "picks its attention from FALCON_ATTENTION_CLASSES",
    ),
    "deberta": (
        transformers.DebertaConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=64
        ),
        "DisentangledSelfAttention computes",
    ),
    "xlnet": (
        transformers.XLNetConfig(d_model=16, n_layer=1, n_head=2, d_inner=16, vocab_size=64),
        "XLNetRelativeAttention computes",
    ),
    "codegen": (
        transformers.CodeGenConfig(n_embd=16, n_layer=1, n_head=4, rotary_dim=4, vocab_size=64),
        "CodeGenAttention computes",
    ),
    "yoso": (
        transformers.YosoConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=64
        ),
        "YosoSelfAttention never asks|YosoAttention never asks",
    ),
    "siglip": (
        transformers.SiglipVisionConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=8, patch_size=4
        ),
        "MultiheadAttention computes",
    ),
}


def fresh(name: str) -> Any:
    config = PAST[name][0]
    return type(config)(**{key: value for key, value in config.to_dict().items() if key != "transformers_version"})


@pytest.mark.parametrize("name", PAST)
def test_building_is_refused(name: str) -> None:
    config, why = fresh(name), PAST[name][1]
    with pytest.raises(ValueError, match=f"cannot run with attn_implementation='regard': .*({why}).*'eager'"):
        AutoModel.from_config(config, attn_implementation="regard")


@pytest.mark.parametrize("name", PAST)
def test_changing_is_refused_and_changes_nothing(name: str) -> None:
    model = AutoModel.from_config(fresh(name), attn_implementation="eager")
    with pytest.raises(ValueError, match=f"^{type(model).__name__}|Transformer cannot run"):
        model.set_attn_implementation("regard")
    assert model.config._attn_implementation == "eager"


def test_loading_is_refused(tmp_path: Any) -> None:
    AutoModel.from_config(fresh("bloom")).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="BloomModel cannot run with attn_implementation='regard'"):
        AutoModel.from_pretrained(tmp_path, attn_implementation="regard")


def test_other_implementations_are_left_alone() -> None:
    for name in PAST:
        AutoModel.from_config(fresh(name), attn_implementation="eager")


def composite() -> Any:
    """A model with a part that goes past the interface (a pooling head) and one that does not."""
    return transformers.SiglipConfig(
        vision_config=fresh("siglip").to_dict(),
        text_config={
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 16,
            "vocab_size": 64,
            "max_position_embeddings": 16,
            "projection_size": 16,
        },
    )


def test_a_part_is_refused_by_its_own_name() -> None:
    with pytest.raises(ValueError, match=r"SiglipVision.* cannot run .*'vision_config': 'eager'"):
        AutoModel.from_config(composite(), attn_implementation="regard")


def test_the_other_part_can_be_served() -> None:
    parts = {"text_config": "regard", "vision_config": "eager"}
    model = AutoModel.from_config(composite(), attn_implementation=parts).eval()
    given = {"input_ids": torch.arange(5).view(1, 5), "pixel_values": torch.randn(1, 3, 8, 8)}
    with regard.hf.counting() as calls:
        model(**given)
    assert [type(module).__name__ for module in calls] == ["SiglipAttention"]
    eager = AutoModel.from_config(composite(), attn_implementation="eager")
    with pytest.raises(ValueError, match="SiglipVision"):
        eager.set_attn_implementation("regard")
    with pytest.raises(ValueError, match="SiglipVision"):
        eager.set_attn_implementation({"vision_config": "regard"})
    assert eager.config.vision_config._attn_implementation == "eager"
    eager.set_attn_implementation({"text_config": "regard"})
    assert eager.config.text_config._attn_implementation == "regard"


NAME = "regard"


class OwnAttention(nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.softmax(states @ states.mT, -1) @ states


class FusedLayer(nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(states, states, states)


class AskingAttention(nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = ALL_ATTENTION_FUNCTIONS[NAME](self, states, states, states, None)[0]
        return found


class MissingAttention(nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        function = getattr(ALL_ATTENTION_FUNCTIONS, "regard", None)
        return states if function is None else function(self, states, states, states, None)[0]


class SettledAttention(nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = ALL_ATTENTION_FUNCTIONS["sdpa"](self, states, states, states, None)[0]
        return found


class ShellAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = AskingAttention()


class InheritedAttention(AskingAttention):
    pass


class ReplacedAttention(AskingAttention):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.softmax(states @ states.mT, -1) @ states


class ExtendedAttention(AskingAttention):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return super().forward(states * 2)


class SquareRouter(nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.softmax(states, -1)


class MadeUpLinearAttention(nn.Module):
    pass


@pytest.mark.parametrize(
    "cls, wanted",
    [
        (OwnAttention, Kind.BYPASSES),
        (FusedLayer, Kind.BYPASSES),
        (nn.MultiheadAttention, Kind.BYPASSES),
        (MissingAttention, Kind.BYPASSES),
        (SettledAttention, Kind.BYPASSES),
        (AskingAttention, Kind.SERVES),
        (InheritedAttention, Kind.SERVES),
        (ReplacedAttention, Kind.BYPASSES),
        (ExtendedAttention, Kind.SERVES),
        (ShellAttention, Kind.NAMED),
        (SquareRouter, Kind.NONE),
        (MadeUpLinearAttention, Kind.NONE),
        (nn.Linear, Kind.NONE),
        (type("UnreadableAttention", (nn.Module,), {}), Kind.HIDDEN),
    ],
)
def test_what_a_class_shows(cls: type, wanted: Kind) -> None:
    assert kind_of(cls) is wanted


class OwnModel(PreTrainedModel):  # type: ignore[misc]
    config_class = LlamaConfig

    def __init__(self, config: Any, part: Callable[[], nn.Module]) -> None:
        super().__init__(config)
        self.part = part()
        self.post_init()


@pytest.mark.parametrize("part", [AskingAttention, ShellAttention, InheritedAttention, SquareRouter])
def test_a_model_of_ones_own_is_accepted(part: type[nn.Module]) -> None:
    config = LlamaConfig(attn_implementation="regard")
    assert OwnModel(config, part).config._attn_implementation == "regard"


@pytest.mark.parametrize(
    "part, why",
    [
        (OwnAttention, "OwnAttention computes attention itself"),
        (FusedLayer, "FusedLayer computes attention itself"),
        (nn.TransformerEncoderLayer, "TransformerEncoderLayer computes"),
        (type("UnreadableAttention", (nn.Module,), {}), "the source of UnreadableAttention cannot be read"),
    ],
)
def test_a_model_of_ones_own_is_refused(part: Any, why: str) -> None:
    made = (lambda: part(8, 2)) if part is nn.TransformerEncoderLayer else part
    with pytest.raises(ValueError, match=f"OwnModel cannot run with attn_implementation='regard': {why}"):
        OwnModel(LlamaConfig(attn_implementation="regard"), made)


OWN_TABLE = {"eager": nn.Identity, "sdpa": nn.Identity}


class Picking(nn.Module):
    """Puts the name of the implementation into a variable first."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        name = "sdpa" if config.fast else config._attn_implementation
        self.part = OWN_TABLE[name]()
        self.other = {"eager": 1}[config.other]


def test_tables_are_found_by_a_variable() -> None:
    assert tables(Picking) == ("OWN_TABLE",)


def test_tables_are_found_through_what_a_class_is_made_of() -> None:
    assert tables(transformers.GPTJForCausalLM) == ("GPTJ_ATTENTION_CLASSES",)
    assert tables(transformers.LlamaForCausalLM) == ()
    assert tables(transformers.GitModel) == ("GIT_SELF_ATTENTION_CLASSES",)
    assert tables(transformers.GitVisionModel) == ()
