"""The self-test of the engine: crashes become verdicts, verdicts are kept, and this engine passes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_specquant.errors import EngineMissingError
from edge_specquant.native.selftest import probe, selftest
from edge_specquant.native.selftest.selftest import Trial, Verdict, cached_verdict, crash_name, judge, run_command

SOUND = Trial(0, "step: F16\nstep: Q4_0\n")
HUNG = Trial(None, "step: Q4_0\n")


def child(code: str, timeout_s: float = 60.0) -> Trial:
    """A real child process that runs `code` after naming a step."""
    return run_command([sys.executable, "-c", f"print('step: Q4_0 with 1', flush=True)\n{code}"], timeout_s)


def dying(name: str) -> Trial:
    """A child that really ends itself with this signal."""
    no_core_file = "import os, resource, signal; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))"
    return child(f"{no_core_file}; os.kill(os.getpid(), signal.{name})")


def test_this_engine_is_safe_and_the_verdict_is_kept() -> None:
    found = selftest.verdict()
    assert found.safe, found.reason
    assert all(any(step.startswith(weights) for step in found.tested) for weights in probe.WEIGHT_TYPES)
    kept = selftest.cache_dir() / "selftest" / f"{selftest.engine_key()}.json"
    assert cached_verdict(kept, lambda _: pytest.fail("the cache was not used")) == found


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("name", ["SIGSEGV", "SIGILL", "SIGABRT", "SIGBUS"])
def test_a_crash_with_repacked_weights_turns_them_off(name: str) -> None:
    found = judge(lambda use_extra_bufts: dying(name) if use_extra_bufts else SOUND)
    assert (found.safe, found.use_extra_bufts) == (True, False)
    assert name in found.reason and "Q4_0 with 1" in found.reason and "\n" not in found.reason


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_crash_either_way_is_unsafe_and_says_what_to_do(tmp_path: Path) -> None:
    found = cached_verdict(tmp_path / "v.json", lambda _: dying("SIGILL"))
    assert not found.safe and "SIGILL" in found.reason and "scripts/quickstart --rebuild" in found.reason
    assert not (tmp_path / "v.json").exists(), "an unsafe verdict must not outlive its cause"


def test_a_hang_is_ended_and_its_verdict_is_not_kept(tmp_path: Path) -> None:
    hung = child("import time; time.sleep(600)", timeout_s=1.0)
    assert hung.status is None and hung.problem == "hung at Q4_0 with 1"
    found = cached_verdict(tmp_path / "v.json", lambda use_extra_bufts: hung if use_extra_bufts else SOUND)
    assert found.safe and not found.use_extra_bufts and not (tmp_path / "v.json").exists()


def test_a_missing_engine_is_an_error_of_its_own() -> None:
    with pytest.raises(EngineMissingError, match="libllama is gone"):
        judge(lambda _: Trial(3, "missing: libllama is gone\n"))


@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"safe": true}', "\x00"])
def test_a_broken_cache_is_found_out_again(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "folder" / "v.json"
    if content is not None:
        path.parent.mkdir()
        path.write_text(content, encoding="utf-8")
    runs = []

    def run(use_extra_bufts: bool) -> Trial:
        runs.append(use_extra_bufts)
        return SOUND

    first, second = cached_verdict(path, run), cached_verdict(path, run)
    assert first == second == Verdict(True, True, first.reason, ("F16", "Q4_0")) and runs == [True]


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert cached_verdict(tmp_path / "file" / "v.json", lambda _: SOUND).safe


def test_crash_names() -> None:
    assert crash_name(-signal.SIGSEGV) == "SIGSEGV"
    assert crash_name(0xC000001D) == crash_name(0xC000001D - (1 << 32)) == "SIGILL"
    assert crash_name(1) is None and crash_name(-250) == "signal 250"


@pytest.mark.parametrize(
    ("kind", "width", "factor", "message"),
    [
        ("Q4_0", 1, -1.0, "Q4_0 gives other logits with 1 token than with 8"),
        ("Q8_0", 8, np.nan, "Q8_0 gives logits that are not numbers"),
    ],
)
def test_the_probe_sees_a_miscompiled_kernel(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    width: int,
    factor: float,
    message: str,
) -> None:
    real = probe._logits

    def broken(path: Path, weight_type: str, n: int, use_extra_bufts: bool) -> NDArray[np.float32]:
        logits = real(path, weight_type, n, use_extra_bufts)
        return logits * np.float32(factor) if (weight_type, n) == (kind, width) else logits

    monkeypatch.setattr(probe, "_logits", broken)
    assert probe.main(["0"]) == probe.EXIT_WRONG
    assert message in capsys.readouterr().out
