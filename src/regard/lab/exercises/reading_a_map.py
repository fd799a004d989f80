"""Exercise 2: reading the translation map of the mini-course. Every answer is computed from its weights."""

import difflib
from collections.abc import Callable, Mapping, Sequence

from regard.inspection.records import Table
from regard.lab.exercises.exercise import Answer, Chapter, Exercise, Judgement, Question
from regard.lab.exercises.numbers import as_lists
from regard.lab.maps import TRANSLATION as MAP

STRONG = 0.5  # a link that takes more than this share of a row has no rival
ATTENDED = 0.2  # a weight from here on counts as attention; 0.1 beside 0.8 does not
VERB = "sits"

TASK = f"""\
The map shows which English words the French words attend to while they are
written: rows are French, columns English.

  links     Which words are strongly linked?
            Pairs [French, English] whose weight is above {STRONG}.
  several   Which French words attend to several English ones?
            Those with at least two weights of {ATTENDED} or more.
  {VERB}      How does "{VERB}" become two words?
            words: the French words that give it their largest weight;
            received: the sum of all weights it gets, its column."""

WEIGHTS = {
    row: dict(zip(MAP.columns, weights, strict=True)) for row, weights in zip(MAP.rows, MAP.weights, strict=True)
}
STRONGEST = {row: max(MAP.columns, key=weights.__getitem__) for row, weights in WEIGHTS.items()}
SOURCES = {row: [column for column in MAP.columns if weights[column] >= ATTENDED] for row, weights in WEIGHTS.items()}
LINKS = [(row, column) for row in MAP.rows for column in MAP.columns if WEIGHTS[row][column] > STRONG]
SEVERAL = [row for row in MAP.rows if len(SOURCES[row]) > 1]
VERB_WORDS = [row for row in MAP.rows if STRONGEST[row] == VERB]
RECEIVED = float(MAP.statistics("received")["received"][MAP.columns.index(VERB)])


class CheckedAnswer(Question):
    """A part with a check of its own: `problem` says what is wrong with an answer, nothing if it is right."""

    def __init__(self, hint: str, right: object, problem: Callable[[object], str]) -> None:
        self.hint, self.right, self.problem = hint, right, problem

    def check(self, given: object, answer: Answer) -> Judgement:
        """Right if there is no problem."""
        problem = self.problem(given)
        return Judgement(not problem, problem or "right")


