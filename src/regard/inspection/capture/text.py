"""Texts as a model's input: their token ids by its tokenizer, padding hidden, and the tokens of each batch row."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.inspection.tokens import BYTE_LEVEL, SENTENCEPIECE, WORD_END, WORDPIECE, TokenList

PAD = "[PAD]"
_NO_TOKENIZER = (
    "{} has no tokenizer to read a text with; pass tokenizer=, or token ids instead of the text. If its forward takes "
    "text itself, write: with capture(model) as c: model(text)"
)
_TWO_TEXTS = (
    "{} has an encoder and a decoder, which read two texts: capture(model, text, target, tokenizer=...). To capture "
    "what it writes itself: with capture(model) as c: model.generate(...)"
)
# the kind of vocabulary by a word in the state of a tokenizer's decoder
_DECODERS = {
    '"ByteLevel"': BYTE_LEVEL,
    '"Metaspace"': SENTENCEPIECE,
    '"ByteFallback"': SENTENCEPIECE,
    "▁": SENTENCEPIECE,
    '"WordPiece"': WORDPIECE,
    "</w>": WORD_END,
}


class TextInput(NamedTuple):
    """What a model is called with, and the tokens of each batch row, by sequence where there are two."""

    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    tokens: Any


class EncodedText(NamedTuple):
    """The token ids of a text, which of two texts each belongs to, and the tokens as the vocabulary writes them."""

    ids: list[int]
    types: list[int]
    tokens: TokenList


def is_text(inputs: Sequence[Any]) -> bool:
    """Whether the first input is a text, or a list of texts."""
    first = inputs[0] if inputs else None
    return isinstance(first, str) or (
        isinstance(first, list | tuple) and bool(first) and all(isinstance(each, str) for each in first)
    )


def text_input(model: nn.Module, inputs: Sequence[Any], tokenizer: Any = None) -> TextInput:
    """What `model` is called with to read texts: one or a list, and for two sequences as many further ones."""
    texts, *others = ([each] if isinstance(each, str) else list(each) for each in inputs if is_text([each]))
    if len(others) > 1 or len(others) + 1 < len(inputs):
        given = ", ".join(type(each).__name__ for each in inputs)
        raise TypeError(f"a model reads one text, or two that belong together, or a list of them; got {given}")
    if others and len(others[0]) != len(texts):
        raise ValueError(f"every text must have a second one, got {len(texts)} and {len(others[0])}")
    seconds = others[0] if others else None
    own = getattr(model, "text_input", None)
    if own is not None and tokenizer is None:
        made: TextInput = own(texts, seconds)
        return made
    tokenizer = getattr(model, "tokenizer", None) if tokenizer is None else tokenizer
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
    if tokenizer is None or not (callable(tokenizer) or hasattr(tokenizer, "encode_batch")):
        raise TypeError(_NO_TOKENIZER.format(type(model).__name__))
    names = inspect.signature(model.forward).parameters
    if "decoder_input_ids" in names:
        return _two_sequences(model, tokenizer, texts, seconds)
    rows = encoded(tokenizer, texts, seconds)
    check_length(model, rows)
    ids, seen, types = padded(rows, _pad(model, tokenizer), _device(model))
    if next(iter(names), "") in ("input", "features") and hasattr(model, "encode"):  # sentence-transformers
        return TextInput(({"input_ids": ids, "attention_mask": seen},), {}, labels(rows))
    keywords: dict[str, Any] = {"input_ids": ids} if "input_ids" in names else {}
    if "attention_mask" in names:
        keywords["attention_mask"] = seen
    elif not bool(seen.all()):
        lengths = ", ".join(str(len(row.ids)) for row in rows)
        raise ValueError(
            f"{type(model).__name__} takes no attention_mask, which hides padding, and the texts have {lengths} "
            "tokens; capture them one by one"
        )
    if "token_type_ids" in names and any(map(any, (row.types for row in rows))):
        keywords["token_type_ids"] = types
    return TextInput(() if "input_ids" in names else (ids,), keywords, labels(rows))


def _two_sequences(model: nn.Module, tokenizer: Any, texts: list[str], targets: list[str] | None) -> TextInput:
    """The first text for the encoder, the second for the decoder, behind the token that it starts with."""
    if targets is None:
        raise ValueError(_TWO_TEXTS.format(type(model).__name__))
    config = getattr(model, "config", None)
    start = getattr(config, "decoder_start_token_id", None)
    if start is None:
        start = next((each for each in (_pad_of(config), getattr(config, "bos_token_id", None)) if each is not None), 0)
    sources, pad = encoded(tokenizer, texts), _pad(model, tokenizer)
    written = encoded(tokenizer, targets, target=True)
    first = tokens_of(tokenizer, [start])
    decoded = [  # as transformers shifts labels: the last token has no successor
        EncodedText([start, *row.ids[:-1]], [], TokenList([*first, *row.tokens[:-1]], row.tokens.vocabulary))
        for row in written
    ]
    check_length(model, [*sources, *decoded])
    ids, seen, _ = padded(sources, pad, _device(model))
    target_ids, target_seen, _ = padded(decoded, pad, _device(model))
    keywords = {"input_ids": ids, "attention_mask": seen, "decoder_input_ids": target_ids}
    if not bool(target_seen.all()):
        keywords["decoder_attention_mask"] = target_seen
    return TextInput((), keywords, {"encoder": labels(sources), "decoder": labels(decoded)})


def encoded(
    tokenizer: Any, texts: Sequence[str], seconds: Sequence[str] | None = None, *, target: bool = False
) -> list[EncodedText]:
    """Texts, or pairs of them, by a tokenizer of tokenizers or transformers; nothing is cut or padded."""
    rows: list[tuple[list[int], list[int]]]
    if hasattr(tokenizer, "encode_batch"):
        given: list[Any] = list(texts) if seconds is None else list(zip(texts, seconds, strict=True))
        with _uncut(tokenizer):
            rows = [(list(each.ids), list(each.type_ids)) for each in tokenizer.encode_batch(given)]
    else:
        options = {"padding": False, "truncation": False, "return_attention_mask": False, "verbose": False}
        whole = (
            tokenizer(text_target=list(texts), **options)
            if target
            else tokenizer(list(texts), None if seconds is None else list(seconds), **options)
        )
        kinds = whole.get("token_type_ids") or [[0] * len(ids) for ids in whole["input_ids"]]
        rows = [(list(ids), list(types)) for ids, types in zip(whole["input_ids"], kinds, strict=True)]
    for text, (ids, _) in zip(texts, rows, strict=True):
        if not ids:
            raise ValueError(f"there is no token in the text {text!r}; write a word")
    return [EncodedText(ids, types, tokens_of(tokenizer, ids)) for ids, types in rows]


@contextmanager
def _uncut(tokenizer: Any) -> Iterator[None]:
    """A tokenizer of tokenizers that neither cuts nor pads."""
    cut, pad = tokenizer.truncation, tokenizer.padding
    tokenizer.no_truncation()
    tokenizer.no_padding()
    try:
        yield
    finally:
        if cut is not None:
            tokenizer.enable_truncation(**cut)
        if pad is not None:
            tokenizer.enable_padding(**pad)


def tokens_of(tokenizer: Any, ids: Sequence[int]) -> TokenList:
    """The tokens of ids as their vocabulary writes them, with its kind where the tokenizer tells it."""
    if hasattr(tokenizer, "id_to_token"):
        named = [tokenizer.id_to_token(each) for each in ids]
    else:
        named = tokenizer.convert_ids_to_tokens(list(ids))
    named = [str(each) if name is None else str(name) for each, name in zip(ids, named, strict=True)]
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    decoder = getattr(backend, "decoder", None)
    state = "" if decoder is None else decoder.__getstate__()
    text = state.decode() if isinstance(state, bytes) else str(state)
    return TokenList(named, next((kind for word, kind in _DECODERS.items() if word in text), None))


def labels(rows: Sequence[EncodedText]) -> list[TokenList]:
    """The tokens of each row, padded on the right."""
    longest = max(len(row.tokens) for row in rows)
    return [TokenList([*row.tokens, *[PAD] * (longest - len(row.tokens))], row.tokens.vocabulary) for row in rows]


def padded(rows: Sequence[EncodedText], pad: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, ones where there is a token, and types, each (text, length), padded on the right."""
    longest = max(len(row.ids) for row in rows)
    filled = [
        ([*row.ids, *[pad] * (longest - len(row.ids))], [1] * len(row.ids) + [0] * (longest - len(row.ids)))
        for row in rows
    ]
    types = [[*row.types, *[0] * (longest - len(row.types))] for row in rows]
    ids, seen = ([each[part] for each in filled] for part in (0, 1))
    made = [torch.tensor(part, dtype=torch.int64, device=device) for part in (ids, seen, types)]
    return made[0], made[1], made[2]


