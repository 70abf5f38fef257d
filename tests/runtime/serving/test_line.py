"""The line is fair, can be left, and never waits for itself."""

from __future__ import annotations

import threading
import time

import pytest

from edge_specquant.errors import UsageError
from edge_specquant.runtime.serving.waiting_line import Line, Place


def test_first_come_first_served() -> None:
    line, holder = Line(), Place()
    assert line.wait(holder)
    served: list[int] = []

    def caller(number: int, place: Place) -> None:
        assert line.wait(place)
        served.append(number)
        line.leave(place)

    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=caller, args=(number, Place())))
        threads[-1].start()
        while len(line.all()) < number + 2:
            time.sleep(0.001)
    line.leave(holder)
    for thread in threads:
        thread.join()
    assert served == [0, 1, 2, 3, 4]
    assert line.all() == []


def test_a_cancelled_place_leaves_and_the_next_is_served() -> None:
    line, holder, waiting = Line(), Place(), Place()
    assert line.wait(holder)
    outcome: list[bool] = []
    thread = threading.Thread(target=lambda: outcome.append(line.wait(waiting)))
    thread.start()
    while len(line.all()) < 2:
        time.sleep(0.001)
    line.cancel(waiting)
    thread.join()
    assert outcome == [False]
    assert line.all() == [holder]


def test_a_place_cancelled_before_it_came_is_not_served() -> None:
    line, place = Line(), Place()
    line.cancel(place)
    assert not line.wait(place)
    assert line.all() == []


def test_the_main_thread_cannot_wait_for_itself() -> None:
    line = Line()
    assert line.wait(Place())
    with pytest.raises(UsageError, match="unfinished"):
        line.wait(Place())


def test_several_are_served_at_once_and_the_rest_waits() -> None:
    line, first, second = Line(2), Place(), Place()
    outcome: list[bool] = []
    for place in (first, second):
        thread = threading.Thread(target=lambda place=place: outcome.append(line.wait(place)))
        thread.start()
        thread.join()
    assert outcome == [True, True] and line.is_served(first) and line.is_served(second)
    third = Place()
    waiting = threading.Thread(target=lambda: outcome.append(line.wait(third)))
    waiting.start()
    while line.n_waiting < 1:
        time.sleep(0.001)
    assert not line.is_served(third)
    line.leave(second)
    waiting.join()
    assert line.all() == [first, third]


def test_one_of_its_kind_at_a_time_and_others_pass() -> None:
    line, alone, common = Line(2), Place(is_alone=True), Place()
    assert line.wait(alone)
    second = Place(is_alone=True)
    waiting = threading.Thread(target=lambda: line.wait(second))
    waiting.start()
    while len(line.all()) < 2:
        time.sleep(0.001)
    passing = threading.Thread(target=lambda: line.wait(common))
    passing.start()
    passing.join(10)
    assert line.is_served(common) and not line.is_served(second)
    line.leave(common)
    assert not line.is_served(second)
    line.leave(alone)
    waiting.join(10)
    assert line.is_served(second)
