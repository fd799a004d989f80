"""Registering: both halves, twice, the choice of attentions, without transformers; and taking it out again."""

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaModel

import regard.hf
from regard import AttentionMatrix

CONFIG: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 32,
}
TOKENS = torch.arange(6).view(1, 6)


def model() -> Any:
    return LlamaModel._from_config(LlamaConfig(**CONFIG), attn_implementation="regard").eval()


def test_the_last_choice_holds_for_models_that_exist() -> None:
    built = model()
    assert isinstance(built(TOKENS, output_attentions=True).attentions[0], torch.Tensor)
    regard.hf.register(attentions="matrix")
    assert isinstance(built(TOKENS, output_attentions=True).attentions[0], AttentionMatrix)
    regard.hf.register(attentions="dense")
    assert isinstance(built(TOKENS, output_attentions=True).attentions[0], torch.Tensor)


def test_unregister_leaves_transformers_as_it_was() -> None:
    regard.hf.unregister()
    before = [vars(transformers.PreTrainedModel)[name] for name in ("post_init", "set_attn_implementation")]
    regard.hf.register()
    regard.hf.register()
    assert vars(transformers.PreTrainedModel)["post_init"] is not before[0]
    regard.hf.unregister()
    regard.hf.unregister()
    assert [vars(transformers.PreTrainedModel)[n] for n in ("post_init", "set_attn_implementation")] == before
    assert "regard" not in AttentionInterface._global_mapping
    assert "regard" not in AttentionMaskInterface._global_mapping
    with pytest.raises(ValueError, match="is not supported"):
        model()


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="attentions must be 'dense' or 'matrix', got 'sparse'"):
        regard.hf.register(attentions="sparse")  # type: ignore[arg-type]


def test_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"regard\.hf needs transformers .*pip install transformers"):
        regard.hf.register()


def test_importing_does_not_load_transformers() -> None:
    """Every import of it stands inside a function."""
    files = sorted(Path(regard.hf.__file__).parent.glob("*.py"))
    assert len(files) > 5
    for file in files:
        top = ast.parse(file.read_text(encoding="utf-8")).body
        names = [name for node in top if isinstance(node, ast.Import) for name in (alias.name for alias in node.names)]
        names += [str(node.module) for node in top if isinstance(node, ast.ImportFrom)]
        assert [name for name in names if name.split(".")[0] == "transformers"] == []


def test_calls_are_the_layers_in_order() -> None:
    built = model()
    with regard.hf.counting() as outer:
        built(TOKENS)
        with regard.hf.counting() as inner:
            built(TOKENS)
    built(TOKENS)
    layers = [layer.self_attn for layer in built.layers]
    assert inner == layers
    assert outer == layers * 2


def test_calls_end_with_an_error() -> None:
    built = model()
    with pytest.raises(RuntimeError, match="stop"), regard.hf.counting() as calls:
        raise RuntimeError("stop")
    built(TOKENS)
    assert calls == []


def test_the_config_cannot_ask_for_attentions_and_says_so() -> None:
    built = model()
    with pytest.raises(ValueError, match="not supported when using the `attn_implementation` set to regard"):
        built.config.output_attentions = True


def test_set_attn_implementation_goes_there_and_back() -> None:
    built = model()
    ours = built(TOKENS).last_hidden_state
    built.set_attn_implementation("eager")
    with regard.hf.counting() as calls:
        theirs = built(TOKENS).last_hidden_state
    assert calls == []
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    built.set_attn_implementation("regard")
    with regard.hf.counting() as calls:
        assert torch.equal(built(TOKENS).last_hidden_state, ours)
    assert len(calls) == 2


def test_from_pretrained(tmp_path: Any) -> None:
    built = model()
    built.save_pretrained(tmp_path)
    loaded = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="regard")
    with regard.hf.counting() as calls:
        out = loaded.eval()(TOKENS).last_hidden_state
    assert len(calls) == 2
    assert torch.equal(out, built(TOKENS).last_hidden_state)
