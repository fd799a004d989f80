"""Operations of the two parts of a block, by formula."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Operations of one block of a width over n tokens; the feed-forward layer's hidden one is 4 times as wide."""

    width: int
    length: int

    @property
    def projections(self) -> int:
        """W_Q, W_K, W_V and W_O."""
        return 8 * self.length * self.width**2

    @property
    def pairs(self) -> int:
        """Scores and weighted values."""
        return 4 * self.length**2 * self.width

    @property
    def attention(self) -> int:
        """Both."""
        return self.projections + self.pairs

    @property
    def feed(self) -> int:
        """W₁ and W₂."""
        return 16 * self.length * self.width**2


def crossing(width: int) -> int:
    """The first length at which attention costs more than the feed-forward layer, searched for."""
    length = 1
    while Cost(width, length).attention <= Cost(width, length).feed:
        length += 1
    return length
