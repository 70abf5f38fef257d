"""The child process of `quantize.py`: one request as a JSON line on stdin, one call of the engine, an exit code.

Its stdin stays open for as long as the parent lives; when it closes early the parent is gone, and the half-written
file goes too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from ...errors import EdgeSpecQuantError


def main() -> int:
    """Runs the request on stdin. Exit code 0 done, 1 refused (the last line on stdout says why)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends Ctrl-C to us too; the parent decides
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_die_with_parent, args=(Path(request["target"]),), daemon=True).start()
    try:
        _quantize(request)
    except EdgeSpecQuantError as error:
        print(f"{type(error).__name__}: {error}" if type(error).__name__ == "EngineMissingError" else error, flush=True)
        return 1
    return 0


def _quantize(request: dict[str, Any]) -> None:
    from ...native.quantizer import prune, quantize
    from ..format.header import read_card
    from .imatrix import read_imatrix, usable_importances

    if "prune" in request:
        prune(Path(request["source"]), Path(request["target"]), request["prune"])
        return
    importances = None
    if request["imatrix"] is not None:
        tensors = read_card(Path(request["source"])).tensors
        importances, _ = usable_importances(read_imatrix(Path(request["imatrix"])), tensors)
    quantize(
        Path(request["source"]),
        Path(request["target"]),
        ftype=request["ftype"],
        tensor_types=request["tensor_types"],
        imatrix=importances,
        n_threads=request["n_threads"],
    )


def _die_with_parent(target: Path) -> None:
    while os.read(0, 1):  # unbuffered: the lock of sys.stdin must be free when the interpreter ends
        pass
    with contextlib.suppress(OSError):
        target.unlink(missing_ok=True)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
