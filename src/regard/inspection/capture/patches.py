"""Patches: where a model cuts images into a grid, so that its keys can be placed in it."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor, nn

from regard.inspection.capture.kept import Grid

MOST = 16  # tokens before the patches


class Patches(NamedTuple):
    """A convolution that takes each patch once: its path, the sides of a patch, and of the image if that is known."""

    path: str
    patch: tuple[int, int]
    image: tuple[int, int] | None

    def grid(self, keys: int, image: tuple[int, int] | None) -> Grid | None:
        """The grid of so many keys, if they are one for each patch and a few before."""
        image = image or self.image
        if image is None:
            return None
        rows, columns = image[0] // self.patch[0], image[1] // self.patch[1]
        special = keys - rows * columns
        return Grid(rows, columns, special) if rows and columns and 0 <= special <= MOST else None


def patches_of(model: nn.Module) -> list[Patches]:
    """All of a model: convolutions whose steps are as long as their kernels."""
    found = []
    modules = dict(model.named_modules())
    for path, module in modules.items():
        if isinstance(module, nn.Conv2d) and module.stride == module.kernel_size and min(module.kernel_size) > 1:
            above = [modules[".".join(path.split(".")[:depth])] for depth in range(path.count("."), 0, -1)]
            images = [image for owner in (*above, model) if (image := _image(owner)) is not None]
            high, wide = module.kernel_size
            found.append(Patches(path, (high, wide), images[0] if images else None))
    return found


def image_in(inputs: Iterable[Any]) -> tuple[int, int] | None:
    """The sides of the first images, (batch, channel, row, column), among what a model is given."""
    for value in inputs:
        if isinstance(value, Tensor) and value.ndim == 4 and value.is_floating_point():
            return int(value.shape[-2]), int(value.shape[-1])
    return None


def grid_of(
    layer: str, layers: Iterable[str], keys: int, patches: list[Patches], image: tuple[int, int] | None
) -> Grid | None:
    """The grid of a layer that has so many keys: that of the patches whose nearest ancestor with attention it is in."""
    names = list(layers)
    for each in patches:
        parents = each.path.split(".")
        for depth in range(len(parents) - 1, -1, -1):
            above = "".join(f"{parent}." for parent in parents[:depth])
            if any(name.startswith(above) for name in names):
                if layer.startswith(above):
                    return each.grid(keys, image)
                break
    return None


def _image(owner: nn.Module) -> tuple[int, int] | None:
    """What a module, or the settings it was made from, says of the images it takes."""
    for source in (owner, getattr(owner, "config", None)):
        for name in ("img_size", "image_size"):
            size = getattr(source, name, None)
            if isinstance(size, int):
                return size, size
            if isinstance(size, tuple | list) and len(size) == 2 and all(isinstance(side, int) for side in size):
                return int(size[0]), int(size[1])
    return None
