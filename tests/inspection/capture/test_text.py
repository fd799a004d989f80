"""Captures from text: every kind of model with a tokenizer, batches with padding, pairs, and clear errors."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import nn

import regard
from regard.inspection.capture.text import name_of, tokens_of
from regard.inspection.tokens import TokenList, token_labels

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "the", "cat", "dog", "sleep", "##s", "on"]
CAT, DOG = "the cat sleeps on the cat", "the dog"
CAT_TOKENS = ["[CLS]", "the", "cat", "sleep", "##s", "on", "the", "cat", "[SEP]"]
DOG_TOKENS = ["[CLS]", "the", "dog", "[SEP]", *["[PAD]"] * 5]


@pytest.fixture
def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    pieces = [("[CLS]", 1), ("[SEP]", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=pieces
    )
    return tokenizer


@pytest.fixture
def fast(wordpiece: Tokenizer) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=wordpiece, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


@pytest.fixture
def bert() -> Any:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=10, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=12,
    )  # fmt: skip
    return BertModel(config).eval()


def test_a_model_of_transformers_reads_a_text(bert: Any, fast: Any) -> None:
    c = regard.capture(bert, CAT, tokenizer=fast)
    assert c.tokens == CAT_TOKENS
    with torch.no_grad():
        ids = torch.tensor([fast(CAT)["input_ids"]])
        torch.testing.assert_close(c.output.last_hidden_state, bert(ids).last_hidden_state)
    assert token_labels(c[0].query_tokens or ())[4] == "…s"


def test_the_tokenizer_may_be_the_model_s_own(bert: Any, fast: Any) -> None:
    bert.tokenizer = fast
    assert regard.capture(bert, CAT).tokens == CAT_TOKENS


def test_rows_of_a_batch_have_their_tokens_and_hide_padding(bert: Any, fast: Any) -> None:
    c = regard.capture(bert, [CAT, DOG], tokenizer=fast)
    assert c.tokens == [CAT_TOKENS, DOG_TOKENS]
    assert c[1, 0][1].query_tokens == tuple(DOG_TOKENS)
    alone = regard.capture(bert, DOG, tokenizer=fast)
    torch.testing.assert_close(c[1][1].dense()[:, :4, :4], alone[1][0].dense())
    assert float(c[1][1].dense()[:, :4, 4:].abs().max()) == 0.0


def test_a_pair_has_two_types(bert: Any, fast: Any) -> None:
    c = regard.capture(bert, "the cat", "the dog", tokenizer=fast)
    assert c.tokens == ["[CLS]", "the", "cat", "[SEP]", "the", "dog", "[SEP]"]
    with torch.no_grad():
        wanted = bert(**fast("the cat", "the dog", return_tensors="pt"))
    torch.testing.assert_close(c.output.last_hidden_state, wanted.last_hidden_state)


def test_a_pipeline(bert: Any, fast: Any) -> None:
    from transformers import pipeline

    pipe = pipeline("feature-extraction", model=bert, tokenizer=fast)
    assert regard.capture(pipe, CAT).tokens == CAT_TOKENS
    with regard.capture(pipe) as c:
        pipe(CAT)
    assert len(c) == 2


def test_a_language_model_is_padded_on_the_right(fast: Any) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=10, bos_token_id=1, eos_token_id=2))
    c = regard.capture(model.eval(), [DOG, CAT], tokenizer=fast)
    assert c.tokens == [DOG_TOKENS, CAT_TOKENS]
    alone = regard.capture(model, DOG, tokenizer=fast)
    torch.testing.assert_close(c[1][0].dense()[:, :4, :4], alone[1][0].dense())


def test_encoder_and_decoder_read_two_texts(fast: Any) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=8, d_kv=4, num_layers=2, num_heads=2, d_ff=8, vocab_size=10, decoder_start_token_id=0, pad_token_id=0
    )
    model = T5ForConditionalGeneration(config).eval()
    with pytest.raises(ValueError, match=r"read two texts: capture\(model, text, target, tokenizer=...\)"):
        regard.capture(model, CAT, tokenizer=fast)
    c = regard.capture(model, CAT, DOG, tokenizer=fast)
    assert c.tokens == {"encoder": CAT_TOKENS, "decoder": ["[PAD]", "[CLS]", "the", "dog"]}
    cross = c.cross[0]
    assert (cross.query_tokens, cross.key_tokens) == (tuple(c.tokens["decoder"]), tuple(CAT_TOKENS))
    assert {matrix.origin.kind for matrix in c} == {"encoder", "decoder", "cross"}
    assert c.cross[1].origin.layer == list(c.layers).index(c.cross.layers[1])
    with torch.no_grad():
        labels = fast(text_target=DOG, return_tensors="pt")["input_ids"]
        wanted = model(**fast(CAT, return_tensors="pt"), labels=labels).logits
    torch.testing.assert_close(c.output.logits, wanted)
    both = regard.capture(model, [CAT, DOG], [DOG, CAT], tokenizer=fast)
    assert both.tokens["decoder"][0][-5:] == ["[PAD]"] * 5


class SentenceModel(nn.Module):
    """Called as sentence-transformers' models are: with a dictionary of features."""

    def __init__(self, inner: nn.Module, tokenizer: Any) -> None:
        super().__init__()
        self.inner, self.tokenizer = inner, tokenizer

    def encode(self, texts: list[str]) -> None:
        """Only there to be found."""

    def forward(self, input: dict[str, torch.Tensor]) -> Any:
        return self.inner(**input)


