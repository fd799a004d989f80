"""A stranger's wrong calls: each is refused before any work, and told what was wanted, what came and what to do."""

import re
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from regard import Dropout, attend, biases, masks, matrix, normalizers, plan, scores

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 4, 7, 11, 5


def zeros(*shape: int, **kind: Any) -> Tensor:
    return torch.zeros(shape, **kind)


def bools(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


QUERY, KEY, VALUE = zeros(BATCH, HEADS, QUERIES, WIDTH), zeros(BATCH, 2, KEYS, WIDTH), zeros(BATCH, 2, KEYS, 3)


def refused(error: type[Exception], text: str, *inputs: Any, **spec: Any) -> None:
    """The call raises, and its text holds every part of `text`, in this order; ` … ` stands between two parts."""
    pattern = ".*".join(map(re.escape, text.split(" … ")))
    with pytest.raises(error, match=pattern):
        attend(*(inputs or (QUERY, KEY, VALUE)), **spec)


INPUTS: dict[str, tuple[type[Exception], str, tuple[Any, ...]]] = {
    "all in (batch, length, head, width)": (
        ValueError,
        "7 query heads and 11 key heads … query, key and value look like (batch, length, head, width): call .transpose",
        tuple(tensor.transpose(1, 2) for tensor in (QUERY, KEY, VALUE)),
    ),
    "query in (batch, length, head, width)": (
        ValueError,
        "7 query heads and 2 key heads … query looks like (batch, length, head, width): call .transpose(-3, -2)",
        (QUERY.transpose(1, 2), KEY, VALUE),
    ),
    "value in (batch, length, head, width)": (
        ValueError,
        "key and value must have the same length … value looks like (batch, length, head, width): call .transpose",
        (QUERY, KEY, VALUE.transpose(1, 2)),
    ),
    "key transposed for a product": (
        ValueError,
        "key and value must have the same length … key looks like (…, width, length): pass key.mT",
        (QUERY, KEY.mT, VALUE),
    ),
    "all transposed": (
        ValueError,
        "they look like … width, length): pass query.mT, key.mT and value.mT",
        (QUERY.mT, KEY.mT, VALUE.mT),
    ),
    "lengths of key and value": (
        ValueError,
        "key and value must have the same length, got … value (2, 2, 9, 3); axes are (batch, head, length, width)",
        (QUERY, KEY, VALUE[:, :, :9]),
    ),
    "heads of key and value": (
        ValueError,
        "key and value must have the same number of heads, got 2 and 1 … axes are (batch, head, length, width)",
        (QUERY, KEY, VALUE[:, :1]),
    ),
    "heads that do not divide": (
        ValueError,
        "the key's heads must divide the query's, got 4 query heads and 3 key heads … key (2, 3, 11, 5)",
        (QUERY, zeros(2, 3, 11, 5), zeros(2, 3, 11, 3)),
    ),
    "width": (
        ValueError,
        "ScaledDot multiplies query and key, so their widths must be equal: query has 6, key has 5; project … General",
        (zeros(2, 4, 7, 6), KEY, VALUE),
    ),
    "batch": (
        ValueError,
        "the batch axes of query (2, 4, 7, 5), key (3, 2, 11, 5) … do not broadcast; make them equal or 1",
        (QUERY, zeros(3, 2, 11, 5), zeros(3, 2, 11, 3)),
    ),
    "one axis": (
        ValueError,
        "query must be (batch, head, length, width), or at least (length, width), got shape (5,)",
        (zeros(5), KEY, VALUE),
    ),
    "integers": (TypeError, "query must be float32 … got int64; convert it with .float()", (QUERY.long(), KEY, VALUE)),
    "bools": (TypeError, "value must be float32 … got bool; convert it", (QUERY, KEY, VALUE.bool())),
    "complex": (TypeError, "key must be float32 … got complex64", (QUERY, KEY.to(torch.complex64), VALUE)),
    "mixed dtypes": (
        TypeError,
        "must share one dtype, got query float32, key float64, value float32; move them with .to(query.dtype)",
        (QUERY, KEY.double(), VALUE),
    ),
    "mixed devices": (
        ValueError,
        "must share one device, got query cpu, key cpu, value meta; move them with .to(query.device)",
        (QUERY, KEY, VALUE.to("meta")),
    ),
    "None": (TypeError, "value must be a torch.Tensor, got NoneType; it is missing", (QUERY, KEY, None)),
    "numpy and torch": (
        TypeError,
        "query, key, value must all be NumPy arrays or all be tensors, got query ndarray, key Tensor, value Tensor; "
        "convert with torch.from_numpy(query)",
        (numpy.zeros((2, 4, 7, 5)), KEY, VALUE),
    ),
    "list": (TypeError, "got list; wrap it with torch.as_tensor(...)", (QUERY, KEY.tolist(), VALUE)),
    "sparse": (TypeError, "query must be a dense tensor … .to_dense()", (QUERY.to_sparse(), KEY, VALUE)),
}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attn_mask": None}, "'attn_mask'; a bool mask, True where visible, is mask=, and numbers that are added"),
        ({"is_causal": True}, "'is_causal'; write mask='causal', and query_start=0 too if the lengths differ"),
        ({"dropout_p": 0.1}, "'dropout_p'; write dropout="),
        ({"scale": 0.5}, "'scale'; write score=scores.ScaledDot(scale)"),
        ({"enable_gqa": True}, "'enable_gqa'; leave it out"),
        ({"need_weights": True}, "'need_weights'; regard.matrix(query, key, ...) gives the weights"),
        ({"key_padding_mask": None}, "'key_padding_mask'; write mask=~key_padding_mask[:, None, None, :], or"),
        ({"score_mod": None}, "'score_mod'; write score=scores.Modified(scores.ScaledDot(), score_mod)"),
        ({"attention_mask": None}, "'attention_mask'; write mask=masks.from_padding(attention_mask) for a tokenizer's"),
        ({"causal": True}, "'causal'; write mask='causal'"),
        ({"window": 3}, "'window'; it takes score, mask, bias, temperature, normalizer, dropout, query_start, aux"),
    ],
    ids=str,
)
def test_torchs_arguments_are_translated(given: dict[str, Any], message: str) -> None:
    for function in (attend, plan):
        text = f"{function.__name__}() got an unexpected keyword argument {message}"
        with pytest.raises(TypeError, match=re.escape(text)):
            function(QUERY, KEY, VALUE, **given)
    with pytest.raises(TypeError, match=re.escape("matrix() got an unexpected keyword argument")):
        matrix(QUERY, KEY, **given)


