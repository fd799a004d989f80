"""Damaged files of every kind: an error of ours or the right numbers, never a crash and never other numbers."""

import textwrap
from collections.abc import Callable
from typing import Any

import pytest

# `damaged(content)` yields copies that are cut, changed in one bit or more, of another kind, or with a huge header.
PREAMBLE = """
import os, random, struct, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import regard

def damaged(content):
    make = random.Random(int(os.environ["SEED"]))
    count = int(os.environ["COUNT"])
    yield "empty", b""
    yield "a picture", b"\\x89PNG\\r\\n\\x1a\\n" * 50
    yield "zeros", bytes(len(content))
    yield "text", b"hello\\n"
    for size in (1, 1 << 20, 1 << 31, (1 << 63) - 1, (1 << 64) - 1):
        yield f"header of {size}", struct.pack("<Q", size) + content[8:]
    for number in range(count):
        changed = bytearray(content)
        place = make.randrange(len(content))
        kind = ("cut", "bit", "byte", "swap", "gap")[number % 5]
        if kind == "cut":
            changed = changed[:place]
        elif kind == "bit":
            changed[place] ^= 1 << make.randrange(8)
        elif kind == "byte":
            changed[place] = make.randrange(256)
        elif kind == "swap":
            other = make.randrange(len(content))
            changed[place], changed[other] = changed[other], changed[place]
        else:
            del changed[place : place + make.randrange(1, 9)]
        if changed != content:
            yield f"{kind} at {place}", bytes(changed)

def tried(what, name, *errors):
    # what it gives, or None if it raises one of these, in one line that says what to do
    try:
        return what()
    except errors as error:
        assert str(error) and len(str(error)) < 1000, (name, error)
        return None
    except BaseException:
        print("failed with", name, flush=True)
        raise
"""

