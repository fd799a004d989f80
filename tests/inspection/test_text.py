"""Text that terminals cannot obey, in exactly as many columns as asked for."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.inspection.text import center, clusters, display_width, fit, left, right, visible, wrap

widths = st.integers(0, 30)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b31m", r"\x9b31m"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("user\u202etxt.exe", r"user\u202etxt.exe"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("lone \ud800", r"lone \ud800"),
        ("non\xa0breaking", r"non\xa0breaking"),
        ("❤\ufe0f", "❤"),
        ("\u0301a", "◌\u0301a"),
        ("naïve Ġcat ▁dog 猫 🐈", "naïve Ġcat ▁dog 猫 🐈"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_ascii_only_spells_out_every_other_character() -> None:
    assert visible("猫 é x", ascii_only=True) == r"\u732b \xe9 x"


@given(st.text())
def test_nothing_visible_is_a_control_or_a_format_character(text: str) -> None:
    shown = visible(text)
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert visible(text, ascii_only=True).isascii()
    assert shown.isprintable()
    assert visible(shown) == shown


@pytest.mark.parametrize(
    "text, columns",
    [("cat", 3), ("猫", 2), ("ｶﾅ", 2), ("ＡＢ", 4), ("🐈", 2), ("e\u0301", 1), ("한", 2), ("\u1112\u1161\u11ab", 2)],
)
def test_width_of_wide_and_combining_characters(text: str, columns: int) -> None:
    assert display_width(text) == columns


@given(st.text(), widths)
def test_placed_text_takes_exactly_its_columns(text: str, width: int) -> None:
    for place in (left, right, center):
        assert display_width(place(visible(text), width)) == width


@given(st.text(), widths)
def test_fitted_text_is_a_beginning(text: str, width: int) -> None:
    shown = visible(text)
    fitted = fit(shown, width)
    assert display_width(fitted) <= width
    assert fitted == shown or not fitted or (fitted.endswith("…") and shown.startswith(fitted[:-1]))


def test_a_wide_character_is_never_cut_in_half() -> None:
    assert left("猫猫猫", 4) == "猫… "
    assert fit("你好你好", 5) == "你好…"


@given(st.text())
def test_clusters_keep_marks_with_their_letters(text: str) -> None:
    parts = clusters(visible(text))
    assert "".join(parts) == visible(text)
    assert all(display_width(part) > 0 for part in parts)


@given(st.text(), st.integers(1, 30))
def test_wrapped_lines_fit_and_keep_the_order_of_words(text: str, width: int) -> None:
    lines = wrap(visible(text), width)
    assert all(display_width(line) <= width for line in lines)
    words = visible(text).split()
    if all(display_width(word) <= width for word in words):
        assert " ".join(lines).split() == words
