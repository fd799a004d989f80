"""Checks an installed wheel: the native core loads, and what the base dependencies promise works.

Run it by the interpreter of an environment that holds the wheel, in a folder that is not a clone:
`python installed.py` with the base dependencies, `python installed.py all` with `regard[all]`.
"""

import signal
import subprocess
import sys
import tempfile
import urllib.request
from importlib import metadata
from pathlib import Path

import torch

import regard
from regard.engine.native.library import isa

package = Path(regard.__file__).parent
assert isa(), "the wheel holds no native core, or it does not load on this processor"
query = torch.randn(1, 2, 300, 16, dtype=torch.float64)
out = regard.attend(query, query, query, mask="causal", engine="native")
truth = regard.attend(query, query, query, mask="causal", engine="reference")
torch.testing.assert_close(out, truth)
assert regard.matrix(query, query, mask="causal")[0, 0, 0, 0] == 1
assert "softmax" in str(regard.explain(query[..., :3, :2], query[..., :3, :2], query[..., :3, :2]))
for command in ([], ["explain", "--example"], ["lab"], ["exercise"]):
    subprocess.run([sys.executable, "-m", "regard", *(command or ["--version"])], check=True, stdout=subprocess.DEVNULL)

if sys.argv[1:] == ["all"]:
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("png", "svg", "pdf", "html", "npz", "csv"):
            regard.matrix(query, query)[0, 0].save(f"{folder}/head.{suffix}")
    with subprocess.Popen(
        [sys.executable, "-m", "regard", "map", "--demo", "2000"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            address = next(line for line in server.stdout if "http://" in line).split()[-1]
            page = urllib.request.urlopen(address, timeout=30).read().decode()
        finally:
            server.send_signal(signal.SIGINT)
    assert "<script" in page, page
    subprocess.run([sys.executable, "-m", "regard", "see", "The cat sleeps"], check=True, stdout=subprocess.DEVNULL)

print(f"regard {metadata.version('regard')}, torch {torch.__version__}, {isa()}: works from {package.name}/")
