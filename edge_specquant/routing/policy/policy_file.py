"""Writes a policy as TOML that `Policy.load` reads back as the same policy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ...gguf.format.atomic import write_text_whole
from .policy import Fitted, Policy


def write_policy(path: Path, policy: Policy) -> None:
    """Whole or not at all. Raises FileError."""
    write_text_whole(path, render_policy(policy))


def render_policy(policy: Policy) -> str:
    """The file's text."""
    lines = [
        f"name = {_text(policy.name)}",
        f"about = {_text(policy.about)}",
        f"bias = {policy.bias!r}",
        f"safe_tier = {_text(policy.safe_tier)}",
        f"residents_only = {str(policy.residents_only).lower()}",
        *_numbers("weights", policy.weights),
        *_numbers("thresholds", {"medium": policy.medium, "high": policy.high}),
    ]
    for name, tier in policy.tiers.items():
        lines += ["", f"[tiers.{name}]", *(f"{key} = {_text(getattr(tier, key))}" for key in tier.__slots__)]
    return "\n".join([*lines, *(_fitted(policy.fitted) if policy.fitted else []), ""])


def _fitted(fitted: Fitted) -> list[str]:
    lines = [
        "",
        "[fitted]",
        f"family = {_text(fitted.family)}",
        f"n_prompts = {fitted.n_prompts}",
        f"wanted_agreement = {fitted.wanted_agreement!r}",
        f"verdict = {_text(fitted.verdict)}",
    ]
    length = fitted.length_only
    lines += _numbers("fitted.length_only", {"weight": length.weight, "medium": length.medium, "high": length.high})
    for name, sibling in fitted.siblings.items():
        path = f"fitted.siblings.{_key(name)}"
        rates = ("prefill_s_per_token", "decode_s_per_token", "agreement_bias")
        lines += _numbers(path, {rate: getattr(sibling, rate) for rate in rates})
        lines += _numbers(f"{path}.agreement_weights", sibling.agreement_weights)
    return lines


def _numbers(table: str, values: Mapping[str, float]) -> list[str]:
    return ["", f"[{table}]", *(f"{_key(name)} = {float(value)!r}" for name, value in values.items())]


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _text(name)


def _text(value: str) -> str:
    # A JSON string with ASCII escapes is a TOML basic string, surrogate pairs apart: those are written as they are.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
