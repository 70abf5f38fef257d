"""Presets: a system prompt and sampling settings under a name. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Preset:
    """`sampling` overrides fields of SamplingParams, `thinking` those of a Request (think, think_budget); an empty
    system prompt is none.
    """

    name: str
    about: str
    system: str = ""
    sampling: Mapping[str, float] = field(default_factory=dict)
    thinking: Mapping[str, Any] = field(default_factory=dict)

    def applied_to(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Request fields with this preset's over those of the command line."""
        if not self.sampling:
            return fields | dict(self.thinking)
        return fields | dict(self.thinking) | {"sampling": replace(fields["sampling"], **self.sampling)}


PRESETS = (
    Preset("default", "the settings of the command line"),
    Preset("exact", "greedy: the same answer every time", sampling={"temperature": 0.0}),
    Preset(
        "concise",
        "short answers, little chance",
        "Answer in as few words as possible. No introduction, no summary.",
        {"temperature": 0.3},
    ),
    Preset(
        "code",
        "code first, greedy: drafts are accepted most often here",
        "You are a careful programmer. Answer with code in a fenced block first, then at most three sentences.",
        {"temperature": 0.0},
    ),
    Preset(
        "translate",
        "into English, or from English into the language you name",
        "Translate what the user writes into English. Answer with the translation only.",
        {"temperature": 0.0},
    ),
    Preset(
        "story",
        "free and long",
        "You are a storyteller. Write vividly and at length.",
        {"temperature": 1.0, "min_p": 0.05},
    ),
)


def preset_named(name: str, presets: Sequence[Preset] = PRESETS) -> Preset:
    """The preset, or the default one for a name that is no longer known."""
    return next((preset for preset in presets if preset.name == name), PRESETS[0])
