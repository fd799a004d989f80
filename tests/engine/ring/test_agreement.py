"""A ring of any size equals one process: output, statistics and gradients."""

from typing import Any

import pytest

from regard.engine.request import AUX

Workers = Any
SIZES = {"batch": 2, "kv_heads": 2, "group": 2, "queries": 41, "keys": 41, "d_key": 8, "d_value": 6, "query_start": 0}
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"mask": "causal"},
    "window": {"mask": "window"},
    "documents": {"mask": "packed"},
    "alibi": {"bias": "alibi", "mask": "causal"},
    "t5": {"bias": "t5"},
    "dropout": {"dropout": 0.3, "mask": "causal"},
    "sink": {"normalizer": "sink", "mask": "causal"},
}


def check(workers: Workers, world: int, **told: Any) -> None:
    wrong = [answer for answer in workers.values("agrees", world=world, **told) if answer]
    assert not wrong, wrong


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", [2, 3, 4, 8])
def test_equals_one_process(workers: Workers, world: int, kind: str) -> None:
    for dtype in ("float32", "float64"):
        check(workers, world, case={**KINDS[kind], "sizes": SIZES}, dtype=dtype, aux=[])


@pytest.mark.parametrize("world", [2, 3])
def test_statistics(workers: Workers, world: int) -> None:
    for kind in KINDS.values():
        check(workers, world, case={**kind, "sizes": SIZES}, aux=list(AUX))
