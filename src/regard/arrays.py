"""Arrays: NumPy arrays and objects with DLPack as tensors, and tensors as NumPy arrays again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.dlpack
from torch import Tensor

try:
    import numpy

    _ARRAYS: tuple[type, ...] = (numpy.ndarray,)
except ImportError:  # torch runs without it, and then there are no arrays
    _ARRAYS = ()

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
else:
    Array = Any

# what torch has of NumPy's types; bfloat16 is that of the package ml_dtypes, which JAX uses
KINDS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64", "bfloat16")


def is_array(value: object) -> bool:
    """Whether it is a NumPy array."""
    return isinstance(value, _ARRAYS)


def tensor_of(name: str, value: Any, *, copy: bool = False) -> Any:
    """A NumPy array or an object with DLPack as a tensor; anything else as it is.

    The tensor shares the memory unless `copy` is set or torch cannot use it: torch knows no negative strides, no other
    byte order and no read-only memory.
    """
    if isinstance(value, Tensor):
        return value
    if is_array(value):
        return _from_numpy(name, value, copy)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        try:
            tensor = torch.utils.dlpack.from_dlpack(value)
        except Exception as error:  # whatever the other library raises
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise TypeError(f"{name} is a {kind}, which torch.from_dlpack cannot read: {error}") from error
        return tensor.clone() if copy else tensor
    # JAX's arrays have DLPack, its tracers have not. torch.compile cannot trace the name of a module.
    if not torch.compiler.is_compiling() and type(value).__module__.partition(".")[0] == "jax":
        raise TypeError(
            f"{name} is a {type(value).__name__} of JAX, which has no numbers yet; call regard outside of jax.jit and "
            "jax.grad"
        )
    return value


def _from_numpy(name: str, array: Array, copy: bool) -> Tensor:
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, whose mask would be lost; pass {name}.data, and what is hidden as mask="
        )
    kind = array.dtype.name
    if kind not in KINDS + FLOATS:
        raise TypeError(f"{name} must be an array of numbers that torch has, got {kind}; convert it with .astype(...)")
    usable = array.flags.writeable and array.dtype.isnative and all(step >= 0 for step in array.strides)
    shape = array.shape
    if copy or not usable or any(step % array.itemsize for step in array.strides):
        once = tuple(slice(1) if step == 0 else slice(None) for step in array.strides)  # an axis that was broadcast
        array = array[once].astype(array.dtype.newbyteorder("="), order="C")
    if kind == "bfloat16":
        return torch.from_numpy(numpy.asarray(array).view(numpy.int16)).view(torch.bfloat16).expand(shape)
    return torch.from_numpy(numpy.asarray(array)).expand(shape)


def inputs(names: Sequence[str], given: Sequence[Any], *, copy: bool = False) -> tuple[list[Any], bool]:
    """Queries, keys and values as tensors, and whether they are NumPy arrays: all of them are, or none."""
    arrays = [is_array(value) for value in given]
    if any(arrays) and not all(arrays):
        kinds = ", ".join(f"{name} {type(value).__name__}" for name, value in zip(names, given, strict=True))
        first = names[arrays.index(True)]
        raise TypeError(
            f"{', '.join(names)} must all be NumPy arrays or all be tensors, got {kinds}; "
            f"convert with torch.from_numpy({first})"
        )
    for name, value in zip(names, given, strict=True):
        if is_array(value) and value.dtype.name not in FLOATS:
            raise TypeError(
                f"{name} must be float16, float32 or float64, got an array of {value.dtype.name}; "
                f"convert it with {name}.astype('float32')"
            )
    tensors = [tensor_of(name, value, copy=copy) for name, value in zip(names, given, strict=True)]
    return tensors, any(arrays)


def array_of(tensor: Tensor, like: Array) -> Array:
    """A result as a NumPy array; one in bfloat16 with the dtype of the input."""
    plain = tensor.detach().cpu()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(like.dtype)
    return plain.numpy()
