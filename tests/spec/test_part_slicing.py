"""A sliced part says of a part of the call what the whole part says there."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard import attend, biases, masks, normalizers, scores, testing
from regard.spec.plane import CannotSliceError, Pairs, Plane, Selection

SIZES = testing.Sizes()
PLANE = Plane(
    SIZES.batch,
    SIZES.kv_heads,
    SIZES.heads // SIZES.kv_heads,
    SIZES.queries,
    SIZES.keys,
    torch.tensor([SIZES.query_start]),
)
SELECTIONS = {
    "rectangle": Selection(rows=slice(2, 5), columns=slice(1, 6), queries=SIZES.queries),
    "batch row": Selection.of(PLANE, slice(1, 2)),
    "head": Selection.of(PLANE, slice(0, 1), SIZES.heads - 1),
    "heads": Selection(heads=tuple(range(SIZES.heads)[::-1]), kv_heads=tuple(range(SIZES.kv_heads)[::-1])),
}


def selected(table: Tensor, selection: Selection) -> Tensor:
    whole = table[(None,) * (5 - table.ndim)].expand(
        PLANE.batch, PLANE.kv_heads, PLANE.group, PLANE.queries, PLANE.keys
    )
    part: Tensor = selection.tensor(whole.flatten(1, 2), ("batch", "head", "query", "key"))
    split: Tensor = part.unflatten(1, (PLANE.sliced(selection).kv_heads, -1))
    return split


def expanded(table: Tensor, plane: Plane) -> Tensor:
    return table.expand(plane.batch, plane.kv_heads, plane.group, plane.queries, plane.keys)


@pytest.mark.parametrize("which", SELECTIONS)
@pytest.mark.parametrize("name", testing.MASKS)
def test_masks(name: str, which: str) -> None:
    selection = SELECTIONS[which]
    mask = testing.MASKS[name](SIZES, testing.Draw(0, torch.float64, torch.float64, 1.0))
    if name == "where" and selection.batch_or_heads:
        with pytest.raises(CannotSliceError, match="may depend on batch row and head in its fn"):
            mask.sliced(selection)
        return
    plane = PLANE.sliced(selection)
    small = mask.sliced(selection)
    small.check(plane)
    assert torch.equal(expanded(small.visible(plane.all), plane), selected(mask.visible(PLANE.all), selection))


@pytest.mark.parametrize("which", SELECTIONS)
@pytest.mark.parametrize("name", [name for name in testing.BIASES if name != "none"])
def test_biases(name: str, which: str) -> None:
    selection = SELECTIONS[which]
    bias = testing.BIASES[name](SIZES, testing.Draw(0, torch.float64, torch.float64, 1.0))
    assert bias is not None
    if selection.heads is not None and any(isinstance(term, biases.ALiBi) for term in bias.terms()):
        with pytest.raises(CannotSliceError, match="has the slopes of all heads"):
            bias.sliced(selection)
        return
    plane = PLANE.sliced(selection)
    small = bias.sliced(selection)
    small.check(plane)
    assert torch.equal(expanded(small.values(plane.all), plane), selected(bias.values(PLANE.all), selection))


@pytest.mark.parametrize("which", ["batch row", "head", "heads"])
@pytest.mark.parametrize("name", [name for name in testing.SCORES if name != "modified"])
def test_scores(name: str, which: str) -> None:
    selection, plane = SELECTIONS[which], PLANE.sliced(SELECTIONS[which])
    inputs, spec, _ = testing.Case(score=name).build()
    query = inputs[0].unflatten(1, (PLANE.kv_heads, PLANE.group))
    key = inputs[1].unsqueeze(2)
    own_query = selection.tensor(inputs[0], ("batch", "head", None, None)).unflatten(1, (plane.kv_heads, plane.group))
    own_key = selection.tensor(inputs[1], ("batch", "kv head", None, None)).unsqueeze(2)
    found = spec["score"].sliced(selection).formula(own_query, own_key, plane.all)
    assert torch.allclose(found, selected(spec["score"].formula(query, key, PLANE.all), selection))


def test_a_part_without_declared_axes_has_no_single_head() -> None:
    class Odd(masks.Mask):
        def visible(self, pairs: Pairs) -> Tensor:
            return (pairs.h + pairs.j) % 2 == 0

    with pytest.raises(CannotSliceError, match=r"Odd\(\) does not declare the `axes`"):
        Odd().sliced(SELECTIONS["head"])
    assert isinstance(Odd().sliced(SELECTIONS["rectangle"]), Odd)
    assert not Odd().same_for_all
    assert (masks.Causal() & masks.Window(3, 0)).same_for_all
    assert not masks.Lengths([3, 4]).same_for_all


def test_a_sink_is_one_per_head() -> None:
    sliced = normalizers.Softmax(torch.arange(float(SIZES.heads))).sliced(SELECTIONS["head"])
    assert torch.equal(sliced.sink, torch.tensor([SIZES.heads - 1.0]))  # type: ignore[arg-type]


def test_a_definition_of_ones_own_inherits_no_lowering() -> None:
    """A subclass that changes what is computed falls back to the defaults for how."""

    class Past(masks.Causal):
        def visible(self, pairs: Pairs) -> Tensor:
            return pairs.j < pairs.i

    class Doubled(scores.Dot):
        def formula(self, query: Tensor, key: Tensor, pairs: Pairs) -> Tensor:
            return 2 * super().formula(query, key, pairs)

    class Flat(biases.ALiBi):
        def values(self, pairs: Pairs) -> Tensor:
            return 0.5 * super().values(pairs)

    specs: list[Any] = [{"mask": Past()}, {"score": Doubled()}, {"bias": Flat(2)}]
    inputs = [torch.randn(1, 2, 7, 4, dtype=torch.float64) for _ in range(3)]
    for spec in specs:
        expected = attend(*inputs, **spec, engine="reference")
        for engine in ("tiled", "auto"):
            assert torch.allclose(attend(*inputs, **spec, engine=engine), expected)
    assert not any((Past().steps(PLANE), Doubled().steps(), Flat(2).steps()))
