"""How a process ended becomes a sentence, and the next one starts more carefully."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace

import pytest
from runtime_rig import fake_plan

from edge_specquant.runtime.options import EngineOptions
from edge_specquant.runtime.process.death import Death, safer

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals as exit statuses")


@posix
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGILL, signal.SIGABRT])
def test_a_crash_turns_repacked_weights_off_once(number: signal.Signals) -> None:
    death = Death(-number, "while answering")
    assert number.name in death.sentence and "while answering" in death.sentence
    options, change = safer(EngineOptions(n_gpu_layers=9), death)
    assert options.use_extra_bufts is False and not options.use_kernel and options.n_gpu_layers == 0
    assert "repacked weights off" in change and "GPU" in change
    assert safer(options, death) == (options, "")


@posix
def test_a_kill_makes_the_plan_smaller_step_by_step() -> None:
    options, death = EngineOptions(calibrate=False, n_ctx=4096), Death(-9, "while loading the model")
    assert "out of memory?" in death.sentence
    sizes = []
    while (step := safer(options, death))[1]:
        options = step[0]
        sizes.append((options.draft, options.n_ctx))
    assert sizes == [("lookup", 4096), ("lookup", 2048), ("lookup", 1024), ("lookup", 512)]


def test_a_hang_and_an_exit_change_nothing_on_a_cpu() -> None:
    options = EngineOptions()
    hang = Death(-9, "while answering", "gave no sign of life for 10 s")
    assert hang.sentence == "the engine gave no sign of life for 10 s while answering and was ended"
    assert safer(options, hang) == (options, "")
    left = Death(1, "while it was idle")
    assert left.sentence == "the engine ended while it was idle (exit status 1)"
    assert safer(options, left) == (options, "")
    assert safer(EngineOptions(n_gpu_layers=5), hang)[0].n_gpu_layers == 0


@posix
def test_what_the_plan_had_put_on_a_gpu_or_made_smaller_counts() -> None:
    plan = fake_plan("f16", None, n_ctx=2048)
    away = replace(plan, target=replace(plan.target, n_gpu_layers=-1))
    hang = Death(-9, "while answering", "gave no sign of life for 10 s", plan=away)
    options, change = safer(EngineOptions(), hang)
    assert options.n_gpu_layers == 0 and change == "nothing on the GPU"
    assert safer(EngineOptions(n_gpu_layers=0), hang)[1] == ""
    assert safer(EngineOptions(), replace(hang, plan=plan))[1] == ""
    crash = Death(-signal.SIGSEGV, "while loading the model", plan=away)
    assert "nothing on the GPU" in safer(EngineOptions(), crash)[1]
    assert "GPU" not in safer(EngineOptions(), replace(crash, plan=plan))[1]
    killed = Death(-9, "while answering", plan=plan)
    smaller, _ = safer(EngineOptions(), killed)
    assert (smaller.draft, smaller.n_ctx) == ("lookup", 1024)  # half of what the plan had, and it had no draft
