"""Plans of families with a nested pair: weights counted once, the CPU for both, and a table of 8 GB boards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edge_specquant.placement.plan.budget import budget_of
from edge_specquant.placement.plan.plan import make_plan
from edge_specquant.placement.plan.plan_types import Wish

TABLE = Path(__file__).parent / "expected_nested_plans.md"
BOARDS = ["Jetson Orin Nano 8 GB", "Raspberry Pi 5, 8 GB", "laptop, 8 GB, RTX 3050 4 GB"]


@pytest.fixture
def mini_pc(kit):
    """Eight cores with AVX-512, no GPU, and so much free memory of 8 GB."""

    def machine(gib):
        files = {**kit.cpu_files(8), **kit.meminfo(7.7, gib)}
        files["proc/cpuinfo"] = files["proc/cpuinfo"].replace("avx2", "avx2 avx512f")
        return kit.Machine(files)

    return machine


def test_the_table_of_8_gb_boards(mini_pc, nested_siblings, profile_of, tmp_path):
    profiles = {name: profile_of(name) for name in BOARDS}
    for gib in (7.2, 5.6, 4):
        profiles[f"mini PC, 8 cores, {gib:g} GiB free"] = mini_pc(gib).probe(tmp_path / str(gib))
    made = []
    for machine, profile in profiles.items():
        for family in ("Qwen2.5-0.5B", "Qwen2.5-3B"):
            for target in (None, "nested"):
                plan = make_plan(nested_siblings(family), profile, Wish(target=target))
                draft = plan.draft.variant if plan.draft else "none"
                cells = [machine, family, target or "any", plan.target.variant, draft, plan.mode]
                made.append("| " + " | ".join([*cells, f"{plan.n_ctx} {plan.type_k}"]) + " |")
    assert made == [line for line in TABLE.read_text().splitlines() if line.startswith("| ")][1:]


def test_8_bit_quality_with_a_draft_fits_only_nested(mini_pc, nested_siblings, tmp_path):
    profile = mini_pc(5.6).probe(tmp_path)
    plan = make_plan(nested_siblings("Qwen2.5-3B"), profile)
    assert plan.draft is not None and (plan.target.variant, plan.draft.variant) == ("nested", "base")
    stock = make_plan(nested_siblings("Qwen2.5-3B"), profile, Wish(target="q8"))
    assert stock.draft is None  # Q8_0 and a 4-bit draft do not fit side by side
    assert "a part of the target" in next(each.reason for each in plan.reasons if each.topic == "draft")


def test_the_pair_counts_its_shared_weights_once(machine_name, profile_of, nested_siblings):
    siblings = {sibling.name: sibling for sibling in nested_siblings("Qwen2.5-0.5B")}
    profile = profile_of(machine_name)
    plan = make_plan(siblings.values(), profile, Wish(target="nested", draft="base"))
    assert plan.n_gpu_layers == (0, 0) and plan.draft is not None
    assert plan.draft.footprint.host.n_weights == 0 and plan.draft.footprint.host.n_kv > 0
    n_bytes = siblings["nested"].n_bytes
    assert n_bytes <= plan.target.footprint.host.n_weights <= n_bytes + siblings["nested"].weights.n_input
    assert budget_of(profile).fits(plan.target.footprint, plan.draft.footprint)
    stranger = make_plan(siblings.values(), profile, Wish(target="nested", draft="q4"))
    assert stranger.draft is not None and stranger.draft.n_bytes > plan.draft.n_bytes


def test_a_base_that_is_in_memory_costs_no_weights_beside_its_target(profile_of, nested_siblings):
    siblings = nested_siblings("Qwen2.5-0.5B")
    plan = make_plan(siblings, profile_of("desktop, 32 GB, RTX 4090"), Wish(target="nested", draft="none"))
    base = plan.placement("base")
    assert base is not None and base.footprint.host.n_weights == 0 and "base" in plan.residents


def test_a_nested_target_is_no_draft_unless_asked_for(profile_of, nested_siblings):
    siblings = nested_siblings("Qwen2.5-0.5B")
    quick = [replace(each, measured_agreement=0.999) if each.name == "nested" else each for each in siblings]
    plan = make_plan(quick, profile_of("Raspberry Pi 5, 8 GB"), Wish(target="f16"))
    assert plan.draft is None or plan.draft.variant != "nested"
