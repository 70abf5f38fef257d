"""Plans: the reviewed table of machines and families, and the laws every plan keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_specquant.errors import PlanError, UsageError
from edge_specquant.placement.cost.roofline import Roofline, alone, curve_key, paired
from edge_specquant.placement.cost.sibling import Sibling, expected_acceptance
from edge_specquant.placement.plan.budget import budget_of
from edge_specquant.placement.plan.plan import make_plan
from edge_specquant.placement.plan.plan_types import PlacementPlan, Wish
from edge_specquant.placement.plan.smaller_plan import MAX_RETRIES, smaller

TABLE = Path(__file__).parent / "expected_plans.md"
FAMILIES = ["Qwen2.5-0.5B", "Qwen2.5-3B", "Qwen2.5-7B"]


@pytest.fixture
def siblings(family_cards):
    return lambda family: [Sibling(name, card) for name, card in family_cards(family).items()]


def row(machine: str, family: str, objective: str, plan: PlacementPlan | str) -> str:
    """One line of the table, as expected_plans.md has it."""
    if isinstance(plan, str):
        cells = [plan, "", "", "", "", ""]
    else:
        target, draft = plan.n_gpu_layers
        where = f"{'all' if target < 0 else target} / {'-' if plan.draft is None else 'all' if draft < 0 else draft}"
        split = "+".join(f"{share:g}" for share in plan.target.tensor_split)
        context = f"{plan.n_ctx} {plan.type_k}"
        cells = [plan.target.variant, plan.draft.variant if plan.draft else "none", where, split, context]
        cells.append(str(plan.n_threads))
    return "| " + " | ".join([machine, family, objective, *cells]) + " |"


def test_the_table_of_expected_plans(kit, profile_of, siblings):
    made = []
    for machine in kit.machines:
        profile = profile_of(machine)
        for family in FAMILIES:
            for objective in ("quality", "speed"):
                try:
                    plan: PlacementPlan | str = make_plan(siblings(family), profile, Wish(objective))
                except PlanError:
                    plan = "does not fit"
                made.append(row(machine, family, objective, plan))
    expected = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")][1:]
    assert made == expected


@pytest.mark.parametrize("objective", ["quality", "speed", "memory"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_plan_fits_what_is_free_target_and_draft_together(machine_name, profile_of, siblings, family, objective):
    """E7: draft weights, draft KV and both compute buffers count."""
    profile = profile_of(machine_name)
    budget = budget_of(profile)
    assert budget.host <= (profile.memory.n_free or 0)
    try:
        plan = make_plan(siblings(family), profile, Wish(objective))
    except PlanError:
        return
    splits = [placement.footprint for placement in (plan.target, plan.draft) if placement]
    assert budget.fits(*splits)
    assert all(split.host.n_compute for split in splits) and all(split.n_total for split in splits)
    if profile.has_unified_memory:
        assert sum(split.n_total for split in splits) <= budget.host  # one pool, counted once
        assert plan.target.n_gpu_layers == -1  # never split against itself
    json.dumps(plan.as_json())
    together = [plan.placement(name) for name in plan.residents]
    assert all(together) and budget.fits(*(placement.footprint for placement in together if placement))
    assert sum(placement.n_bytes for placement in together if placement) <= plan.n_budget
    assert {"target", "draft", "layers", "context", "threads", "memory"} <= {d.topic for d in plan.reasons}
    assert all(decision.reason for decision in plan.reasons)


def test_a_cpu_plan_depends_on_free_memory_not_on_total(kit, tmp_path, siblings):
    plans = []
    for total in (5, 64):
        machine = kit.Machine({**kit.cpu_files(4), **kit.meminfo(total, 4)})
        plans.append(make_plan(siblings("Qwen2.5-3B"), machine.probe(tmp_path / str(total))))
    assert plans[0] == plans[1]
    assert plans[0].target.variant != "f16"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(gib=st.floats(0.3, 40))
def test_any_amount_of_memory_gives_a_fitting_plan_or_a_plain_refusal(kit, tmp_path, siblings, gib):
    machine = kit.Machine({**kit.cpu_files(4), **kit.meminfo(gib + 1, gib)})
    profile = machine.probe(tmp_path)
    try:
        plan = make_plan(siblings("Qwen2.5-3B"), profile)
    except PlanError as error:
        assert "q4 has" in str(error) and "GiB" in str(error)
        return
    assert plan.n_bytes <= budget_of(profile).host


def test_a_losing_pair_is_refused_in_words(kit, tmp_path, siblings):
    profile = kit.Machine({**kit.cpu_files(2), **kit.meminfo(16, 12)}).probe(tmp_path)
    plan = make_plan(siblings("Qwen2.5-0.5B"), profile, Wish(target="q8"))
    draft = next(decision for decision in plan.reasons if decision.topic == "draft")
    assert plan.draft is None
    assert draft.reason == "q8 with the draft q4 would be slower than q8 alone here"
    assert "against" in (draft.runner_up or "")


def test_the_smallest_sibling_is_not_told_that_nothing_fits(kit, tmp_path, siblings):
    profile = kit.Machine({**kit.cpu_files(2), **kit.meminfo(16, 12)}).probe(tmp_path)
    plan = make_plan(siblings("Qwen2.5-0.5B"), profile, Wish(target="q4"))
    draft = next(decision for decision in plan.reasons if decision.topic == "draft")
    assert plan.draft is None and draft.reason == "q4 is the smallest sibling, so none is left to draft for it"


def test_the_draft_goes_to_ram_when_the_target_fills_the_card(kit, tmp_path, siblings):
    """The paper's second mode, with a CPU measured to be quick enough for it."""
    machine = kit.Machine({**kit.cpu_files(8), **kit.meminfo(32, 24)}, [kit.cuda(0, "RTX 3070", 8, 7.7)])
    curves = {"f16@gpu": Roofline(0.030, 0.001), "q4@gpu": Roofline(0.008, 0.001), "q4": Roofline(0.009, 0.002)}
    curves["f16"] = Roofline(0.140, 0.010)
    plan = make_plan(siblings("Qwen2.5-3B"), machine.probe(tmp_path), Wish(target="f16", draft="q4"), curves)
    assert plan.n_gpu_layers == (-1, 0) and plan.mode == "target on GPU, draft in RAM"
    assert plan.is_calibrated


