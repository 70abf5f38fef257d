"""How good a sibling is: KL divergence to the reference, agreement on the top token, perplexity, on held-out text.

Takes model files and a text, gives QualityRecords. One model at a time is in memory: the reference's logits wait in a
temporary file. Nothing here knows of recipes or matrices.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...native.model import NativeModel
from ...native.nested.nested import NestedModel
from ...native.opening import open_model
from ...native.protocol import ContextParams
from ..family.manifest import Manifest, QualityRecord
from ..nested.nested_open import open_any
from ..quantize.collect import shipped_text

Progress = Callable[[str, int, int], None]
TokenProgress = Callable[[int, int], None]

_WINDOW_TOKENS = 256
_BLOCK_ROWS = 64
_BUDGET = ((1e9, 1024), (4e9, 512), (float("inf"), 256))  # parameters up to, tokens measured

Logits = NDArray[np.float32]


def measure_family(folder: Path, manifest: Manifest, n_threads: int, report: Progress) -> Manifest:
    """The manifest with every sibling measured that had no record yet; a float sibling is the reference."""
    unmeasured = [name for name, record in manifest.variants.items() if record.quality is None]
    if not unmeasured:
        return manifest
    reference = _reference(manifest)
    n_tokens = next(tokens for limit, tokens in _BUDGET if manifest.n_parameters < limit)
    candidates = [name for name in manifest.variants if name in unmeasured or name == reference]
    records = measure(
        {name: folder / manifest.variants[name].file for name in candidates},
        reference,
        shipped_text("heldout"),
        n_tokens=n_tokens,
        n_threads=n_threads,
        report=report,
    )
    for name, quality in records.items():
        manifest = manifest.with_variant(name, replace(manifest.variants[name], quality=quality))
    return manifest


def measure(
    paths: dict[str, Path],
    reference: str,
    text: str,
    *,
    n_tokens: int,
    n_threads: int = 0,
    report: Progress | None = None,
) -> dict[str, QualityRecord]:
    """Quality of each file by name; the reference's own record has no KLD. Raises EngineError."""
    say = report or _silent
    with tempfile.TemporaryDirectory(prefix="edge-specquant-") as scratch:
        kept = Path(scratch) / "reference-logits"
        windows, record = _run_reference(paths[reference], text, n_tokens, n_threads, kept, reference, say)
        records = {reference: record}
        for name, path in paths.items():
            if name != reference:
                records[name] = _run_sibling(
                    path, windows, n_threads, kept, reference, partial(say, f"measuring {name}")
                )
    return records


def _run_reference(
    path: Path, text: str, n_tokens: int, n_threads: int, kept: Path, name: str, say: Progress
) -> tuple[list[list[int]], QualityRecord]:
    with open_model(path) as model, kept.open("wb") as file:
        windows = _windows(model, text, n_tokens)
        losses = []

        def receive(logits: Logits, following: Sequence[int]) -> None:
            file.write(logits.tobytes())
            losses.append(_losses(_log_softmax(logits), following))

        _walk(model, windows, n_threads, receive, partial(say, f"measuring {name}"))
    perplexity = float(np.exp(np.concatenate(losses).mean()))
    return windows, QualityRecord(name, sum(map(len, windows)), perplexity, None, None)


def _run_sibling(
    path: Path, windows: list[list[int]], n_threads: int, kept: Path, reference: str, progress: TokenProgress
) -> QualityRecord:
    divergences, agreements, losses = [], [], []
    with open_any(path) as model, kept.open("rb") as file:

        def receive(logits: Logits, following: Sequence[int]) -> None:
            expected = np.fromfile(file, dtype=np.float32, count=logits.size).reshape(logits.shape)
            log_p, log_q = _log_softmax(expected), _log_softmax(logits)
            divergences.append(kl_divergence(log_p, log_q))
            agreements.append(expected.argmax(axis=1) == logits.argmax(axis=1))
            losses.append(_losses(log_q, following))

        _walk(model, windows, n_threads, receive, progress)
    return QualityRecord(
        reference=reference,
        n_tokens=sum(map(len, windows)),
        perplexity=float(np.exp(np.concatenate(losses).mean())),
        mean_kld=float(np.concatenate(divergences).mean()),
        top1_agreement=float(np.concatenate(agreements).mean()),
    )


def kl_divergence(log_p: Logits, log_q: Logits) -> NDArray[np.float64]:
    """KL(p || q) of each row, in nats, never below zero."""
    terms = np.exp(log_p) * (log_p - log_q)
    divergences: NDArray[np.float64] = np.maximum(terms.sum(axis=1, dtype=np.float64), 0.0)
    return divergences


def _walk(
    model: NativeModel | NestedModel,
    windows: list[list[int]],
    n_threads: int,
    receive: Callable[[Logits, Sequence[int]], None],
    progress: TokenProgress,
) -> None:
    """Logits of every token, in blocks of rows; `receive` also gets the tokens that really follow in the window."""
    done, total = 0, sum(map(len, windows))
    params = ContextParams(n_ctx=_WINDOW_TOKENS, n_batch=_BLOCK_ROWS, max_rows=_BLOCK_ROWS, n_threads=n_threads)
    with model.context(params) as context:
        for window in windows:
            context.clear()
            for start in range(0, len(window), _BLOCK_ROWS):
                block = window[start : start + _BLOCK_ROWS]
                receive(context.decode(block, start, len(block)), window[start + 1 : start + 1 + len(block)])
                done += len(block)
                progress(done, total)


def _windows(model: NativeModel, text: str, n_tokens: int) -> list[list[int]]:
    """The text in windows that start afresh, each with BOS in front where the model wants one."""
    front = [model.vocab.bos] if model.vocab.add_bos and model.vocab.bos is not None else []
    tokens = model.vocab.tokenize(text)[:n_tokens]
    n_each = _WINDOW_TOKENS - len(front)
    return [front + tokens[start : start + n_each] for start in range(0, len(tokens), n_each)]


def _log_softmax(logits: Logits) -> Logits:
    shifted = logits - logits.max(axis=1, keepdims=True)
    normalizer = np.log(np.exp(shifted).sum(axis=1, keepdims=True, dtype=np.float64)).astype(np.float32)
    result: Logits = shifted - normalizer
    return result


def _losses(log_probabilities: Logits, following: Sequence[int]) -> NDArray[np.float32]:
    """Minus log probability of the token that really follows; the last token of the text has no follower."""
    rows = np.arange(len(following))
    picked: NDArray[np.float32] = -log_probabilities[rows, np.asarray(following, dtype=np.int64)]
    return picked


def _reference(manifest: Manifest) -> str:
    for name in ("bf16", "f16"):
        if name in manifest.variants:
            return name
    return max(manifest.variants, key=lambda name: manifest.variants[name].bits_per_weight)


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
