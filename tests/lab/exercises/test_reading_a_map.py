"""Exercise 2: answers are computed from the map, and each misreading is told what it misread."""

import pytest

from regard.lab.exercises import check, exercise
from regard.lab.exercises.reading_a_map import LINKS, RECEIVED, SEVERAL, VERB_WORDS
from regard.lab.maps import TRANSLATION

RIGHT = [["Le", "The"], ["chat", "cat"], ["assis", "sits"], ["sur", "on"], ["le", "the"], ["tapis", "mat"]]


def said(part: str, given: object) -> str:
    """The verdict on a part that must be wrong."""
    (verdict,) = check(exercise(2), {part: given})
    assert not verdict.right
    return verdict.text


def test_answers_follow_from_the_weights() -> None:
    table = TRANSLATION.tensor()
    assert [tuple(pair) for pair in RIGHT] == LINKS
    assert len(LINKS) == int((table > 0.5).sum())
    assert SEVERAL == ["est"]
    assert VERB_WORDS == ["est", "assis"]
    assert pytest.approx(float(table[:, 2].sum())) == RECEIVED == pytest.approx(1.3)


@pytest.mark.parametrize(
    "answer",
    [
        {"links": RIGHT},
        {"links": dict(reversed(RIGHT))},
        {"several": ["est"]},
        {"words": ["assis", "est"], "received": 1.3},
        {"words": ["est", "assis"]},
        {"received": "13/10"},
    ],
)
def test_right_answers_pass(answer: dict[str, object]) -> None:
    assert all(verdict.right for verdict in check(exercise(2), answer))


@pytest.mark.parametrize(
    "given, text",
    [
        ([*RIGHT, ["est", "sits"]], "'sits' is what 'est' attends to most, but 0.4 is not above 0.5"),
        ([*RIGHT, ["sur", "the"]], "'sur' gives 'the' only 0.1"),
        (RIGHT[:5], "1 missing: look at the row 'tapis'"),
        (RIGHT[:4], "2 missing: look at the row 'le'; look at the row 'tapis'"),
        ([pair[::-1] for pair in RIGHT], "the pairs are the wrong way round"),
        ([["LE", "The"]], "'LE–The' is not in the map; did you mean 'Le–The'?"),
        ([["chat", "cats"]], "'chat–cats' is not in the map; did you mean 'chat–cat'?"),
        ([["zzzzzz", "xxxx"]], "'zzzzzz–xxxx' is not in the map"),
        ([["chat", "chat"]], "'chat–chat' is not in the map"),
        ([["chat", 3]], "give pairs, as in"),
        ([["chat"]], "give pairs, as in"),
        ("chat", "give pairs, as in"),
        ([], "6 missing: look at the row 'Le'; look at the row 'chat'; look at the row 'assis'"),
    ],
)
def test_misread_links(given: object, text: str) -> None:
    assert text in said("links", given)


@pytest.mark.parametrize(
    "given, text",
    [
        (["est", "assis"], "'assis' gives 'sits' 0.7 and no other word more than 0.1"),
        (list(TRANSLATION.rows), "every row has more than one weight above 0, but 0.2 is where attention begins"),
        (["sits"], "'sits' is no row, a word that looks"),
        ([], "1 missing: look for a row without a clear winner"),
        ("est", "give a list of French words"),
    ],
)
def test_misread_rows(given: object, text: str) -> None:
    assert text in said("several", given)


@pytest.mark.parametrize(
    "part, given, text",
    [
        ("words", ["est"], "1 missing: read down the column 'sits'"),
        ("words", ["est", "assis", "sur"], "'sur' attends most to 'on'"),
        ("words", ["on"], "'on' is no row"),
        ("words", "est", "give a list of French words"),
        ("received", 1.1, "that is 'est' and 'assis' alone"),
        ("received", 1, "rows sum to 1, columns need not"),
        ("received", 0.7, "that is the largest weight of the column"),
        ("received", 1.3 / 7, "that is the mean of the column"),
        ("received", 5, "too large; add up the column 'sits', one weight from each of the 7 rows"),
        ("received", True, "give a number, got True"),
    ],
)
def test_misread_columns(part: str, given: object, text: str) -> None:
    assert text in said(part, given)


def test_the_solution_reads_the_map() -> None:
    text = exercise(2).worked(200)
    assert "chat 0.1, est 0.4, assis 0.7, sur 0.1, which is 1.3 in all" in text
    assert "est (4.1 words in use)" in text
