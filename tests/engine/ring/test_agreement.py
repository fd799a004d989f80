"""A ring of any size equals one process: output, statistics and gradients."""

from dataclasses import asdict
from typing import Any

import pytest

from regard.engine.request import AUX
from regard.testing import SOFTMAXES, Case, mechanisms

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
    check(workers, world, case={**KINDS[kind], "sizes": SIZES}, aux=[])
    if world == 3:
        check(workers, world, case={**KINDS[kind], "sizes": SIZES}, dtype="float64", aux=[])


MERGED = [case for case in mechanisms() if case.normalizer in SOFTMAXES]


@pytest.mark.parametrize("case", MERGED, ids=str)
def test_every_mechanism(workers: Workers, case: Case) -> None:
    """With all statistics and their gradients, on shards of different lengths, one of them empty."""
    check(workers, 3, case=asdict(case), uneven=True, aux=list(AUX))


@pytest.mark.slow
@pytest.mark.parametrize("case", MERGED, ids=str)
def test_every_mechanism_in_any_world(workers: Workers, case: Case) -> None:
    for world in (2, 3, 4, 8):
        for layout in ("contiguous", "zigzag"):
            for uneven in (False, True):
                check(workers, world, case=asdict(case), uneven=uneven, layout=layout, aux=list(AUX), dtype="float64")


@pytest.mark.parametrize("kind", ["causal", "dropout", "sink"])
def test_dealt_by_the_caller(workers: Workers, kind: str) -> None:
    check(workers, 4, case={**KINDS[kind], "sizes": SIZES}, layout="zigzag", aux=list(AUX))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(workers: Workers, dtype: str) -> None:
    check(workers, 3, case={"mask": "causal", "sizes": SIZES}, dtype=dtype, aux=["lse"])


@pytest.mark.parametrize("engine", ["tiled", "reference"])
def test_other_engines(workers: Workers, engine: str) -> None:
    check(workers, 2, case={"mask": "causal", "sizes": SIZES}, engine=engine, aux=list(AUX))
