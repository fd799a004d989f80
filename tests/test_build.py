"""Building the package: what the archives hold, and that it installs and runs where no compiler is found."""

import os
import subprocess
import sys
import sysconfig
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
from regard.engine.native.library import library
q = torch.ones(1, 1, 3, 2)
assert regard.__file__.startswith(sys.argv[1]), regard.__file__
print(library())
print(regard.plan(q, q, q))
print(regard.attend(q, q, q).sum())
"""

DATA = [
    file
    for file in (ROOT / "src" / "regard").rglob("*")
    if file.suffix in {".html", ".css", ".js", ".svg", ".txt", ".json"}
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
        assert {file.relative_to(ROOT / "src").as_posix() for file in DATA} <= names
        archive.extractall(copy)
    command = [sys.executable, "-S", "-c", RUN, str(copy), sysconfig.get_path("purelib")]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    library, engine, *rest = ran.stdout.splitlines()
    assert library == "None"
    assert engine.split() == ["engine", "tiled"]
    assert any(line.startswith("not native") for line in rest)
    assert rest[-1] == "tensor(6.)"


def test_the_source_archive_holds_all_that_a_build_needs(tmp_path: Path) -> None:
    command = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", command, str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    native = {file.relative_to(ROOT).as_posix() for file in (ROOT / "native").rglob("*.*") if file.is_file()}
    assert {"CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE"} | native <= names
    assert not [name for name in names if name.endswith(LIBRARIES) or name.startswith("build/")]
