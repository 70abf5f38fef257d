"""The engine's process with a fault built in: `python faulty_child.py PHASE HOW LIMIT`, frames as for the real one.

PHASE: start, open, load, prefill, draft, verify. HOW: a signal's name, "hang" (stopped), "pause" (stopped for three
seconds), "stall" (alive, nothing
done), "busy" (long work), "exit", "garbage" (no frames on stdout) or "error". A fault happens only as often as the name
of LIMIT says at its end: that file grows by a byte for each.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def fail(how: str, limit: Path) -> None:
    n_done = limit.stat().st_size if limit.exists() else 0
    if n_done >= int(limit.name.rpartition("-")[2]):
        return
    with limit.open("ab") as file:
        file.write(b"x")
    if how == "hang":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "pause":
        later = f"import os, signal, time; time.sleep(3); os.kill({os.getpid()}, signal.SIGCONT)"
        subprocess.Popen([sys.executable, "-c", later])
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "stall":
        threading.Event().wait()
    elif how == "busy":
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            sum(range(1000))
    elif how == "exit":
        os._exit(7)
    elif how == "error":
        raise RuntimeError("something nobody foresaw")
    elif how == "garbage":
        for descriptor in range(3, 20):  # one of them leads to the parent
            with contextlib.suppress(OSError):
                os.write(descriptor, b"\x00\x00\x00\x08no frame")
        time.sleep(60)
    else:
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(60)


def before(owner: Any, name: str, is_due: Callable[..., bool], how: str, limit: Path) -> None:
    original = getattr(owner, name)

    def with_fault(*args: Any, **kwargs: Any) -> Any:
        if is_due(*args):
            fail(how, limit)
        return original(*args, **kwargs)

    setattr(owner, name, with_fault)


def main() -> int:
    phase, how, limit = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    from edge_specquant.engine.caches.kv_cache import KVCache
    from edge_specquant.engine.drafters.model_drafter import ModelDrafter
    from edge_specquant.runtime import local
    from edge_specquant.runtime.models import variants
    from edge_specquant.runtime.process import child

    n_drafts = [0]

    def third_draft(*_: Any) -> bool:
        n_drafts[0] += 1
        if n_drafts[0] == 3:
            time.sleep(0.3)  # what was written before must be on its way: a death before the first token is retried
        return n_drafts[0] == 3

    if phase == "start":
        fail(how, limit)
    elif phase == "open":
        before(local, "Slots", lambda *_: True, how, limit)
    elif phase == "load":
        before(variants, "open_model", lambda *_: True, how, limit)
    elif phase == "prefill":
        before(KVCache, "_decode", lambda cache, tokens, *_: cache.n_past > 0 and len(tokens) > 20, how, limit)
    elif phase == "draft":
        before(ModelDrafter, "propose", third_draft, how, limit)
    elif phase == "verify":
        before(ModelDrafter, "accepted", third_draft, how, limit)
    return child.main()


if __name__ == "__main__":
    sys.exit(main())
