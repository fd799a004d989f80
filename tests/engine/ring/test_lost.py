"""A process that dies is named by all others, in time; a slow one is waited for."""

import random
from typing import Any

import pytest

Workers = Any
IN_TIME = 10.0


def kill(workers: Workers, world: int, victim: int, after: float) -> None:
    answers = workers.do("endless", alone=True, world=world, victim=victim, after=after)
    for rank, answer in enumerate(answers):
        if rank == victim:
            assert answer.get("died") == -9
            continue
        assert "value" in answer, answer
        seconds, text = answer["value"].split(maxsplit=1)
        assert text == f"process {victim} of the ring was lost: it ended while others needed it"
        assert float(seconds) < IN_TIME


@pytest.mark.parametrize("victim", [0, 2])
def test_all_others_are_told(workers: Workers, victim: int) -> None:
    kill(workers, 4, victim, 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(50))
def test_fifty_times(workers: Workers, trial: int) -> None:
    draw = random.Random(trial)
    world = draw.choice([2, 3, 4])
    kill(workers, world, draw.randrange(world), 0.5 * draw.random())


def test_a_slow_process_is_waited_for(workers: Workers) -> None:
    answers = workers.do("slow", alone=True, world=3, pause=4.5)
    assert [answer.get("value", answer) for answer in answers] == ["", "", ""]
