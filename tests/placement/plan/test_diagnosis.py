"""What the doctor concludes: a chat works only with a sound engine and a family that fits; advice names the cure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from edge_specquant.native.selftest.selftest import Verdict
from edge_specquant.placement.cost.sibling import Sibling
from edge_specquant.placement.plan.diagnosis import diagnose

SAFE = Verdict(True, True, "all weight types work", ())


@pytest.fixture
def demo(family_cards):
    return {"demo": [Sibling(name, card) for name, card in family_cards("Qwen2.5-0.5B").items()]}


def test_a_sound_engine_and_a_family_that_fits_can_chat_everywhere(machine_name, profile_of, demo):
    diagnosis = diagnose(profile_of(machine_name), SAFE, "llama-cpp-python", demo)
    assert diagnosis.can_chat and "chat demo" in diagnosis.reason
    document = json.loads(json.dumps(diagnosis.as_json()))
    assert document["can_chat"] is True and document["n_threads"] >= 1


def test_no_chat_without_engine_with_an_unsafe_one_or_without_a_model(profile_of, demo):
    profile = profile_of("desktop, 32 GB, RTX 4090")
    cases = [
        (None, demo, "is not installed"),
        (Verdict(False, False, "the engine died of SIGILL", ()), demo, "SIGILL"),
        (SAFE, {}, "there is no model"),
        (SAFE, {"broken": "manifest.json is no JSON"}, "manifest.json is no JSON"),
    ]
    for verdict, families, words in cases:
        diagnosis = diagnose(profile, verdict, None, families, "llama-cpp-python is not installed")
        assert not diagnosis.can_chat and words in diagnosis.reason


def test_one_broken_family_does_not_hide_another(profile_of, demo):
    diagnosis = diagnose(profile_of("Raspberry Pi 5, 8 GB"), SAFE, None, {"a": "broken", **demo})
    assert diagnosis.can_chat
    assert [report.problem for report in diagnosis.families] == ["broken", None]


def test_a_family_too_large_for_the_machine_is_said(profile_of, family_cards):
    siblings = [Sibling(name, card) for name, card in family_cards("Qwen2.5-7B").items()]
    diagnosis = diagnose(profile_of("container, 2 CPUs, 4 GiB"), SAFE, None, {"big": siblings})
    assert not diagnosis.can_chat and "nothing fits" in diagnosis.reason


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("container, 2 CPUs, 4 GiB", "pays for 2 of 16 cores"),
        ("laptop, 8 GB, RTX 3050 4 GB", "battery"),
        ("Jetson Orin Nano 8 GB", "power mode is 25W"),
    ],
)
def test_advice_fits_the_machine(profile_of, demo, machine, words):
    assert any(words in sentence for sentence in diagnose(profile_of(machine), SAFE, None, demo).advice)


def test_a_card_without_cuda_in_the_engine_is_advice(kit, tmp_path, demo):
    machine = kit.Machine(kit.meminfo(16, 10), [], kit.fake_nvml(kit.FakeGpu()))
    advice = diagnose(machine.probe(tmp_path), SAFE, None, demo).advice
    assert any("built without CUDA" in sentence and "--rebuild" in sentence for sentence in advice)


def test_slow_settings_of_the_self_test_are_advice(profile_of, demo):
    verdict = replace(SAFE, use_extra_bufts=False, reason="repacked weights are off")
    assert any("repacked" in s for s in diagnose(profile_of("Raspberry Pi 5, 8 GB"), verdict, None, demo).advice)


def test_more_memory_never_fits_less(kit, tmp_path):
    sizes = []
    for gib in (1, 4, 16, 64):
        profile = kit.Machine({**kit.cpu_files(4), **kit.meminfo(gib + 1, gib)}).probe(tmp_path / str(gib))
        sizes.append([diagnose(profile, SAFE, None, {}).fits[variant] or 0.0 for variant in ("f16", "q8", "q4")])
    assert sizes == sorted(sizes)
    assert all(row == sorted(row) for row in sizes)
