"""The child of the self-test: decodes with each weight type at widths 1 and 8, saying each step before it is taken.

Run as `python -m edge_specquant.native.selftest.probe 0|1` (whether repacked weights are used). It may die of a
signal: that is what it is for. The last line it printed names the culprit. Exit codes: 0 sound, 3 no engine, 4 wrong
numbers.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import EdgeSpecQuantError, EngineMissingError
from ..model import NativeModel
from ..protocol import ContextParams
from ..quantizer import quantize
from .tiny import write_tiny_llama

WEIGHT_TYPES = ("F16", "Q8_0", "Q4_0", "Q4_K")
EXIT_MISSING, EXIT_WRONG = 3, 4
_TOKENS = (1, 72, 104, 111, 35, 122, 114, 117)
# Relative RMS measured on a sound engine: 0.0003 between widths, 0.33 between F16 and 4 bits. A broken kernel gives
# unrelated numbers, which is 1.4.
_MOST_BETWEEN_WIDTHS, _MOST_BETWEEN_TYPES = 0.2, 0.8


def main(arguments: list[str]) -> int:
    """Runs all weight types with or without repacked weights."""
    _no_core_file()
    use_extra_bufts = arguments[0] == "1"
    try:
        with tempfile.TemporaryDirectory(prefix="selftest-", ignore_cleanup_errors=True) as folder:
            problem = _check_all(Path(folder), use_extra_bufts)
    except EngineMissingError as error:
        print(f"missing: {error}", flush=True)
        return EXIT_MISSING
    except EdgeSpecQuantError as error:
        problem = str(error)
    if problem:
        print(f"problem: {problem}", flush=True)
        return EXIT_WRONG
    return 0


def _check_all(folder: Path, use_extra_bufts: bool) -> str | None:
    """The first problem found, in words, or None."""
    source = write_tiny_llama(folder / "F16.gguf", n_ctx_train=64)
    reference: NDArray[np.float32] | None = None
    for weight_type in WEIGHT_TYPES:
        path = folder / f"{weight_type}.gguf"
        if path != source:
            _say(f"quantizing to {weight_type}")
            quantize(source, path, ftype=weight_type, n_threads=1)
        wide, narrow = (_logits(path, weight_type, width, use_extra_bufts) for width in (8, 1))
        reference = wide if reference is None else reference
        problem = _compare(weight_type, wide, narrow, reference)
        if problem:
            return problem
    return None


def _logits(path: Path, weight_type: str, width: int, use_extra_bufts: bool) -> NDArray[np.float32]:
    """Logits after each of the eight tokens, shape (8, n_vocab), decoded `width` at a time."""
    _say(f"{weight_type} with {width} token{'s' if width > 1 else ''} at a time")
    params = ContextParams(n_ctx=64, n_batch=8, max_rows=8, n_threads=min(2, os.cpu_count() or 1))
    with NativeModel(path, use_extra_bufts=use_extra_bufts) as model, model.context(params) as context:
        rows = [
            context.decode(_TOKENS[start : start + width], start, width).copy()
            for start in range(0, len(_TOKENS), width)
        ]
    return np.concatenate(rows)


def _compare(
    weight_type: str, wide: NDArray[np.float32], narrow: NDArray[np.float32], reference: NDArray[np.float32]
) -> str | None:
    if not (np.isfinite(wide).all() and np.isfinite(narrow).all()):
        return f"{weight_type} gives logits that are not numbers"
    between_widths = relative_rms(narrow, wide)
    if between_widths > _MOST_BETWEEN_WIDTHS:
        return f"{weight_type} gives other logits with 1 token than with 8 (relative difference {between_widths:.2f})"
    between_types = relative_rms(wide, reference)
    if between_types > _MOST_BETWEEN_TYPES:
        return f"{weight_type} gives logits unrelated to those of F16 (relative difference {between_types:.2f})"
    return None


def relative_rms(values: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    """Root mean square of the difference over that of the reference: 0 equal, 1.4 unrelated."""
    return float(np.sqrt(np.mean((values - reference) ** 2) / np.mean(reference**2)))


def _say(step: str) -> None:
    print(f"step: {step}", flush=True)


def _no_core_file() -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
