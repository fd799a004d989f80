"""NumPy arrays in, NumPy arrays out; objects with DLPack in, tensors out; what cannot be read is refused."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import regard
from regard import Dropout, arrays, biases, masks, normalizers, scores
from regard.engine.request import AUX

SHAPE = (2, 3, 7, 5)  # (batch, head, length, width)


def drawn(*shape: int, dtype: str = "float32", seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).standard_normal(shape or SHAPE).astype(dtype)


def inputs(dtype: str = "float32") -> list[NDArray[Any]]:
    return [drawn(dtype=dtype, seed=seed) for seed in range(3)]


def same(array: Any, tensor: Tensor) -> None:
    """An array with the bits of a tensor."""
    assert type(array) is np.ndarray
    assert array.dtype.name == str(tensor.dtype).removeprefix("torch.")
    np.testing.assert_array_equal(array, tensor.numpy())
    assert array.flags.writeable


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("engine", ["auto", "native", "tiled", "reference"])
def test_attend_has_the_bits_of_tensors(dtype: str, engine: str) -> None:
    given = inputs(dtype)
    tensors = [torch.from_numpy(array) for array in given]
    for _ in range(2):  # the second time from the call cache
        same(regard.attend(*given, engine=engine), regard.attend(*tensors, engine=engine))
    out, more = regard.attend(*given, mask="causal", aux=AUX, engine=engine)
    expected, statistics = regard.attend(*tensors, mask="causal", aux=AUX, engine=engine)
    same(out, expected)
    for name in AUX:
        same(getattr(more, name), getattr(statistics, name))
    assert repr(more) == repr(statistics)
    assert vars(regard.attend(*given, aux="lse")[1])["peak"] is None


def layouts() -> dict[str, NDArray[Any]]:
    plain = drawn()
    read_only = plain.copy()
    read_only.flags.writeable = False
    fields = np.zeros(SHAPE, dtype=[("x", "f4"), ("pad", "i1")])
    fields["x"] = plain
    return {
        "transposed": np.ascontiguousarray(plain.swapaxes(1, 2)).swapaxes(1, 2),
        "Fortran order": np.asfortranarray(plain),
        "every other": np.repeat(plain, 2, axis=2)[:, :, ::2],
        "negative strides": plain[:, ::-1, ::-1].copy()[:, ::-1, ::-1],
        "read-only": read_only,
        "big-endian": plain.astype(">f4"),
        "little-endian": plain.astype("<f4"),
        "a field of records": fields["x"],
        "memory that is not aligned": np.frombuffer(b"\0" + plain.tobytes(), "f4", offset=1).reshape(SHAPE),
        "a subclass": plain.view(np.memmap),
    }


@pytest.mark.parametrize("layout", layouts())
def test_any_layout_gives_the_same_numbers(layout: str) -> None:
    array, plain = layouts()[layout], drawn()
    np.testing.assert_array_equal(array, plain)
    before = array.copy()
    found, expected = (
        regard.attend(array, array, array, mask="causal"),
        regard.attend(plain, plain, plain, mask="causal"),
    )
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(array, before)
    handle = regard.matrix(array, array, mask="causal")
    np.testing.assert_array_equal(np.asarray(handle), np.asarray(regard.matrix(plain, plain, mask="causal")))


def test_a_broadcast_array_stays_small() -> None:
    mask = np.broadcast_to(np.tril(np.ones((7, 7), bool)), (1000, 3, 7, 7))
    tensor = arrays.tensor_of("mask", mask)
    assert tensor.shape == mask.shape
    assert tensor.untyped_storage().nbytes() == 49
    assert arrays.tensor_of("mask", np.broadcast_to(np.zeros((0, 7)), (3, 0, 7))).shape == (3, 0, 7)


def test_attend_reads_arrays_in_place_and_what_is_kept_is_copied() -> None:
    array = drawn()
    tensor = arrays.tensor_of("query", array)
    assert tensor.data_ptr() == array.ctypes.data
    handle, mask = regard.matrix(array, array), np.ones((7, 7), bool)
    part = masks.Dense(mask)  # type: ignore[arg-type]
    before = np.asarray(handle)
    array[:], mask[:] = 0.0, False
    np.testing.assert_array_equal(np.asarray(handle), before)
    assert bool(part.tensor.all())


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.copy())


def test_parts_take_arrays() -> None:
    q, k, v = inputs("float64")
    tensors = [torch.from_numpy(array) for array in (q, k, v)]
    visible, table = drawn(7, 7) < 1.0, drawn(7, 7, dtype="float64")
    visible[:, 0] = True

    def compare(array_spec: dict[str, Any], tensor_spec: dict[str, Any]) -> None:
        expected = regard.attend(*tensors, **tensor_spec)
        same(regard.attend(q, k, v, **array_spec), expected)
        assert torch.equal(regard.attend(*tensors, **array_spec), expected)
        assert regard.plan(q, k, v, **array_spec) == regard.plan(*tensors, **tensor_spec)
        assert torch.equal(
            regard.matrix(q, k, **array_spec).dense(), regard.matrix(*tensors[:2], **tensor_spec).dense()
        )

    def part(make: Any, name: str, *given: Any) -> None:
        both = [[f(x) if isinstance(x, np.ndarray) else x for x in given] for f in (np.asarray, _tensor)]
        compare(*({name: make(*each)} for each in both))

    compare({"mask": visible}, {"mask": torch.from_numpy(visible)})
    compare({"bias": table}, {"bias": torch.from_numpy(table)})
    compare({"bias": table.astype("float32")}, {"bias": torch.from_numpy(table).float()})
    compare({"temperature": np.array([0.5, 1.0, 2.0])}, {"temperature": torch.tensor([0.5, 1.0, 2.0]).double()})
    compare(
        {"mask": "causal", "query_start": np.array([0, 2])}, {"mask": "causal", "query_start": torch.tensor([0, 2])}
    )
    part(masks.Dense, "mask", visible)
    part(masks.Lengths, "mask", np.array([7, 3]))
    part(masks.Lengths, "mask", np.array([7, 3], dtype=np.int16))
    part(masks.Documents, "mask", np.array([0, 0, 1, 1, 1, 2, 2]))
    part(masks.Global, "mask", np.array([0, 4])[::-1])
    part(masks.Blocks, "mask", 4, np.array([[True, False], [True, True]]))
    part(masks.from_padding, "mask", np.array([[1] * 7, [1] * 4 + [0] * 3]))
    part(masks.from_mha, "mask", ~visible)
    part(biases.Dense, "bias", table)
    part(biases.Distance, "bias", drawn(9))
    part(biases.T5, "bias", drawn(8, 3))
    part(scores.General, "score", drawn(5, 5, dtype="float64"))
    part(scores.Additive, "score", drawn(4, 5), drawn(4, 5), drawn(4))
    part(scores.ConcatMLP, "score", drawn(4, 5), drawn(4, 5), drawn(4), drawn(4))
    part(scores.Relative, "score", drawn(5, 5), drawn(5), drawn(5))
    part(normalizers.Softmax, "normalizer", drawn(3))


def test_sdpa() -> None:
    q, k, v = inputs()
    tq, tk, tv = (torch.from_numpy(array) for array in (q, k, v))
    visible, added = np.tril(np.ones((7, 7), bool)), drawn(7, 7)
    same(regard.sdpa(q, k, v, is_causal=True), regard.sdpa(tq, tk, tv, is_causal=True))
    for mask in (visible, added):
        same(regard.sdpa(q, k, v, mask), regard.sdpa(tq, tk, tv, torch.from_numpy(mask)))


def test_explain() -> None:
    numbers = [[1, 0], [0, 1], [1, 1]]
    expected = str(regard.explain(numbers, numbers, numbers, mask=torch.ones(3, 3, dtype=torch.bool).tril()))
    visible = np.tril(np.ones((3, 3), bool))
    for dtype in (np.int64, np.uint8, np.float64):
        array = np.array(numbers, dtype=dtype)[::-1][::-1]
        assert str(regard.explain(array, array, array, mask=visible)) == expected


def test_weights_that_exist() -> None:
    weights = np.full((2, 3, 4), 0.25)[:, ::-1]
    assert regard.AttentionMatrix.from_weights(weights).dense().tolist() == weights.tolist()
    assert regard.AttentionMatrix.from_weights(weights.astype(">f8")).dense().tolist() == weights.tolist()


def test_no_gradients_and_no_autocast() -> None:
    q, k, v = inputs()
    bias = torch.zeros(7, 7, requires_grad=True)
    same(regard.attend(q, k, v, bias=bias), regard.attend(*map(torch.from_numpy, (q, k, v))))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert regard.attend(q, k, v).dtype == np.float32
        assert regard.sdpa(q, k, v).dtype == np.float32


def test_dropout_draws_from_torchs_generator() -> None:
    q, k, v = inputs()
    dropped: list[Any] = []
    for given in ((q, k, v), tuple(map(torch.from_numpy, (q, k, v)))):
        torch.manual_seed(3)
        dropped.append(np.asarray(regard.attend(*given, dropout=0.5)))
    np.testing.assert_array_equal(dropped[0], dropped[1])
    same(
        regard.attend(q, k, v, dropout=Dropout(0.5, 1)),
        regard.attend(*map(torch.from_numpy, (q, k, v)), dropout=Dropout(0.5, 1)),
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (np.zeros(SHAPE, np.int64), r"query must be float16, float32 or float64, got an array of int64; convert it"),
        (np.zeros(SHAPE, bool), r"got an array of bool; convert it with query.astype\('float32'\)"),
        (np.zeros(SHAPE, np.longdouble), r"got an array of float128|got an array of longdouble"),
        (np.zeros(SHAPE, np.complex64), "got an array of complex64"),
        (np.zeros(SHAPE, object), "got an array of object"),
        (np.zeros(SHAPE, "U3"), "got an array of str96"),
        (np.ma.masked_array(np.zeros(SHAPE, "f4")), "query is a masked array, whose mask would be lost"),
        (np.zeros(SHAPE, "f4").tolist(), "query must be a torch.Tensor, got list; wrap it with torch.as_tensor"),
        (np.float32(1.0), "query must be a torch.Tensor, got float32"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, list) else str(getattr(value, "dtype", ""))[:20],
)
def test_wrong_arrays_are_refused(query: Any, message: str) -> None:
    given = (query, query, query)
    for function in (regard.attend, regard.plan):
        with pytest.raises(TypeError, match=message):
            function(*given)
    if not isinstance(query, list):
        with pytest.raises(TypeError, match=message):
            regard.matrix(query, query)


def test_shapes_are_checked_as_those_of_tensors() -> None:
    with pytest.raises(ValueError, match=r"query must be \(batch, head, length, width\), or at least"):
        regard.attend(*[np.zeros(3, "f4")] * 3)
    with pytest.raises(TypeError, match="must share one dtype, got query float32, key float64"):
        regard.attend(drawn(), drawn(dtype="float64"), drawn(dtype="float64"))
    with pytest.raises(TypeError, match="mask must be an array of numbers that torch has, got object"):
        regard.attend(*inputs(), mask=np.ones((7, 7), object))
    with pytest.raises(TypeError, match=r"masks.Dense must be bool \(True = visible\), got int64"):
        masks.Dense(np.ones((7, 7), np.int64))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Lengths must be integers, got float64"):
        masks.Lengths(np.array([1.0, 2.0]))


class Other:
    """An array of another library, with nothing but DLPack."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


