"""Report: the result of an experiment as a record of numbers and sentences. It does not draw itself.

A verdict is never written by hand. A `Claim` holds an exact quotation, the number that was measured for it and a
`DecisionRule`; the verdict is what the rule says of the number as it is printed.
"""

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from regard.inspection.number import interval, short
from regard.inspection.records import Cell, Estimate, Picture, Table

# the four documents this project grew from, as reports cite them; docs/seeds.md goes through their claims
SCORE_FUNCTIONS = "score functions"
CONCEPTS = "important concepts"
MINI_COURSE = "mini-course"
RESULTS = "experiment results"

VERDICTS = ("confirmed", "partly", "corrected", "not shown")
QUOTES = Path(__file__).parent / "quotes.json"


@dataclass(frozen=True)
class Quote:
    """Words of one of the four documents, exactly as they stand there, and the heading above them."""

    document: str
    heading: str
    text: str

    @property
    def plain(self) -> str:
        """The words without Markdown: no asterisks, backquotes and borders of table cells."""
        cells = [cell.strip() for cell in self.text.replace("**", "").replace("`", "").split("|")]
        return " · ".join(cell for cell in cells if cell)


@cache
def _quotes() -> dict[tuple[str, str], Quote]:
    listed: dict[str, dict[str, list[str]]] = json.loads(QUOTES.read_text(encoding="utf-8"))
    return {
        (document, text): Quote(document, heading, text)
        for document, headings in listed.items()
        for heading, texts in headings.items()
        for text in texts
    }


def quoted(document: str, text: str) -> Quote:
    """The quotation with this text; `quotes.json` has the words and headings of all of them."""
    if (quote := _quotes().get((document, text))) is None:
        raise KeyError(f"quotes.json has no {text!r} of {document!r}; add it with the heading above it")
    return quote


@dataclass(frozen=True)
class DecisionRule:
    """Which word a number gets: one for each band of values, from low to high.

    A band reaches up to its bound, which belongs to it; the last one has no bound. An interval that lies in one band,
    or in bands of one word, gets that word; any other is *not shown*: there are too few runs to tell. The words of a
    claim are verdicts; a finding has words of its own.
    """

    bands: tuple[tuple[float, str], ...]

    def __post_init__(self) -> None:
        bounds = [bound for bound, _ in self.bands]
        assert bounds == sorted(set(bounds)), bounds
        assert bounds[-1] == math.inf

    def verdict(self, here: float | Estimate, otherwise: str = "not shown") -> str:
        """The word for a number or an interval, as they are printed; `otherwise` if the interval holds a bound."""
        low, high = printed_range(here)
        starts = [-math.inf, *(bound for bound, _ in self.bands)]
        words = {
            word for start, (bound, word) in zip(starts, self.bands, strict=False) if low <= bound and start < high
        }
        return words.pop() if len(words) == 1 else otherwise

    def __str__(self) -> str:
        words = [word for _, word in self.bands]
        bounds = [short(bound, 6) for bound, _ in self.bands[:-1]]
        if len(words) == 2:
            first = words[0] == "confirmed"
            where = f"up to {bounds[0]}" if first else f"above {bounds[0]}"
            return f"{words[1 - first]} {where}, {words[first]} else"
        if len(words) == 3 and words[0] == words[2]:
            return f"{words[1]} above {bounds[0]} up to {bounds[1]}, {words[0]} else"
        listed = [f"{word} up to {bound}" for word, bound in zip(words, bounds, strict=False)]
        return ", ".join([*listed, f"{words[-1]} above"])


def above(bound: float, otherwise: str = "corrected") -> DecisionRule:
    """Confirmed above a bound."""
    return DecisionRule(((bound, otherwise), (math.inf, "confirmed")))


def below(bound: float, otherwise: str = "corrected") -> DecisionRule:
    """Confirmed up to a bound."""
    return DecisionRule(((bound, "confirmed"), (math.inf, otherwise)))


def within(low: float, high: float, otherwise: str = "corrected") -> DecisionRule:
    """Confirmed above `low` and up to `high`."""
    return DecisionRule(((low, otherwise), (high, "confirmed"), (math.inf, otherwise)))


def near(figure: float, by: float, otherwise: str = "corrected") -> DecisionRule:
    """Confirmed within ±`by` of a figure."""
    return within(figure - by, figure + by, otherwise)


def rounds_to(figure: float, decimals: int, otherwise: str = "corrected") -> DecisionRule:
    """Confirmed if the number, rounded to so many decimals, is the figure."""
    return near(figure, 0.5 * 10.0**-decimals, otherwise)


