"""Kinds: whether a layer is the self-attention of an encoder or a decoder, or looks across from one to the other."""

import re

from regard.inspection.matrix import AttentionMatrix
from regard.inspection.matrix.source import Computed
from regard.spec.masks import Causal

KINDS = ("encoder", "decoder", "cross")
# of the modules on a layer's path, as they are called in torch, transformers and here
CROSS = re.compile(r"cross|encdec|enc_dec|encoder_att|^multihead_attn$|^src_att|^enc_att|^memory")
SELF = re.compile(r"^self|self_?att|^self$")
ENCODER, DECODER = re.compile(r"^enc(oder)?s?(_|$)|_encoder$"), re.compile(r"^dec(oder)?s?(_|$)|_decoder$")


def kind_of(path: str, found: AttentionMatrix, stays: bool | None) -> str:
    """By the path of the module; where that does not say, by what is seen.

    `stays`: whether its keys stayed as they were while a model generated; None if there was one call.
    """
    names = [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in path.split("#")[0].split(".")]
    if any(CROSS.search(name) for name in names):
        return "cross"
    queries, keys = found.shape[-2:]
    itself = any(SELF.search(name) for name in names) or stays is False or queries == keys
    if stays or (not itself and not looks_back(found)):
        return "cross"
    for name in names:
        if DECODER.search(name):
            return "decoder"
        if ENCODER.search(name):
            return "encoder"
    return "decoder" if looks_back(found) else "encoder"


def looks_back(found: AttentionMatrix) -> bool:
    """Whether queries that stand at the end of the keys do not see those after them. One query alone does not tell."""
    queries, keys = found.shape[-2:]
    first = keys - queries
    if queries < 2 or first < 0:
        return False
    source = found._source
    if isinstance(source, Computed) and isinstance(source.request.mask, Causal):
        return bool((source.request.plane.starts == first).all())
    rows = sorted({queries // 2, queries - 2})
    return not any(bool((found[(..., row, slice(first + row + 1, keys))] != 0).any()) for row in rows)
