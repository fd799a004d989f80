"""Tokenizers out of GGUF fields: they cut text as the file says, agree with transformers, and give the text back."""

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import regex  # type: ignore[import-untyped]
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

pytest.importorskip("transformers")

from transformers import PreTrainedTokenizerFast
from transformers.integrations.gguf import convert_gguf_tokenizer

from regard.models import gguf_tokenizer

TRAINING = [
    "the cat sat on the mat and the other cat did not, because there was no other mat to sit on",
    "def attend(query, key, value):\n    scores = query @ key.T\n    return softmax(scores) @ value\n",
    "in 1984 there were 365 days,  and in 2024 there were 366;   12 345 678 of them, she'll say it's so",
    "größer naïve café 你好 世界 😀😀 привет мир\t\ttabs\r\n\r\nlines    \n   blanks   ",
]

CORPUS = [
    *TRAINING,
    "",
    " ",
    "    ",
    " leading and trailing ",
    "x  5 y   12\n\n 7",
    "3.14159 0x1F 1,000,000 ٣٤ ½ Ⅷ ²",
    "DON'T Don't we've I'm they'd he'll 'tis",
    "👩‍👩‍👧 é \u00a0nbsp \u200bzero ﬁ",
    "for i in range(10):\n\tprint(f'{i:>3}')  # done\n",
    "<|start|>user\nhi<|end|> <|start|><think>",
    "\x00\x01\x7f\uffff",
]

SPECIAL = ["<|end|>", "<|start|>"]
CHAT = "{% for message in messages %}<|start|>{{ message['content'] }}<|end|>{% endfor %}"


def byte_level(pre: str) -> dict[str, Any]:
    """The fields of a byte-level tokenizer trained on the lines above."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=pre == "smollm"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        special_tokens=SPECIAL,
    )
    trained.train_from_iterator(TRAINING * 3, trainer)
    state = json.loads(trained.to_str())["model"]
    tokens = [*sorted(state["vocab"], key=state["vocab"].__getitem__), "<think>"]
    fields = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [3, 3, *[1] * (len(tokens) - 3), 4],
        "merges": [" ".join(merge) for merge in state["merges"]],
        "bos_token_id": 1,
        "eos_token_id": 0,
        "add_bos_token": False,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items()} | {"tokenizer.chat_template": CHAT}


def sentence_pieces() -> dict[str, Any]:
    """The fields of a SentencePiece tokenizer: control tokens, bytes, letters, and merged pieces by score."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(TRAINING * 3, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    vocab = json.loads(trained.to_str())["model"]["vocab"]
    pieces = sorted(vocab, key=vocab.__getitem__)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    fields = {
        "model": "llama",
        "tokens": tokens,
        "token_type": [2, 3, 3, *[6] * 256, *[1] * len(pieces)],
        "scores": [0.0] * 259 + [-float(rank) for rank in range(len(pieces))],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items()}


def of_transformers(fields: Mapping[str, Any]) -> Tokenizer:
    renamed = {"model": "tokenizer_type", "pre": "pre_tokenizer_type", "add_space_prefix": "add_prefix_space"}
    short = {key.removeprefix("tokenizer.ggml."): value for key, value in fields.items()}
    found: Tokenizer = convert_gguf_tokenizer("llama", {renamed.get(key, key): short[key] for key in short})[0]
    return found


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe"])
def test_byte_level_text_comes_back(pre: str) -> None:
    ours = gguf_tokenizer.build(byte_level(pre))
    for text in CORPUS:
        assert ours.decode(ours.encode(text, add_special_tokens=False).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe"])
def test_byte_level_tokens_are_those_of_transformers(pre: str) -> None:
    ours, theirs = gguf_tokenizer.build(byte_level(pre)), of_transformers(byte_level(pre))
    for text in CORPUS:
        assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text, add_special_tokens=False).ids


def test_single_digits_are_cut_first() -> None:
    """transformers does not know this way to cut; llama.cpp states it as two expressions, one after the other."""
    words = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    ours = gguf_tokenizer.build(byte_level("smollm"))
    assert ours.pre_tokenizer is not None
    for text in CORPUS:
        pieces = [text[start:end] for _, (start, end) in ours.pre_tokenizer.pre_tokenize_str(text)]
        parts = [part for part in regex.split(r"(\p{N})", text) if part]
        assert pieces == [piece for part in parts for piece in regex.findall(words, part)]


def test_sentence_pieces_are_those_of_transformers() -> None:
    """Where a text begins with a blank, transformers leaves the blank in front out and llama.cpp does not."""
    ours, theirs = gguf_tokenizer.build(sentence_pieces()), of_transformers(sentence_pieces())
    for text in CORPUS:
        if not text.startswith(" "):
            found = ours.encode(text, add_special_tokens=False).ids
            assert found == theirs.encode(text, add_special_tokens=False).ids