def test_unified_memory_gives_up_draft_then_context_then_variant(kit, tmp_path, siblings):
    """With ever less memory on a Jetson, the concessions come in this order."""
    seen = []
    for tenth in range(115, 40, -1):
        files = {**kit.cpu_files(6, part="0xd42"), **kit.meminfo(12, tenth / 10), **kit.jetson_files("Jetson Orin NX")}
        machine = kit.Machine(files, [kit.cuda(0, "Orin", 12, 9, kind="igpu")], system="linux aarch64")
        try:
            plan = make_plan(siblings("Qwen2.5-3B"), machine.probe(tmp_path / str(tenth)), Wish(target="f16"))
        except PlanError:
            break
        state = (plan.draft is not None, plan.n_ctx, plan.type_k)
        if not seen or seen[-1] != state:
            seen.append(state)
    drafts, contexts = [state[0] for state in seen], [state[1] for state in seen]
    assert drafts == sorted(drafts, reverse=True)  # the draft goes first
    assert contexts == sorted(contexts, reverse=True)  # then the context shrinks
    assert seen[0] == (True, 8192, "f16") and len({n_ctx for _, n_ctx, _ in seen}) > 1


def test_a_wished_context_is_kept_or_refused_with_one_that_fits(kit, tmp_path, siblings):
    profile = kit.Machine({**kit.cpu_files(4), **kit.meminfo(8, 3.2)}).probe(tmp_path)
    assert make_plan(siblings("Qwen2.5-3B"), profile, Wish(n_ctx=1000)).n_ctx == 1000
    with pytest.raises(PlanError, match=r"32768 tokens of context do not fit .* fits with --ctx"):
        make_plan(siblings("Qwen2.5-3B"), profile, Wish(n_ctx=32768, kv_type="f16"))


def test_wishes_that_cannot_be(siblings, profile_of):
    profile = profile_of("Raspberry Pi 5, 8 GB")
    with pytest.raises(UsageError, match="no variant 'q5'; it has f16, q8, q4"):
        make_plan(siblings("Qwen2.5-0.5B"), profile, Wish(target="q5"))
    with pytest.raises(UsageError, match="objective"):
        Wish(objective="beauty")
    with pytest.raises(PlanError, match="no sibling"):
        make_plan([], profile)


def test_measured_curves_replace_the_estimate(siblings, profile_of):
    """On a machine where drafting is nearly free, the pair is chosen; where it is dear, refused."""
    profile = profile_of("container, 2 CPUs, 4 GiB")
    target, cheap, dear = Roofline(0.060, 0.005), Roofline(0.010, 0.001), Roofline(0.060, 0.005)
    wish = Wish(target="f16")
    good = make_plan(siblings("Qwen2.5-0.5B"), profile, wish, {"f16": target, "q8": cheap, "q4": cheap})
    bad = make_plan(siblings("Qwen2.5-0.5B"), profile, wish, {"f16": target, "q8": dear, "q4": dear})
    assert good.is_calibrated and good.draft is not None and good.predicted_tokens_per_s > 2 / 0.060
    assert bad.is_calibrated and bad.draft is None and bad.predicted_tokens_per_s == pytest.approx(1 / 0.060)
    assert (curve_key("q4", 0), curve_key("q4", -1), curve_key("q4", 7)) == ("q4", "q4@gpu", "q4@7")


def test_pair_arithmetic():
    """With a perfect free draft a round costs one forward; with a useless one nothing is gained."""
    target = Roofline(1.0, 0.0)
    assert paired(target, Roofline(1e-9, 0.0), 0.999).tokens_per_s == pytest.approx(9, rel=0.01)
    assert paired(target, Roofline(1.0, 0.0), 0.0).tokens_per_s < alone(target).tokens_per_s


