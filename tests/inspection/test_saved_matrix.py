"""A matrix in a file: every spec that is plain data comes back with the same weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor
from torch.testing import assert_close

import regard
from regard import AttentionMatrix, biases, masks, normalizers, scores
from regard.inspection import tensor_file
from regard.inspection.load import load
from regard.spec.part import Part
from regard.spec.serialize import REGISTERED, storable

N, H, D = 9, 4, 8


def table(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


SPECS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "causal": lambda: {"mask": "causal", "temperature": 0.5},
    "dot": lambda: {"score": scores.Dot(), "temperature": torch.tensor([0.5, 1.0, 2.0, 4.0])},
    "scaled": lambda: {"score": scores.ScaledDot(0.3), "normalizer": normalizers.Softmax(torch.tensor([0.1] * H))},
    "capped": lambda: {"score": scores.SoftCapped(scores.Cosine(4.0), 2.0), "normalizer": normalizers.Softmax(-1.5)},
    "general": lambda: {"score": scores.General(table(D, D))},
    "additive": lambda: {"score": scores.Additive(table(6, D), table(6, D), table(6))},
    "mlp": lambda: {"score": scores.ConcatMLP(table(6, D), table(6, D), None, table(6), "relu")},
    "relative": lambda: {"score": scores.Relative(table(5, D)), "mask": "causal"},
    "window": lambda: {"mask": masks.Window(3, None) & ~masks.Dilated(5, 2), "normalizer": normalizers.Sparsemax()},
    "global": lambda: {"mask": masks.Global([0, 3]) | masks.Prefix(2), "normalizer": normalizers.Hard()},
    "lengths": lambda: {"mask": masks.Lengths([9, 4]), "query_start": torch.tensor([0, 3])},
    "prefix": lambda: {"mask": masks.Causal() | masks.Prefix(torch.tensor([2, 5]))},
    "documents": lambda: {"mask": masks.Documents([0] * 4 + [1] * 5) & masks.Full()},
    "two documents": lambda: {"mask": masks.Documents([[0] * 9, [1] * 9], [[0] * 9, [1] * 8 + [0]])},
    "blocks": lambda: {"mask": masks.Blocks(3, torch.eye(3, dtype=torch.bool))},
    "dense": lambda: {"mask": (table(2, 1, N, N) > 0).expand(2, H, N, N), "bias": table(1, H, N, N)},
    "alibi": lambda: {"bias": biases.ALiBi(H) + biases.Distance(table(7)), "query_start": 0},
    "t5": lambda: {"bias": biases.T5(table(32, H)), "mask": masks.longformer(3, [0])},
    "hidden by a bias": lambda: {"bias": torch.where(table(N, N) > 0, 0.0, -torch.inf)},
}


def made(name: str, dtype: torch.dtype = torch.float32) -> AttentionMatrix:
    q, k = (torch.randn(2, heads, N, D, generator=torch.Generator().manual_seed(heads)).to(dtype) for heads in (H, 2))
    if name in ("scaled", "general", "additive", "mlp"):
        k = k.repeat_interleave(2, 1)
    found: AttentionMatrix = regard.matrix(q, k, **SPECS[name]())
    return found


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_comes_back(name: str, tmp_path: Path) -> None:
    want = made(name)
    want.save(tmp_path / "a.safetensors")
    found = load(tmp_path / "a.safetensors")
    assert isinstance(found, AttentionMatrix)
    if name != "dense":  # a table that was expanded is not
        assert repr(found) == repr(want)
    assert torch.equal(found.dense(), want.dense())
    assert torch.equal(found[1, 2].dense(), want[1, 2].dense())


def test_every_kind_of_part_is_tried() -> None:
    tried: set[type] = set()

    def take(value: Any) -> None:
        if isinstance(value, type):
            return
        tried.add(type(value))
        for part in value if isinstance(value, tuple) else value.attributes.values() if isinstance(value, Part) else ():
            take(part)

    for name in SPECS:
        source: Any = made(name)._source
        for part in (source.request.score, source.request.mask, source.request.bias, source.request.normalizer):
            take(part)
    assert {kind for kind in REGISTERED.values() if kind.__module__.startswith("regard.")} - {regard.Dropout} <= tried


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types(dtype: torch.dtype, tmp_path: Path) -> None:
    want = made("dense", dtype)
    want.save(tmp_path / "a.safetensors")
    found: Any = load(tmp_path / "a.safetensors")
    assert found._source.request.query.dtype == dtype
    assert torch.equal(found.dense(), want.dense())


@pytest.mark.parametrize(
    "part", [(0,), (1, 2), (slice(None), 3), (slice(None), [2, 0]), ([[0, 1], [1, 0]], [[3, 2], [1, 0]])]
)
@pytest.mark.parametrize("name", ["causal", "dense", "lengths"])
def test_a_part_of_a_matrix(name: str, part: Any, tmp_path: Path) -> None:
    want = made(name)[part]
    want.query_tokens = tuple("abcdefghi")
    want.save(tmp_path / "a.safetensors")
    found: Any = load(tmp_path / "a.safetensors")
    assert found.shape == want.shape
    assert torch.equal(found.dense(), want.dense())
    assert (found.query_tokens, found.key_tokens) == (tuple("abcdefghi"), None)
    if name == "causal" and part == (1, 2):  # a head alone is stored alone
        assert (tmp_path / "a.safetensors").stat().st_size < 2 * N * D * 4 + 2000


def test_two_axes_and_no_rows(tmp_path: Path) -> None:
    for shape in ((5, 8), (0, 8), (1, 1)):
        want = regard.matrix(torch.randn(shape), torch.randn(shape))
        want.save(tmp_path / "a.safetensors")
        found: Any = load(tmp_path / "a.safetensors")
        assert found.shape == want.shape
        assert torch.equal(found.dense(), want.dense())


def test_weights_that_were_given(tmp_path: Path) -> None:
    weights = torch.rand(3, 4, 5, 6).softmax(-1)
    want = AttentionMatrix.from_weights(weights, list("abcde"), ["\ud800", "é", "<s>", "", "\x00", "漢"])
    want.save(tmp_path / "a.safetensors")
    found: Any = load(tmp_path / "a.safetensors")
    assert torch.equal(found.dense(), weights)
    assert (found.query_tokens, found.key_tokens) == (want.query_tokens, want.key_tokens)
    want[1].save(tmp_path / "a.safetensors")
    part: Any = load(tmp_path / "a.safetensors")
    assert torch.equal(part.dense(), weights[1])


def test_parameters_do_not_come_with_gradients(tmp_path: Path) -> None:
    q = torch.randn(1, 2, 5, 4, requires_grad=True)
    want = regard.matrix(q, q, bias=torch.zeros(5, 5, requires_grad=True))
    want.save(tmp_path / "a.safetensors")
    found: Any = load(tmp_path / "a.safetensors")
    assert not found._source.request.query.requires_grad
    assert torch.equal(found.dense(), want.dense())


class Odd(masks.Mask):
    """A mask that no file knows."""

    def visible(self, pairs: Any) -> Tensor:
        seen: Tensor = (pairs.i + pairs.j) % 2 == 0
        return seen


def test_functions_of_positions_are_written_out(tmp_path: Path) -> None:
    q = torch.randn(2, 3, 7, 4)
    for mask in (
        masks.Where(lambda b, h, i, j: (i - j) % (h + 2) == b),
        masks.from_flex(lambda b, h, i, j: i >= j) & masks.Window(3, 3),
        Odd(),
    ):
        assert not storable(mask)
        want = regard.matrix(q, q, mask=mask)
        want.save(tmp_path / "a.safetensors")
        found: Any = load(tmp_path / "a.safetensors")
        assert_close(found.dense(), want.dense())
        assert torch.equal(found.dense() == 0, want.dense() == 0)
    assert "Dense" in repr(found)


def test_functions_that_cannot_be_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    q = torch.randn(1, 2, 6, 4)
    changed = regard.matrix(q, q, score=scores.Modified(scores.Dot(), lambda s, b, h, i, j: s * 2))
    with pytest.raises(ValueError, match="changed by a function, which a file cannot hold; save its numbers"):
        changed.save(tmp_path / "a.safetensors")
    monkeypatch.setattr("regard.inspection.load.MOST", 50)
    large = regard.matrix(q, q, mask=masks.Where(lambda b, h, i, j: h + i > j))
    with pytest.raises(ValueError, match="made by a function cannot be in a file: written out it has 72 entries"):
        large.save(tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_options_of_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a safetensors file takes no title: it holds the matrix, not a picture"):
        made("plain").save(tmp_path / "a.safetensors", title="mine")


def test_a_sink_that_is_a_large_integer(tmp_path: Path) -> None:
    """Numbers beyond 64 bits are in the file as they are, and mean what they meant before."""
    query, key = torch.randn(2, 1, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    made = regard.matrix(query, key, normalizer=normalizers.Softmax(2**70))
    made.save(tmp_path / "a.safetensors")
    found = regard.load(tmp_path / "a.safetensors")
    assert isinstance(found, regard.AttentionMatrix)
    assert torch.equal(found.lse(), made.lse())
    assert torch.equal(found.lse(), torch.full((1, 2, 5), float(2**70)))


def test_a_file_that_is_replaced_while_it_is_opened_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Header and numbers are of one file, whichever it is."""
    path, replacements = tmp_path / "a.safetensors", [2.0, 3.0]

    def save(value: float) -> None:
        rows = torch.full((1, 2, 5, 4), value)
        regard.matrix(rows, rows).save(path)

    def opened(*args: Any) -> Any:
        file = safe_open(*args)
        if replacements:
            save(replacements.pop(0))
        return file

    save(1.0)
    monkeypatch.setattr(tensor_file, "safe_open", opened)
    assert regard.load(path)._source.request.query.unique().tolist() == [3.0]  # type: ignore[union-attr]
