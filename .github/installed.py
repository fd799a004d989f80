"""Checks an installed wheel: the native core loads, and what the dependencies promise works.

Run it by the interpreter of an environment that holds the wheel, in a folder that is not a clone:
`python installed.py` with the base dependencies, `python installed.py all` with `regard[all]`.
"""

import http.cookiejar
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from importlib import metadata
from pathlib import Path

import torch

import regard
from regard.engine.native.library import absence, isa

SUFFIXES = ("png", "svg", "pdf", "html", "npz", "csv")
package = Path(regard.__file__).parent


def command(*words: str) -> str:
    """What `regard WORDS` prints."""
    ran = subprocess.run([sys.executable, "-m", "regard", *words], check=True, stdout=subprocess.PIPE, encoding="utf-8")
    return ran.stdout


def check_base() -> None:
    """What torch and the other base dependencies are enough for."""
    assert isa(), absence()
    assert (package / "py.typed").is_file()
    query = torch.randn(1, 2, 300, 16, dtype=torch.float64, device="cpu")
    out = regard.attend(query, query, query, mask="causal", engine="native")
    truth = regard.attend(query, query, query, mask="causal", engine="reference")
    torch.testing.assert_close(out, truth)
    leaf = query.clone().requires_grad_()
    regard.attend(leaf, leaf, leaf, mask="causal").sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    weights = regard.matrix(query, query, mask="causal")
    torch.testing.assert_close(weights.dense() @ query, truth)
    assert weights.entropy().shape == (1, 2, 300)
    assert "softmax" in str(regard.explain(query[..., :3, :2], query[..., :3, :2], query[..., :3, :2]))
    assert metadata.version("regard") in command("--version")
    assert "0.4011" in command("explain", "--example")
    for words in (["lab"], ["exercise"], ["models"], ["bench", "tiny", "--rounds", "1", "--quick"]):
        assert command(*words)


def check_all() -> None:
    """Pictures, the map with every file of its page, and a real model, downloaded if it is not in the cache."""
    query = torch.randn(1, 2, 30, 16, dtype=torch.float32, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        for suffix in SUFFIXES:
            file = Path(folder) / f"head.{suffix}"
            regard.matrix(query, query)[0, 0].save(file)
            assert file.stat().st_size > 0, suffix
        model = Path(folder) / "model.png"
        command("see", "The cat sleeps on the mat", "--save", str(model))
        assert model.read_bytes().startswith(b"\x89PNG")
    assert "cat" in command("see", "The cat sleeps on the mat")
    check_map()


def check_map() -> None:
    """The page is served with all its files."""
    words = [sys.executable, "-m", "regard", "map", "--demo", "2000", "--no-browser"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, encoding="utf-8") as server:
        assert server.stdout is not None
        try:
            address = next(line for line in server.stdout if "http://" in line).split()[-1]
            cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)
            page = opener.open(address, timeout=60)
            assert "<script" in page.read().decode()
            files = [file for file in (package / "map" / "page").iterdir() if file.is_file()]
            assert len(files) > 30, files
            for file in files:
                served = opener.open(urllib.parse.urljoin(page.url, file.name), timeout=60).read()
                assert served == file.read_bytes(), file.name
        finally:
            server.terminate()


check_base()
if sys.argv[1:] == ["all"]:
    check_all()
print(f"regard {metadata.version('regard')}, torch {torch.__version__}, {isa()}: works from {package}")
