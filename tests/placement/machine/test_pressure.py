"""Memory pressure: seen on the host and in a control group; the draft is given up first."""

from __future__ import annotations

from edge_specquant.placement.machine.memory import MemoryProfile
from edge_specquant.placement.machine.memory_pressure import first_to_drop, is_under_pressure, memory_now


def memory(available: int | None, total: int | None, headroom: int | None = None, limit: int | None = None):
    return MemoryProfile(total, available, None, None, None, limit, headroom)


def test_pressure_is_little_free_in_any_pool():
    assert not is_under_pressure(memory(50, 100))
    assert is_under_pressure(memory(1, 100))
    assert is_under_pressure(memory(50, 100, headroom=1, limit=100))
    assert not is_under_pressure(memory(None, None))


def test_memory_now_reads_the_tree(kit, tmp_path):
    kit.write_tree(tmp_path, kit.meminfo(8, 2))
    assert memory_now(tmp_path).n_free == 2 * kit.GIB


def test_the_draft_goes_first_then_the_oldest_idle_and_never_a_busy_target():
    busy = frozenset({"f16"})
    assert first_to_drop(["q8", "f16", "q4"], draft="q4", in_use=busy | {"q4"}) == "q4"
    assert first_to_drop(["q8", "f16"], draft="q4", in_use=busy) == "q8"
    assert first_to_drop(["f16"], draft=None, in_use=busy) is None