def check_length(model: nn.Module, rows: Sequence[EncodedText], reach: int | None = None) -> None:
    """Refuse texts that are longer than the model reads."""
    config = getattr(model, "config", None)
    most = getattr(config, "max_position_embeddings", None) if reach is None else reach
    longest = max(len(row.ids) for row in rows)
    if isinstance(most, int) and 0 < most < longest:
        name = name_of(model)
        raise ValueError(f"{name} reads up to {most:,} tokens, the text has {longest:,}; shorten it")


def name_of(model: Any) -> str:
    """What a model is called: its `name`, the name or folder that transformers loaded it from, or its class."""
    name = getattr(model, "name", None)
    if not isinstance(name, str) or not name:
        name = getattr(getattr(model, "config", None), "_name_or_path", None)
    if not isinstance(name, str) or not name.strip("/\\. "):
        return type(model).__name__
    parts = name.replace("\\", "/").rstrip("/").split("/")
    return name if len(parts) == 2 and parts[0] else parts[-1]


def _pad_of(config: Any) -> int | None:
    pad = getattr(config, "pad_token_id", None)
    return pad if isinstance(pad, int) else None


def _pad(model: nn.Module, tokenizer: Any) -> int:
    """The id that fills short rows; what it is does not matter where padding is hidden."""
    known = (getattr(tokenizer, "pad_token_id", None), _pad_of(getattr(model, "config", None)))
    return next((each for each in known if isinstance(each, int) and each >= 0), 0)


def _device(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
