"""Snapshots stay within their budget, give back exactly what was kept, and never trust a file."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_rig import GREEDY, drained, fake_runtime, whole_history

from edge_specquant.engine.caches.kv_cache import KVCache
from edge_specquant.engine.caches.snapshot_files import SnapshotFiles
from edge_specquant.engine.caches.snapshots import MIN_TOKENS, Snapshots
from edge_specquant.native.fake import FakeModel
from edge_specquant.native.protocol import ContextParams
from edge_specquant.runtime import Conversation, EngineOptions

TOKENS = np.arange(100, dtype=np.int32)
STATE = np.arange(5000, dtype=np.int64).view(np.uint8)


def cache_of(tokens: list[int], can_truncate: bool = True) -> KVCache:
    cache = KVCache(
        FakeModel(whole_history(1), can_truncate=can_truncate).context(ContextParams(n_ctx=4096, n_batch=512))
    )
    if tokens:
        cache.extend(tokens)
    return cache


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 300)), min_size=1, max_size=12),
    st.sampled_from([0, 900, 4000, 1 << 20]),
    st.booleans(),
)
def test_what_the_cache_holds_is_always_true(prompts: list[tuple[int, int]], budget: int, can_truncate: bool) -> None:
    snapshots, cache = Snapshots(budget), cache_of([], can_truncate)
    for branch, length in prompts:
        prompt = [(branch + 1) * 10 + i % 7 for i in range(length)]
        snapshots.prepare("f16", cache, prompt)
        assert snapshots.n_bytes <= budget
        assert cache.tokens == cache.context.cells.get(0, [])  # type: ignore[attr-defined]
        cache.read(prompt)
        assert cache.tokens == prompt


def test_siblings_do_not_share_cells() -> None:
    snapshots, f16 = Snapshots(1 << 20), cache_of([1] * 200)
    snapshots.keep("f16", f16)
    q4 = cache_of([])
    snapshots.prepare("q4", q4, [1] * 200)
    assert q4.n_past == 0


def test_a_longer_branch_replaces_its_own_beginning() -> None:
    snapshots, cache = Snapshots(1 << 20), cache_of([1] * 100)
    snapshots.keep("f16", cache)
    cache.extend([2] * 100)
    snapshots.keep("f16", cache)
    snapshots.keep("f16", cache)
    assert len(snapshots) == 1


def test_few_tokens_are_not_worth_keeping() -> None:
    snapshots = Snapshots(1 << 20)
    snapshots.keep("f16", cache_of([1] * (MIN_TOKENS - 1)))
    assert len(snapshots) == 0


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    SnapshotFiles(tmp_path / "kv", "model", 1 << 20).write(TOKENS, STATE)
    files = SnapshotFiles(tmp_path / "kv", "model", 1 << 20)
    found = files.best(lambda tokens: int(tokens.size))
    assert found is not None and found.n_usable == TOKENS.size
    loaded = found.load()
    assert loaded is not None
    tokens, state = loaded
    assert list(tokens) == TOKENS.tolist() and np.array_equal(state, STATE)
    assert files.take_notices() == []
    (path,) = (tmp_path / "kv").iterdir()
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", ["cut", "flip tokens", "flip cells", "flip header", "empty", "other model", "text"])
def test_a_broken_or_foreign_file_is_passed_over_with_one_notice(tmp_path: Path, damage: str) -> None:
    writer = SnapshotFiles(tmp_path, "other" if damage == "other model" else "model", 1 << 20)
    writer.write(TOKENS, STATE)
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    place = {"flip tokens": len(data) - STATE.size - 8, "flip cells": len(data) - 9, "flip header": 20}.get(damage)
    if place is not None:
        data[place] ^= 0x40
    if damage == "cut":
        del data[-1]
    path.write_bytes({"empty": b"", "text": b"<html>"}.get(damage, bytes(data)))
    files = SnapshotFiles(tmp_path, "model", 1 << 20)
    for _ in range(2):
        found = files.best(lambda tokens: int(tokens.size))
        assert found is None or found.load() is None
    (notice,) = files.take_notices()
    assert path.name in notice and "is not used" in notice


def test_the_oldest_files_go_when_the_budget_is_full(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path, "model", 100_000)
    for i in range(4):
        files.write(TOKENS + i, STATE)
        for path in tmp_path.iterdir():
            os.utime(path, ns=(path.stat().st_mtime_ns - 10**9,) * 2)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 100_000
    found = files.best(lambda tokens: int(np.array_equal(tokens, TOKENS + 3)))
    assert found is not None


def test_a_folder_that_cannot_be_written_costs_one_notice(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("in the way")
    files = SnapshotFiles(tmp_path / "kv", "model", 1 << 20)
    files.write(TOKENS, STATE)
    assert len(files.take_notices()) == 1
    assert files.best(lambda tokens: int(tokens.size)) is None


def test_a_conversation_reopens_without_prefill() -> None:
    options = EngineOptions(calibrate=False, n_ctx=4096, snapshot_disk_bytes=1 << 20)
    conversation = Conversation("A long system prompt. " * 10)
    runtime, _ = fake_runtime(options)
    with runtime:
        drained(runtime.chat(conversation, "Hello", sampling=GREEDY, max_tokens=10))
    runtime, _ = fake_runtime(options)
    with runtime:
        _, _, end = drained(runtime.chat(conversation, "And now?", sampling=GREEDY, max_tokens=10))
    assert end.stats is not None
    assert end.stats.n_prompt - end.stats.n_cached <= len("\n[user]And now?\n[assistant]") + 1