def test_a_sentence_model_takes_features(bert: Any, fast: Any) -> None:
    assert regard.capture(SentenceModel(bert, fast), [CAT, DOG]).tokens == [CAT_TOKENS, DOG_TOKENS]


class Plain(nn.Module):
    """Takes ids and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        out: torch.Tensor = self.attention(x, x, x, need_weights=False)[0]
        return out


def test_any_model_that_takes_ids(wordpiece: Tokenizer) -> None:
    model = Plain().eval()
    c = regard.capture(model, CAT, tokenizer=wordpiece)
    assert c.tokens == CAT_TOKENS
    assert c.name == "Plain"
    with pytest.raises(
        ValueError, match=r"Plain takes no attention_mask, .* have 9, 4 tokens; capture them one by one"
    ):
        regard.capture(model, [CAT, DOG], tokenizer=wordpiece)
    wordpiece.enable_truncation(4)
    assert regard.capture(model, CAT, tokenizer=wordpiece).tokens == CAT_TOKENS
    assert wordpiece.truncation is not None


def test_mistakes(bert: Any, fast: Any, wordpiece: Tokenizer) -> None:
    with pytest.raises(TypeError, match="BertModel has no tokenizer to read a text with; pass tokenizer="):
        regard.capture(bert, CAT)
    with pytest.raises(ValueError, match="BertModel reads up to 12 tokens, the text has 13; shorten it"):
        regard.capture(bert, "cat " * 11, tokenizer=fast)
    with pytest.raises(TypeError, match=r"a model reads one text, or two that belong together.*got str, Tensor"):
        regard.capture(bert, CAT, torch.zeros(1), tokenizer=fast)
    with pytest.raises(ValueError, match="every text must have a second one, got 1 and 2"):
        regard.capture(bert, CAT, [CAT, DOG], tokenizer=fast)
    with pytest.raises(TypeError, match="a tokenizer reads texts, and there is none among the inputs"):
        regard.capture(bert, torch.zeros(1, 2, dtype=torch.long), tokenizer=fast)
    wordpiece.post_processor = processors.TemplateProcessing(single="$A")
    with pytest.raises(ValueError, match="there is no token in the text ''; write a word"):
        regard.capture(bert, "", tokenizer=wordpiece)


@pytest.mark.parametrize(
    "decoder, kind",
    [
        (decoders.ByteLevel(), "byte-level"),
        (decoders.Metaspace(), "sentencepiece"),
        (decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]), "sentencepiece"),
        (decoders.WordPiece(), "wordpiece"),
        (decoders.BPEDecoder(), "word-end"),
        (None, None),
    ],
)
def test_the_kind_of_a_vocabulary(decoder: Any, kind: str | None) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    if decoder is not None:
        tokenizer.decoder = decoder
    assert tokens_of(tokenizer, [0, 7]).vocabulary == kind
    assert tokens_of(tokenizer, [0, 7]) == ("a", "7")


def test_bytes_are_characters() -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: number for number, letter in enumerate(alphabet)} | {"Ġc": 256, "Ã©": 257}
    made = Tokenizer(models.BPE(vocab=words, merges=[("Ġ", "c"), ("Ã", "©")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|end|>"])
    found = tokens_of(made, made.encode("é c\n€<|end|>").ids)
    assert token_labels(found) == ["é", "·c", "↵", "€⟨1/3⟩", "€⟨2/3⟩", "€⟨3/3⟩", "<|end|>"]


def test_files_keep_vocabularies_and_the_name(tmp_path: Path, bert: Any, fast: Any) -> None:
    bert.name = "small"
    c = regard.capture(bert, "the cat", tokenizer=fast)
    c.tokens = TokenList(["Ġa", "b", "c", "Ġd"], "plain")
    c.save(tmp_path / "c.safetensors")
    c[0].save(tmp_path / "a.safetensors")
    loaded, matrix = regard.load(tmp_path / "c.safetensors"), regard.load(tmp_path / "a.safetensors")
    assert isinstance(loaded, regard.Capture)
    assert isinstance(matrix, regard.AttentionMatrix)
    assert loaded.name == "small"
    assert loaded[0].origin == c[0].origin
    assert token_labels(loaded[0].query_tokens or ()) == token_labels(matrix.key_tokens or ()) == ["Ġa", "b", "c", "Ġd"]


@pytest.mark.parametrize(
    "name, wanted",
    [("minilm", "minilm"), ("org/name", "org/name"), ("../models/small/", "small"), ("a\\b\\c", "c"), ("", "Plain")],
)
def test_names(name: str, wanted: str) -> None:
    model = Plain()
    model.config = types.SimpleNamespace(_name_or_path=name)  # type: ignore[assignment]
    assert name_of(model) == wanted


def test_see_shows_unless_a_notebook_does(
    bert: Any, fast: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bert.tokenizer = fast
    assert regard.see(CAT, model=bert).tokens == CAT_TOKENS
    assert "columns: heads" in capsys.readouterr().out
    regard.see(CAT, model=bert, show=False)
    assert capsys.readouterr().out == ""
    shell = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=None))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    regard.see(CAT, model=bert)
    assert capsys.readouterr().out == ""
