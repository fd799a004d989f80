"""Report: the result of an experiment as a record of numbers and sentences. It does not draw itself."""

from dataclasses import dataclass

from regard.inspection.records import Cell, Estimate, Picture, Table

# the four documents this project grew from, as reports cite them; docs/seeds.md goes through their claims
SCORE_FUNCTIONS = "seed: score functions"
CONCEPTS = "seed: important concepts"
MINI_COURSE = "seed: mini-course"
RESULTS = "seed: experiment results"

VERDICTS = ("confirmed", "partly", "corrected", "not confirmed", "not shown", "not said")


@dataclass(frozen=True)
class Claim:
    """A figure or statement of a source, what this run measured for it, and the verdict that follows.

    A verdict begins with one of `VERDICTS`: *not shown* if the run is too small to tell, *not said* if the source says
    nothing of it.
    """

    says: str
    figure: Cell
    here: Cell
    verdict: str

    def __post_init__(self) -> None:
        assert self.kind, f"{self.says}: {self.verdict}"

    @property
    def kind(self) -> str:
        """Which of the verdicts it is."""
        return next((kind for kind in VERDICTS if self.verdict.startswith(kind)), "")


@dataclass(frozen=True)
class Compared:
    """The claims of one place in one source."""

    source: str
    claims: tuple[Claim, ...]

    def table(self) -> Table:
        """The source's own figures beside ours."""
        rows = [(claim.says, claim.figure, claim.here, claim.verdict) for claim in self.claims]
        return Table(("claim", "the seed", "here", "verdict"), rows, title=self.source)


@dataclass(frozen=True)
class Timing:
    """Measured times: the only part of a report that differs between two runs with one seed."""

    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Report:
    """One experiment: its question, tables, pictures, one sentence of finding, and the claims it was held against.

    `settings` are what is needed to run it again. The first table and picture are the ones to look at first.
    """

    name: str
    question: str
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]
    finding: str
    compared: tuple[Compared, ...]
    settings: dict[str, Cell]
    timing: Timing | None = None


def agrees(figure: float, here: float | Estimate, decimals: int) -> bool:
    """Whether ours, rounded as the figure was, gives the figure; of an estimate, some point of its interval."""
    half = 0.5 * 10.0**-decimals + 1e-12
    low, high = (here.low, here.high) if isinstance(here, Estimate) else (here, here)
    return low - half <= figure <= high + half


def confirmed(holds: bool, otherwise: str = "not confirmed") -> str:
    """The verdict of a claim that either holds or not."""
    return "confirmed" if holds else otherwise


def above_zero(difference: Estimate, otherwise: str = "not confirmed") -> str:
    """The verdict of a claim that a difference is positive: *not shown* if its interval holds 0."""
    return "confirmed" if difference.low > 0 else "not shown" if difference.high > 0 else otherwise
