"""Masks: which pairs are visible. True = visible; i and j are absolute positions; combine with `&`, `|`, `~`."""

from regard.spec.masks.band import Causal, Dilated, Full, Window, local
from regard.spec.masks.base import And, Mask, Not, Or
from regard.spec.masks.columns import Global, Lengths, Prefix, longformer
from regard.spec.masks.documents import Documents
from regard.spec.masks.functions import RowWhere, Where, from_flex
from regard.spec.masks.tables import Blocks, Dense, bigbird, from_mha, from_padding, from_sdpa

__all__ = [
    "And",
    "Blocks",
    "Causal",
    "Dense",
    "Dilated",
    "Documents",
    "Full",
    "Global",
    "Lengths",
    "Mask",
    "Not",
    "Or",
    "Prefix",
    "RowWhere",
    "Where",
    "Window",
    "bigbird",
    "from_flex",
    "from_mha",
    "from_padding",
    "from_sdpa",
    "local",
    "longformer",
]
