"""Exercise 2: reading the translation map of the mini-course. Every answer is computed from its weights."""

from collections.abc import Sequence
from dataclasses import replace

from regard.inspection.records import Table
from regard.lab.exercises.exercise import Chapter, Exercise
from regard.lab.exercises.fresh import one_of, shuffled
from regard.lab.exercises.questions import Item, Quantity, Subset
from regard.lab.maps import TRANSLATION

STRONG = 0.5  # a link that takes more than this share of a row has no rival
ATTENDED = 0.2  # a weight from here on counts as attention; 0.1 beside 0.8 does not
VERB = "sits"
ALIGNED = (0, 1, 2, 2, 3, 4, 5)  # the column that each row means


def row(number: int) -> tuple[float, ...]:
    """Weights of a row in tenths: most for the word that it means, the rest for others, in steps of one."""
    printed = TRANSLATION.weights[number]
    tenths = [0] * len(printed)
    tenths[ALIGNED[number]] = most = one_of(round(10 * max(printed)), 4, 6, 7, 8)
    others = shuffled([column for column in range(len(printed)) if column != ALIGNED[number]])
    for column in (others + others[:1])[: 10 - most]:
        tenths[column] += 1
    return tuple(each / 10 for each in tenths)


MAP = replace(TRANSLATION, weights=one_of(TRANSLATION.weights, tuple(map(row, range(len(ALIGNED))))))

TASK = f"""\
The map shows which English words the French words attend to while they are
written: rows are French, columns English.

  links     Which words are strongly linked?
            Pairs [French, English] whose weight is above {STRONG}.
  several   Which French words attend to several English ones?
            Those with at least two weights of {ATTENDED} or more.
  words     How does "{VERB}" become two words?
            The French words that give it their largest weight.
  received  The sum of all weights that "{VERB}" gets: its column."""

WEIGHTS = {
    row: dict(zip(MAP.columns, weights, strict=True)) for row, weights in zip(MAP.rows, MAP.weights, strict=True)
}
STRONGEST = {row: max(MAP.columns, key=weights.__getitem__) for row, weights in WEIGHTS.items()}
SOURCES = {row: [column for column in MAP.columns if weights[column] >= ATTENDED] for row, weights in WEIGHTS.items()}
LINKS = [(row, column) for row in MAP.rows for column in MAP.columns if WEIGHTS[row][column] > STRONG]
SEVERAL = [row for row in MAP.rows if len(SOURCES[row]) > 1]
VERB_WORDS = [row for row in MAP.rows if STRONGEST[row] == VERB]
RECEIVED = float(MAP.statistics("received")["received"][MAP.columns.index(VERB)])
COLUMN = {row: weights[VERB] for row, weights in WEIGHTS.items()}


def quoted(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`, each in quotes."""
    *first, last = [repr(word) for word in words]
    return f"{', '.join(first)} and {last}" if first else last


def pairs() -> dict[Item, str]:
    """Every pair of a row and a column, and what is said of it."""
    texts: dict[Item, str] = {}
    for row, weights in WEIGHTS.items():
        for column, share in weights.items():
            if (row, column) in LINKS:
                texts[row, column] = f"look at the row {row!r}"
            elif STRONGEST[row] == column:
                texts[row, column] = f"{column!r} is what {row!r} attends to most, but {share} is not above {STRONG}"
            else:
                texts[row, column] = f"{row!r} gives {column!r} only {share}"
    reversed_text = "the pairs are the wrong way round: the French word, which looks, comes first"
    return texts | {(column, row): reversed_text for row in MAP.rows for column in MAP.columns}


def rows(right: Sequence[str], missing: str, wrong: dict[str, str]) -> dict[Item, str]:
    """Every row, and every column as a word that stands in the wrong place."""
    texts: dict[Item, str] = {row: missing if row in right else wrong[row] for row in MAP.rows}
    columns = (column for column in MAP.columns if column not in texts)
    return texts | {
        column: f"{column!r} is no row, a word that looks; the rows are {', '.join(MAP.rows)}" for column in columns
    }


def single(row: str) -> str:
    """Why a row attends to one word only."""
    second, best = sorted(WEIGHTS[row].values())[-2:]
    return f"{row!r} gives {STRONGEST[row]!r} {best} and no other word more than {second}"


FORM = 'a list of French words, as in ["chat"]'
PARTS = {
    "links": Subset(
        f"pairs [French, English] with a weight above {STRONG}",
        'pairs, as in [["chat", "cat"]]',
        pairs(),
        right=LINKS,
    ),
    "several": Subset(
        f"French words with at least two weights of {ATTENDED} or more",
        FORM,
        rows(SEVERAL, "look for a row without a clear winner", {row: single(row) for row in MAP.rows}),
        (MAP.rows, f"every row has more than one weight above 0, but {ATTENDED} is where attention begins here"),
        right=SEVERAL,
    ),
    "words": Subset(
        f"read down the column {VERB!r}: for which rows is it the largest weight?",
        FORM,
        rows(
            VERB_WORDS,
            f"read down the column {VERB!r}",
            {row: f"{row!r} attends most to {best!r}" for row, best in STRONGEST.items()},
        ),
        right=VERB_WORDS,
    ),
    "received": Quantity(
        (RECEIVED, f"add up the column {VERB!r}, one weight from each of the {len(MAP.rows)} rows"),
        (
            sum(COLUMN[row] for row in VERB_WORDS),
            f"that is {quoted(VERB_WORDS)} alone; other words give {VERB!r} a little too",
        ),
        (1, "rows sum to 1, columns need not: add the column up"),
        (max(COLUMN.values()), "that is the largest weight of the column; add all of them"),
        (RECEIVED / len(MAP.rows), "that is the mean of the column; wanted is the sum"),
    ),
}
IN_USE = dict(zip(MAP.rows, MAP.statistics("entropy")["entropy"].exp().tolist(), strict=True))
SOLUTION = (
    Table(
        ("French", "most to", "weight", f"weights ≥ {ATTENDED}", "words in use e^H"),
        [(row, best, WEIGHTS[row][best], ", ".join(SOURCES[row]), IN_USE[row]) for row, best in STRONGEST.items()],
        "Reading the rows",
    ),
    f"links: {', '.join(f'{row}–{column}' for row, column in LINKS)}.",
    f"several: {', '.join(f'{row} ({IN_USE[row]:.1f} words in use)' for row in SEVERAL)}.",
    f"words and received: the column {VERB!r} holds {', '.join(f'{row} {w}' for row, w in COLUMN.items() if w)}, which "
    f"is {RECEIVED:.1f} in all. {quoted(VERB_WORDS)} both take {VERB!r} as their main source, so one English word is "
    "read twice and gives two French words: nothing forces a column to sum to 1, and an alignment need not be one to "
    "one.",
)
EXERCISE = Exercise(
    2,
    "Reading a translation map",
    Chapter("mini-course", "Visualizing attention scores", ("translation", "rows")),
    TASK,
    PARTS,
    '{"links": [["chat", "mat"]], "several": ["chat"], "words": ["chat"], "received": 1}',
    SOLUTION,
    MAP.grid(),
)
