"""What the full run found, beside the findings of a quick one.

`full.json` holds takeaway, finding and verdicts of the last full run of each experiment, with its versions, machine,
seed and date. `regard lab all --record FILE` writes it; nothing in it is typed by hand.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from regard.inspection.files import replace
from regard.lab.report import Claim, Report, printed

FULL = Path(__file__).parent / "full.json"
NAMED = ("seed", "regard", "torch", "python", "machine")  # settings that are kept


@dataclass(frozen=True)
class FullRun:
    """One experiment of the full run: what was found, and how it was made."""

    takeaway: str
    finding: str
    verdicts: dict[str, tuple[str, str]]  # the number as printed and the verdict, by quotation and what was measured
    made: str

    @property
    def said(self) -> str:
        """Takeaway and finding."""
        return " ".join(each for each in (self.takeaway, self.finding) if each)

    def verdict(self, claim: Claim) -> str:
        """What the full run said of a claim that is not shown here; empty where the same was not measured."""
        here, word = self.verdicts.get(_key(claim), ("", ""))
        return f" (the full run: {word}, {here})" if word and claim.verdict == "not shown" else ""


def _key(claim: Claim) -> str:
    return f"{claim.quote.document}: {claim.quote.text}: {claim.measured}"


def full_run(report: Report) -> FullRun | None:
    """What the full run found in this experiment; None for a full run, and where none is known."""
    return recorded(FULL).get(report.name) if report.settings.get("quick") else None


@cache
def recorded(path: Path) -> dict[str, FullRun]:
    """The experiments of a record, by name; none if there is no such file."""
    if not path.exists():
        return {}
    return {
        name: FullRun(
            entry["takeaway"],
            entry["finding"],
            {key: (here, word) for key, (here, word) in entry["verdicts"].items()},
            f"regard {entry['made']['regard']}, seed {entry['made']['seed']}, {entry['made']['date']}, "
            f"{entry['made']['machine']}",
        )
        for name, entry in _entries(path).items()
    }


def _entries(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def record(reports: Iterable[Report], path: str | os.PathLike[str]) -> None:
    """Write what full runs found to a file. Experiments that are in the file and not in `reports` stay as they are."""
    path = Path(path)
    entries = _entries(path) if path.exists() else {}
    date = datetime.now(UTC).date().isoformat()
    for report in reports:
        if report.settings["quick"]:
            raise ValueError(f"a full run is recorded, and {report.name} was run with quick=True")
        entries[report.name] = {
            "takeaway": report.takeaway.sentence if report.takeaway else "",
            "finding": report.finding,
            "verdicts": {
                _key(claim): [printed(claim.here), claim.verdict]
                for compared in report.compared
                for claim in compared.claims
            },
            "made": {**{name: report.settings[name] for name in NAMED}, "date": date},
        }
    replace(path, (json.dumps(dict(sorted(entries.items())), ensure_ascii=False, indent=1) + "\n").encode())
    recorded.cache_clear()
