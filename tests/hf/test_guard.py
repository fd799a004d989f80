"""Models that go past the interface are refused by name, however regard is asked for; layers that do are named."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModel, LlamaConfig, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import regard.hf
from regard.hf.source import Kind, kind, kind_of, tables

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


VISION = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 8,
    "patch_size": 4,
}
TEXT = VISION | {"vocab_size": 64, "max_position_embeddings": 16, "projection_size": 16, "eos_token_id": 1}
IMAGE = {"pixel_values": torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))}
IDS = {"input_ids": torch.arange(5).view(1, 5).expand(2, 5)}
PATCHES = {  # of images of 4 and of 3 patches, the second padded
    "pixel_values": torch.randn(2, 4, 48, generator=torch.Generator().manual_seed(0)),
    "pixel_attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
    "spatial_shapes": torch.tensor([[2, 2], [1, 3]]),
}
HEAD = r"head\.attention \(MultiheadAttention\) of {}"
MIXED: dict[str, tuple[Any, dict[str, torch.Tensor], str]] = {
    "siglip's vision": (transformers.SiglipVisionConfig(**VISION), IMAGE, HEAD.format("SiglipVisionModel")),
    "siglip": (transformers.SiglipConfig(vision_config=VISION, text_config=TEXT), IDS | IMAGE, "SiglipVisionModel"),
    "siglip 2's vision": (
        transformers.Siglip2VisionConfig(**VISION, num_patches=4),
        PATCHES,
        HEAD.format("Siglip2VisionModel"),
    ),
    "gemma 3": (
        transformers.Gemma3Config(
            vision_config=VISION,
            text_config=TEXT | {"num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 0, "bos_token_id": 2},
            mm_tokens_per_image=4,
            image_token_id=60,
            boi_token_id=61,
            eoi_token_id=62,
        ),
        IMAGE
        | {
            "input_ids": torch.tensor([[2, 61, *[60] * 4, 62, 7]] * 2),
            "token_type_ids": torch.tensor([[0, 0, 1, 1, 1, 1, 0, 0]] * 2),
        },
        HEAD.format("SiglipVisionModel"),
    ),
}


@pytest.mark.parametrize("name", MIXED)
@torch.no_grad()
def test_layers_that_ask_are_served_beside_one_that_does_not(
    name: str, close: Callable[[torch.Tensor, torch.Tensor], None]
) -> None:
    config, given, named = MIXED[name]
    with pytest.warns(UserWarning, match=f"those that do not ask are left to torch: .*{named}$") as told:
        ours = AutoModel.from_config(copy.deepcopy(config), attn_implementation="regard").eval()
    assert len(told) == 1
    eager = AutoModel.from_config(copy.deepcopy(config), attn_implementation="eager").eval()
    for parameter in eager.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours.load_state_dict(eager.state_dict())
    with regard.hf.counting() as calls:
        mine = ours(**given)
    asking = [module for module in ours.modules() if kind(module) is Kind.SERVES]
    assert len(asking) >= 2
    assert set(map(id, calls)) == set(map(id, asking))
    theirs = eager(**given)
    for part in ("last_hidden_state", "pooler_output", "logits_per_image"):
        if part in theirs:
            close(mine[part], theirs[part])
    with pytest.warns(UserWarning, match=named) as told:
        eager.set_attn_implementation("regard")
    assert len(told) == 1


@pytest.mark.filterwarnings("error")
def test_a_part_can_be_chosen() -> None:
    """None asks for regard in the vision part, so there is nothing to warn of."""
    parts = {"text_config": "regard", "vision_config": "eager"}
    model = AutoModel.from_config(copy.deepcopy(MIXED["siglip"][0]), attn_implementation=parts).eval()
    with regard.hf.counting() as calls:
        model(**IDS, **IMAGE)
    assert [type(module).__name__ for module in calls] == ["SiglipAttention"] * 2
    model.set_attn_implementation("eager")
    model.set_attn_implementation({"text_config": "regard"})
    assert model.config.text_config._attn_implementation == "regard"
    assert model.config.vision_config._attn_implementation == "eager"


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


class MixedModel(OwnModel):
    """Most of its attention does not ask; whether that takes bool masks, its flag says."""

    _supports_sdpa = True

    def __init__(self, config: Any) -> None:
        super().__init__(config, lambda: nn.ModuleList([AskingAttention(), *(OwnAttention() for _ in range(5))]))


class UnreadMixedModel(MixedModel):
    _supports_sdpa = False


def test_a_model_whose_own_layers_read_no_bools_is_refused() -> None:
    three = r"part\.1 \(OwnAttention\), part\.2 \(OwnAttention\), part\.3 \(OwnAttention\) and 2 more of MixedModel$"
    with pytest.warns(UserWarning, match=three):
        MixedModel(LlamaConfig(attn_implementation="regard"))
    why = r"OwnAttention computes attention itself .*, and its model supports no bool masks \(_supports_sdpa\); load it"
    with pytest.raises(ValueError, match=why):
        UnreadMixedModel(LlamaConfig(attn_implementation="regard"))


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
