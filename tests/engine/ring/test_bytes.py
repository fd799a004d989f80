"""The bytes that a ring sends are those that the model of its cost predicts, to the byte."""

from itertools import product
from typing import Any

import pytest

from regard.engine.request import AUX

Workers = Any
SIZES = {"batch": 2, "kv_heads": 2, "group": 2, "queries": 41, "keys": 53, "d_key": 8, "d_value": 6, "query_start": 12}
CASES: dict[str, dict[str, Any]] = {
    "full": {"case": {}},
    "causal": {"case": {"mask": "causal"}},
    "window": {"case": {"mask": "window"}},
    "statistics": {"case": {"mask": "causal", "normalizer": "sink"}, "aux": list(AUX)},
    "half": {"case": {"mask": "causal"}, "dtype": "bfloat16"},
    "uneven": {"case": {"mask": "causal"}, "uneven": True, "aux": ["received"]},
    "zigzag": {"case": {"mask": "causal"}, "layout": "zigzag", "uneven": True},
    "keys alone": {"case": {"mask": "causal"}, "gradients": (False, True)},
    "queries alone": {"case": {"mask": "causal"}, "gradients": (True, False)},
}


@pytest.mark.parametrize("world, name", [*((3, name) for name in CASES), *product((1, 2, 4, 8), ("full", "uneven"))])
def test_sent_as_predicted(workers: Workers, world: int, name: str) -> None:
    told = {**CASES[name], "case": {**CASES[name]["case"], "sizes": SIZES}}
    for rank, (sent, predicted, returned, expected) in enumerate(workers.values("counts", world=world, **told)[:world]):
        assert (sent, returned) == (predicted, expected), rank
        assert (sent > 0) == (world > 1)
