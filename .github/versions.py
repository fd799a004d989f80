"""`make versions`: the tests with the oldest versions that pyproject.toml allows, the pinned ones, and the newest.

`python versions.py FOLDER [--only oldest newest] [-- pytest arguments]`. Each environment is a folder in FOLDER, and
what is installed there is kept for the next run. All get the same wheel. One that fails does not stop the others. The
table at the end goes into docs/versions.md.
"""

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SHOWN = ("torch", "transformers", "numpy")
RAISED = ("safetensors",)  # the oldest transformers asks for a newer one than regard does
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed")


@dataclass(frozen=True)
class Environment:
    """The versions that one run of the tests uses."""

    name: str
    python: str
    constraints: str  # the text of a constraints file


@dataclass(frozen=True)
class Outcome:
    """What one run gave: the row of the table, and whether every test passed."""

    row: tuple[str, ...]
    green: bool


def environments() -> list[Environment]:
    """From pyproject.toml's lower bounds to no bound at all."""
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return [
        Environment("oldest", "3.11", "\n".join(lower_bounds())),
        Environment("pinned", "3.11", pinned),
        Environment("newest", "3.13", ""),
    ]


def lower_bounds() -> list[str]:
    """Every `name>=version` of pyproject.toml as `name==version`."""
    project, groups = pyproject()
    lists = (project["dependencies"], *project["optional-dependencies"].values(), *groups.values())
    asked = [item for items in lists for item in items if not item.startswith("regard[")]
    bounds = [re.fullmatch(r"([\w-]+)(?:\[[\w,-]+\])?>=([\d.]+)", item) for item in asked]
    assert all(bounds), f"a requirement that is not name>=version, among {asked}"
    return sorted({f"{bound[1]}{'>=' if bound[1] in RAISED else '=='}{bound[2]}" for bound in bounds if bound})


def pyproject() -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Its table [project] and its dependency groups."""
    made = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return made["project"], made["dependency-groups"]


def interpreter(version: str) -> str:
    """The Python of this version: on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    for command in filter(shutil.which, candidates):
        said = subprocess.run([command, "--version"], capture_output=True, text=True)
        if said.stdout.startswith(f"Python {version}."):
            return command
    raise RuntimeError(f"needs Python {version}: install it, so that python{version} is on the PATH")


def run(*command: str | Path) -> None:
    """A command whose output is shown; its failure is an error."""
    print("+", *command, flush=True)
    subprocess.run(list(map(str, command)), cwd=ROOT, check=True)


def prepare(environment: Environment, folder: Path, wheels: Path) -> Path:
    """The interpreter of the environment, with everything installed; packages only where they changed."""
    home = folder / environment.name
    python = home / "bin" / "python"
    constraints = folder / f"{environment.name}.txt"
    constraints.write_text(environment.constraints, encoding="utf-8")
    if not python.exists():
        run(interpreter(environment.python), "-m", "venv", home)
    install = (python, "-m", "pip", "install", "--quiet", "--upgrade")
    stamp, wanted = home / "installed.txt", hashlib.sha256("\n".join(requirements(environment)).encode()).hexdigest()
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        run(*install, "pip>=26")
        run(*install, "--constraint", constraints, *requirements(environment)[1:])
        stamp.write_text(wanted, encoding="utf-8")
    if not any(wheels.glob("regard-*.whl")):
        run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT)
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", *wheels.glob("regard-*.whl"))
    return python


def requirements(environment: Environment) -> list[str]:
    """The constraints, then all that regard and its tests ask for."""
    project, groups = pyproject()
    return [environment.constraints, *project["dependencies"], *groups["dev"], *groups["oracles"]]


def test(python: Path, arguments: list[str], log: Path) -> dict[str, int]:
    """Counts by outcome; the output is shown and kept in `log`."""
    command = [str(python), "-m", "pytest", "-m", "not slow", *arguments]
    print("+", *command, flush=True)
    with (
        log.open("w", encoding="utf-8") as kept,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            print(line, end="", flush=True)
            kept.write(line)
            last = line.strip() or last
    counts = {name: int(count) for count, name in re.findall(r"(\d+) ([a-z]+)", last) if name.rstrip("s") in OUTCOMES}
    if process.returncode not in (0, 1) or not counts:
        raise RuntimeError(f"pytest ended with {process.returncode}: {last}")
    return counts


def versions(python: Path) -> list[str]:
    """Of Python and of the packages that the table shows."""
    program = "import platform, sys; from importlib.metadata import version; "
    program += "print(platform.python_version(), *map(version, sys.argv[1:]))"
    return subprocess.run([python, "-c", program, *SHOWN], capture_output=True, text=True, check=True).stdout.split()


def outcome(environment: Environment, folder: Path, wheels: Path, arguments: list[str]) -> Outcome:
    """Build the environment and run the tests in it; what went wrong stands in the row."""
    start = time.monotonic()
    try:
        python = prepare(environment, folder, wheels)
        known = versions(python)
        start = time.monotonic()
        counts = test(python, arguments, folder / f"{environment.name}.log")
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"{environment.name}: {error}", file=sys.stderr, flush=True)
        return Outcome((environment.name, environment.python, *["?"] * (len(SHOWN) + 3), str(error)), green=False)
    failed = sum(counts.get(name, 0) for name in ("failed", "error", "errors"))
    minutes = f"{(time.monotonic() - start) / 60:.0f}"
    shown = (counts.get("passed", 0), failed, counts.get("skipped", 0))
    return Outcome((environment.name, *known, *map(str, shown), minutes), green=not failed)


def table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The rows as Markdown."""
    heads = ("environment", "Python", *SHOWN, "passed", "failed", "skipped", "minutes")
    for row in (heads, ("---",) * len(heads), *rows):
        yield f"| {' | '.join(row)} |"


def processor() -> str:
    """Its name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", info.read_text(encoding="utf-8")) if info.exists() else None
    return f"{named[1] if named else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def main() -> int:
    """All environments, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", choices=[one.name for one in environments()], default=[])
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:end])
    folder = options.folder.resolve()
    wheels = folder / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)  # the tree may have changed
    wheels.mkdir(parents=True)
    chosen = [one for one in environments() if not options.only or one.name in options.only]
    outcomes = []
    for environment in chosen:
        print(f"\n== {environment.name}", flush=True)
        outcomes.append(outcome(environment, folder, wheels, given[end + 1 :]))
    lines = [f"{datetime.now(UTC):%Y-%m-%d}, {processor()}:", "", *table([one.row for one in outcomes])]
    (folder / "result.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("", *lines, sep="\n")
    return 0 if all(one.green for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
