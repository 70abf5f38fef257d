"""Collects an importance matrix by running a float sibling over a calibration text.

Takes a model file and a text, gives an Imatrix. The engine computes; a callback sums the squares of what meets each
weight. Knows nothing of how the matrix is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import FileError, UsageError
from ...native.hooks.eval_callback import MatMulWatcher
from ...native.opening import open_model
from ...native.protocol import ContextParams
from .imatrix import Imatrix

_CHUNK_TOKENS = 256
_HEAD_ROWS = 64  # the output head sees these of every chunk; all rows would cost a full vocabulary each
_MIN_TOKENS = 256

TokenProgress = Callable[[int, int], None]
"""Called with (done_tokens, total_tokens)."""


def shipped_text(name: str) -> str:
    """One of the texts that come with the package: `calibration` or `heldout`."""
    return (resources.files(__package__) / "texts" / f"{name}.txt").read_text(encoding="utf-8")


def read_text(path: Path | None) -> tuple[str, str]:
    """(text, its name); None is the shipped calibration text. Raises FileError, UsageError for an empty file."""
    if path is None:
        return shipped_text("calibration"), "shipped calibration text"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    if not text.strip():
        raise UsageError(f"{path} is empty; a calibration text of a few thousand words is needed")
    return text, path.name


def collect_imatrix(
    model_path: Path,
    weight_names: frozenset[str],
    text: str,
    text_name: str,
    *,
    n_threads: int = 0,
    progress: TokenProgress | None = None,
) -> Imatrix:
    """Runs the model over the text in chunks of 256 tokens.

    Raises UsageError when the text has too few tokens, EngineError from the engine.
    """
    sums: dict[str, NDArray[np.float64]] = {}
    counts: defaultdict[str, float] = defaultdict(float)

    def receive(name: str, inputs: NDArray[np.float32]) -> None:
        squares = np.einsum("ij,ij->j", inputs, inputs, dtype=np.float64)
        if name in sums:
            sums[name] += squares
        else:
            sums[name] = squares
        counts[name] += len(inputs)

    watcher = MatMulWatcher(weight_names.__contains__, receive)
    params = ContextParams(
        n_ctx=_CHUNK_TOKENS,
        n_batch=_CHUNK_TOKENS,
        max_rows=_HEAD_ROWS,
        n_threads=n_threads,
        eval_callback=watcher.callback,
    )
    with open_model(model_path) as model:
        vocab = model.vocab
        tokens = vocab.tokenize(text)
        n_chunks = len(tokens) // _CHUNK_TOKENS
        if len(tokens) < _MIN_TOKENS:
            raise UsageError(
                f"the calibration text '{text_name}' has {len(tokens)} tokens; at least {_MIN_TOKENS} are needed, "
                "a few thousand are good"
            )
        with model.context(params) as context:
            for chunk in range(n_chunks):
                context.clear()
                batch = tokens[chunk * _CHUNK_TOKENS : (chunk + 1) * _CHUNK_TOKENS]
                if vocab.add_bos and vocab.bos is not None:
                    batch[0] = vocab.bos  # as llama.cpp's tool does
                context.decode(batch, 0, _HEAD_ROWS)
                watcher.check()
                if progress is not None:
                    progress((chunk + 1) * _CHUNK_TOKENS, n_chunks * _CHUNK_TOKENS)
    totals = {name: values.astype(np.float32) for name, values in sums.items()}
    return Imatrix(totals, dict(counts), (text_name,), n_chunks, _CHUNK_TOKENS)
