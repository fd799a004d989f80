"""Gemma 3, which reads texts with images: under regard it equals eager with images, without, and while it generates."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import regard.hf
from regard.testing import assert_within

IMAGE, BEGIN, END = 60, 61, 62  # token ids
LENGTH, BATCH = 19, 2
Close = Callable[[Tensor, Tensor], None]


def config(*, head: bool) -> Any:
    """Windows of 7 tokens in five layers, all tokens in the sixth; with SigLIP's pooling head or without."""
    return transformers.Gemma3Config(
        vision_config={
            "hidden_size": 18,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "intermediate_size": 16,
            "image_size": 16,
            "patch_size": 4,
            "vision_use_head": head,
        },
        text_config={
            "hidden_size": 20,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "intermediate_size": 16,
            "vocab_size": 64,
            "max_position_embeddings": 64,
            "sliding_window": 7,
            "pad_token_id": 0,
            "bos_token_id": 2,
            "eos_token_id": 1,
        },
        mm_tokens_per_image=4,
        image_token_id=IMAGE,
        boi_token_id=BEGIN,
        eoi_token_id=END,
    )


def models(*, head: bool = False) -> tuple[Any, Any, Any]:
    """The same weights under eager and under regard, and in float64 under sdpa: eager's softmax is float32 always."""
    made = transformers.Gemma3ForConditionalGeneration
    eager = made._from_config(config(head=head), attn_implementation="eager").eval()
    for parameter in eager.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours, exact = copy.deepcopy(eager), copy.deepcopy(eager).double()
    ours.set_attn_implementation("regard")
    exact.set_attn_implementation("sdpa")
    for model in (eager, ours):
        model.generation_config.eos_token_id = None
        model.generation_config.suppress_tokens = [IMAGE]
    return eager, ours, exact


def in_float64(given: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.double() if x.is_floating_point() else x for name, x in given.items()}


def with_images() -> dict[str, Tensor]:
    """An image at another place of each text; the second text is padded on the left."""
    tokens = torch.randint(3, IMAGE, (BATCH, LENGTH))
    for row, start in enumerate((3, 9)):
        tokens[row, start : start + 6] = torch.tensor([BEGIN, *[IMAGE] * 4, END])
    seen = torch.ones_like(tokens)
    seen[1, :3] = 0
    return {
        "input_ids": tokens,
        "token_type_ids": (tokens == IMAGE).long(),
        "attention_mask": seen,
        "pixel_values": torch.randn(BATCH, 3, 16, 16),
    }


def text_alone() -> dict[str, Tensor]:
    tokens = torch.randint(3, IMAGE, (BATCH, LENGTH))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


INPUTS: dict[str, tuple[Callable[[], dict[str, Tensor]], list[str]]] = {
    "images": (with_images, ["SiglipAttention"] * 2 + ["Gemma3Attention"] * 6),
    "text": (text_alone, ["Gemma3Attention"] * 6),
}


@pytest.mark.parametrize("name", INPUTS)
def test_logits_and_gradients(name: str) -> None:
    make, layers = INPUTS[name]
    eager, ours, exact = models()
    given = make()
    seen = given["attention_mask"].bool()
    with regard.hf.counting() as calls:
        found = ours(**given).logits[seen]
    assert [type(module).__name__ for module in calls] == layers
    plain, truth = eager(**given).logits[seen], exact(**in_float64(given)).logits[seen]
    assert_within(found, plain, truth, "logits")
    direction = torch.randn_like(truth)
    for out in (found, plain, truth):
        out.backward(direction.to(out.dtype))
    parameters = zip(ours.named_parameters(), eager.parameters(), exact.parameters(), strict=True)
    shares: list[list[Tensor]] = [[], [], []]  # of the largest number of each parameter's gradient
    asked = 0
    for (part, mine), theirs, right in parameters:
        assert (mine.grad is None) == (right.grad is None), part
        if right.grad is None:
            continue
        asked += "q_proj" in part
        for share, gradient in zip(shares, (mine.grad, theirs.grad, right.grad), strict=True):
            share.append((gradient / right.grad.abs().max()).to(gradient.dtype).flatten())
    assert asked >= len(layers)
    found, plain, truth = map(torch.cat, shares)
    assert_within(found, plain, truth, "gradients")


def test_an_image_is_seen_both_ways(close: Close) -> None:
    """The tokens of one image see each other, also later ones; the weights show it, and equal eager's."""
    eager, ours, _ = models()
    given = with_images()
    with torch.no_grad():
        theirs = eager(**given, output_attentions=True).attentions
        found = ours(**given, output_attentions=True).attentions
    assert len(found) == len(theirs) == 6
    for mine, right in zip(found, theirs, strict=True):
        close(mine[0], right[0])  # the other row's padding sees nothing here, and everything under eager
        assert bool((mine[0, :, 4, 7] > 0).all())
        assert bool((mine[0, :, 3, 4:] == 0).all())


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"use_cache": False}], ids=["greedy", "beams", "no cache"])
@pytest.mark.parametrize("name", INPUTS)
def test_generation(name: str, options: dict[str, Any]) -> None:
    eager, ours, _ = models()
    given: dict[str, Any] = INPUTS[name][0]() | options | {"max_new_tokens": 9, "do_sample": False}
    theirs = eager.generate(**given)
    with regard.hf.counting() as calls:
        found = ours.generate(**given)
    assert theirs.shape == (BATCH, LENGTH + 9)
    assert torch.equal(found, theirs)
    assert sum(type(module).__name__ == "Gemma3Attention" for module in calls) == 6 * 9


def test_the_pooling_head_is_left_to_torch_and_named() -> None:
    left = r"left to torch: head\.attention \(MultiheadAttention\) of SiglipVisionModel$"
    with pytest.warns(UserWarning, match=left) as told:
        eager, ours, exact = models(head=True)
    assert len(told) == 1
    given = with_images()
    with torch.no_grad():
        found, plain, truth = ours(**given), eager(**given), exact(**in_float64(given))
    assert_within(found.logits[0], plain.logits[0], truth.logits[0])
