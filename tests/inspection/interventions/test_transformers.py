"""Interventions in models of transformers, under every implementation."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.testing import assert_close

import regard.hf
from regard.inspection.capture import capture
from regard.inspection.interventions import (
    Ablate,
    Average,
    Forbid,
    Pattern,
    Previous,
    Temperature,
    Uniform,
    intervene,
)

PLAIN: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "intermediate_size": 20,
    "vocab_size": 31,
    "max_position_embeddings": 60,
}
GROUPED = {**PLAIN, "num_key_value_heads": 2, "head_dim": 8}
SEQUENCE = {"d_model": 24, "vocab_size": 31, "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": None}
CAUSAL, BASE = "AutoModelForCausalLM", "AutoModel"
FAMILIES: dict[str, tuple[str, Callable[[], Any]]] = {
    "bert": (BASE, lambda: transformers.BertConfig(**PLAIN)),
    "distilbert": (BASE, lambda: transformers.DistilBertConfig(dim=24, n_layers=2, n_heads=4, hidden_dim=20)),
    "gpt2": (CAUSAL, lambda: transformers.GPT2Config(n_embd=24, n_layer=2, n_head=4, vocab_size=31, n_positions=60)),
    "opt": (CAUSAL, lambda: transformers.OPTConfig(**PLAIN, ffn_dim=20, word_embed_proj_dim=24)),
    "gpt_neox": (CAUSAL, lambda: transformers.GPTNeoXConfig(**PLAIN)),
    "llama": (CAUSAL, lambda: transformers.LlamaConfig(**GROUPED)),
    "mistral": (CAUSAL, lambda: transformers.MistralConfig(**GROUPED, sliding_window=4)),
    "gemma2": (
        CAUSAL,
        lambda: transformers.Gemma2Config(
            **GROUPED, sliding_window=4, attn_logit_softcapping=2.0, query_pre_attn_scalar=5
        ),
    ),
    "qwen3": (CAUSAL, lambda: transformers.Qwen3Config(**GROUPED)),
    "gpt_oss": (
        CAUSAL,
        lambda: transformers.GptOssConfig(**GROUPED, sliding_window=4, num_local_experts=2, num_experts_per_tok=1),
    ),
    "vit": (BASE, lambda: transformers.ViTConfig(**PLAIN, image_size=12, patch_size=4)),
    "t5": (
        "AutoModelForSeq2SeqLM",
        lambda: transformers.T5Config(**SEQUENCE, d_kv=6, d_ff=20, num_layers=2, num_heads=4),
    ),
}
NO_SDPA = ("gemma2", "gpt_oss")
IMPLEMENTATIONS = ("sdpa", "eager", "regard")
ALL = [(name, way) for name in FAMILIES for way in IMPLEMENTATIONS if way != "sdpa" or name not in NO_SDPA]
GENERATING = ("gpt2", "llama", "mistral", "gpt_oss", "t5")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    regard.hf.register()
    yield
    regard.hf.unregister()


def made(name: str, implementation: str) -> Any:
    """A model whose attention is far from even, the same for every implementation."""
    auto, config = FAMILIES[name]
    torch.manual_seed(0)
    settings = copy.deepcopy(config())
    if auto == CAUSAL:
        settings.eos_token_id = settings.pad_token_id = settings.bos_token_id = None
    model = getattr(transformers, auto).from_config(settings, attn_implementation=implementation).eval()
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return model


def inputs(name: str) -> tuple[dict[str, Any], Tensor]:
    """What it takes, padded where it can be, and which of its tokens are there."""
    make = torch.Generator().manual_seed(2)
    seen = torch.ones(2, 9, dtype=torch.long)
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 12, 12, generator=make)}, torch.ones(2, 10)
    ids = torch.randint(1, 31, (2, 9), generator=make)
    seen[1, :3] = 0 if FAMILIES[name][0] == CAUSAL else 1
    seen[1, 6:] = 1 if FAMILIES[name][0] == CAUSAL else 0
    if name == "t5":
        return {"input_ids": ids, "attention_mask": seen, "decoder_input_ids": ids[:, :7]}, seen
    return {"input_ids": ids, "attention_mask": seen}, seen


def there(out: Tensor, seen: Tensor) -> Tensor:
    return out[seen.bool()] if out.shape[:2] == seen.shape else out


@pytest.mark.parametrize("name, implementation", ALL)
@torch.no_grad()
def test_family(name: str, implementation: str) -> None:
    given, seen = inputs(name)
    model = made(name, implementation)
    before = model(**given)[0]
    with intervene(model, Temperature(1.0)) as changed:
        same = model(**given)[0]
    assert len(changed.layers) >= 2
    assert_close(there(same, seen), there(before, seen), atol=2e-5, rtol=2e-5)
    with intervene(model, Uniform(), layers=changed.layers[-1], heads=[1, 2]), capture(model) as c:
        other = model(**given)[0]
    plain = capture(model, **given)
    shown, usual = c[changed.layers[-1]].dense(), plain[changed.layers[-1]].dense()
    rows = there(shown[:, 1], seen)
    spread = torch.where(rows > 1e-12, rows, 2.0)
    assert (rows.amax(-1) - spread.amin(-1)).abs().max() < 1e-6
    assert_close(rows.sum(-1), torch.ones(len(rows)) if rows.ndim == 2 else torch.ones(rows.shape[:-1]))
    assert_close(shown[:, 0], usual[:, 0])
    assert not torch.allclose(there(other, seen), there(before, seen), atol=1e-3)
    assert torch.equal(model(**given)[0], before)


@pytest.mark.parametrize("name, implementation", ALL)
@torch.no_grad()
def test_ablating_is_zeroing_a_slice_before_the_output_projection(name: str, implementation: str) -> None:
    given, seen = inputs(name)
    model = made(name, implementation)
    with intervene(model, Ablate(), layers=0) as changed:
        model(**given)
    path = changed.layers[0]
    attention = model.get_submodule(path)
    count = capture(model, **given)[path].shape[1]
    last = _projection(attention) or _projection(model.get_submodule(path.rpartition(".")[0]))
    width = last.weight.shape[0 if type(last).__name__ == "Conv1D" else 1] // count

    def zeroed(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        x = args[0].clone()
        x[..., width : 2 * width] = 0.0
        return (x,)

    handle = last.register_forward_pre_hook(zeroed)
    want = model(**given)[0]
    handle.remove()
    with intervene(model, Ablate(), layers=path, heads=1):
        out = model(**given)[0]
    assert_close(there(out, seen), there(want, seen), atol=1e-6, rtol=1e-6)


def _projection(module: nn.Module) -> Any:
    """The layer that the heads' outputs go through."""
    for name in ("o_proj", "out_proj", "c_proj", "dense", "out_lin", "o", "output.dense"):
        try:
            return module.get_submodule(name)
        except AttributeError:
            continue
    return None