def unknown_word(word: object, axis: str) -> str:
    """What is wrong with a word that should be a "row" or a "column"; empty if nothing is."""
    words, others = (MAP.rows, MAP.columns) if axis == "row" else (MAP.columns, MAP.rows)
    if word in words:
        return ""
    if not isinstance(word, str):
        return f"words are text, got {word!r}"
    if word in others:
        kind = "row, a word that looks" if axis == "row" else "column, a word that is looked at"
        return f"{word!r} is no {kind}; the {axis}s are {', '.join(words)}"
    near = [each for each in words if each.lower() == word.lower()] or difflib.get_close_matches(word, words, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the {axis}s are {', '.join(words)}"
    return f"{word!r} is not in the map; {hint}"


def quoted(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`, each in quotes."""
    *first, last = [repr(word) for word in words]
    return f"{', '.join(first)} and {last}" if first else last


def check_links(given: object) -> str:
    """Compare pairs, each with a reason of its own."""
    entries = as_lists(list(given.items()) if isinstance(given, Mapping) else given)
    if not isinstance(entries, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in entries):
        return 'give pairs, as in [["chat", "cat"]]'
    if entries and all(row in MAP.columns and column in MAP.rows for row, column in entries):
        return "the pairs are the wrong way round: the French word, which looks, comes first"
    for row, column in entries:
        if problem := unknown_word(row, "row") or unknown_word(column, "column"):
            return problem
    pairs = [(row, column) for row, column in entries]
    if weak := [_weak(row, column) for row, column in pairs if (row, column) not in LINKS]:
        return "; ".join(weak)
    missing = [row for row, column in LINKS if (row, column) not in pairs]
    return f"right so far, but look at the row{'s' * (len(missing) > 1)} {quoted(missing)}" if missing else ""


def _weak(row: str, column: str) -> str:
    share = WEIGHTS[row][column]
    if STRONGEST[row] == column:
        return f"{column!r} is what {row!r} attends to most, but {share} is not above {STRONG}"
    return f"{row!r} gives {column!r} only {share}"


def french_words(given: object) -> list[str]:
    """The rows that were given; a ValueError says why they are none."""
    words = as_lists(given)
    if not isinstance(words, list):
        raise ValueError('give a list of French words, as in ["chat"]')
    for word in words:
        if problem := unknown_word(word, "row"):
            raise ValueError(problem)
    return words


def check_several(given: object) -> str:
    """Compare words, and say why one of them attends to a single word."""
    try:
        words = french_words(given)
    except ValueError as error:
        return str(error)
    if set(words) == set(MAP.rows):
        return f"every row has more than one weight above 0, but {ATTENDED} is where attention begins here"
    single = []
    for word in words:
        if word not in SEVERAL:
            second, best = sorted(WEIGHTS[word].values())[-2:]
            single.append(f"{word!r} gives {STRONGEST[word]!r} {best} and no other word more than {second}")
    if single:
        return "; ".join(single)
    missing = set(SEVERAL) - set(words)
    return f"{len(missing)} missing: look for a row without a clear winner" if missing else ""


def check_verb(given: object) -> str:
    """Compare the two words, and the sum of the column."""
    if not isinstance(given, Mapping) or not set(given) <= {"words", "received"} or not given:
        return 'give {"words": [...], "received": ...}, or one of the two'
    checks = {"words": check_verb_words, "received": check_received}
    problems = {name: check(given[name]) for name, check in checks.items() if name in given}
    return "; ".join(f"{name}: {problem}" for name, problem in problems.items() if problem)


def check_verb_words(given: object) -> str:
    """Compare the words whose largest weight is on the verb."""
    try:
        words = french_words(given)
    except ValueError as error:
        return str(error)
    if extra := [f"{word!r} attends most to {STRONGEST[word]!r}" for word in words if word not in VERB_WORDS]:
        return "; ".join(extra)
    missing = set(VERB_WORDS) - set(words)
    return f"{len(missing)} missing, read down the column {VERB!r}" if missing else ""


def check_received(number: object) -> str:
    """Compare the sum of the verb's column."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return f"give a number, got {number!r}"
    column = {row: weights[VERB] for row, weights in WEIGHTS.items()}
    answers = {
        RECEIVED: "",
        sum(column[row] for row in VERB_WORDS): f"that is {quoted(sorted(VERB_WORDS))} alone; "
        f"other words give {VERB!r} a little too",
        1.0: "rows sum to 1, columns need not: add the column up",
        max(column.values()): "that is the largest weight of the column; add all of them",
        RECEIVED / len(MAP.rows): "that is the mean of the column; wanted is the sum",
    }
    otherwise = f"add up the column {VERB!r}, one weight from each of the {len(MAP.rows)} rows"
    return next((text for value, text in answers.items() if abs(number - value) <= 0.005), otherwise)


PARTS = {
    "links": CheckedAnswer(
        f"pairs [French, English] with a weight above {STRONG}", [list(pair) for pair in LINKS], check_links
    ),
    "several": CheckedAnswer(f"French words with at least two weights of {ATTENDED} or more", SEVERAL, check_several),
    VERB: CheckedAnswer(
        f"the words {VERB!r} becomes, and the sum of its column",
        {"words": VERB_WORDS, "received": round(RECEIVED, 4)},
        check_verb,
    ),
}
IN_USE = dict(zip(MAP.rows, MAP.statistics("entropy")["entropy"].exp().tolist(), strict=True))
SOLUTION = (
    Table(
        ("French", "most to", "weight", f"weights ≥ {ATTENDED}", "words in use e^H"),
        [(row, best, WEIGHTS[row][best], ", ".join(SOURCES[row]), IN_USE[row]) for row, best in STRONGEST.items()],
        "Reading the rows",
    ),
    f"1. links: {', '.join(f'{row}–{column}' for row, column in LINKS)}.",
    f"2. several: {', '.join(f'{row} ({IN_USE[row]:.1f} words in use)' for row in SEVERAL)}.",
    f"3. {VERB}: the column holds {', '.join(f'{row} {w[VERB]}' for row, w in WEIGHTS.items() if w[VERB])}, which is "
    f"{RECEIVED:.1f} in all. {quoted(VERB_WORDS)} both take {VERB!r} as their main source, so one English word is read "
    "twice and gives two French words: nothing forces a column to sum to 1, and an alignment need not be one to one.",
)
EXERCISE = Exercise(
    2,
    "Reading a translation map",
    Chapter("mini-course", "Visualizing attention scores", ("translation", "rows")),
    TASK,
    PARTS,
    '{"links": [["chat", "mat"]], "several": ["chat"], "sits": {"words": ["chat"], "received": 1}}',
    SOLUTION,
    MAP.grid(),
)
