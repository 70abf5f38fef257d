"""The lock is fair: who lets go cannot come before those who wait."""

from __future__ import annotations

import threading

from edge_specquant.engine.parallel.fair_lock import Turns


def waiting(turns: Turns, n: int) -> None:
    while len(turns._waiting) < n:
        threading.Event().wait(0.001)


def test_served_in_the_order_of_asking_and_the_greedy_come_last() -> None:
    turns, order = Turns(), []

    def take(name: str) -> None:
        with turns:
            order.append(name)

    threads = [threading.Thread(target=take, args=(name,)) for name in "abc"]
    with turns:
        for n, thread in enumerate(threads, 1):
            thread.start()
            waiting(turns, n)
    take("greedy")
    for thread in threads:
        thread.join(10)
    assert order == ["a", "b", "c", "greedy"]


def test_one_at_a_time() -> None:
    turns, inside, most = Turns(), [], []

    def work() -> None:
        for _ in range(200):
            with turns:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(most) == 800 and max(most) == 1


def test_an_error_inside_passes_it_on() -> None:
    turns = Turns()
    for _ in range(2):
        try:
            with turns:
                raise ValueError
        except ValueError:
            continue
    with turns:
        assert not turns._waiting
