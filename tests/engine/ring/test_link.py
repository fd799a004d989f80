"""A process that dies is named by all others, in time; a slow one is waited for."""

import random
from typing import Any

import pytest

Workers = Any
IN_TIME = 10.0


def kill(workers: Workers, world: int, victim: int, after: float, child: bool = False) -> None:
    answers = workers.do("endless", alone=True, world=world, victim=victim, after=after, child=child)
    for rank, answer in enumerate(answers):
        if rank == victim:
            assert answer.get("died") == -9
            continue
        assert "value" in answer, answer
        seconds, text = answer["value"].split(maxsplit=1)
        assert text == f"process {victim} of the ring was lost: it ended or failed while others needed it"
        assert float(seconds) < IN_TIME


@pytest.mark.parametrize("victim", [0, 2])
def test_all_others_are_told(workers: Workers, victim: int) -> None:
    kill(workers, 4, victim, 0.2)


def test_a_child_does_not_hide_that_its_parent_died(workers: Workers) -> None:
    """A forked child, of a DataLoader say, holds the connections too."""
    kill(workers, 3, 1, 0.2, child=True)


def test_who_fails_half_way_is_named_while_it_lives(workers: Workers) -> None:
    answers = [answer.get("value", answer) for answer in workers.do("fails", alone=True, world=3)]
    assert answers[:2] == ["process 2 of the ring was lost: it ended or failed while others needed it"] * 2
    assert answers[2] == "this process left the ring when a call failed half-way; start all processes again"


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(50))
def test_fifty_times(workers: Workers, trial: int) -> None:
    draw = random.Random(trial)
    world = draw.choice([2, 3, 4])
    kill(workers, world, draw.randrange(world), 0.5 * draw.random())


def test_a_slow_process_is_waited_for(workers: Workers) -> None:
    answers = workers.do("slow", alone=True, world=3, pause=4.5)
    assert [answer.get("value", answer) for answer in answers] == ["", "", ""]