def best_first(text: str, fields: Mapping[str, Any]) -> list[int]:
    """What llama.cpp does: merge the neighbors that make the best token until none do, then fall back to bytes."""
    tokens = fields["tokenizer.ggml.tokens"]
    numbers = {token: index for index, token in enumerate(tokens)}
    parts = list(("▁" + text.replace(" ", "▁")) if text else "")
    while True:
        pairs = [(numbers.get(left + right), index) for index, (left, right) in enumerate(itertools.pairwise(parts))]
        scored = [(-fields["tokenizer.ggml.scores"][made], index) for made, index in pairs if made is not None]
        if not scored:
            break
        _, index = min(scored)
        parts[index : index + 2] = [parts[index] + parts[index + 1]]
    known = [[part] if part in numbers else [f"<0x{byte:02X}>" for byte in part.encode()] for part in parts]
    return [numbers[token] for group in known for token in group]


def test_sentence_pieces_are_merged_best_first() -> None:
    ours = gguf_tokenizer.build(sentence_pieces())
    for text in CORPUS:
        found = ours.encode(text, add_special_tokens=False).ids
        assert found == best_first(text, sentence_pieces())
        assert ours.decode(found) == text


def test_tokens_that_stand_for_themselves() -> None:
    ours = gguf_tokenizer.build(byte_level("smollm"))
    assert ours.encode("<|start|>a<|end|><think>").tokens == ["<|start|>", "a", "<|end|>", "<think>"]
    added = {token.content: token.special for token in ours.get_added_tokens_decoder().values()}
    assert added == {"<|start|>": True, "<|end|>": True, "<think>": False}
    assert ours.get_vocab_size() == len(byte_level("smollm")["tokenizer.ggml.tokens"])


@pytest.mark.parametrize(
    "fields, said, begins, ends",
    [
        (byte_level("smollm"), {}, False, False),
        (byte_level("llama-bpe"), {"add_bos_token": None}, True, False),
        (byte_level("gpt-2"), {"add_bos_token": True, "add_eos_token": True}, True, True),
        (sentence_pieces(), {}, True, False),
        (sentence_pieces(), {"add_bos_token": False, "add_eos_token": True}, False, True),
    ],
)
def test_texts_begin_and_end_as_the_file_says(
    fields: dict[str, Any], said: dict[str, Any], begins: bool, ends: bool
) -> None:
    fields = fields | {f"tokenizer.ggml.{name}": value for name, value in said.items()}
    fields = {name: value for name, value in fields.items() if value is not None}
    ours = gguf_tokenizer.build(fields)
    bos, eos = fields["tokenizer.ggml.bos_token_id"], fields["tokenizer.ggml.eos_token_id"]
    inner = ours.encode("mat", add_special_tokens=False).ids
    framed = [*([bos] if begins else []), *inner, *([eos] if ends else [])]
    assert ours.encode("mat").ids == framed
    pair = ours.encode("mat", "mat")
    assert pair.ids == framed * 2
    assert pair.type_ids == [0] * len(framed) + [1] * len(framed)


def test_a_blank_in_front_can_be_switched_off() -> None:
    fields = sentence_pieces() | {"tokenizer.ggml.add_space_prefix": False}
    ours = gguf_tokenizer.build(fields)
    assert "".join(ours.encode("the", add_special_tokens=False).tokens) == "the"
    assert gguf_tokenizer.build(sentence_pieces()).encode("the", add_special_tokens=False).tokens == ["▁the"]
    assert ours.decode(ours.encode(" the cat").ids) == " the cat"


def test_the_files_are_read_by_transformers(tmp_path: Any) -> None:
    fields = byte_level("smollm")
    for name, text in gguf_tokenizer.files(fields, rows=1000, longest=77).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    theirs, ours = PreTrainedTokenizerFast.from_pretrained(tmp_path), gguf_tokenizer.build(fields)
    for text in CORPUS:
        assert theirs(text).input_ids == ours.encode(text).ids
    assert (theirs.bos_token, theirs.eos_token, theirs.model_max_length) == ("<|start|>", "<|end|>", 77)
    assert set(theirs("a")) == {"input_ids", "attention_mask"}
    assert theirs.apply_chat_template([{"content": "hi"}], tokenize=False) == "<|start|>hi<|end|>"


@pytest.mark.parametrize(
    "changed, text",
    [
        ({"model": "t5"}, "the tokenizer must be of the kind 'gpt2' or 'llama', got 't5'"),
        ({"model": None}, "the file has no tokenizer.ggml.model, so its tokenizer cannot be made"),
        ({"pre": "qwen2"}, "the file cuts text as 'qwen2'; what regard knows is gpt-2, smollm, "),
        ({"merges": ["a b c"]}, "a merge is two tokens with a blank between them, got 'a b c'"),
        ({"merges": ["a nonsense"]}, "the merges use 'nonsense', which is not a token of the file"),
        ({"tokens": ["a", "b", "a"]}, "the file has the token 'a' twice"),
        ({"token_type": [1]}, " tokens and 1 token types"),
        ({"add_space_prefix": True}, "a byte-level tokenizer that puts a blank before every text cannot be converted"),
    ],
    ids=str,
)
def test_fields_that_are_refused(changed: dict[str, Any], text: str) -> None:
    fields = byte_level("smollm") | {f"tokenizer.ggml.{name}": value for name, value in changed.items()}
    with pytest.raises(ValueError, match=re.escape(text)):
        gguf_tokenizer.build({name: value for name, value in fields.items() if value is not None})


def test_more_tokens_than_embeddings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the file has \d+ tokens and embeddings for 10 only"):
        gguf_tokenizer.files(byte_level("gpt-2"), rows=10, longest=77)
