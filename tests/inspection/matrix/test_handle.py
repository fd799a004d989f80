"""The handle behaves like the array: the same numbers for every subscript, smaller handles, clear refusals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard import AttentionMatrix, attend, matrix, normalizers, scores

B, H, N, M = 2, 3, 23, 31


@pytest.fixture(scope="module")
def pair() -> tuple[AttentionMatrix, np.ndarray[Any, Any]]:
    draw = torch.Generator().manual_seed(0)
    query, key = (torch.randn(B, H, size, 4, dtype=torch.float64, generator=draw) for size in (N, M))
    weights = attend(
        query, key, torch.eye(M, dtype=torch.float64).expand(B, H, M, M), mask="causal", engine="reference"
    )
    return matrix(query, key, mask="causal"), weights.numpy()


def entries(size: int) -> st.SearchStrategy[Any]:
    whole = st.integers(-size, size - 1)
    bound = st.none() | st.integers(-size - 3, size + 3)
    return st.one_of(whole, st.slices(size), st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, 5, -1, -3])))


@given(st.tuples(entries(B), entries(H), entries(N), entries(M)), st.integers(1, 4), st.booleans())
@settings(max_examples=300, suppress_health_check=list(HealthCheck), deadline=None)
def test_numbers_by_any_subscript(
    pair: tuple[AttentionMatrix, np.ndarray[Any, Any]], parts: tuple[Any, ...], used: int, dots: bool
) -> None:
    handle, array = pair
    index = (Ellipsis, *parts[4 - used :]) if dots else parts[:used]
    found, right = handle[index], array[index]
    assert tuple(found.shape) == right.shape
    found = found.dense() if isinstance(found, AttentionMatrix) else found
    np.testing.assert_allclose(found.numpy(), right, atol=1e-15, rtol=1e-12)


@pytest.mark.parametrize(
    "index",
    [
        (0, 1, [3, 1, 3]),
        (0, 1, slice(None), [5, -1, 0]),
        (slice(None), 2, [1, 2], [3, 4]),
        (..., [[0, 1], [2, 3]], [[4], [5]]),
        ([1, 0], [2, 2], 5, slice(0, 9)),
        (0, 0, np.array([True] + [False] * (N - 2) + [True])),
        (1, slice(None, None, 2), torch.tensor([0, 22]), slice(None, None, 4)),
        (0, 0, torch.tensor([], dtype=torch.int64), slice(None)),
    ],
)
def test_lists_index_as_in_torch(pair: tuple[AttentionMatrix, np.ndarray[Any, Any]], index: Any) -> None:
    handle, array = pair
    right = torch.from_numpy(array)[index]
    torch.testing.assert_close(handle[index], right, atol=1e-15, rtol=1e-12)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((0, 0, N), "out of range for 23 rows"),
        ((0, 0, 0, [0, M]), "out of range for 31 columns"),
        ((B,), "out of bounds"),
        ((0, 0, 0, 0, 0), "too many indices"),
        ((None, 0), "no new axes"),
        ((0, 0, 1.5), "must be integers"),
        ((0, 0, "a"), "must be integers"),
        ((..., ...), "one '...'"),
    ],
)
def test_bad_subscripts(pair: tuple[AttentionMatrix, Any], index: Any, message: str) -> None:
    with pytest.raises(IndexError, match=message):
        pair[0][index]


def test_smaller_handles_share_what_was_found(pair: tuple[AttentionMatrix, np.ndarray[Any, Any]]) -> None:
    handle, array = pair
    part = handle[1, 1:]
    assert part.shape == (2, N, M)
    assert len(part) == 2
    assert [each.shape for each in part] == [(N, M)] * 2
    np.testing.assert_allclose(part.received().numpy(), array[1, 1:].sum(-2), rtol=1e-12)
    np.testing.assert_allclose(part.similarity().numpy()[0, 1], handle.similarity().numpy()[1, 1, 2], rtol=1e-12)
    np.testing.assert_allclose(np.asarray(part), array[1, 1:], atol=1e-15)


def test_ranks_follow_the_inputs() -> None:
    query, key = torch.randn(2, 5, 4)
    assert matrix(query, key).shape == (5, 5)
    assert matrix(query, key)[1:3, 0].shape == (2,)
    assert matrix(query.expand(3, 5, 4), key).shape == (3, 5, 5)
    assert matrix(query.expand(2, 6, 3, 5, 4), key.expand(1, 3, 5, 4)).entropy().shape == (2, 6, 3, 5)


def test_nothing_large_is_built_by_accident() -> None:
    a = matrix(*torch.randn(2, 1, 1, 20_000, 8))
    for work in (lambda: a.dense(), lambda: np.asarray(a), lambda: a[0, 0, :, ::2]):
        with pytest.raises(ValueError, match=r"A\.pool"):
            work()
    assert a[0, 0, ::1000, ::1000].shape == (20, 20)


def test_repr_says_what_it_is() -> None:
    a = matrix(*torch.randn(2, 1, 8, 4096, 64), mask="causal", score=scores.Cosine(4.0))
    assert repr(a) == "AttentionMatrix(1 × 8 × 4,096 × 4,096, Cosine(scale=4.0), Causal(); 16 MiB for 512 MiB)"
    assert "stored" in repr(AttentionMatrix.from_weights(torch.eye(3)))


def test_tokens_fit() -> None:
    query = torch.randn(1, 1, 3, 4)
    a = matrix(query, query, query_tokens=["a", "b", "c"], key_tokens=("a", "b", "c"))
    assert a[0, 0].key_tokens == ("a", "b", "c")
    with pytest.raises(ValueError, match="3 strings, one for each, got 2"):
        matrix(query, query, query_tokens=["a", "b"])
    with pytest.raises(TypeError, match="split it first"):
        matrix(query, query, query_tokens="abc")


def test_dropout_is_not_a_matter_of_weights() -> None:
    with pytest.raises(TypeError, match="before any is dropped"):
        matrix(*torch.randn(2, 1, 1, 3, 4), dropout=0.1)


@pytest.mark.parametrize("normalizer", [normalizers.Softmax(), normalizers.Softmax(0.3), normalizers.Sparsemax()])
def test_gradients_of_entropy_and_mass(normalizer: normalizers.Normalizer) -> None:
    draw = torch.Generator().manual_seed(1)
    query, key = (torch.randn(1, 2, size, 3, dtype=torch.float64, generator=draw).requires_grad_() for size in (5, 7))

    def reduced(query: Tensor, key: Tensor) -> Tensor:
        a = matrix(query, key, mask="causal", normalizer=normalizer)
        return torch.cat([a.mass(regard.masks.Window(2, 0)), a.entropy()], -1)

    def plain(query: Tensor, key: Tensor) -> Tensor:
        eye = torch.eye(7, dtype=torch.float64).expand(1, 2, 7, 7)
        w = attend(query, key, eye, mask="causal", normalizer=normalizer, engine="reference")
        i, j = torch.arange(5).view(-1, 1) + 2, torch.arange(7)
        near = (i - j >= 0) & (i - j <= 2)
        return torch.cat([(w * near).sum(-1), -(w * torch.where(w > 0, w, 1.0).log()).sum(-1)], -1)

    torch.testing.assert_close(reduced(query, key), plain(query, key), rtol=1e-10, atol=1e-12)
    for mine, theirs in zip(
        torch.autograd.grad(reduced(query, key).square().sum(), (query, key)),
        torch.autograd.grad(plain(query, key).square().sum(), (query, key)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-10)


def test_lse_is_that_of_attend() -> None:
    query, key = torch.randn(2, 1, 2, 9, 4, requires_grad=True)
    a = matrix(query, key, temperature=0.5)
    lse = attend(query, key, key, temperature=0.5, aux="lse")[1].lse
    torch.testing.assert_close(a.lse(), lse)
    assert a.lse().requires_grad
    assert not a.received().requires_grad
    with pytest.raises(ValueError, match="belongs to softmax"):
        matrix(query, key, normalizer=normalizers.Hard()).lse()


@pytest.mark.parametrize("residual", [0.0, 0.5])
def test_rollout_is_the_product(residual: float) -> None:
    draw = torch.Generator().manual_seed(2)
    layers = [matrix(*torch.randn(2, 2, 3, 12, 4, dtype=torch.float64, generator=draw)) for _ in range(3)]
    right = torch.eye(12, dtype=torch.float64).expand(2, 12, 12)
    for layer in layers:
        mixed = residual * torch.eye(12, dtype=torch.float64) + (1 - residual) * layer.dense().mean(1)
        right = mixed @ right
    torch.testing.assert_close(regard.rollout(layers, residual=residual), right)
    torch.testing.assert_close(regard.rollout(layers, rows=[4, 2], residual=residual), right[:, [4, 2]])
    torch.testing.assert_close(regard.rollout(layers, rows=-1, residual=residual), right[:, -1])


def test_rollout_refuses_what_does_not_fit() -> None:
    a, b = matrix(*torch.randn(2, 1, 2, 5, 4)), matrix(*torch.randn(2, 1, 2, 6, 4))
    with pytest.raises(ValueError, match="queries of the layer below"):
        regard.rollout([a, b])
    with pytest.raises(ValueError, match="at least one"):
        regard.rollout([])
    with pytest.raises(ValueError, match="heads are averaged"):
        regard.rollout([a[0, 0]])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_stay_in_their_rows(bad: float) -> None:
    query, key = torch.randn(2, 1, 1, 6, 4, generator=torch.Generator().manual_seed(3))
    query[0, 0, 2, 0] = bad
    a = matrix(query, key)
    assert a[0, 0, 2].isnan().any() or a[0, 0, 2].sum() == 1
    others = [0, 1, 3, 4, 5]
    assert a.dense()[0, 0, others].isfinite().all()
    assert a.entropy()[0, 0, others].isfinite().all()


def test_empty_matrices() -> None:
    a = matrix(torch.randn(1, 2, 0, 4), torch.randn(1, 2, 5, 4))
    assert a.entropy().shape == (1, 2, 0)
    assert torch.equal(a.received(), torch.zeros(1, 2, 5))
    b = matrix(torch.randn(1, 2, 5, 4), torch.randn(1, 2, 0, 4))
    assert torch.equal(b.rowsum(), torch.zeros(1, 2, 5))
    assert torch.equal(b.peak().key, torch.full((1, 2, 5), -1))
    with pytest.raises(ValueError, match="no cells to pool"):
        b.pool(2, 2)


@pytest.mark.parametrize("size", [{"rows": 0}, {"cols": 0}, {"rows": -1}, {"cols": 2.5}, {"rows": "2"}])
def test_grids_have_sizes(size: dict[str, Any]) -> None:
    a = matrix(*torch.randn(2, 1, 2, 10, 8))
    for work in (lambda: a.survey("pool", **size), lambda: a.pool(**{"rows": 2, "cols": 2, **size})):
        with pytest.raises((ValueError, TypeError), match=r"must be (at least 1|an int)"):
            work()
    with pytest.raises(ValueError, match="how must be one of"):
        a.pyramid(2, 2, "pairs")  # type: ignore[arg-type]


def test_gradients_reach_parts_that_were_made_without() -> None:
    query = torch.randn(1, 2, 6, 4, requires_grad=True)
    a = matrix(query, torch.randn(1, 2, 6, 4))
    with torch.no_grad():
        a[0, 0].entropy()
    with torch.inference_mode():
        a[0, 1].entropy()
    (a[0, 0].entropy().sum() + a[0, 1].entropy().sum()).backward()
    assert query.grad is not None
    assert (query.grad != 0).any(-1).all()


def test_nobody_writes_into_what_is_kept() -> None:
    a = matrix(*torch.randn(2, 1, 2, 6, 4))
    for each in (a, a[0], a[0, 0]):
        right = each.dense()
        for found in (each.lse(), each.entropy(), each.received(), *each.peak(), *each.topk(2), each.pool(2, 2)):
            found.zero_()
        torch.testing.assert_close(each.dense(), right)
        assert (each.entropy() != 0).all()
    weights = torch.softmax(torch.randn(2, 3, 4), -1)
    stored = AttentionMatrix.from_weights(weights)
    stored[0, 0].zero_()
    assert (weights > 0).all()


def test_similarity_of_one_head_over_layers() -> None:
    weights = torch.softmax(torch.randn(3, 2, 4, 6, 6, dtype=torch.float64), -1)
    found = AttentionMatrix.from_weights(weights)[:, 1, 2].similarity()
    flat = torch.nn.functional.normalize(weights[:, 1, 2].flatten(1), dim=-1)
    torch.testing.assert_close(found, flat @ flat.mT)
    a = matrix(*torch.randn(2, 2, 4, 10, 8, dtype=torch.float64), mask="causal")
    flat = torch.nn.functional.normalize(a.dense()[:, 0].flatten(1), dim=-1)
    torch.testing.assert_close(a[:, 0].similarity(), flat @ flat.mT)


@pytest.mark.parametrize("sink", [0.0, 12.0, 20.0])
def test_spread_beside_a_strong_sink(sink: float) -> None:
    query, key = torch.randn(2, 1, 2, 6, 4)
    found, right = (
        matrix(query.to(dtype), key.to(dtype), normalizer=normalizers.Softmax(sink)).distance().spread
        for dtype in (torch.float32, torch.float64)
    )
    torch.testing.assert_close(found.double(), right, rtol=1e-3, atol=1e-5)


def test_gradients_of_what_a_function_holds() -> None:
    slope = torch.tensor(2.0, requires_grad=True)
    query, key = torch.randn(2, 1, 2, 5, 4)
    a = matrix(query, key, score=scores.Modified(scores.ScaledDot(), lambda s, b, h, i, j: s * slope))
    a.entropy().sum().backward()
    assert slope.grad is not None


def test_parts_know_where_their_queries_stand() -> None:
    query, key = torch.randn(2, 2, 4, 10, 8)
    a = matrix(query, key, mask="causal", query_start=torch.tensor([0, 3]))
    torch.testing.assert_close(a[1].distance().mean, a.distance().mean[1])
    ambiguous = matrix(torch.randn(1, 1, 8, 8), torch.randn(1, 1, 4, 8))
    for work in (ambiguous.distance, lambda: ambiguous.mass("causal"), lambda: ambiguous.survey("distance")):
        with pytest.raises(ValueError, match="query_start is ambiguous"):
            work()


def test_limits_hold_for_small_rectangles_too() -> None:
    with pytest.raises(ValueError, match="more than 10"):
        matrix(*torch.randn(2, 2, 4, 10, 8)).dense(limit=10)
    layers = [matrix(*torch.randn(2, 1, 16, 2100, 8))]
    assert regard.rollout(layers, rows=slice(None, None, -500)).shape == (1, 5, 2100)
    assert regard.rollout(layers, rows=[]).shape == (1, 0, 2100)


def test_pyramids_start_no_larger_than_the_matrix() -> None:
    a = matrix(*torch.randn(2, 1, 1, 3, 4))
    assert [tuple(level.shape) for level in a.pyramid(4, 4, "sum")] == [(1, 1, 3, 3), (1, 1, 2, 2), (1, 1, 1, 1)]
    torch.testing.assert_close(a.pyramid(4, 4, "sum")[-1], a.pool(1, 1, "sum"))


def test_masks_of_stored_weights_have_their_axes() -> None:
    weights = torch.softmax(torch.randn(2, 3, 4, 5), -1)
    stored = AttentionMatrix.from_weights(weights)
    mask = torch.rand(2, 3, 4, 5) < 0.5
    torch.testing.assert_close(stored.mass(mask), torch.where(mask, weights, 0.0).sum(-1))
    torch.testing.assert_close(stored.mass(regard.masks.Lengths([2, 5]))[0], weights[0, ..., :2].sum(-1))
    assert AttentionMatrix.from_weights(torch.zeros(2, 0, 5)).entropy().shape == (2, 0)
    assert AttentionMatrix.from_weights(weights.bfloat16()).entropy().dtype == torch.float32


def test_messages_say_what_to_do() -> None:
    a = matrix(*torch.randn(2, 2, 3, 10, 8))
    assert a[0, 0, np.array([1, 2], dtype=np.int8)].shape == (2, 10)
    assert a[::-1, [0, 1], 0, 0].shape == (2, 2)
    with pytest.raises(IndexError, match=r"must have shape \(10,\)"):
        a[0, 0, torch.ones(4, dtype=torch.bool)]
    with pytest.raises(TypeError, match="unexpected keyword argument 'engine'"):
        matrix(*torch.randn(2, 1, 1, 3, 4), engine="native")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="eager attention"):
        AttentionMatrix.from_weights((None, None))
    with pytest.raises(TypeError, match="from_weights"):
        regard.rollout([torch.eye(3), torch.eye(3)])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="times wants"):
        a.times(torch.randn(2, 3, 12))
    with pytest.raises(TypeError, match="k must be an int"):
        a.topk(2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("large", [2**63, -(2**63) - 1, 2**64, 2**500])
def test_indices_that_do_not_fit_in_64_bits(large: int) -> None:
    a = matrix(*torch.randn(2, 1, 2, 10, 4))
    for index in ((0, 0, large, 0), (0, 0, 0, large), (large, 0), (0, large, 1, 1), (0, 0, [large], 0), (0, [large])):
        with pytest.raises(IndexError, match=r"index .* is out of range: no axis has that many entries"):
            a[index]
    assert torch.equal(a[0, 0, np.array([1, 2], dtype=np.uint64)], a[0, 0, 1:3])
    with pytest.raises(IndexError, match="got a list with str"):
        a[0, 0, np.array(["a", 1], dtype=object)]


def test_results_that_no_machine_holds() -> None:
    a = matrix(*torch.randn(2, 1, 2, 10, 4))
    for work in (lambda: a.topk(2**62), lambda: a.pool(2**62, 2**62), lambda: a.survey("pool", rows=2**62)):
        with pytest.raises(ValueError, match=r"would hold \d+ numbers, more than 2\*\*40; .* 10 queries and 10 keys"):
            work()
    assert a.pyramid(2**62, 2**62)[0].shape == (1, 2, 10, 10)


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "torch.as_tensor": torch.as_tensor,
    "torch.asarray": torch.asarray,
    "torch.tensor": torch.tensor,
    "torch.from_dlpack": torch.from_dlpack,  # type: ignore[attr-defined]
    "np.asarray": np.asarray,
    "np.from_dlpack": np.from_dlpack,
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_it_converts_to_a_tensor_or_an_array(name: str) -> None:
    convert = CONVERSIONS[name]
    q, k = torch.randn(2, 2, 3, 5, 4)
    a = matrix(q.requires_grad_(), k, mask="causal")
    found = convert(a)
    assert type(found) is (np.ndarray if name.startswith("np") else Tensor)
    # A copy: NumPy 1.26 gives read-only memory, of which torch warns.
    assert torch.equal(found if isinstance(found, Tensor) else torch.tensor(found), a.dense())
    assert tuple(convert(a[1, 2]).shape) == (5, 5)
    weights = torch.rand(2, 4, 4).softmax(-1)
    stored = AttentionMatrix.from_weights(weights)
    np.testing.assert_array_equal(np.asarray(convert(stored)), weights)
    large = matrix(*torch.randn(2, 1, 1, 9000, 2))
    with pytest.raises(ValueError, match=r"build 81,000,000 weights, more than 67,108,864; look at A\.pool"):
        convert(large)


@pytest.mark.needs("numpy.asarray(A, copy=False)")
def test_an_array_without_a_copy_is_refused() -> None:
    a = matrix(*torch.randn(2, 1, 1, 5, 4))
    assert np.asarray(a, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="the weights are computed when they are asked for"):
        np.asarray(a, copy=False)


def test_a_difference_converts_too() -> None:
    a, b = (matrix(*torch.randn(2, 1, 2, 5, 4)) for _ in range(2))
    for convert in (torch.as_tensor, np.asarray):
        np.testing.assert_array_equal(np.asarray(convert(a - b)), (a - b).dense())


def test_bfloat16_weights_are_a_float32_array() -> None:
    stored = AttentionMatrix.from_weights(torch.rand(2, 3, 3).bfloat16())
    assert np.asarray(stored).dtype == np.float32
    np.testing.assert_array_equal(np.asarray(stored), stored.dense().float())
