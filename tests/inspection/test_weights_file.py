"""Files of weights: every format and shape, what is said about odd numbers, and files that are refused."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import regard
from regard.inspection import weights_file
from regard.inspection.weights_file import read_weights

SHAPES = [(5, 7), (3, 5, 7), (2, 3, 5, 7), (2, 1, 3, 5, 7)]


def weights(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1).float()


def written(folder: Path, kind: str, given: torch.Tensor) -> Path:
    path = folder / f"own.{kind.split()[-1]}"
    if kind == "npy":
        np.save(path, given.numpy())
    elif kind == "npz":
        np.savez(path, weights=given.numpy())
    elif kind == "compressed npz":
        np.savez_compressed(path, weights=given.numpy())
    elif kind == "safetensors":
        save_file({"weights": given}, path)
    else:
        torch.save(given, path, _use_new_zipfile_serialization=kind != "old pt")
    return path


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["npy", "npz", "compressed npz", "safetensors", "pt", "old pt", "pth"])
def test_every_format_and_shape(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    given = weights(*shape)
    opened = read_weights(written(tmp_path, kind, given))
    assert opened.notes == ()
    assert opened.matrix.shape == shape
    assert torch.equal(opened.matrix.dense(), given)
    assert torch.equal(regard.load(tmp_path / f"own.{kind.split()[-1]}").dense(), given)  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_half_precision_is_converted_where_it_is_read(tmp_path: Path, dtype: torch.dtype) -> None:
    given = weights(3, 5, 7).to(dtype)
    matrix = read_weights(written(tmp_path, "safetensors", given)).matrix
    assert matrix.dtype == torch.promote_types(dtype, torch.float32)
    assert torch.equal(matrix.dense(), given.to(matrix.dtype))
    assert torch.equal(matrix.received(), given.to(matrix.dtype).sum(-2))


@pytest.mark.parametrize("change", [np.asfortranarray, lambda array: array.astype(">f4"), lambda array: array[::-1]])
def test_other_orders_of_bytes_and_axes(tmp_path: Path, change: Any) -> None:
    given = change(weights(3, 5, 7).numpy())
    np.save(tmp_path / "a.npy", given)
    assert np.array_equal(read_weights(tmp_path / "a.npy").matrix.dense().numpy(), given.astype("=f4"))


def test_files_of_numpy_are_mapped(tmp_path: Path) -> None:
    for kind in ("npy", "npz"):
        path = written(tmp_path, kind, weights(4, 64, 64))
        matrix = read_weights(path).matrix
        value = float(matrix[2, 3, 5])
        content = path.read_bytes()
        place = content.rindex(np.float32(value).tobytes())
        with path.open("r+b") as file:
            file.seek(place)
            file.write(np.float32(0.25).tobytes())
        assert float(matrix[2, 3, 5]) == 0.25


def test_tokens_beside_the_weights(tmp_path: Path) -> None:
    square, rows = weights(3, 3), [f"w{number}" for number in range(3)]
    np.savez(tmp_path / "a.npz", weights=square.numpy(), tokens=np.array(rows))
    torch.save({"weights": square, "query_tokens": rows, "key_tokens": ["a", "b", "c"]}, tmp_path / "a.pt")
    found = read_weights(tmp_path / "a.npz").matrix
    assert (found.query_tokens, found.key_tokens) == (tuple(rows), tuple(rows))
    found = read_weights(tmp_path / "a.pt").matrix
    assert (found.query_tokens, found.key_tokens) == (tuple(rows), ("a", "b", "c"))


@pytest.mark.parametrize("lead", [(), (2,)])
def test_what_a_matrix_saves_is_opened(tmp_path: Path, lead: tuple[int, ...]) -> None:
    matrix = regard.AttentionMatrix.from_weights(weights(*lead, 3, 4), ["a", "b", "c"], ["d,", "e", "f", "g"])
    for suffix in ("npz", "csv"):
        matrix.save(tmp_path / f"a.{suffix}")
        found = read_weights(tmp_path / f"a.{suffix}").matrix
        assert torch.allclose(found.dense().double(), matrix.dense().double(), rtol=1e-6, atol=0)
        assert (found.query_tokens, found.key_tokens) == (matrix.query_tokens, matrix.key_tokens)


@pytest.mark.parametrize(
    "content, query_tokens, key_tokens",
    [
        ("0.5,0.5\n1,0\n", None, None),
        ("0.5;0.5\r\n1;0\r\n\r\n", None, None),
        ("0.5\t0.5\n1\t0", None, None),
        ("\ufeffthe,cat\n0.5,0.5\n1,0\n", None, ("the", "cat")),
        (',the,"a,b"\nx,0.5,0.5\ny,1,0\n', ("x", "y"), ("the", "a,b")),
        ("x,0.5,0.5\ny,1,0\n", ("x", "y"), None),
    ],
)
def test_csv(tmp_path: Path, content: str, query_tokens: Any, key_tokens: Any) -> None:
    (tmp_path / "a.csv").write_bytes(content.encode())
    matrix = read_weights(tmp_path / "a.csv").matrix
    assert matrix.dense().tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert (matrix.query_tokens, matrix.key_tokens) == (query_tokens, key_tokens)


def test_several_arrays(tmp_path: Path) -> None:
    one, two = weights(5, 7), weights(3, 5, 7)
    np.savez(tmp_path / "a.npz", one=one.numpy(), two=two.numpy(), ids=np.arange(3))
    torch.save({"run": {"attentions": (two, two)}, "logits": one}, tmp_path / "a.pt")
    message = (
        r"holds 2 arrays that could be weights: 'one' \(5, 7\) float32, 'two' \(3, 5, 7\) float32, 'ids' \(3,\) int64; "
        "choose one, with --array"
    )
    with pytest.raises(ValueError, match=message):
        read_weights(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"a.npz has no array 'three'; it holds 'one'"):
        read_weights(tmp_path / "a.npz", "three")
    assert torch.equal(read_weights(tmp_path / "a.npz", "two").matrix.dense(), two)
    assert torch.equal(read_weights(tmp_path / "a.pt", "run.attentions").matrix.dense(), torch.stack([two, two]))
    regard.AttentionMatrix.from_weights(one).save(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="which has no arrays to choose from"):
        regard.load(tmp_path / "a.safetensors", array="one")


def test_what_is_said_about_odd_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = weights(2, 4, 8)
    given[0, 1, 2] = torch.nan
    given[1, 0] *= 0.5
    given[1, 1] = 0.0
    path = written(tmp_path, "npy", given)
    broken, sums = read_weights(path).notes
    assert broken == f"{path}: one number is NaN or infinite; such pairs are shown as hidden"
    assert f"{path}: 2 of 8 rows do not sum to 1 but to between 0.5 and " in sums
    with pytest.warns(UserWarning, match="is NaN or infinite|not sum to 1") as warned:
        regard.load(path)
    assert len(warned) == 2
    monkeypatch.setattr(weights_file, "CHECKED", 16)
    (sums,) = read_weights(path).notes
    assert "one row does not sum to 1 but to 0.5 (in 2 of 8 rows, which were checked); the weights are" in sums


REFUSED = {
    "empty.npy": (b"", "is not an npy file, or a damaged one"),
    "text.npy": (b"hello there, reader", "is not an npy file, or a damaged one"),
    "text.npz": (b"hello there", "is not an npz archive, or a damaged one"),
    "text.pt": (b"hello there", "is not a file of torch.save, or a damaged one"),
    "text.safetensors": (b"hello there", "is no safetensors file, or a damaged one"),
    "empty.csv": (b"", "empty.csv is empty"),
    "words.csv": (b"a,b\nc,d\n", "words.csv: line 2, cell 2 is no number: 'd'"),
    "header.csv": (b"a,b\n", "has no number below its first line"),
    "ragged.csv": (b"1,0\n1\n", "ragged.csv: line 2 has 1 cells, the lines before have 2"),
    "latin.csv": (b"\xe9,1\n", "latin.csv is not a text in UTF-8: byte 0 cannot be read"),
    "pairs.csv": (b"query,key,weight\n0,x,1\n", "has a line without numbers for query, key and weight"),
    "huge.csv": (b"query,key,weight\n0,99999999999,1\n", "too large for a csv file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_damaged_files(tmp_path: Path, name: str) -> None:
    content, text = REFUSED[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=text):
        read_weights(tmp_path / name)


@pytest.mark.parametrize(
    "array, text",
    [
        (np.arange(6).reshape(2, 3), r"holds no weights that can be shown: 'a' \(2, 3\) int64; weights are floating"),
        (np.eye(3, dtype=bool), r"\(3, 3\) bool; weights are floating-point"),
        (np.eye(3, dtype=np.complex64), r"\(3, 3\) complex64"),
        (np.ones(4), r"\(4,\) float64; weights are floating-point numbers with at least two axes"),
        (np.ones((0, 4)), r"has the shape \(0, 4\); weights are \(query, key\), \(head, query, key\) or"),
        (np.ones((1,) * 6), r"has the shape \(1, 1, 1, 1, 1, 1\)"),
        (-np.eye(3), "holds negative numbers, the smallest is -1; these are scores, not weights: save their softmax"),
        (
            np.array([["a", None]], dtype=object),
            "holds Python objects, which are not opened because that would run code",
        ),
    ],
)
def test_arrays_that_are_no_weights(tmp_path: Path, array: Any, text: str) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=text):
        read_weights(tmp_path / "a.npy")
    np.savez_compressed(tmp_path / "a.npz", a=array)
    with pytest.raises(ValueError, match=text if "Python" not in text else "holds no weights that can be shown"):
        read_weights(tmp_path / "a.npz")


def test_files_that_are_cut_short(tmp_path: Path) -> None:
    for kind in ("npy", "npz", "compressed npz", "safetensors", "pt", "old pt"):
        path = written(tmp_path, kind, weights(3, 32, 32))
        content = path.read_bytes()
        for part in (0.1, 0.5, 0.99):
            path.write_bytes(content[: int(len(content) * part)])
            with pytest.raises(ValueError, match="damaged one"):
                read_weights(path)


def test_code_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"weights": weights(3, 3), "more": Evil()}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="holds more than tensors, and is not opened because that would run code"):
        read_weights(tmp_path / "a.pt")
    assert not (tmp_path / "ran").exists()


def test_other_paths(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_weights(tmp_path / "none.npy")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        regard.load(tmp_path / "folder.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "nothing")
    with pytest.raises(ValueError, match=r"a.npz holds no array"):
        read_weights(tmp_path / "a.npz")
