"""The mask half: the bools it stands for are transformers' own, and its structure is kept where it is known."""

import copy
import io
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import masking_utils as made

from regard.hf.masks import View, known, mask, recognized
from regard.hf.tensor import MaskTensor, SharedMask
from regard.spec.masks import And, Causal, Dense, Documents, Full, Lengths, Mask, Not, Or, Prefix, Window

CPU = torch.device("cpu")


def ids(batch: int, length: int, least: int = 0) -> Tensor:
    return torch.randint(least, 3, (batch, length), generator=torch.Generator().manual_seed(length)).cumsum(1) + least


def functions(batch: int, length: int, size: int) -> dict[str, Any]:
    """Every way transformers combines its mask functions."""
    causal = made.causal_mask_function
    return {
        "causal": causal,
        "full": made.bidirectional_mask_function,
        "window": made.sliding_window_causal_mask_function(size),
        "both sides": made.sliding_window_bidirectional_mask_function(size),
        "chunks": made.chunked_causal_mask_function(size, torch.arange(batch)),
        "packed": made.and_masks(causal, made.packed_sequence_mask_function(ids(batch, length))),
        "blocks": made.or_masks(causal, made.blockwise_overlay(ids(batch, length, least=-1))),
        "blocks in a window": made.or_masks(
            made.sliding_window_causal_mask_function(size), made.blockwise_overlay(ids(batch, length, least=-1))
        ),
    }


def test_all_kinds_are_known() -> None:
    assert len(known()) == 7


@given(
    name=st.sampled_from(sorted(functions(1, 1, 1))),
    batch=st.integers(1, 3),
    queries=st.integers(1, 6),
    before=st.integers(0, 7),
    cut=st.integers(0, 7),
    after=st.integers(0, 3),
    size=st.integers(1, 5),
    padding=st.sampled_from(["none", "left", "right", "both", "holes", "all"]),
    as_tensor=st.booleans(),
)
def test_bools_are_those_of_transformers(
    name: str,
    batch: int,
    queries: int,
    before: int,
    cut: int,
    after: int,
    size: int,
    padding: str,
    as_tensor: bool,
) -> None:
    """Queries stand after `before` keys, of which the first `cut` are gone from the cache; `after` slots are empty."""
    first = min(before, cut)
    length = before + queries + after
    asked = {
        "batch_size": batch,
        "q_length": queries,
        "kv_length": length - first,
        "q_offset": torch.tensor(before) if as_tensor else before,
        "kv_offset": first,
        "mask_function": functions(batch, length, size)[name],
        "attention_mask": _padding(padding, batch, before + queries),
    }
    found = mask(**asked, table=known())
    assert isinstance(found, MaskTensor)
    wanted = made.sdpa_mask(**asked, allow_is_causal_skip=False)
    assert found.shape == wanted.shape
    assert found.dtype == torch.bool
    assert torch.equal(found.shared.materialize(), wanted)


def _padding(kind: str, batch: int, length: int) -> Tensor | None:
    if kind == "none":
        return None
    seen = torch.ones(batch, length, dtype=torch.bool)
    for row in range(batch):
        pads = min(row + 1, length)
        if kind in ("left", "both"):
            seen[row, :pads] = False
        if kind in ("right", "both"):
            seen[row, length - pads :] = False
        if kind == "holes":
            seen[row, row % 2 :: 2] = False
        if kind == "all":
            seen[row] = False
    return seen


@pytest.mark.parametrize(
    "name, parts",
    [
        ("causal", {Causal}),
        ("full", {Full}),
        ("window", {And, Window, Causal}),
        ("both sides", {Window}),
        ("chunks", {And, Documents, Causal}),
        ("packed", {And, Causal, Documents}),
        ("blocks", {Or, Causal, Documents}),
    ],
)
def test_structure_is_kept(name: str, parts: set[type[Mask]]) -> None:
    found = recognized(functions(2, 9, 3)[name], View(9, 9, 0, 0), known())
    assert found is not None
    assert {type(part) for part in found.leaves()} <= parts
    assert type(found) in parts


@pytest.mark.parametrize(
    "padding, parts",
    [("left", {Not}), ("right", {Lengths}), ("both", {Not, Lengths}), ("holes", {Dense}), ("all", {Lengths})],
)
def test_padding_is_two_ends_where_it_can_be(padding: str, parts: set[type[Mask]]) -> None:
    found = mask(2, 9, 9, attention_mask=_padding(padding, 2, 9), table=known())
    assert isinstance(found, MaskTensor)
    added = {type(part) for part in _parts(found.shared.mask)} - {And, Causal}
    assert added == parts


