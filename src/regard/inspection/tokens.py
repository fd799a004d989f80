"""Tokens as text: what the tokens of each kind of vocabulary stand for, and the labels that views draw for them.

The kind is found from the whole list, so a word that only looks like a token of a vocabulary stays as it is.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple, Self

from regard.inspection.text import visible

# Kinds of vocabularies. Tokens of the last three say which pieces of a word belong together, not where spaces are.
BYTE_LEVEL, SENTENCEPIECE, PLAIN = "byte-level", "sentencepiece", "plain"
WORDPIECE, WORD_END, JOINED = "wordpiece", "word-end", "joined"
VOCABULARIES = (BYTE_LEVEL, SENTENCEPIECE, WORDPIECE, WORD_END, JOINED, PLAIN)

SPACE, BLANK, GOES_ON = "·", "\N{OPEN BOX}", "…"  # of a label: a space beside a word, a token of spaces, a later piece
_SIGNS = {ord("\n"): "↵", ord("\t"): "⇥"}  # which DejaVu Sans has
_ASCII = {"·": "_", "\N{OPEN BOX}": "_", "…": "~", "↵": "\\n", "⇥": "\\t", "⟨": "<", "⟩": ">"}

SPECIAL = re.compile(r"\[[A-Z_]+\d*\]|\[unused\d+\]|</?[a-z_]+\d*>|<[|｜].*[|｜]>", re.DOTALL)
UNKNOWN = ("[UNK]", "<unk>", "<|unk|>")
_CONTENT = (*UNKNOWN, "[MASK]", "<mask>")  # special tokens that stand for a part of the text
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# the letter that byte-level vocabularies write for each byte: itself if it prints, else one from U+0100 on
_PRINTING = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(256) if byte not in _PRINTING)
BYTES = {chr(byte): byte for byte in _PRINTING} | {chr(0x100 + n): byte for n, byte in enumerate(_OTHERS)}
# blanks come before a word, and line breaks after signs, but neither after letters
_BYTE_LEVEL_FORM = re.compile(r"[ĠĊĉč]*[^ĠĊĉč]*(?<![^\W_])[ĠĊč]*|[ĠĊĉč]*[^ĠĊĉč]+")
_UNSPACED = re.compile("(?<=[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]) (?=[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SENTENCE_END = re.compile(r"[^\W_][.,!?]$")  # byte-level vocabularies do not join signs to the word before
_FREQUENT = frozenset(
    ("the", "of", "and", "to", "is", "are", "was", "on", "in", "at", "by", "for", "with", "that", "it", "as", "be")
)


class TokenList(tuple[str, ...]):
    """Tokens of a known kind of vocabulary, one of `VOCABULARIES`; if it is None, the tokens tell, as elsewhere."""

    vocabulary: str | None

    def __new__(cls, tokens: Iterable[str] = (), vocabulary: str | None = PLAIN) -> Self:
        """The tokens as they are."""
        if vocabulary is not None and vocabulary not in VOCABULARIES:
            raise ValueError(f"vocabulary must be one of {', '.join(VOCABULARIES)}, got {vocabulary!r}")
        made = super().__new__(cls, tokens)
        made.vocabulary = vocabulary
        return made


class _Piece(NamedTuple):
    """The text of a token, and whether it goes on with the word of the token before."""

    text: str
    goes_on: bool = False


def is_special(token: str) -> bool:
    """Whether a token is written as special ones are, and stands for no part of a text: [CLS] does, [UNK] does not."""
    return SPECIAL.fullmatch(token) is not None and token not in _CONTENT


def known_vocabulary(tokens: Sequence[str] | None) -> str | None:
    """The kind of vocabulary that was stated for the tokens."""
    return tokens.vocabulary if isinstance(tokens, TokenList) else None


def listed(tokens: Sequence[str]) -> tuple[str, ...]:
    """The tokens as a tuple, of the same kind of vocabulary if that is known."""
    kind = known_vocabulary(tokens)
    return tuple(map(str, tokens)) if kind is None else TokenList(map(str, tokens), kind)


def token_labels(tokens: Sequence[str]) -> list[str]:
    r"""What views write for each token, on one line and harmless to a terminal.

    A space before a word is `·`, a token of spaces `␣`, a line break `↵`, a tab `⇥`, a later piece of a word `…ing`
    where a vocabulary does not keep spaces. A character in several tokens is `我⟨1/2⟩` and `我⟨2/2⟩`.

    >>> token_labels(["The", "Ġcat", "s", "Ċ"]), token_labels(["[CLS]", "sleep", "##ing"])
    (['The', '·cat', 's', '↵'], ['[CLS]', 'sleep', '…ing'])
    >>> token_labels(["Ġ", "is", "a", "letter"])
    ['Ġ', 'is', 'a', 'letter']
    """
    return [(GOES_ON if piece.goes_on else "") + token_label(piece.text) for piece in _pieces(tokens)]


def token_texts(tokens: Sequence[str]) -> list[str]:
    """The text of each token with its own spaces and line breaks, for files; a later piece of a word has `##`."""
    return [("##" if piece.goes_on else "") + piece.text for piece in _pieces(tokens)]


def text_of(tokens: Sequence[str], most: int | None = None) -> str:
    """The text that tokens are of, on one line, without special tokens; with `most`, about that many characters.

    >>> text_of(["[CLS]", "the", "cat", "sleep", "##s", ".", "[SEP]"]), text_of(["The", "Ġcat", "æĪ", "ĳ"])
    ('the cat sleeps.', 'The cat我')
    """
    kind, some = vocabulary_of(tokens), tokens if most is None else tokens[: most + 64]
    regular = TokenList((token for token in some if not is_special(token)), kind)
    if kind in (BYTE_LEVEL, SENTENCEPIECE):
        read = _byte_level_bytes if kind == BYTE_LEVEL else _sentencepiece_bytes
        parts = [part if isinstance(part, bytes) else part.encode() for part in map(read, regular)]
        text = b"".join(parts).decode("utf-8", "replace")
    else:
        spaced = kind == PLAIN and any(token.startswith(" ") for token in regular[1:])
        pieces = _pieces(regular)
        text = "".join(("" if piece.goes_on or spaced else " ") + piece.text for piece in pieces)
        text = text if spaced else _UNSPACED.sub("", re.sub(r" (?=[.,!?;:)\]’]( |$))", "", text))
    return visible(" ".join(text.split()))


def token_label(text: str) -> str:
    r"""The label of a token that is text already; characters that join or reorder their neighbors are spelled out.

    >>> token_label(" a b"), token_label("  "), token_label("\x1b"), token_label("")
    ('·a b', '␣␣', '\\x1b', '""')
    """
    if not text:
        return '""'
    inner = text.strip(" ")
    if not inner:
        return BLANK * len(text)
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - before - len(inner)
    return SPACE * before + visible(inner.translate(_SIGNS)) + SPACE * after


def ascii_label(label: str) -> str:
    """A label in ASCII: `_` for a space, `~` for a later piece, `\\n` for a line break; other characters escaped."""
    return visible("".join(_ASCII.get(character, character) for character in label), ascii_only=True)


def vocabulary_of(tokens: Sequence[str]) -> str:
    """The kind of vocabulary that a list of tokens is from; "plain" for text that was split some other way."""
    if isinstance(tokens, TokenList) and tokens.vocabulary is not None:
        return tokens.vocabulary
    return next((kind for kind, fits in _FITS.items() if fits(tokens)), PLAIN)


def _regular_runs(tokens: Sequence[str]) -> list[list[str]]:
    """The tokens between special ones."""
    runs = groupby(tokens, key=lambda token: SPECIAL.fullmatch(token) is not None)
    return [list(run) for is_special, run in runs if not is_special]


def _is_byte_level(everything: Sequence[str]) -> bool:
    tokens = [token for run in _regular_runs(everything) for token in run]
    letters = set().union(*tokens)
    if all(map(str.isascii, letters)) or not letters <= BYTES.keys():
        return False
    if not all(map(_BYTE_LEVEL_FORM.fullmatch, tokens)) or any(map(_SENTENCE_END.search, tokens)):
        return False
    runs = [bytes(BYTES[letter] for token in run for letter in token) for run in _regular_runs(everything)]
    # a part of a text may begin or end within a character
    text = "".join(run.decode("utf-8", "replace").strip("�") for run in runs)
    if "�" in text or _CONTROL.search(text):
        return False
    marked = sum(len(token) > 1 and token[0] == "Ġ" and token[1] != "Ġ" for token in tokens)
    breaks = any(token and not token.strip("Ċ") for token in tokens)
    unmarked = sum(_starts_word(before, token) for before, token in pairwise(tokens))
    return not text.isascii() or breaks or 0 < marked >= unmarked


def _starts_word(before: str, token: str) -> bool:
    """Whether a token without a mark looks like a word of its own: in lists of whole words, most do."""
    title = token.istitle() and token[0] not in "ĠĊ"
    return before[-1:].isalpha() and (token in _FREQUENT or (title and before[-1].islower()))


def _is_sentencepiece(everything: Sequence[str]) -> bool:
    tokens = [token for run in _regular_runs(everything) for token in run]
    marked = [token for token in tokens if token.startswith("▁") and token.strip("▁")]
    if any("▁" in token.lstrip("▁") for token in tokens) or any(re.search("[▂-█]", token) for token in marked):
        return False
    return bool(marked) or _bytes_are_text(tokens)


def _bytes_are_text(tokens: Sequence[str]) -> bool:
    """Whether there are byte tokens, and those that stand together are text beyond ASCII, or line breaks."""
    runs = [list(run) for is_byte, run in groupby(tokens, key=lambda t: _BYTE.fullmatch(t) is not None) if is_byte]
    for run in runs:
        try:
            text = bytes(int(token[3:5], 16) for token in run).decode()
        except UnicodeDecodeError:
            return False
        if text.isascii() and text.strip():
            return False
    return bool(runs)


def _is_wordpiece(tokens: Sequence[str]) -> bool:
    # the first of a text may be a word that begins so
    return any(token.startswith("##") and len(token) > 2 and token[2] != "#" for token in tokens[1:])


def _is_word_end(tokens: Sequence[str]) -> bool:
    return any(token.endswith("</w>") and len(token) > 4 for token in tokens)


def _is_joined(tokens: Sequence[str]) -> bool:
    return any(token.endswith("@@") and len(token) > 2 and token[:-2].isalnum() for token in tokens[:-1])


_FITS: dict[str, Callable[[Sequence[str]], bool]] = {
    BYTE_LEVEL: _is_byte_level,
    SENTENCEPIECE: _is_sentencepiece,
    WORD_END: _is_word_end,
    JOINED: _is_joined,
    WORDPIECE: _is_wordpiece,
}


def _pieces(tokens: Sequence[str]) -> list[_Piece]:
    kind = vocabulary_of(tokens)
    if kind == BYTE_LEVEL:
        return [_Piece(text) for text in _decoded([_byte_level_bytes(token) for token in tokens])]
    if kind == SENTENCEPIECE:
        return [_Piece(text) for text in _decoded([_sentencepiece_bytes(token) for token in tokens])]
    if kind == WORDPIECE:
        return [_Piece(t[2:], True) if t.startswith("##") and len(t) > 2 else _Piece(t) for t in tokens]
    if kind in (WORD_END, JOINED):
        return _grouped_pieces(tokens, kind)
    return [_Piece(token) for token in tokens]


def _grouped_pieces(tokens: Sequence[str], kind: str) -> list[_Piece]:
    """Pieces of words whose end is marked, or all but whose end."""
    pieces: list[_Piece] = []
    mark, goes_on = "</w>" if kind == WORD_END else "@@", False
    for token in tokens:
        if SPECIAL.fullmatch(token):
            pieces.append(_Piece(token))
            goes_on = False
            continue
        marked = token.endswith(mark) and len(token) > len(mark)
        pieces.append(_Piece(token.removesuffix(mark) if marked else token, goes_on))
        goes_on = marked != (kind == WORD_END)
    return pieces


def byte_level_bytes(token: str) -> bytes | None:
    """What a byte-level token stands for; None if it is not written in the letters of bytes."""
    if any(letter not in BYTES for letter in token):
        return None
    return bytes(BYTES[letter] for letter in token)


def _byte_level_bytes(token: str) -> bytes | str:
    data = None if SPECIAL.fullmatch(token) else byte_level_bytes(token)
    return token if data is None else data


def _sentencepiece_bytes(token: str) -> bytes | str:
    if SPECIAL.fullmatch(token):
        return token
    match = _BYTE.fullmatch(token)
    return token.replace("▁", " ") if match is None else bytes([int(match[1], 16)])


def _decoded(pieces: Sequence[bytes | str]) -> list[str]:
    """The text of bytes; strings are text. Only bytes that are no text on their own share characters."""
    texts: list[str] = []
    split: list[bytes] = []
    for piece in pieces:
        text = piece if isinstance(piece, str) else _strict(piece)
        if text is None:
            assert isinstance(piece, bytes)
            split.append(piece)
            continue
        texts += [*_shared(split), text]
        split = []
    return [*texts, *_shared(split)]


def _strict(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _shared(pieces: Sequence[bytes]) -> list[str]:
    """The texts of tokens that share characters: each part says which of how many it is; other bytes are spelled."""
    data = b"".join(pieces)
    owner = [number for number, piece in enumerate(pieces) for _ in piece]
    texts = [""] * len(pieces)
    start = 0
    while start < len(data):
        size = next((n for n in (1, 2, 3, 4) if _strict(data[start : start + n])), 0)
        holders = sorted(set(owner[start : start + size]))
        for part, holder in enumerate(holders, 1):
            character = data[start : start + size].decode()
            texts[holder] += character if len(holders) == 1 else f"{character}⟨{part}/{len(holders)}⟩"
        if not size:
            texts[owner[start]] += f"\\x{data[start]:02x}"
        start += size or 1
    return texts
