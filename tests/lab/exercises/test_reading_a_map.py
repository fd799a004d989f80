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
        {"sits": {"words": ["assis", "est"], "received": 1.3}},
        {"sits": {"words": ["est", "assis"]}},
        {"sits": {"received": 1.3}},
    ],
)
def test_right_answers_pass(answer: dict[str, object]) -> None:
    assert all(verdict.right for verdict in check(exercise(2), answer))


@pytest.mark.parametrize(
    "given, text",
    [
        ([*RIGHT, ["est", "sits"]], "'sits' is what 'est' attends to most, but 0.4 is not above 0.5"),
        ([*RIGHT, ["sur", "the"]], "'sur' gives 'the' only 0.1"),
        (RIGHT[:5], "right so far, but look at the row 'tapis'"),
        (RIGHT[:4], "look at the rows 'le' and 'tapis'"),
        ([pair[::-1] for pair in RIGHT], "the pairs are the wrong way round"),
        ([["LE", "The"]], "'LE' is not in the map; did you mean 'Le'?"),
        ([["chat", "cats"]], "'cats' is not in the map; did you mean 'cat'?"),
        ([["chat", "zzzz"]], "'zzzz' is not in the map; the columns are The, cat, sits, on, the, mat"),
        ([["chat", "chat"]], "'chat' is no column, a word that is looked at"),
        ([["chat", 3]], "words are text, got 3"),
        ([["chat"]], "give pairs, as in"),
        ("chat", "give pairs, as in"),
        ([], "look at the rows 'Le', 'chat', 'assis', 'sur', 'le' and 'tapis'"),
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
    "given, text",
    [
        ({"words": ["est"]}, "words: 1 missing, read down the column 'sits'"),
        ({"words": ["est", "assis", "sur"]}, "words: 'sur' attends most to 'on'"),
        ({"words": ["on"]}, "words: 'on' is no row"),
        ({"words": "est"}, "words: give a list of French words"),
        ({"received": 1.1}, "received: that is 'assis' and 'est' alone"),
        ({"received": 1}, "received: rows sum to 1, columns need not"),
        ({"received": 0.7}, "received: that is the largest weight of the column"),
        ({"received": 1.3 / 7}, "received: that is the mean of the column"),
        ({"received": 5}, "received: add up the column 'sits', one weight from each of the 7 rows"),
        ({"received": "1.3"}, "received: give a number, got '1.3'"),
        ({"received": True}, "received: give a number, got True"),
        ({"total": 1.3}, 'give {"words": [...], "received": ...}'),
        ([], 'give {"words": [...], "received": ...}'),
    ],
)
def test_misread_columns(given: object, text: str) -> None:
    assert text in said("sits", given)


def test_the_solution_reads_the_map() -> None:
    text = exercise(2).worked(200)
    assert "chat 0.1, est 0.4, assis 0.7, sur 0.1, which is 1.3 in all" in text
    assert "est (4.1 words in use)" in text
