"""What a matrix that processes share does not know is refused with what it does."""

from typing import Any

import pytest
import torch

from regard.inspection.matrix.sharded import ShardedMatrix


def test_what_it_does_not_know_is_named() -> None:
    ring: Any = None  # nothing is asked of it
    shared: Any = ShardedMatrix(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 2), ring, {})
    with pytest.raises(AttributeError, match=r"has no topk: it has lse, entropy, .* the whole sequence in one process"):
        shared.topk(3)
    with pytest.raises(TypeError, match=r"cannot be indexed: it has lse"):
        shared[0, 0]
    assert not hasattr(shared, "similarity")
