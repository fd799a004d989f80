"""MiniLM and SmolLM2, as downloaded, on our blocks: transformers' numbers and words."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers

from regard import masks, models
from regard.nn import KVCache, generate

TEXT = "attention lets every token look at all the others and weigh what it finds there before it moves on. "
SENTENCES = [(TEXT * 8)[i % 7 : i % 7 + 4 + (i * i * 37) % 700] for i in range(50)]


@pytest.fixture(scope="module")
def encoder(get_model: Callable[[str], Path]) -> models.TextEncoder:
    get_model("minilm")
    return models.minilm()


@pytest.fixture(scope="module")
def writer(get_model: Callable[[str], Path]) -> models.TextGenerator:
    get_model("smollm2")
    return models.smollm2()


@torch.no_grad()
def test_minilm_is_transformers(encoder: models.TextEncoder) -> None:
    theirs = transformers.AutoModel.from_pretrained(models.path("minilm"), attn_implementation="eager").eval()
    tokens, lengths = encoder.tokens(SENTENCES)
    assert len(set(lengths.tolist())) > 10
    seen = torch.arange(tokens.shape[1]) < lengths[:, None]
    hidden = theirs(tokens, attention_mask=seen.long()).last_hidden_state
    mean = (hidden * seen.unsqueeze(-1)).sum(1) / lengths.unsqueeze(1)
    right = torch.nn.functional.normalize(mean, dim=-1)
    assert float((encoder(tokens, lengths) - right).abs().max()) <= 2e-5
    assert float((encoder.encode(SENTENCES, batch=8) - right).abs().max()) <= 2e-5


def test_long_texts_are_cut_and_end_as_they_should(encoder: models.TextEncoder) -> None:
    tokens, lengths = encoder.tokens(["word " * 1000, "word"])
    assert lengths.tolist() == [256, 3]
    words = encoder.tokenizer
    assert tokens[0, -1] == words.token_to_id("[SEP]")
    assert tokens[0, 0] == words.token_to_id("[CLS]")
    assert encoder.encode([]).shape == (0, 384)
    with pytest.raises(TypeError, match=r"write \[text\]"):
        encoder.encode("one text")
    with pytest.raises(TypeError, match="every text must be a str, got NoneType"):
        encoder.encode([None])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="batch must be at least 1"):
        encoder.encode(["a"], batch=-1)
    with pytest.raises(ValueError, match="one for each of the 2 texts"):
        encoder(tokens, lengths[:1])
    assert not encoder.training


def test_pooling_is_the_folders(tmp_path: Path, get_model: Callable[[str], Path]) -> None:
    folder = shutil.copytree(get_model("minilm"), tmp_path / "minilm")
    settings = folder / "1_Pooling" / "config.json"
    settings.write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    encoder = models.load(folder)
    assert isinstance(encoder, models.TextEncoder)
    tokens, lengths = encoder.tokens(["one text", "another, longer text"])
    first = encoder.model(tokens, mask=masks.Lengths(lengths))[:, 0]
    torch.testing.assert_close(encoder(tokens, lengths), torch.nn.functional.normalize(first, dim=-1))
    settings.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(ValueError, match="pools by max_tokens; known are mean_tokens, cls_token"):
        models.load(folder)


@torch.no_grad()
def compared(writer: models.TextGenerator, prompt: int, count: int) -> None:
    theirs = transformers.AutoModelForCausalLM.from_pretrained(models.path("smollm2"), attn_implementation="eager")
    tokens = writer.tokens(" ".join(SENTENCES))[:, :prompt]
    assert tokens.shape == (1, prompt)
    assert float((writer(tokens) - theirs.eval()(tokens).logits).abs().max()) <= 1e-3
    text = "The attention mechanism of a Transformer is"
    start = writer.tokens(text)
    right = theirs.generate(start, max_new_tokens=count, do_sample=False)[:, start.shape[1] :]
    assert torch.equal(generate(writer.model, start, count, stop=writer.stop), right)
    assert writer.generate(text, count) == writer.text(right)


def test_smollm2_is_transformers(writer: models.TextGenerator) -> None:
    compared(writer, 150, 20)


@pytest.mark.slow
def test_smollm2_is_transformers_at_length(writer: models.TextGenerator) -> None:
    compared(writer, 2048, 100)


@torch.no_grad()
def test_smollm2_with_a_cache(writer: models.TextGenerator) -> None:
    tokens, cache = writer.tokens(" ".join(SENTENCES))[:, :60], KVCache()
    found = torch.cat([writer(piece, cache=cache) for piece in tokens.split(17, 1)], 1)
    assert float((found - writer(tokens)).abs().max()) <= 1e-3


def test_a_stream_is_its_text(writer: models.TextGenerator) -> None:
    text = "Smile: 😀"
    pieces = list(writer.stream(text, 12))
    assert "".join(pieces) == writer.generate(text, 12)
    assert not any("�" in piece for piece in pieces)
    assert all(pieces)
    assert writer.generate(text, 12, stop=[]).startswith("".join(pieces))
    with pytest.raises(ValueError, match="an empty one"):
        writer.generate("", 3)