SCENARIOS = {
    "captures": """
        from torch import nn
        layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
        hidden = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
        with torch.no_grad():
            taken = regard.capture(model, torch.randn(3, 6, 16), mask=hidden, tokens=list("abcdef"))
        taken.save("a.safetensors")
        want, layers = [layer.dense() for layer in taken], taken.layers
        content, refused = Path("a.safetensors").read_bytes(), 0
        def read():
            found = regard.load("a.safetensors")
            return found.layers, found.tokens, [layer.dense() for layer in found]
        for name, changed in damaged(content):
            Path("a.safetensors").write_bytes(changed)
            found = tried(read, name, ValueError)
            refused += found is None
            if found is not None:  # only blanks at the end of the header make no difference
                assert found[:2] == (layers, list("abcdef")), name
                assert all(torch.equal(one, other) for one, other in zip(found[2], want, strict=True)), name
        print("refused", refused)
        assert refused > 20
    """,
    "matrices": """
        q = torch.randn(1, 2, 9, 4)
        for whole in (regard.matrix(q, q, mask="causal"), regard.AttentionMatrix.from_weights(torch.rand(2, 5, 5))):
            whole.save("a.safetensors")
            want, refused = whole.dense(), 0
            for name, changed in damaged(Path("a.safetensors").read_bytes()):
                Path("a.safetensors").write_bytes(changed)
                found = tried(lambda: regard.load("a.safetensors").dense(), name, ValueError)
                refused += found is None
                assert found is None or torch.equal(found, want), name
            print("refused", refused)
            assert refused > 20
    """,
    "trainings": """
        from regard.lab import training
        from regard.lab.training import train
        from regard.progress import reporting_to_user
        from regard.lab.training import named
        from regard.lab.translation.task import Translating
        os.environ["REGARD_CACHE"] = "cache"
        sizes = {"steps": 3, "looks": 3, "width": 8, "batch": 4, "sentences": 30}
        task = Translating(seed=3, rate=1e-2, rise=0.1, score="additive", **sizes)
        def stop(what, done, total):
            if done == 2:
                raise RuntimeError("stop")
        training.EVERY = 0.0
        try:
            with reporting_to_user(stop, "steps"):
                train(task)
        except RuntimeError:
            pass
        training.EVERY = 60.0
        checkpoint = training.training_folder(task) / training.CHECKPOINT
        begun = checkpoint.read_bytes()
        want = train(task)
        weights = training.training_folder(task) / training.WEIGHTS
        done = weights.read_bytes()
        def same(found, name):
            ours, theirs = named(found.model), named(want.model)
            assert found.curve == want.curve, name
            assert all(torch.equal(ours[each], theirs[each]) for each in ours), name
        for file, content in ((weights, done), (checkpoint, begun)):
            refused = 0
            for name, changed in damaged(content):
                weights.unlink(missing_ok=True)
                file.write_bytes(changed)
                found = tried(lambda: train(task), name, ValueError)
                refused += found is None
                if found is not None:
                    same(found, name)
            print("refused", refused)
            assert refused > 20
    """,
    "pyramids": """
        import numpy as np
        from regard.map.levels import Levels
        from regard.map.tile_cache import TileCache
        levels, make = Levels(2000, 2000), np.random.default_rng(0)
        planes = {name: make.integers(0, 255, size, np.uint8) for name, size in levels.coarse_shapes.items()}
        shelf = TileCache(Path("maps"))
        shelf.put("0" * 32, planes)
        file = Path("maps") / ("0" * 32 + ".safetensors")
        content, missed = file.read_bytes(), 0
        for name, changed in damaged(content):
            file.unlink()
            file.write_bytes(changed)
            found = tried(lambda: shelf.get("0" * 32, levels), name)
            missed += found is None
            if found is not None:
                assert all(np.array_equal(found.read(each, slice(None), slice(None)), planes[each]) for each in planes)
        assert missed > 20
        file.unlink()
        file.mkdir()
        assert shelf.get("0" * 32, levels) is None
    """,
    "spec files": """
        import io, json
        from contextlib import redirect_stderr, redirect_stdout
        from regard.cli.main import main
        spec = {
            "query": [[1, 0.5], [0, 1]], "key": [[1, 0], [0, 1], [1, 1]], "value": [[1], [2], [3]],
            "key_tokens": ["the", "cat", "sat"], "mask": {"name": "Causal"}, "temperature": 0.5, "query_start": 1,
        }
        Path("a.json").write_text(json.dumps(spec))
        assert main(["explain", "a.json"]) == 0
        content = json.dumps(spec).encode()
        odd = [None, -1, 1 << 70, 1e308, "x", [], {}, [[]], True, float("nan"), float("inf"), -(1 << 70), [1 << 70]]
        texts = [(f"{name} is {value}", json.dumps({**spec, name: value}).encode()) for name in spec for value in odd]
        for name, changed in [*damaged(content), *texts]:
            Path("a.json").write_bytes(changed)
            out, err = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                code = tried(lambda: main(["explain", "a.json"]), name)
            assert code in (0, 1), (name, code)
            assert code == 0 or err.getvalue().startswith("regard explain: ") and err.getvalue().count("\\n") == 1, name
    """,
    "manifests": """
        from regard.models import manifest
        files = {"config.json": b"{}", "model.safetensors": bytes(range(256))}
        Path("m").mkdir()
        for name, content in files.items():
            (Path("m") / name).write_bytes(content)
        manifest.write(Path("m"), "somewhere")
        file = Path("m") / manifest.NAME
        content = file.read_bytes()
        for name, changed in [*damaged(content), ("deep", b"[" * 100_000), ("long", b'{"origin":1' + b"9" * 9999)]:
            file.write_bytes(changed)
            for thorough in (True, False):
                tried(lambda: manifest.flaw(Path("m"), "somewhere", thorough=thorough), name)
        file.write_bytes(content)
        for name, changed in damaged(files["model.safetensors"]):
            (Path("m") / "model.safetensors").write_bytes(changed)
            assert manifest.flaw(Path("m"), "somewhere", thorough=True) is not None, name
    """,
    "model folders": """
        import json
        from safetensors.torch import save_file
        from tokenizers import Tokenizer, models as kinds
        from regard import models
        config = {
            "model_type": "gpt2", "vocab_size": 5, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2,
            "eos_token_id": 0,
        }
        sizes = {"ln_1.weight": (8,), "ln_1.bias": (8,), "ln_2.weight": (8,), "ln_2.bias": (8,)}
        sizes |= {"attn.c_attn.weight": (8, 24), "attn.c_attn.bias": (24,), "attn.c_proj.weight": (8, 8)}
        sizes |= {"attn.c_proj.bias": (8,), "mlp.c_fc.weight": (8, 32), "mlp.c_fc.bias": (32,)}
        sizes |= {"mlp.c_proj.weight": (32, 8), "mlp.c_proj.bias": (8,)}
        tensors = {f"h.0.{name}": torch.randn(size) for name, size in sizes.items()}
        tensors |= {"wte.weight": torch.randn(5, 8), "wpe.weight": torch.randn(8, 8)}
        tensors |= {"ln_f.weight": torch.ones(8), "ln_f.bias": torch.zeros(8)}
        folder = Path("m")
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 1]}))
        index = {"weight_map": dict.fromkeys(tensors, "model.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        Tokenizer(kinds.WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(folder / "tokenizer.json"))
        model = models.load(folder)
        assert model.tokens("a b").shape[0] == 1
        odd = [None, -1, 0, 7, 1 << 70, 1e308, "x", [], {}, True, [[]]]
        for file in sorted(folder.iterdir()):
            content = file.read_bytes()
            more = []
            if file.suffix == ".json" and file.name != "tokenizer.json":
                held = json.loads(content)
                records = {f"{key} is {value}": {**held, key: value} for key in held for value in odd}
                records |= {f"no {key}": {each: held[each] for each in held if each != key} for key in held}
                more = [(name, json.dumps(record).encode()) for name, record in records.items()]
                more += [("a list", b"[1, 2]"), ("deep", b"[" * 100_000)]
            for name, changed in [*damaged(content), *more]:
                file.write_bytes(changed)
                tried(lambda: models.load(folder), f"{file.name}: {name}", ValueError, OSError)
            file.write_bytes(content)
        models.load(folder)
    """,
}


def source(name: str) -> str:
    return PREAMBLE + textwrap.dedent(SCENARIOS[name])


@pytest.mark.parametrize("name", SCENARIOS)
def test_damaged_files(name: str, run: Callable[..., Any]) -> None:
    run(source(name), COUNT="50", SEED="1").ok()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_many_damaged_files(name: str, run: Callable[..., Any]) -> None:
    count = 1000 if name == "model folders" else 3000  # of each of its five files
    run(source(name), limit=600, COUNT=str(count), SEED="2").ok()
