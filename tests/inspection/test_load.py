"""Files that are no captures, or were: a ValueError that says what to do, and the old file while a new one is made."""

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import regard
from regard.inspection.capture import Capture, capture
from regard.inspection.load import load


def taken() -> Capture:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    hidden = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
    with torch.no_grad():
        return capture(model, torch.randn(3, 6, 16), mask=hidden, tokens=list("abcdef"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    taken().save(tmp_path / "run.safetensors")
    return tmp_path / "run.safetensors"


def parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header, without the checksums that would tell of any change, and the data."""
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    del header["__metadata__"]["checksums"]
    return header, content[8 + size :]


def whole(header: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors"):
        load(tmp_path / "none.safetensors")
    with pytest.raises(IsADirectoryError, match=r"is a folder; load takes a file that c.save\(...\) wrote"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89PNG" * 100, bytes(100), b"\xff" * 64])
def test_what_is_no_safetensors(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"a.safetensors is no safetensors file, or a damaged one \(.*\)$"):
        load(tmp_path / "a.safetensors")


def test_tensors_of_somebody_else(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, tmp_path / "a.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ValueError, match=r"holds no weights that can be shown: 'weight' \(3,\) float32; weights are floating"
    ):
        load(tmp_path / "a.safetensors")


def test_another_version(file: Path) -> None:
    header, data = parts(file.read_bytes())
    header["__metadata__"]["version"] = "7"
    file.write_bytes(whole(header, data))
    with pytest.raises(ValueError, match="in version '7' of its format and this regard reads version '1'; read"):
        load(file)


def changed(record: Any, make: random.Random) -> Any:
    """The description with one thing in it replaced, moved or gone."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(record)
    node, key = make.choice(places)
    odd: list[Any] = [None, -1, 0, 1 << 70, 1e308, True, "x", "", [], {}, [[]]]
    odd += [{"part": "os.system"}, {"tensor": "0.key"}]
    match make.randrange(3):
        case 0:
            del node[key]
        case 1:
            other, place = make.choice(places)
            node[key] = json.loads(json.dumps(other[place]))
        case _:
            node[key] = make.choice(odd)
    return record


def mutations(content: bytes, count: int) -> Iterator[bytes]:
    """Cut short, with other bytes, with tensors of another type or shape, and with other descriptions."""
    make = random.Random(0)
    for number in range(count):
        header, data = parts(content)
        match number % 5:
            case 0:
                yield content[: make.randrange(len(content))]
            case 1:
                text = bytearray(content)
                for _ in range(make.choice((1, 3, 20))):
                    text[make.randrange(len(text))] = make.randrange(256)
                yield bytes(text)
            case 2:
                entry = header[make.choice([name for name in header if name != "__metadata__"])]
                entry[make.choice(("dtype", "shape", "data_offsets"))] = make.choice(
                    ["F32", "F16", "I64", "C64", [3, 4, 6, 4], [18, 4, 4], [288], [1 << 40, 1 << 40], [], [0, 0]]
                )
                yield whole(header, data)
            case _:
                record = json.loads(header["__metadata__"]["content"])
                header["__metadata__"]["content"] = json.dumps(changed(record, make))
                yield whole(header, data)


def test_damage_of_any_kind(file: Path, tmp_path: Path) -> None:
    content, damaged = file.read_bytes(), tmp_path / "damaged.safetensors"
    errors = []
    for changed_content in mutations(content, 600):
        damaged.write_bytes(changed_content)
        try:
            found = load(damaged)
        except ValueError as error:
            errors.append(str(error))
        else:
            assert isinstance(found, Capture)
            assert len(repr(found)) > 20
    assert len(errors) > 300
    assert all(error.startswith(str(damaged)) and "\n" not in error for error in errors)


def test_a_changed_digit_is_noticed_where_its_layer_is_used(file: Path) -> None:
    content = bytearray(file.read_bytes())
    (size,) = struct.unpack("<Q", content[:8])
    start, _ = json.loads(content[8 : 8 + size])["1.query"]["data_offsets"]
    content[8 + size + start] ^= 1
    file.write_bytes(content)
    found: Any = load(file)
    assert found[0].dense().shape == (3, 4, 6, 6)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"is damaged \(the checksum of '1.query' is wrong\); save it again"):
            found[1].dense()
    with pytest.raises(ValueError, match="is damaged"):
        found.save(file.with_name("again.safetensors"))


def test_files_without_checksums_are_read(file: Path) -> None:
    want: Any = load(file)
    header, data = parts(file.read_bytes())
    old = file.with_name("old.safetensors")
    old.write_bytes(whole(header, data))
    found: Any = load(old)
    assert torch.equal(found[1].dense(), want[1].dense())
    header["__metadata__"]["checksumz"] = "{}"
    old.write_bytes(whole(header, data))
    with pytest.raises(ValueError, match=r"is damaged .it has a text 'checksumz', which no version knows"):
        load(old)


def test_deep_nesting(file: Path) -> None:
    header, data = parts(file.read_bytes())
    header["__metadata__"]["content"] = "[" * 100_000
    file.write_bytes(whole(header, data))
    with pytest.raises(ValueError, match="is damaged"):
        load(file)


def test_no_code_is_made_from_a_file(file: Path) -> None:
    header, data = parts(file.read_bytes())
    record = json.loads(header["__metadata__"]["content"])
    record["layers"][0]["spec"]["mask"] = {"part": "masks.Where", "fields": {"fn": "print"}}
    header["__metadata__"]["content"] = json.dumps(record)
    file.write_bytes(whole(header, data))
    with pytest.raises(
        ValueError,
        match=r"cannot be read: the part 'masks.Where' is not registered; import the module",
    ):
        load(file)


def test_saving_over_what_is_mapped(file: Path) -> None:
    first: Any = load(file)
    want = first[1].dense()
    first.save(file)
    again: Any = load(file)
    again.save(file)
    assert torch.equal(again[1].dense(), want)
    assert torch.equal(first[1].dense(), want)
    found: Any = load(file)
    assert torch.equal(found[1].dense(), want)


SAVING = """
import sys, torch, regard
q = torch.zeros(1, 4, 500_000, 8)
found = regard.matrix(q, q, mask="causal")
print("ready", flush=True)
while True:
    found.save(sys.argv[1])
"""


def test_killed_while_saving(file: Path) -> None:
    before = file.read_bytes()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", SAVING, str(file)], stdout=subprocess.PIPE, env=environment) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        end = time.monotonic() + 300
        while not any(part.stat().st_size > 1 << 20 for part in file.parent.glob(".regard-*.part")):
            assert time.monotonic() < end
        run.send_signal(signal.SIGKILL)
    assert file.read_bytes() == before
    found: Any = load(file)
    assert found[1].shape == (3, 4, 6, 6)


OPENING = """
import resource, sys
import regard
from regard import load
def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = most()
found = load(sys.argv[1])
print(tuple(found.shape))
print(most() - before)
"""


def test_a_large_file_opens_at_once(tmp_path: Path) -> None:
    """Nothing of it is read: a file of 1 GiB of nothing, which takes no room on a disk."""
    q = torch.zeros(1, 1, 4, 4)
    regard.matrix(q, q).save(tmp_path / "a.safetensors")
    header, _ = parts((tmp_path / "a.safetensors").read_bytes())
    shape, size = [1, 1, 1 << 25, 4], 1 << 29
    header["query"] = {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}
    header["key"] = {"dtype": "F32", "shape": shape, "data_offsets": [size, 2 * size]}
    with (tmp_path / "a.safetensors").open("wb") as file:
        file.write(whole(header, b""))
        file.truncate(file.tell() + 2 * size)
    call = [sys.executable, "-W", "ignore", "-c", OPENING, str(tmp_path / "a.safetensors")]
    shape_, grown = subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()
    assert shape_ == str((1, 1, 1 << 25, 1 << 25))
    assert int(grown) < 200_000