def test_measured_agreement_decides_acceptance(siblings):
    f16, q8, q4 = siblings("Qwen2.5-0.5B")
    assert expected_acceptance(f16, q4) < expected_acceptance(f16, q8)
    assert expected_acceptance(f16, Sibling("q4", q4.card, measured_agreement=0.5)) == 0.5


def test_layers_go_to_a_remote_worker_only_when_they_do_not_fit_here(kit, tmp_path, siblings):
    from edge_specquant.native.library.devices import EngineDevice

    remote = EngineDevice("RPC0", "10.0.0.2:50052", "rpc", 16 * kit.GIB, 16 * kit.GIB)
    local = kit.cuda(0, "RTX 3070", 8, 7.6)
    profile = kit.Machine({**kit.cpu_files(8), **kit.meminfo(8, 5)}, [local, remote]).probe(tmp_path)
    assert [gpu.name for gpu in profile.gpus] == ["RPC0", "CUDA0"]
    small = make_plan(siblings("Qwen2.5-0.5B"), profile)
    assert small.target.tensor_split == (0.0, 1.0)
    alone = kit.Machine({**kit.cpu_files(8), **kit.meminfo(8, 5)}, [remote]).probe(tmp_path / "no-gpu")
    assert make_plan(siblings("Qwen2.5-0.5B"), alone).n_gpu_layers == (0, 0)
    assert make_plan(siblings("Qwen2.5-7B"), alone, Wish(target="q8")).target.n_gpu_layers != 0
    large = make_plan(siblings("Qwen2.5-7B"), profile, Wish(target="q8", draft="q4"))
    assert large.target.n_gpu_layers == -1 and large.target.tensor_split[0] > 0
    assert large.draft is None or large.draft.tensor_split in {(0.0, 1.0), (0.0, 0.0)}  # never over the network


def test_the_ladder_only_goes_down_and_ends(machine_name, profile_of, siblings):
    try:
        plan = make_plan(siblings("Qwen2.5-3B"), profile_of(machine_name), Wish(draft="q4", target="q8"))
    except PlanError:
        pytest.skip("does not fit at all")
    steps = [plan]
    while (following := smaller(steps[-1])) is not None:
        before = steps[-1]
        assert following.reasons[-1].topic == "retry" and following.n_ctx <= before.n_ctx
        assert following.n_bytes <= before.n_bytes + before.target.footprint.n_total // 5  # moving is not shrinking
        assert sum(d.n_total for d in following.target.footprint.devices) <= sum(
            d.n_total for d in before.target.footprint.devices
        )
        json.dumps(following.as_json())
        steps.append(following)
        assert len(steps) < 20
    last = steps[-1]
    assert (last.draft, last.target.n_gpu_layers) == (None, 0) and last.n_ctx <= 1024
    assert MAX_RETRIES == 3


def test_the_first_retry_gives_up_the_draft(profile_of, siblings):
    plan = make_plan(siblings("Qwen2.5-0.5B"), profile_of("Jetson Orin Nano 8 GB"), Wish(target="f16", draft="q4"))
    retry = smaller(plan)
    assert retry is not None and retry.draft is None and retry.n_ctx == plan.n_ctx
    assert retry.predicted_tokens_per_s == plan.predicted_alone_tokens_per_s


def test_an_estimate_is_mended_by_what_was_measured_beside_it(siblings, profile_of):
    """Where f16 was measured to be ten times slower than estimated, q8 is not believed to be ten times faster."""
    profile = profile_of("container, 2 CPUs, 4 GiB")
    family = siblings("Qwen2.5-0.5B")
    guess = make_plan(family, profile, Wish(target="f16", draft="none"))
    q8 = make_plan(family, profile, Wish(target="q8", draft="none"))
    slow = Roofline(10 / (guess.predicted_tokens_per_s or 1), 0.01)
    mended = make_plan(family, profile, Wish(target="q8", draft="none"), {"f16": slow})
    assert not mended.is_calibrated
    assert mended.predicted_tokens_per_s == pytest.approx((q8.predicted_tokens_per_s or 0) / 10, rel=0.01)


def test_replies_written_at_the_same_time_need_cells_each(kit, tmp_path, siblings):
    profile = kit.Machine({**kit.cpu_files(4), **kit.meminfo(16, 8)}).probe(tmp_path)
    wishes = [Wish(target="q4", draft="none", n_ctx=2048, kv_type="f16", n_parallel=n) for n in (1, 4)]
    one, four = (make_plan(siblings("Qwen2.5-3B"), profile, wish).target.footprint.host.n_kv for wish in wishes)
    assert four == 4 * one
    with pytest.raises(PlanError):
        make_plan(siblings("Qwen2.5-3B"), profile, Wish(n_ctx=32768, n_parallel=16, kv_type="f16"))