def test_a_padding_mask_says_what_to_write() -> None:
    padding = torch.ones(2, 11, dtype=torch.bool)
    with pytest.raises(ValueError, match=re.escape("write [:, None, None, :], or use masks.Lengths")):
        attend(QUERY, KEY, VALUE, mask=padding)
    x = torch.randn(3, 7, 5)
    with pytest.raises(ValueError, match=re.escape("per head, which inputs of three axes have in place of a batch")):
        attend(x, x, x, mask=torch.ones(3, 7, dtype=torch.bool))
    assert attend(x, x, x, mask=torch.ones(3, 7, dtype=torch.bool)[:, None, :]).shape == x.shape


@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name: str) -> None:
    error, text, inputs = INPUTS[name]
    refused(error, text, *inputs)


WANTED = "mask must broadcast to (batch, head, query, key) = (2, 4, 7, 11), got"
MASK = "mask must be a Mask or a bool tensor (True = visible), got"
BIAS = "bias must be one of regard.biases or a float tensor, got"
SPECS: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "mask of another size": (ValueError, f"{WANTED} (7, 10); name the axes that are missing", {"mask": bools(7, 10)}),
    "mask transposed": (
        ValueError,
        f"{WANTED} (11, 7); rows are queries and columns are keys: transpose it",
        {"mask": bools(11, 7)},
    ),
    "mask (batch, key)": (ValueError, f"{WANTED} (2, 11) … [:, None, None, :]", {"mask": bools(2, 11)}),
    "mask (batch, query, key)": (ValueError, f"{WANTED} (2, 7, 11) … .unsqueeze(1)", {"mask": bools(2, 7, 11)}),
    "mask with many axes": (ValueError, "the batch axes of mask (1, 3, 1, 7, 11)", {"mask": bools(1, 3, 1, 7, 11)}),
    "mask of floats": (TypeError, f"{MASK} a tensor of float32; numbers … bias=", {"mask": zeros(7, 11)}),
    "mask of integers": (
        TypeError,
        f"{MASK} a tensor of int64; 0 and 1 become bools with .bool() … bias=",
        {"mask": zeros(7, 11).long()},
    ),
    "mask as a float array": (TypeError, f"{MASK} a tensor of float64; numbers", {"mask": numpy.ones((7, 11))}),
    "mask as a list": (TypeError, f"{MASK} list; wrap", {"mask": [[True] * 11] * 7}),
    "mask as a number": (TypeError, f"{MASK} bool … mask='causal'", {"mask": True}),
    "mask as a class": (TypeError, f"{MASK} the class Causal; make one: Causal(...)", {"mask": masks.Causal}),
    "mask as a function": (TypeError, f"{MASK} function … masks.Where(function)", {"mask": lambda b, h, i, j: j <= i}),
    "mask as a bias": (TypeError, f"{MASK} ALiBi; numbers … bias=", {"mask": biases.ALiBi(4)}),
    "mask by a wrong name": (
        ValueError,
        "mask='casual' is not known; the one short name is 'causal', the others are in",
        {"mask": "casual"},
    ),
    "mask elsewhere": (
        ValueError,
        "mask must be on the device of the inputs, cpu, got meta",
        {"mask": bools(7, 11).to("meta")},
    ),
    "lengths for other rows": (
        ValueError,
        "Lengths needs one entry per batch row: the inputs have 2, got 3",
        {"mask": masks.Lengths([1, 2, 3])},
    ),
    "lengths beyond the keys": (
        ValueError,
        "Lengths must not exceed the number of keys, got 12 for 11 keys",
        {"mask": masks.Lengths([5, 12])},
    ),
    "bias of bools": (TypeError, f"{BIAS} a tensor of bool … pass it as mask=", {"bias": bools(7, 11)}),
    "bias of integers": (TypeError, f"{BIAS} a tensor of int64; convert it", {"bias": zeros(7, 11).long()}),
    "bias of another size": (ValueError, "bias must broadcast to … got (7, 10)", {"bias": zeros(7, 10)}),
    "bias as a number": (TypeError, f"{BIAS} float; wrap it with torch.as_tensor(...)", {"bias": 0.5}),
    "bias as a mask": (TypeError, f"{BIAS} Causal; pass a mask as mask=", {"bias": masks.Causal()}),
    "bias as a class": (TypeError, f"{BIAS} the class ALiBi; make one: ALiBi(...)", {"bias": biases.ALiBi}),
    "bias elsewhere": (
        ValueError,
        "Dense's tensor must be on the device of the inputs, cpu, got meta; move it",
        {"bias": zeros(7, 11, device="meta")},
    ),
    "slopes for other heads": (
        ValueError,
        "ALiBi(2) has 2 slopes, the call has 4 query heads; write ALiBi(4)",
        {"bias": biases.ALiBi(2)},
    ),
    "buckets for other heads": (
        ValueError,
        "T5's table (buckets, heads) is for 8 heads, the call has 4; give one entry for each",
        {"bias": biases.T5(zeros(32, 8))},
    ),
    "offsets for other heads": (
        ValueError,
        "Distance's table (heads, offsets) is for 3 heads, the call has 4",
        {"bias": biases.Distance(zeros(3, 5))},
    ),
    "temperature 0": (ValueError, "temperature must be above 0, got 0; … normalizers.Hard()", {"temperature": 0}),
    "temperature below 0": (ValueError, "temperature must be above 0, got -0.5", {"temperature": -0.5}),
    "temperature NaN": (ValueError, "temperature must be above 0, got nan", {"temperature": float("nan")}),
    "temperature Inf": (ValueError, "temperature must be at most … got inf; a large", {"temperature": float("inf")}),
    "temperature too large": (
        ValueError,
        "at most 3.4e+38, as logits … got 1e+39",
        {"temperature": 1e39},
    ),
    "temperature too small": (
        ValueError,
        "at least 1.18e-38, as logits … got 1e-40",
        {"temperature": 1e-40},
    ),
    "sink too large": (
        ValueError,
        "sink must be at most 3.4e+38 … got -1e+39",
        {"normalizer": normalizers.Softmax(-1e39)},
    ),
    "one bad temperature": (
        ValueError,
        "temperature must be above 0, got -1.0",
        {"temperature": torch.tensor([1.0, 2.0, -1.0, 1.0])},
    ),
    "temperatures for other heads": (
        ValueError,
        "temperature must be a number or one for each of the 4 query heads, got shape (2,)",
        {"temperature": torch.ones(2)},
    ),
    "temperatures with two axes": (ValueError, "4 query heads, got shape (4, 1)", {"temperature": torch.ones(4, 1)}),
    "temperatures of integers": (TypeError, "temperature must be float32", {"temperature": torch.ones(4).long()}),
    "temperature as text": (TypeError, "temperature must be a number or a tensor, got str", {"temperature": "1"}),
    "temperature elsewhere": (
        ValueError,
        "temperature must be on the device of the inputs",
        {"temperature": torch.ones(4, device="meta")},
    ),
    "dropout 1": (ValueError, "dropout must be at least 0 and below 1, got 1; … nothing would be left", {"dropout": 1}),
    "dropout below 0": (ValueError, "dropout must be at least 0 and below 1, got -0.1", {"dropout": -0.1}),
    "dropout as text": (TypeError, "dropout must be a float or Dropout(p, seed), got str; write", {"dropout": "0.1"}),
    "dropout as a class": (TypeError, "dropout must be a float or Dropout(p, seed), got type", {"dropout": Dropout}),
    "start as a float": (
        TypeError,
        "query_start must be an int, got float; convert it with int(...)",
        {"query_start": 1.0},
    ),
    "start as a list": (TypeError, "or a tensor with one per batch row, got list; wrap it", {"query_start": [0, 1]}),
    "start as floats": (
        ValueError,
        "integers for each of the 2 batch rows, got float32",
        {"query_start": torch.ones(2)},
    ),
    "starts for other rows": (
        ValueError,
        "2 batch rows, got int64 of shape (3,)",
        {"query_start": torch.ones(3, dtype=torch.int64)},
    ),
    "start out of reach": (ValueError, "query_start must lie within ±2**62", {"query_start": 2**70}),
    "engine unknown": (
        ValueError,
        "engine must be 'auto' or one of native, tiled, sdpa, flex, reference, got 'fast'",
        {"engine": "fast"},
    ),
    "engine as a list": (ValueError, "engine must be 'auto' or one of … got ['tiled']", {"engine": ["tiled"]}),
    "engine that cannot": (ValueError, "engine 'sdpa' cannot do this: torch", {"engine": "sdpa", "aux": "lse"}),
    "statistic unknown": (ValueError, "aux knows lse, entropy … max_logit; got 'weights'", {"aux": ("lse", "weights")}),
    "statistics as a number": (TypeError, "aux must be a name or a tuple of names, got int; it knows lse", {"aux": 3}),
    "statistic of another normalizer": (
        ValueError,
        "aux 'lse' belongs to Softmax, the normalizer is Hard(); leave it out",
        {"aux": "lse", "normalizer": normalizers.Hard()},
    ),
    "score as text": (TypeError, "score must be one of regard.scores, got str; … scores.ScaledDot()", {"score": "dot"}),
    "score as a class": (TypeError, "got the class Dot; make one: Dot(...)", {"score": scores.Dot}),
    "score as a function": (
        TypeError,
        "got function; … scores.Modified(score, function)",
        {"score": lambda q, k: q @ k},
    ),
    "normalizer as text": (
        TypeError,
        "normalizer must be … got str; … normalizers.Softmax()",
        {"normalizer": "softmax"},
    ),
    "sink for other heads": (
        ValueError,
        "Softmax's sink must be a number or one logit for each of the 4 query heads, got shape (2,)",
        {"normalizer": normalizers.Softmax(zeros(2))},
    ),
    "sink elsewhere": (
        ValueError,
        "Softmax's sink must be on the device",
        {"normalizer": normalizers.Softmax(zeros(4, device="meta"))},
    ),
    "weight elsewhere": (
        ValueError,
        "General's weight must be on the device",
        {"score": scores.General(zeros(5, 5, device="meta"))},
    ),
    "weight of another size": (
        ValueError,
        "General's weight must be (query width, key width) = (5, 5), got (5, 6)",
        {"score": scores.General(zeros(5, 6))},
    ),
    "function without a result": (
        TypeError,
        "Modified's function must return the new scores as a tensor, got NoneType",
        {"score": scores.Modified(scores.Dot(), lambda s, b, h, i, j: None)},  # type: ignore[arg-type, return-value]
    ),
    "function that answers yes or no": (
        TypeError,
        "must return floating-point numbers, got bool; to hide pairs use masks.Where",
        {"score": scores.Modified(scores.Dot(), lambda s, b, h, i, j: j <= i)},
    ),
    "function with too few results": (
        ValueError,
        "must return one number per pair, (batch, kv head, group, query, key) = (2, 2, 2, 7, 11), got (2, 2, 2, 7, 3)",
        {"score": scores.Modified(scores.Dot(), lambda s, b, h, i, j: s[..., :3])},
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_specs(name: str) -> None:
    error, text, spec = SPECS[name]
    refused(error, text, **spec)


@pytest.mark.parametrize("queries", [5, 12])
def test_an_ambiguous_start_is_explained(queries: int) -> None:
    mask = masks.Causal() & masks.Lengths([3, 4])
    why = "there are more queries than keys" if queries > KEYS else "the keys have Lengths"
    refused(
        ValueError,
        f"query_start is ambiguous: {queries} queries, 11 keys, and {why}; pass query_start=0 if … one per batch row)",
        zeros(BATCH, HEADS, queries, WIDTH),
        KEY,
        VALUE,
        mask=mask,
    )


def test_nothing_is_drawn_before_the_checks_are_done() -> None:
    before = torch.get_rng_state()
    refused(ValueError, "temperature must be above 0", temperature=0.0, dropout=0.5)
    refused(ValueError, "mask must broadcast", mask=bools(3, 3), dropout=0.5)
    assert torch.equal(torch.get_rng_state(), before)