def _parts(whole: Mask) -> list[Mask]:
    return [whole, *_parts(whole.left), *_parts(whole.right)] if isinstance(whole, And) else [whole]


def test_left_padding_hides_a_prefix() -> None:
    found = mask(2, 9, 9, attention_mask=_padding("left", 2, 9), table=known())
    assert isinstance(found, MaskTensor)
    assert found.shared.mask == (Causal() & ~Prefix(torch.tensor([1, 2])))


def test_a_function_nobody_knows_becomes_bools() -> None:
    def odd(batch_idx: Any, head_idx: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (q_idx + kv_idx) % 2 == 0

    found = mask(2, 4, 5, mask_function=made.and_masks(made.causal_mask_function, odd), table=known())
    assert type(found) is Tensor
    assert found[0, 0].int().tolist() == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 1, 0, 1, 0]]


def test_a_known_name_with_another_meaning_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def sliding_window_overlay(sliding_window: int) -> Any:
        def inner_mask(batch_idx: Any, head_idx: Any, q_idx: Any, kv_idx: Any) -> Any:
            return kv_idx >= q_idx - sliding_window

        return inner_mask

    monkeypatch.setattr(made, "sliding_window_overlay", sliding_window_overlay)
    table = known()
    assert len(table) == 6
    assert recognized(sliding_window_overlay(3), View(4, 4, 0, 0), table) is None


def test_a_kind_that_is_missing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(made, "blockwise_overlay")
    assert len(known()) == 6


@pytest.fixture
def shared() -> SharedMask:
    return SharedMask(Causal() & Lengths([5, 3]), 1, (2, 4, 5), CPU)


def bools() -> Tensor:
    seen = torch.ones(4, 5).tril(1).bool().expand(2, 1, 4, 5).clone()
    seen[1, :, :, 3:] = False
    return seen


def test_operations_see_the_bools(shared: SharedMask) -> None:
    tensor = MaskTensor(shared)
    assert type(~tensor) is Tensor
    assert torch.equal(~tensor, ~bools())
    assert torch.equal(tensor[:, :, 1:3, :2], bools()[:, :, 1:3, :2])
    assert torch.equal(torch.where(tensor, 0.0, -1.0), torch.where(bools(), 0.0, -1.0))
    assert torch.equal(tensor.to(torch.float32), bools().float())
    assert torch.equal(torch.cat([tensor, bools()]), torch.cat([bools(), bools()]))


def test_handing_on_builds_nothing(shared: SharedMask) -> None:
    tensor = MaskTensor(shared)
    for same in (tensor, tensor.detach(), tensor[:, :, :, :5], tensor[:, :, :, :99], tensor.to(CPU), tensor[:]):
        assert isinstance(same, MaskTensor)
        assert same.shared is shared
    assert (tensor.shape, tensor.ndim, tensor.dtype) == ((2, 1, 4, 5), 4, torch.bool)
    assert shared.bools is None
    assert repr(tensor) == "MaskTensor(Causal() & Lengths([5, 3]), start=1, shape=(2, 1, 4, 5))"


def test_writes_last(shared: SharedMask) -> None:
    tensor, alias = MaskTensor(shared), MaskTensor(shared).detach()
    tensor[:, :, 0, :] = False
    wanted = bools()
    wanted[:, :, 0] = False
    assert torch.equal(tensor.shared.materialize(), wanted)
    assert isinstance(alias, MaskTensor)
    assert torch.equal(alias.shared.materialize(), wanted)
    tensor.logical_not_()
    assert torch.equal(tensor.shared.materialize(), ~wanted)
    assert repr(tensor) == "MaskTensor(bools, start=1, shape=(2, 1, 4, 5))"


def test_copies_are_their_own(shared: SharedMask) -> None:
    tensor = MaskTensor(shared)
    for copied in (tensor.clone(), copy.deepcopy(tensor)):
        assert isinstance(copied, MaskTensor)
        assert copied.shared.mask is shared.mask
        copied[:] = False
        assert not bool(copied.any())
    assert shared.bools is None
    tensor[0] = True
    later = tensor.clone()
    tensor[0] = False
    assert bool(later.shared.materialize()[0].all())  # type: ignore[attr-defined]


def test_what_is_saved_is_bools(shared: SharedMask) -> None:
    file = io.BytesIO()
    torch.save(MaskTensor(shared), file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=True), bools())
