"""Fixtures shared by all tests: a data folder and settings of the session's own, and tiny models made on the spot.

Under pytest-xdist each worker is a session with a data folder of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from edge_specquant.gguf.convert.convert import ensure_family
from edge_specquant.gguf.family.family import Family
from edge_specquant.native.selftest.tiny import write_tiny_llama

# A shell's background job ignores Ctrl-C and so would every child that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

N_WORKERS_MOST, WORKER_BYTES = 8, 3 << 30
OF_THE_USER = ("EDGE_SPECQUANT_", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "TEXTUAL", "LINES")


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """As many as this process has cores and the memory has room for."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(n_cores, N_WORKERS_MOST, psutil.virtual_memory().available // WORKER_BYTES))


@pytest.fixture(scope="session", autouse=True)
def isolated_home(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Path]:
    """No test reads or writes the user\'s data folder; the user\'s settings, terminal and proxy decide nothing.

    Compiled kernels alone outlive the session, by their own key.
    """
    home = tmp_path_factory.mktemp("home")
    kept = getattr(request.config, "cache", None)
    if kept is not None:
        (home / "cache").mkdir()
        with contextlib.suppress(OSError):  # no links here: then it is compiled again
            (home / "cache" / "kernels").symlink_to(kept.mkdir("kernels"))
    with pytest.MonkeyPatch.context() as patch:
        for name in filter(lambda name: name.startswith(OF_THE_USER), tuple(os.environ)):
            patch.delenv(name)
        patch.setenv("COLUMNS", "120")
        patch.setenv("TERM", "xterm-256color")
        for name in ("no_proxy", "NO_PROXY"):
            patch.setenv(name, "localhost,127.0.0.1,::1")
        patch.setenv("EDGE_SPECQUANT_HOME", str(home))
        patch.setenv("EDGE_SPECQUANT_ENGINE_N_THREADS", "1")  # waiting threads starve each other on a busy machine
        yield home


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama, F16, rows of 256 (K-quants work). Read-only by agreement."""
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny-256.gguf")


@pytest.fixture(scope="session")
def tiny_gguf_288(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with rows of 288, which no K-quant takes. Read-only by agreement."""
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny-288.gguf", n_embd=288)


@pytest.fixture(scope="session")
def demo_family(isolated_home: Path) -> Family:
    """The demo, made once in the session's data folder. Read-only by agreement."""
    del isolated_home  # it must be in force first
    return ensure_family("demo")
