"""Which tokens are punctuation, under the marks of the tokenizers there are."""

import pytest

from regard.inspection.heads.tokens import is_punctuation


@pytest.mark.parametrize(
    "token",
    [
        ".",
        ",",
        "Ġ.",
        "▁,",
        "##.",
        "...",
        'Ġ("',
        "?!",
        "—",
        "…",
        "“",
        "»",
        "、",
        "。",
        "_",
        ".</w>",
        " ;",
        ";\n",
        "##",
        "-",
    ],
)
def test_punctuation(token: str) -> None:
    assert is_punctuation(token)


@pytest.mark.parametrize("token", ["âĢľ", "ĠâĢĶ", "Â«", "ãĢĤ"])  # “ — « 。 in a byte-level vocabulary
def test_punctuation_in_bytes(token: str) -> None:
    assert is_punctuation(token)


@pytest.mark.parametrize(
    "token",
    [
        "a",
        "Ġthe",
        "▁",
        "Ġ",
        "",
        " ",
        "Ċ",
        "\n",
        "[CLS]",
        "<s>",
        "<|im_start|>",
        "it's",
        "3.",
        "+",
        "$",
        "ä",
        "Ã¤",
        "##s",
        "▁é",
    ],
)
def test_other_tokens(token: str) -> None:
    assert not is_punctuation(token)
