"""Tokens as labels: their own script and marks of sub-words kept, what cannot be seen drawn as a sign."""

from regard.inspection.text import visible

_SIGNS = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\N{SYMBOL FOR DELETE}"}
_SPELLED = {ord(sign): chr(code).encode("unicode_escape").decode("ascii") for code, sign in _SIGNS.items()}
_SPACE = "\N{OPEN BOX}"
EMPTY = '""'


def token_label(token: str) -> str:
    r"""The token on one line: a line break is ␊, a tab ␉, a token of spaces only ␣, an empty one "".

    Characters that join or reorder their neighbors are spelled out, as in `\u202e`.
    """
    if not token:
        return EMPTY
    if not token.strip(" "):
        return _SPACE * len(token)
    return visible(token.translate(_SIGNS))


def font_label(label: str) -> str:
    r"""The label for a figure: fonts rarely have the signs of control characters, so ␊ is written `\n` there."""
    return label.translate(_SPELLED)