def all_of(count: int) -> DecisionRule:
    """Confirmed if all of them do, partly if some do, corrected if none does."""
    middle: tuple[tuple[float, str], ...] = ((count - 0.5, "partly"),) if count > 1 else ()
    return DecisionRule(((0.5, "corrected"), *middle, (math.inf, "confirmed")))


def printed_range(here: float | Estimate) -> tuple[float, float]:
    """The ends of an interval as they are printed; a single number is both."""
    text = printed(here)
    if isinstance(here, Estimate):
        low, high = text.partition("[")[2].removesuffix("]").split(", ")
        return float(low), float(high)
    return float(text), float(text)


def printed(here: float | Estimate) -> str:
    """A measured number, as the reports print it."""
    return interval(here) if isinstance(here, Estimate) else short(here, 6)


@dataclass(frozen=True)
class Claim:
    """A quotation, what was measured for it, and the rule that turns the number into a verdict.

    `measured` says what the number is. `note` adds what a reader needs to know beside the verdict.
    """

    quote: Quote
    measured: str
    here: float | Estimate
    rule: DecisionRule
    note: str = ""

    def __post_init__(self) -> None:
        assert all(word in VERDICTS for _, word in self.rule.bands), self.rule

    @property
    def verdict(self) -> str:
        """What the rule says of the number."""
        return self.rule.verdict(self.here)

    @property
    def outcome(self) -> str:
        """The verdict with its note."""
        return f"{self.verdict}: {self.note}" if self.note else self.verdict


COLUMNS = ("the seed says", "measured", "here", "rule", "verdict")


@dataclass(frozen=True)
class Compared:
    """The claims of one place in one source."""

    source: str
    claims: tuple[Claim, ...]

    def table(self) -> Table:
        """The quotations beside what was measured for them."""
        rows = [
            (
                f"“{claim.quote.plain}”",
                claim.measured,
                printed(claim.here),
                str(claim.rule),
                claim.outcome,
            )
            for claim in self.claims
        ]
        return Table(COLUMNS, rows, title=f"seed: {self.source}")


def compared(*claims: Claim) -> tuple[Compared, ...]:
    """Claims by document and heading, in the order in which each is first met."""
    places: dict[str, list[Claim]] = {}
    for claim in claims:
        places.setdefault(f"{claim.quote.document}, {claim.quote.heading}", []).append(claim)
    return tuple(Compared(place, tuple(those)) for place, those in places.items())


@dataclass(frozen=True)
class Evidence:
    """A number, what it is, and the rule that judges it."""

    measured: str
    here: float | Estimate
    rule: DecisionRule

    @property
    def verdict(self) -> str:
        """What the rule says of the number."""
        return self.rule.verdict(self.here)


@dataclass(frozen=True)
class Takeaway:
    """The one sentence to remember, and the numbers that decide whether it is said.

    It is said if the rules confirm every number. If one does not, `otherwise` is said instead; if a number is *not
    shown*, so is the sentence.
    """

    says: str
    otherwise: str
    evidence: tuple[Evidence, ...]

    def __post_init__(self) -> None:
        assert self.evidence
        assert all(sentence.endswith(".") for sentence in (self.says, self.otherwise))

    @property
    def verdict(self) -> str:
        """*confirmed*, *corrected* or *not shown*."""
        words = {each.verdict for each in self.evidence}
        if words == {"confirmed"}:
            return "confirmed"
        return "corrected" if words - {"confirmed", "not shown"} else "not shown"

    @property
    def sentence(self) -> str:
        """What the numbers allow to say."""
        match self.verdict:
            case "confirmed":
                return self.says
            case "corrected":
                return self.otherwise
        return f"Not shown with this many runs: “{self.says}”"


@dataclass(frozen=True)
class Timing:
    """Measured times: the only part of a report that differs between two runs with one seed."""

    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Report:
    """One experiment: its question, tables, pictures, finding, and the claims it was held against.

    `why` says in a sentence why the question matters, `setup` what was done, in words that a student understands, and
    `takeaway` what to remember. `settings` are what is needed to run it again. The first table and picture are the ones
    to look at first. `thumbnail` is the small picture of the page of all reports; without it, the first picture is, or
    the first one of a panel.
    """

    name: str
    question: str
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]
    finding: str
    compared: tuple[Compared, ...]
    settings: dict[str, Cell]
    timing: Timing | None = None
    why: str = ""
    setup: str = ""
    takeaway: Takeaway | None = None
    thumbnail: Picture | None = None
