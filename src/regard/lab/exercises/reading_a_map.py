"""Exercise 2: reading the translation map of the mini-course. Every answer is computed from its weights."""

from collections.abc import Mapping

from regard.inspection.records import Table
from regard.lab.exercises.exercise import Answer, Chapter, Exercise, Part, Verdict
from regard.lab.exercises.words import listed, some, unknown
from regard.lab.maps import TRANSLATION as MAP
from regard.plot import table

STRONG = 0.5  # a link that takes more than this share of a row has no rival
HEARD = 0.2  # a weight from here on counts as attention; 0.1 beside 0.8 does not
VERB = "sits"

TASK = f"""\
The map shows which English words the French words attend to while they are
written: rows are French, columns English.

  links     Which words are strongly linked?
            Pairs [French, English] whose weight is above {STRONG}.
  several   Which French words attend to several English ones?
            Those with at least two weights of {HEARD} or more.
  {VERB}      How does "{VERB}" become two words?
            words: the French words that give it their largest weight;
            received: the sum of all weights it gets, its column."""


def weight(row: str, column: str) -> float:
    """The weight that a French word gives to an English one."""
    return MAP.weights[MAP.rows.index(row)][MAP.columns.index(column)]


def strongest(row: str) -> str:
    """The English word that gets most of this French word's attention."""
    return max(MAP.columns, key=lambda column: weight(row, column))


def heard(row: str) -> list[str]:
    """The English words that this French word attends to."""
    return [column for column in MAP.columns if weight(row, column) >= HEARD]


LINKS = {(row, column) for row in MAP.rows for column in MAP.columns if weight(row, column) > STRONG}
SEVERAL = {row for row in MAP.rows if len(heard(row)) > 1}
VERB_WORDS = {row for row in MAP.rows if strongest(row) == VERB}
RECEIVED = float(MAP.statistics("received")["received"][MAP.columns.index(VERB)])


def check_links(given: object, _: Answer) -> Verdict:
    """Compare pairs, each with a reason of its own."""
    entries = list(given.items()) if isinstance(given, Mapping) else listed(given)
    pairs = [listed(entry) for entry in entries or ()]
    if entries is None or any(pair is None or len(pair) != 2 for pair in pairs):
        return Verdict("links", False, 'give pairs, as in [["chat", "cat"]]')
    found = [(pair[0], pair[1]) for pair in pairs if pair is not None]
    if found and all(row in MAP.columns and column in MAP.rows for row, column in found):
        return Verdict("links", False, "the pairs are the wrong way round: the French word, which looks, comes first")
    for row, column in found:
        wrong = unknown(row, MAP.rows, MAP.columns, "row") or unknown(column, MAP.rows, MAP.columns, "column")
        if wrong:
            return Verdict("links", False, wrong)
    extra = [(str(row), str(column)) for row, column in found if (row, column) not in LINKS]
    if extra:
        return Verdict("links", False, "; ".join(_weak(row, column) for row, column in extra))
    missing = [row for row in MAP.rows if any(link[0] == row for link in LINKS - set(found))]
    if missing:
        return Verdict("links", False, f"right so far, but look at the row{'s' * (len(missing) > 1)} {some(missing)}")
    return Verdict("links", True, "right")


def _weak(row: str, column: str) -> str:
    share = weight(row, column)
    if strongest(row) == column:
        return f"{column!r} is what {row!r} attends to most, but {share} is not above {STRONG}"
    return f"{row!r} gives {column!r} only {share}"


def check_several(given: object, _: Answer) -> Verdict:
    """Compare words, and say why one of them attends to a single word."""
    words = listed(given)
    if words is None:
        return Verdict("several", False, 'give a list of French words, as in ["chat"]')
    for word in words:
        wrong = unknown(word, MAP.rows, MAP.columns, "row")
        if wrong:
            return Verdict("several", False, wrong)
    extra = [str(word) for word in words if word not in SEVERAL]
    if set(words) == set(MAP.rows):
        text = f"every row has more than one weight above 0, but {HEARD} is where attention begins here"
        return Verdict("several", False, text)
    if extra:
        return Verdict("several", False, "; ".join(_single(word) for word in extra))
    if SEVERAL - set(words):
        return Verdict("several", False, f"{len(SEVERAL - set(words))} missing: look for a row without a clear winner")
    return Verdict("several", True, "right")


