"""The plan behind a runtime: the user's layers win, a machine without a GPU gets none, a failed load gives way."""

from __future__ import annotations

import itertools
from dataclasses import replace

from edge_specquant.gguf.family import Family
from edge_specquant.placement.ladder import MAX_RETRIES
from edge_specquant.runtime.options import EngineOptions
from edge_specquant.runtime.planned import Planned


def test_without_a_gpu_all_stays_on_the_cpu(tiny_family: Family) -> None:
    planned = Planned(tiny_family, EngineOptions())
    assert planned.plan is not None
    assert {planned.layers(name)[0] for name in (*tiny_family.variants, "unknown")} == {0}
    assert planned.notices == []


def test_what_the_user_says_wins(tiny_family: Family) -> None:
    planned = Planned(tiny_family, EngineOptions(n_gpu_layers=7))
    assert planned.layers("f16") == (7, ())
    assert not planned.give_way("f16")


def test_a_plan_with_layers_away_is_what_is_loaded(tiny_family: Family) -> None:
    planned = Planned(tiny_family, EngineOptions())
    assert planned.plan is not None
    away = replace(planned.plan.target, n_gpu_layers=-1, tensor_split=(0.5, 0.5))
    planned._plan = replace(planned.plan, target=away)
    assert planned.layers(away.variant) == (-1, (0.5, 0.5))


def test_each_retry_takes_layers_off_the_gpu_until_none_is_left(tiny_family: Family) -> None:
    planned = Planned(tiny_family, EngineOptions())
    assert planned.plan is not None
    target = planned.plan.target
    split = target.footprint
    away = replace(target, n_gpu_layers=-1, footprint=replace(split, devices=(split.host,), n_layers_on=(24,)))
    planned._plan = replace(planned.plan, target=away, draft=None, n_ctx=8192)
    found = []
    while planned.give_way(target.variant):
        found.append(planned.layers(target.variant)[0])
    assert 0 < len(found) <= MAX_RETRIES and found[-1] == 0
    assert all(later < earlier for earlier, later in itertools.pairwise([24, *found]))
    assert len(planned.notices) == len(found)


def test_the_cpu_has_nothing_to_give_up(tiny_family: Family) -> None:
    assert not Planned(tiny_family, EngineOptions()).give_way("f16")


def test_a_family_that_cannot_be_planned_is_one_notice(tiny_family: Family) -> None:
    planned = Planned(tiny_family, EngineOptions(target="q7"))
    assert planned.layers("f16") == (0, ())
    assert planned.plan is None and len(planned.notices) == 1
