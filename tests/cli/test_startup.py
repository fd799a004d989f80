"""Help, the version and mistakes in the options answer without loading torch; Ctrl-C while torch loads is one line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard import models
from regard.bench import contenders
from regard.cli import options
from regard.engine.native import library

HEAVY = ("torch", "numpy", "rich", "platformdirs", "matplotlib")
PROGRAM = f"""
import json, sys
from regard.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(json.dumps([code, [name for name in {HEAVY!r} if name in sys.modules]]), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments, code",
    [
        (["--version"], 0),
        (["--help"], 0),
        *(([name, "--help"], 0) for name in options.COMMANDS),
        (["models", "get", "--help"], 0),
        ([], 2),
        (["sea"], 2),
        (["see", "--lair", "1"], 2),
        (["bench", "--dtype", "int8"], 2),
    ],
)
def test_nothing_heavy_is_loaded(arguments: list[str], code: int) -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    assert json.loads(ended.stderr.splitlines()[-1]) == [code, []]


def test_names_in_the_options_are_those_of_the_library() -> None:
    assert tuple(contenders.PEERS) == options.PEERS
    assert tuple(str(dtype).removeprefix("torch.") for dtype in library.DTYPES) == options.DTYPES
    assert tuple(model.name for model in models.known()) == options.MODELS


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_while_torch_is_loaded_is_one_line(tmp_path: Path) -> None:
    """A torch that is interrupted while it is imported stands for the real one, which takes a second or more."""
    (tmp_path / "torch.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background lets it be ignored\n"
        "from regard.cli import main\n"
        "sys.exit(main(['see', 'The cat sleeps']))\n"
    )
    env = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(regard.__file__).parents[1]}"}
    ended = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.SIGINT, "", "interrupted\n")
