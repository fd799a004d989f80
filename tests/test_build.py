"""Building the package: what the archives hold, and that it installs and runs where no compiler is found."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARIES = (".so", ".dylib", ".dll")

# Without the site module: the editable installation would answer in the copy's place.
RUN = """
import sys
sys.path[:0] = sys.argv[1:]
import torch, regard
q = torch.ones(1, 1, 3, 2)
assert regard.__file__.startswith(sys.argv[1]), regard.__file__
print(regard.attend(q, q, q).sum())
print(regard.matrix(q, q).entropy().shape)
try:
    regard.attend(q, q, q, engine="native")
except ValueError as error:
    print(error)
print(regard.plan(q, q, q))
"""
GET_IT = (
    "to get it, install GCC 12 or Clang 14, or newer, and then regard again, with pip's options --force-reinstall "
    "--no-deps --no-cache-dir"
)

# All of it is data or code that is used: modules, pages with their scripts and styles, texts, `py.typed`.
FILES = [
    file
    for file in (ROOT / "src" / "regard").rglob("*")
    if file.is_file() and "__pycache__" not in file.parts and file.suffix not in LIBRARIES
]


def test_without_a_compiler_the_package_is_built_and_runs_on_tiled(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation"]
    folders = ["--wheel-dir", str(tmp_path), "--config-settings", f"build-dir={tmp_path / 'build'}"]
    hidden = {**os.environ, "CC": "no-such-compiler", "CXX": "no-such-compiler"}
    built = subprocess.run([*pip, *folders, str(ROOT)], env=hidden, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("py3-none-any.whl")
    copy = tmp_path / "copy"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert not [name for name in names if name.endswith(LIBRARIES)]
        assert {file.relative_to(ROOT / "src").as_posix() for file in FILES} <= names
        assert "regard/py.typed" in names
        archive.extractall(copy)
    runs_on_tiled_and_says_once(copy, f"this installation has no native core; {GET_IT}")
    foreign = copy / "regard" / "engine" / "native" / "libregard.so"
    foreign.write_bytes(b"of another system")
    why = f"{foreign}: file too short" if sys.platform.startswith("linux") else "libregard"
    runs_on_tiled_and_says_once(copy, f"this installation has no native core that works here ({why}); {GET_IT}")


def runs_on_tiled_and_says_once(copy: Path, why: str) -> None:
    """In a process of its own: the first call warns in one sentence, and nothing warns again."""
    installed = [folder for folder in sys.path if folder.endswith("site-packages")]
    command = [sys.executable, "-S", "-c", RUN, str(copy), *installed]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=copy.parent)
    assert ran.returncode == 0, ran.stderr
    warning = f"regard runs this on 'tiled', which is slower: 'native' cannot do it, because {why} (said once; "
    assert ran.stderr.count("UserWarning") == 1
    assert warning in ran.stderr
    out, entropy, refusal, engine, *plan = ran.stdout.splitlines()
    assert (out, entropy) == ("tensor(6.)", "torch.Size([1, 1, 3])")
    assert refusal == f"engine 'native' cannot do this: {why}"
    assert engine.split() == ["engine", "tiled"]
    assert any(line.startswith("not native") for line in plan)


def test_the_source_archive_holds_all_that_a_build_needs(tmp_path: Path) -> None:
    command = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", command, str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    native = {file.relative_to(ROOT).as_posix() for file in (ROOT / "native").rglob("*.*") if file.is_file()}
    assert {"CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE"} | native <= names
    assert not [name for name in names if name.endswith(LIBRARIES) or name.startswith("build/")]