@pytest.mark.parametrize("name, implementation", [pair for pair in ALL if pair[0] in GENERATING])
@torch.no_grad()
def test_generation_step_by_step_is_the_changed_model_on_all(name: str, implementation: str) -> None:
    given, seen = inputs(name)
    given.pop("decoder_input_ids", None)
    model = made(name, implementation)
    settings = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    for change in (Uniform(), Previous(), Forbid([1, 4]), Temperature(3.0)):
        layers = "decoder*.0.SelfAttention" if name == "t5" else None
        with intervene(model, change, layers=layers, heads=[0, 1]):
            ids = model.generate(**given, **settings)
            if name == "t5":
                again = model(**given, decoder_input_ids=ids[:, :-1])[0]
            else:
                whole = torch.cat([seen, torch.ones(2, 7, dtype=torch.long)], 1)
                more = {} if name in ("opt",) else {"position_ids": (whole.cumsum(1) - 1).clamp(min=0)}
                again = model(ids[:, :-1], attention_mask=whole, **more)[0]
        wanted = again.argmax(-1)[:, -8:] if name != "t5" else again.argmax(-1)
        start = 9 if name != "t5" else 1
        assert torch.equal(ids[:, start:], wanted), change


@torch.no_grad()
def test_a_generation_with_some_heads_changed_is_one_matrix() -> None:
    model, (given, _) = made("llama", "sdpa"), inputs("llama")
    with intervene(model, Uniform(), heads=[1]), capture(model) as c:
        model.generate(**given, max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=0)
    weights = c[0].dense()[:, 1]
    seen = weights > 0
    assert weights.shape[-2:] == (12, 12)
    assert_close(weights, seen / seen.sum(-1, keepdim=True).clamp(min=1))


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@torch.no_grad()
def test_a_pattern_of_another_run(implementation: str) -> None:
    model, (given, seen) = made("llama", implementation), inputs("llama")
    c = capture(model, **given)
    with intervene(model, Pattern(c)):
        same = model(**given)[0]
    assert_close(there(same, seen), there(c.output[0], seen), atol=1e-5, rtol=1e-5)
    other = {**given, "input_ids": given["input_ids"].flip(1)}
    with intervene(model, Pattern(c), layers=1), capture(model) as now:
        model(**other)
    assert_close(there(now[1].dense()[:, 0], seen), there(c[1].dense()[:, 0], seen), atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_eager_models_give_back_the_changed_weights() -> None:
    model, (given, seen) = made("llama", "eager"), inputs("llama")
    plain = model(**given, output_attentions=True)
    with intervene(model, Uniform(), layers=0, heads=2), capture(model) as c:
        out = model(**given, output_attentions=True)
    assert_close(there(out.attentions[0][:, 2], seen), there(c[0].dense()[:, 2], seen))
    assert torch.equal(out.attentions[0][:, [0, 1, 3, 4, 5]], plain.attentions[0][:, [0, 1, 3, 4, 5]])


def test_training_with_dropout_drops_changed_heads_too() -> None:
    model, (given, _) = made("bert", "eager"), inputs("bert")
    model.train()
    model.config.attention_probs_dropout_prob = 0.5
    torch.manual_seed(3)
    with intervene(model, Temperature(1.0)):
        first = model(**given)[0]
        first.sum().backward()
        torch.manual_seed(3)
        second = model(**given)[0]
        third = model(**given)[0]
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


@torch.no_grad()
def test_averages_over_another_run() -> None:
    model, (given, _) = made("gpt2", "sdpa"), inputs("gpt2")
    mean = Average.over(model, **given)
    assert mean.means is not None
    assert list(mean.means) == ["transformer.h.0.attn", "transformer.h.1.attn"]
    settings = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    with intervene(model, mean, layers=0):
        ids = model.generate(**given, **settings)
    assert ids.shape == (2, 12)
    with (
        pytest.raises(ValueError, match=r"transformer\.h\.0\.attn cannot be changed: the mean over one position"),
        intervene(model, Average()),
    ):
        model.generate(**given, **settings)


def test_weights_beside_a_changed_output_are_refused() -> None:
    model, (given, _) = made("llama", "regard"), inputs("llama")
    with (
        pytest.raises(ValueError, match="gives weights that an intervention does not reach"),
        intervene(model, Uniform()),
    ):
        model(**given, output_attentions=True)


def test_an_eager_function_that_does_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = transformers.models.llama.modeling_llama
    original = module.eager_attention_forward

    def doubled(*args: Any, **kwargs: Any) -> Any:
        out, weights = original(*args, **kwargs)
        return 2.0 * out, weights

    monkeypatch.setattr(module, "eager_attention_forward", doubled)
    model = made("llama", "eager")
    with (
        pytest.raises(ValueError, match="self_attn cannot be changed: its output is not its weights times its values"),
        intervene(model, Uniform()),
    ):
        model(**inputs("llama")[0])