def _single(row: str) -> str:
    best = strongest(row)
    rest = max(weight(row, column) for column in MAP.columns if column != best)
    return f"{row!r} gives {best!r} {weight(row, best)} and no other word more than {rest}"


def check_verb(given: object, _: Answer) -> Verdict:
    """Compare the two words, and the sum of the column."""
    if not isinstance(given, Mapping) or not set(given) <= {"words", "received"} or not given:
        return Verdict(VERB, False, 'give {"words": [...], "received": ...}, or one of the two')
    wrong = [text for text in (_verb_words(given), _received(given)) if text]
    return Verdict(VERB, not wrong, "; ".join(wrong) or "right")


def _verb_words(given: Answer) -> str:
    if "words" not in given:
        return ""
    words = listed(given["words"])
    if words is None:
        return 'words: give a list of French words, as in ["chat"]'
    for word in words:
        wrong = unknown(word, MAP.rows, MAP.columns, "row")
        if wrong:
            return f"words: {wrong}"
    extra = [str(word) for word in words if word not in VERB_WORDS]
    if extra:
        return f"words: {'; '.join(f'{word!r} attends most to {strongest(word)!r}' for word in extra)}"
    missing = VERB_WORDS - {str(word) for word in words}
    return f"words: {len(missing)} missing, read down the column {VERB!r}" if missing else ""


def _received(given: Answer) -> str:
    if "received" not in given:
        return ""
    number = given["received"]
    if isinstance(number, bool) or not isinstance(number, int | float):
        return f"received: give a number, got {number!r}"
    if abs(number - RECEIVED) <= 0.005:
        return ""
    both = sum(weight(row, VERB) for row in VERB_WORDS)
    row_mistakes = {
        both: f"that is {some(sorted(VERB_WORDS))} alone; other words give {VERB!r} a little too",
        1.0: "rows sum to 1, columns need not: add the column up",
        max(weight(row, VERB) for row in MAP.rows): "that is the largest weight of the column; add all of them",
        RECEIVED / len(MAP.rows): "that is the mean of the column; wanted is the sum",
    }
    for value, text in row_mistakes.items():
        if abs(number - value) <= 0.005:
            return f"received: {text}"
    return f"received: add up the column {VERB!r}, one weight from each of the {len(MAP.rows)} rows"


def solution(width: int) -> str:
    """The three answers, read off the weights."""
    keys = MAP.statistics("entropy")["entropy"].exp().tolist()
    rows = [
        (row, strongest(row), weight(row, strongest(row)), ", ".join(heard(row)), keys[index])
        for index, row in enumerate(MAP.rows)
    ]
    read = Table(("French", "most to", "weight", f"weights ≥ {HEARD}", "words in use e^H"), rows, "Reading the rows")
    links = ", ".join(f"{row}–{column}" for row in MAP.rows for column in MAP.columns if (row, column) in LINKS)
    column = [f"{row} {weight(row, VERB)}" for row in MAP.rows if weight(row, VERB)]
    verb_words = [row for row in MAP.rows if row in VERB_WORDS]
    in_use = {row: keys[MAP.rows.index(row)] for row in SEVERAL}
    return "\n\n".join(
        [
            table(read),
            f"1. links: {links}.",
            f"2. several: {', '.join(f'{row} ({number:.1f} words in use)' for row, number in in_use.items())}.",
            f"3. {VERB}: the column holds {', '.join(column)}, which is {RECEIVED:.1f} in all. {some(verb_words)} both "
            f"take {VERB!r} as their main source, so one English word is read twice and gives two French words: "
            "nothing forces a column to sum to 1, and an alignment need not be one to one.",
        ]
    )


EXERCISE = Exercise(
    2,
    "Reading a translation map",
    Chapter("mini-course", "Visualizing attention scores", ("translation", "rows")),
    TASK,
    (
        Part(
            "links",
            f"pairs [French, English] with a weight above {STRONG}",
            [[row, column] for row in MAP.rows for column in MAP.columns if (row, column) in LINKS],
            check_links,
        ),
        Part("several", f"French words with at least two weights of {HEARD} or more", sorted(SEVERAL), check_several),
        Part(
            VERB,
            f"the words {VERB!r} becomes, and the sum of its column",
            {"words": [row for row in MAP.rows if row in VERB_WORDS], "received": round(RECEIVED, 4)},
            check_verb,
        ),
    ),
    '{"links": [["chat", "mat"]], "several": ["chat"], "sits": {"words": ["chat"], "received": 1}}',
    solution,
    MAP.grid(),
)
