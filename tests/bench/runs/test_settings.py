"""Which settings are compared: every one has its baseline in the same bench, and nobody drafts for a faster sibling."""

from __future__ import annotations

import pytest

from edge_specquant.bench.runs.local_runs import Setting, alone
from edge_specquant.bench.runs.settings import (
    ablation_settings,
    by_precision,
    drafter_for,
    full_settings,
    reference_of,
    router_of,
    speculation_of,
    speculation_settings,
)

FAMILIES = (("q4", "q8", "f16"), ("f16", "q8", "nested", "q4", "base"), ("q4",), ("bf16", "base", "nested"), ("odd",))


@pytest.mark.parametrize("variants", FAMILIES, ids="-".join)
def test_every_setting_has_its_baseline_and_a_name_of_its_own(variants: tuple[str, ...]) -> None:
    benches = [full_settings(variants)]
    benches.append([s for t in variants for s in speculation_settings(t, variants, controllers=("goodput", "speckv"))])
    for settings in benches:
        names = [setting.name for setting in settings]
        assert len(set(names)) == len(names)
        assert all(alone(setting.target).name in names for setting in settings)
        _check_siblings(settings, variants)


def _check_siblings(settings: list[Setting], variants: tuple[str, ...]) -> None:
    for setting in settings:
        assert setting.target in variants
        drafts = set((setting.speculation.draft or "none").split("+")) - {"none", "lookup"}
        assert drafts <= set(variants) - {setting.target}


def test_precision_decides_the_order() -> None:
    assert by_precision(FAMILIES[1]) == ["f16", "q8", "nested", "q4", "base"]
    assert reference_of(FAMILIES[0]) == "f16" and reference_of(("odd",)) == "odd"


@pytest.mark.parametrize(
    ("target", "drafter"), [("f16", "q4"), ("q8", "q4"), ("nested", "base"), ("q4", None), ("base", None)]
)
def test_who_drafts(target: str, drafter: str | None) -> None:
    assert drafter_for(target, FAMILIES[1]) == drafter


def test_ablation_takes_each_part_alone() -> None:
    variants = ("f16", "q8", "q4")
    settings = {
        s.name: s for s in ablation_settings(variants, lambda prompt: ("q4" if prompt else "f16", "lookup", "goodput"))
    }
    only = settings["speculation only: q4, fixed 3"].speculation
    assert (only.n_draft, only.pad, only.transplant) == (3, False, False)
    plain = settings["controller: goodput"].speculation
    assert (plain.n_draft, plain.pad, plain.transplant) == (None, False, False)
    assert settings["controller + transplant"].speculation.transplant
    assert settings["controller + width padding"].speculation.pad
    together = settings["all of it, one target"].speculation
    assert together.draft == "lookup+q4" and together.pad and together.transplant
    target, speculation = settings["routing only"].resolve("x")
    assert target == "q4" and speculation.draft == "none"
    target, speculation = settings["all of it, routed"].resolve("")
    assert target == "f16" and speculation.draft == "lookup"


def test_routes_become_parameters() -> None:
    choose = router_of("paper", ("f16", "q8", "q4", "base", "nested"))
    for prompt in (
        "What is 2 + 2?",
        "Explain step by step why the proof that Gauss gave needs primes.",
    ):
        choice = choose(prompt)
        assert choice[0] == "f16" and choice[1] in ("q4", "q8", "none")
        speculation = speculation_of(choice)
        assert (speculation.draft, speculation.n_draft) in ((choice[1], 4), ("none", 0))