def test_dlpack_in_tensors_out() -> None:
    tensors = [torch.from_numpy(array) for array in inputs()]
    others: list[Any] = [Other(tensor) for tensor in tensors]
    expected: Any = regard.attend(*tensors, mask="causal", aux="lse")
    found: Any = regard.attend(*others, mask="causal", aux="lse")
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1].lse, expected[1].lse)
    visible: Any = Other(torch.ones(7, 7, dtype=torch.bool).tril())
    mixed: Any = regard.attend(others[0], tensors[1], others[2], mask=visible)
    assert torch.equal(mixed, regard.attend(*tensors, mask=visible.tensor))
    assert torch.equal(regard.sdpa(*others), regard.sdpa(tensors[0], tensors[1], tensors[2]))
    assert torch.equal(masks.Dense(visible).tensor, visible.tensor)
    assert torch.equal(regard.matrix(others[0], others[1]).dense(), regard.matrix(*tensors[:2]).dense())


def test_what_dlpack_cannot_read_is_named() -> None:
    class Traced(Other):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("no memory")

    given: Any = Traced(torch.zeros(SHAPE))
    with pytest.raises(TypeError, match=r"query is a .*Traced, which torch.from_dlpack cannot read: no memory"):
        regard.attend(given, given, given)


def test_a_tracer_of_jax_is_refused() -> None:
    tracer: Any = type("DynamicJaxprTracer", (), {"__module__": "jax._src.interpreters.partial_eval"})()
    with pytest.raises(
        TypeError, match=r"query is a DynamicJaxprTracer of JAX, which has no numbers yet; call regard o"
    ):
        regard.attend(tracer, tracer, tracer)


def test_bfloat16_arrays() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    given = [array.astype(ml_dtypes.bfloat16) for array in inputs()]
    found: Any = regard.attend(*given, aux="lse")
    expected: Any = regard.attend(*(torch.from_numpy(array).bfloat16() for array in inputs()), aux="lse")
    assert found[0].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found[0].astype("f4"), expected[0].float().numpy())
    same(found[1].lse, expected[1].lse)


def test_layers_take_masks_and_biases_as_arrays() -> None:
    layer = regard.nn.MultiHeadAttention(12, 3, mask="causal", bias=biases.ALiBi(3))
    x, visible, added = torch.randn(2, 7, 12), np.tril(np.ones((7, 7), bool), 2), drawn(7, 7)
    found = layer(x, mask=visible, bias=added)
    assert torch.equal(found, layer(x, mask=torch.from_numpy(visible), bias=torch.from_numpy(added)))
