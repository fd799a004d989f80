"""`import regard` needs torch alone and is quick."""

import json
import subprocess
import sys

# Prints what `import regard` adds to `import torch`: its share of time of the processor (one thread works; torch's part
# tells how fast the machine is), and the modules.
MEASURE = """
import json, sys, time
start = time.process_time()
import torch
before, middle = set(sys.modules), time.process_time()
import regard
share = (time.process_time() - middle) / (middle - start)
print(json.dumps([share, sorted(set(sys.modules) - before)]))
"""

LOADED_WHEN_USED = {
    "regard.plot",
    "regard.lab",
    "regard.hf",
    "regard.models",
    "regard.bench",
    "regard.cli",
    "regard.testing",
}
BUDGET = 0.2
TRIES = 5


def import_regard() -> tuple[float, list[str]]:
    """The share and the modules that `import regard` adds to `import torch`, in a fresh interpreter."""
    answer = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    share, modules = json.loads(answer.stdout)
    return share, modules


def test_import_loads_nothing_optional() -> None:
    _, modules = import_regard()
    packages = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    assert packages - {"regard", "torch"} == set()
    assert LOADED_WHEN_USED.intersection(modules) == set()


def test_import_is_quick() -> None:
    # The best of a few tries: a busy machine can only make it slower.
    best = float("inf")
    for _ in range(TRIES):
        best = min(best, import_regard()[0])
        if best <= BUDGET:
            break
    assert best <= BUDGET, f"`import regard` took {best:.2f} of torch's own time, {BUDGET} are allowed"
