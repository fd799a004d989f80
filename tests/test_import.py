"""`import regard` loads the standard library alone; `attend` needs torch alone. Both are quick."""

import json
import subprocess
import sys

# Prints what `regard.attend` adds to `import torch`: its share of time of the processor (one thread works; torch's part
# tells how fast the machine is), and the modules.
MEASURE = """
import json, sys, time
import regard
alone = sorted(sys.modules)
start = time.process_time()
import torch
before, middle = set(sys.modules), time.process_time()
regard.attend
share = (time.process_time() - middle) / (middle - start)
print(json.dumps([share, alone, sorted(set(sys.modules) - before)]))
"""

LOADED_WHEN_USED = {
    "regard.plot",
    "regard.pages",
    "regard.lab",
    "regard.hf",
    "regard.models",
    "regard.bench",
    "regard.cli",
    "regard.testing",
}
BUDGET = 0.2
TRIES = 5


def import_regard() -> tuple[float, list[str], list[str]]:
    """The modules of `import regard`, and what `attend` adds to `import torch`, in a fresh interpreter."""
    answer = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    share, alone, modules = json.loads(answer.stdout)
    return share, alone, modules


def test_import_loads_nothing_but_the_package_itself() -> None:
    _, alone, _ = import_regard()
    assert [name for name in alone if name.startswith("regard")] == ["regard"]
    assert not {"torch", "numpy", "rich", "platformdirs", "safetensors"}.intersection(alone)


def test_attend_loads_nothing_optional() -> None:
    _, _, modules = import_regard()
    packages = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    assert packages - {"regard", "torch"} == set()
    assert LOADED_WHEN_USED.intersection(modules) == set()


def test_names_are_loaded_when_first_used() -> None:
    program = (
        "import regard, sys; from regard import masks; assert regard.masks is masks is sys.modules['regard.spec.masks']"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_import_is_quick() -> None:
    # The best of a few tries: a busy machine can only make it slower.
    best = float("inf")
    for _ in range(TRIES):
        best = min(best, import_regard()[0])
        if best <= BUDGET:
            break
    assert best <= BUDGET, f"loading `regard.attend` took {best:.2f} of torch's own time, {BUDGET} are allowed"
