"""Fonts: families that have the characters, by what is installed."""

import pytest
from matplotlib.font_manager import FontEntry, fontManager

from regard.plot import fonts
from regard.plot.fonts import FIRST, families_for


def test_plain_text_needs_no_other_font() -> None:
    assert families_for("The cat × ▁the Ġ ## → ™ Ж α שלום مرحبا\n ") == [FIRST]
    assert families_for("") == [FIRST]


def test_fonts_are_added_for_what_the_first_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    faces = {"Alpha": {0x732B}, "Noto Sans CJK SC": {0x732B, 0x72D7}, "Beta": {0x1F98A}, "Last Resort": {0x5B57}}
    entries = [FontEntry(fname=f"{name}.ttf", name=name, weight=400) for name in faces]
    monkeypatch.setattr(fontManager, "ttflist", [*fontManager.ttflist[:0], *entries])
    monkeypatch.setattr(fonts, "_characters", lambda entry: frozenset(faces[entry.name]))
    monkeypatch.setattr(fonts, "_installed", lambda: ())
    assert families_for("猫") == [FIRST, "Noto Sans CJK SC"]  # preferred to Alpha
    assert families_for("猫🦊") == [FIRST, "Noto Sans CJK SC", "Beta"]
    assert families_for("字") == [FIRST]  # a font of boxes is none


def test_fonts_installed_after_matplotlib_made_its_list_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = FontEntry(fname="fresh.ttf", name="Fresh", weight=400)
    monkeypatch.setattr(fontManager, "ttflist", [])
    monkeypatch.setattr(fontManager, "addfont", lambda path: fontManager.ttflist.append(fresh))
    monkeypatch.setattr(fonts, "_installed", lambda: (__file__,))
    monkeypatch.setattr(fonts, "_characters", lambda entry: frozenset({0x732B}))
    assert families_for("猫") == [FIRST, "Fresh"]


def test_a_chinese_label_is_drawn_where_there_is_a_font(recwarn: pytest.WarningsRecorder) -> None:
    from regard.inspection.records import Grid
    from regard.plot.figure import draw
    from regard.plot.save import figure_bytes

    if families_for("猫") == [FIRST]:
        pytest.skip("no installed font has Chinese characters (such as Debian's fonts-noto-cjk)")
    for form in ("png", "pdf"):
        assert figure_bytes(draw(Grid([[1.0]], ["猫"], ["日本語"])), form)
    assert not [warning for warning in recwarn if "in no installed font" in str(warning.message)]
