"""Growing: a tensor (…, length, width) that gets longer, and whose old parts may move to a file."""

import torch
from torch import Tensor


class Growing:
    """Pieces of which those in memory are joined as numbers are counted, so that nothing is copied often."""

    def __init__(self, tensor: Tensor) -> None:
        self._moved: list[Tensor] = []
        self._here = [tensor]

    def __len__(self) -> int:
        return sum(piece.shape[-2] for piece in (*self._moved, *self._here))

    @property
    def lead(self) -> tuple[int, ...]:
        """The axes before length and width."""
        return tuple((*self._moved, *self._here)[0].shape[:-2])

    @property
    def resident(self) -> int:
        """Bytes in memory; what is on another device stays there."""
        return sum(piece.numel() * piece.element_size() for piece in self._here if piece.device.type == "cpu")

    def add(self, tensor: Tensor) -> None:
        """One more piece at the end."""
        if not tensor.shape[-2]:
            return
        while self._here and self._here[-1].shape[-2] <= tensor.shape[-2]:
            tensor = torch.cat([self._here.pop(), tensor], -2)
        self._here.append(tensor)

    def ends_with(self, tensor: Tensor) -> bool:
        """Whether its last entries are these, bit by bit."""
        stop = tensor.shape[-2]
        for piece in reversed((*self._moved, *self._here)):
            count = min(stop, piece.shape[-2])
            if not torch.equal(piece[..., piece.shape[-2] - count :, :], tensor[..., stop - count : stop, :]):
                return False
            stop -= count
        return stop == 0

    def pending(self) -> Tensor | None:
        """What is in memory, as one tensor."""
        if not self.resident:
            return None
        self._here = [torch.cat(self._here, -2)] if len(self._here) > 1 else self._here
        return self._here[0]

    def moved(self, tensor: Tensor) -> None:
        """What was pending is this tensor now."""
        self._moved.append(tensor)
        self._here = []

    def whole(self) -> Tensor:
        """All of it."""
        pieces = [*self._moved, *self._here]
        return torch.cat(pieces, -2) if len(pieces) > 1 else pieces[0]

    @property
    def split(self) -> bool:
        """Whether part of it moved and part did not, or in several pieces."""
        return bool(self._moved) and len(self._moved) + len(self._here) > 1

    def replace(self, tensor: Tensor) -> None:
        """All of it is this tensor now, which moved."""
        self._moved, self._here = [tensor], []

    def order(self, tensor: Tensor) -> Tensor | None:
        """The batch rows of ours that are the rows of a tensor, bit by bit, or None if one is not among them."""
        ours = self.whole()
        if ours.ndim < 4 or ours.shape != tensor.shape:
            return None
        found = []
        alike = (ours[:, None, ..., -1, :] == tensor[None, ..., -1, :]).flatten(2).all(-1)  # by their last entries
        for row in range(len(tensor)):
            same = [each for each in alike[:, row].nonzero().flatten().tolist() if torch.equal(ours[each], tensor[row])]
            if not same:
                return None
            found.append(row if row in same else same[0])
        return torch.tensor(found, device=ours.device, dtype=torch.int64)

    def reorder(self, order: Tensor) -> None:
        """Take other batch rows."""
        self._moved, self._here = [], [self.whole()[order]]
