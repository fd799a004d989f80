"""The tokenizer inside a GGUF file, as tokenizer.json and tokenizer_config.json."""

import json
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

_FIELD = "tokenizer.ggml."

_LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# How text is cut before its bytes are merged, by the name in `tokenizer.ggml.pre`.
_WORDS = ("gpt-2",)  # words, numbers, signs and blanks, as GPT-2 does
_DIGITS = ("smollm", "starcoder", "refact", "command-r")  # every digit alone, then as GPT-2 does
_TRIPLES = ("llama-bpe", "llama3", "llama-v3")  # numbers in threes; whole words before merges


class _Kind(IntEnum):
    """`tokenizer.ggml.token_type`, as far as it matters here."""

    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4


def files(fields: Mapping[str, Any], *, rows: int, longest: int) -> dict[str, str]:
    """The text of each file, by its name, for a model with embeddings for so many tokens and texts so long."""
    tokenizer = build(fields)
    if (size := tokenizer.get_vocab_size()) > rows:
        raise ValueError(f"the file has {size} tokens and embeddings for {rows} only")
    return {
        "tokenizer.json": tokenizer.to_str(pretty=True) + "\n",
        "tokenizer_config.json": json.dumps(_config(fields, longest), indent=2, ensure_ascii=False) + "\n",
    }


def build(fields: Mapping[str, Any]) -> "Tokenizer":
    """The tokenizer that the fields of a GGUF file describe."""
    from tokenizers import AddedToken

    tokens = _tokens(fields)
    match _field(fields, "model"):
        case "gpt2":
            tokenizer = _byte_level(fields, tokens)
        case "llama":
            tokenizer = _sentence_pieces(fields, tokens)
        case kind:
            raise ValueError(f"the tokenizer must be of the kind 'gpt2' or 'llama', got {kind!r}")
    kinds = _field(fields, "token_type")
    if len(kinds) != len(tokens):
        raise ValueError(f"the file has {len(tokens)} tokens and {len(kinds)} token types")
    whole = [
        AddedToken(token, normalized=False, special=kind != _Kind.USER_DEFINED)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind in tuple(_Kind)
    ]
    tokenizer.add_tokens(whole)
    if tokenizer.get_vocab_size() != len(tokens):
        raise ValueError(f"{len(tokens)} tokens became {tokenizer.get_vocab_size()}: the file is inconsistent")
    _frame(fields, tokens, tokenizer)
    return tokenizer


def _byte_level(fields: Mapping[str, Any], tokens: list[str]) -> "Tokenizer":
    """Bytes written as letters, merged pair by pair."""
    from tokenizers import Tokenizer, decoders, models

    cut = _field(fields, "pre")
    merges = [tuple(merge.split(" ")) for merge in _field(fields, "merges")]
    if wrong := next((merge for merge in merges if len(merge) != 2), None):
        raise ValueError(f"a merge is two tokens with a blank between them, got {' '.join(wrong)!r}")
    if fields.get(f"{_FIELD}add_space_prefix"):
        raise ValueError("a byte-level tokenizer that puts a blank before every text cannot be converted")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if strange := next((token for pair in merges for token in (*pair, "".join(pair)) if token not in vocabulary), None):
        raise ValueError(f"the merges use {strange!r}, which is not a token of the file")
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=cut in _TRIPLES))
    tokenizer.pre_tokenizer = _cutter(cut)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _cutter(name: str) -> "PreTokenizer":
    from tokenizers import Regex, pre_tokenizers

    if name in _WORDS:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name in _DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if name in _TRIPLES:
        split = pre_tokenizers.Split(Regex(_LLAMA_3), "isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    known = ", ".join((*_WORDS, *_DIGITS, *_TRIPLES))
    raise ValueError(f"the file cuts text as {name!r}; what regard knows is {known}")


def _sentence_pieces(fields: Mapping[str, Any], tokens: list[str]) -> "Tokenizer":
    """SentencePiece: blanks written as ▁, the pair that makes the token of the best score is merged first."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocabulary = {token: index for index, token in enumerate(tokens)}
    scores = _field(fields, "scores")
    merges = [
        (-scores[index], vocabulary[left], vocabulary[right], left, right)
        for token, index in vocabulary.items()
        for left, right in ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        if left in vocabulary and right in vocabulary
    ]
    unknown = fields.get(f"{_FIELD}unknown_token_id")
    model = models.BPE(
        vocab=vocabulary,
        merges=[(left, right) for *_, left, right in sorted(merges)],
        unk_token=None if unknown is None else tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    blank = fields.get(f"{_FIELD}add_space_prefix", True)
    first = [normalizers.Prepend("▁")] if blank else []
    tokenizer.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", "▁")])
    last = [decoders.Strip(" ", left=1)] if blank else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *last])
    return tokenizer


def _frame(fields: Mapping[str, Any], tokens: list[str], tokenizer: "Tokenizer") -> None:
    """The tokens that every text begins or ends with, where the model wants them."""
    from tokenizers import processors

    flags = _framing(fields)
    ids = {name: fields.get(f"{_FIELD}{name}_token_id") for name in ("bos", "eos")}
    used = {name: (tokens[index], index) for name, index in ids.items() if flags[name] and index is not None}
    if not used:
        return
    first, last = ([used[name][0]] if name in used else [] for name in ("bos", "eos"))
    one, two = ([f"{piece}:{text}" for piece in (*first, f"${'AB'[text]}", *last)] for text in (0, 1))
    tokenizer.post_processor = processors.TemplateProcessing(one, one + two, special_tokens=list(used.values()))


def _framing(fields: Mapping[str, Any]) -> dict[str, bool]:
    """What the file says, or else what llama.cpp does with a tokenizer of this kind."""
    begins = _field(fields, "model") == "llama" or fields.get(f"{_FIELD}pre") in _TRIPLES
    return {
        "bos": bool(fields.get(f"{_FIELD}add_bos_token", begins)),
        "eos": bool(fields.get(f"{_FIELD}add_eos_token", False)),
    }


def _config(fields: Mapping[str, Any], longest: int) -> dict[str, Any]:
    tokens, flags = _tokens(fields), _framing(fields)
    config: dict[str, Any] = {
        "add_bos_token": flags["bos"],
        "add_eos_token": flags["eos"],
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": longest,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        if (index := fields.get(f"{_FIELD}{key}_token_id")) is not None:
            config[f"{name}_token"] = tokens[index]
    if template := fields.get("tokenizer.chat_template"):
        config["chat_template"] = template
    return dict(sorted(config.items()))


def _field(fields: Mapping[str, Any], name: str) -> Any:
    if (value := fields.get(_FIELD + name)) is None:
        raise ValueError(f"the file has no {_FIELD}{name}, so its tokenizer cannot be made")
    return value


def _tokens(fields: Mapping[str, Any]) -> list[str]:
    tokens: list[str] = _field(fields, "tokens")
    if len(set(tokens)) != len(tokens):
        twice = next(token for index, token in enumerate(tokens) if token in tokens[:index])
        raise ValueError(f"the file has the token {twice!r} twice")
    return tokens
