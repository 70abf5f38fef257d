"""Policies are data: shipped ones load, written ones read back the same, wrong ones say where."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_specquant import config
from edge_specquant.errors import SettingsError, UsageError
from edge_specquant.routing.policy.policy import (
    TIERS,
    Fitted,
    LengthRouter,
    Policy,
    SiblingModel,
    parse_policy,
    policy_names,
    shipped_policies,
)
from edge_specquant.routing.policy.policy_file import render_policy, write_policy

FAST = Policy.load("fast")


def test_four_policies_are_shipped() -> None:
    assert shipped_policies() == ["fast", "memory", "paper", "quality"]
    for name in shipped_policies():
        policy = Policy.load(name)
        assert policy.name == name
        assert tuple(policy.tiers) == TIERS
        assert policy.about


def fitted() -> Policy:
    sibling = SiblingModel(0.001, 0.02, 0.75, {"length": 0.1, "math": -1e-9})
    notes = Fitted(
        "a 'family' \"é\" \\ 日本",
        300,
        0.95,
        "beats\nnothing",
        {"q4": sibling, "odd name": sibling},
        LengthRouter(-1, -0.5, 0.5),
    )
    return Policy("mine", "tab\there", {"depth": -0.3}, -1.5, 2.5, FAST.tiers, bias=0.25, fitted=notes)


@pytest.mark.parametrize("policy", [*map(Policy.load, shipped_policies()), fitted()], ids=lambda policy: policy.name)
def test_written_and_read_it_is_the_same(policy: Policy, tmp_path: Path) -> None:
    assert parse_policy(render_policy(policy), "text") == policy
    write_policy(tmp_path / "p.toml", policy)
    assert Policy.load(tmp_path / "p.toml") == policy


def test_a_policy_of_the_users_folder_loads_by_name() -> None:
    file = config.data_folder().path / "policies" / "mine.toml"
    write_policy(file, fitted())
    try:
        assert "mine" in policy_names()
        assert Policy.load("mine") == fitted()
    finally:
        file.unlink()


GOOD = render_policy(FAST)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "not TOML"),
        (GOOD.replace("name = ", "title = "), "name is missing"),
        (GOOD.replace("depth = ", "dpeth = "), "weights.dpeth is no signal; the signals are length"),
        (GOOD.replace("depth = 0.15", 'depth = "x"'), "weights.depth is 'x'; it must be a number"),
        (GOOD.replace("depth = 0.15", "depth = nan"), "weights.depth is nan"),
        (GOOD.replace("medium = 0.18", "medium = inf"), "thresholds.medium is inf"),
        (GOOD.replace("medium = 0.18", "medium = 0.99"), "thresholds.medium is 0.99, above"),
        (GOOD.replace('controller = "goodput"', 'controller = "fastest"', 1), "tiers.low.controller is 'fastest'"),
        (GOOD.replace("[tiers.high]", "[tiers.highest]"), "tiers.high.target is missing"),
        (GOOD.replace('safe_tier = "high"', 'safe_tier = "top"'), "safe_tier is 'top'"),
        (GOOD.replace("residents_only = false", "residents_only = 1"), "residents_only is 1"),
        (GOOD.replace("[weights]", "[[weights]]"), "weights must be a table"),
    ],
)
def test_a_wrong_policy_names_the_field(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match="(?s)^policy mine.toml.*" + message):
        parse_policy(text, "mine.toml")


def test_an_unknown_name_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fast, memory, paper, quality"):
        Policy.load("fats")
    with pytest.raises(SettingsError, match="cannot be read"):
        Policy.load(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(SettingsError, match="not UTF-8"):
        Policy.load(tmp_path / "latin.toml")
