"""Whether and how a model thinks, read from its chat template and its vocabulary. Knows no model by its name.

A style is a pair of markers around the thought, or harmony's channels. What a caller wishes (`resolve`) becomes
variables for the template, and what the template has no variable for is done while the reply is written (`parts.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2.nodes

from ...native.protocol import Vocab
from ..prompts.environment import ChatEnvironment

# Opening and closing, as makers spell them: Qwen3, DeepSeek-R1, SmolLM3 ...; Magistral; Seed-OSS; Apertus; Command A
# Reasoning; EXAONE Deep; OpenThinker.
PAIRS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<thought>", "</thought>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)
HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")  # gpt-oss
_SWITCHES = ("enable_thinking", "thinking")  # a template's variable that turns thinking on and off
_EFFORT = "reasoning_effort"


@dataclass(frozen=True, slots=True)
class Style:
    """opening and closing enclose a thought; gap is the white space that the template puts behind it. is_harmony: they
    are channels instead. switch: the template's variable that turns thinking on and off; has_effort: it reads
    reasoning_effort.
    """

    opening: str = "<think>"
    closing: str = "</think>"
    gap: str = ""
    is_harmony: bool = False
    switch: str | None = None
    has_effort: bool = False

    @property
    def told(self) -> str:
        """For a person: how the model thinks and what can be chosen."""
        how = "in harmony's analysis channel" if self.is_harmony else f"between {self.opening} and {self.closing}"
        choices = [f"{self.switch} switches it"] if self.switch else []
        choices += [f"{_EFFORT} sets how much"] if self.has_effort else []
        return "; ".join([how, *choices])


@dataclass(frozen=True, slots=True)
class Wish:
    """think: "auto" (as the model does by itself), "on" or "off"; budget: most tokens of the thought; effort: a level
    that the template knows ("low", "medium", "high" ...; "none" is off).
    """

    think: str = "auto"
    budget: int | None = None
    effort: str | None = None


def read_style(source: str | None, vocab: Vocab) -> Style | None:
    """None for a model that does not think: neither its template nor its vocabulary has the markers of a thought."""
    source = source or ""
    texts = {marker.text for marker in vocab.markers}
    variables = _variables(source)
    switch, has_effort = next((name for name in _SWITCHES if name in variables), None), _EFFORT in variables
    if all(text in texts for text in HARMONY):
        return Style(is_harmony=True, switch=switch, has_effort=has_effort)
    for opening, closing in PAIRS:
        if opening in source or closing in source or (opening in texts and closing in texts):
            return Style(opening, closing, _gap(source, closing), False, switch, has_effort)
    return None


def resolve(wish: Wish, style: Style | None, args: Mapping[str, Any]) -> tuple[dict[str, Any], Wish, Sequence[str]]:
    """The template's variables with the wish in them, the wish with what they say, and what cannot be done.

    A variable that the caller set wins over the wish.
    """
    if wish.effort == "none":
        wish = Wish("off", wish.budget, None)
    if style is None:
        return dict(args), wish, _refusals(wish)
    made = dict(args)
    notices: list[str] = []
    if style.switch in made and isinstance(made[style.switch], bool):
        wish = Wish("on" if made[style.switch] else "off", wish.budget, wish.effort)
    elif style.switch is not None and wish.think != "auto":
        made[style.switch] = wish.think == "on"
    if style.has_effort and _EFFORT not in made and wish.effort is not None:
        made[_EFFORT] = wish.effort
    elif wish.effort is not None and not style.has_effort:
        notices.append(f"this model knows no levels of thinking, so {wish.effort} is passed over; a budget limits it")
    if style.is_harmony and wish.think == "off" and style.has_effort:
        made.setdefault(_EFFORT, "low")
    return made, wish, notices


def _refusals(wish: Wish) -> Sequence[str]:
    """Not thinking is what such a model does anyway."""
    if wish.think == "on" or wish.budget or wish.effort is not None:
        return ["this model does not think: its chat template and its vocabulary know no thoughts"]
    return []


def _gap(source: str, closing: str) -> str:
    """The line ends that the template writes behind an empty thought, or behind any."""
    found = re.findall(re.escape(closing) + r"((?:\\n|\n)*)", source)
    return max(found, key=len, default="").replace("\\n", "\n")


def _variables(source: str) -> frozenset[str]:
    """Names that the template reads or sets; none where it is broken."""
    try:
        tree = ChatEnvironment().parse(source)
    except (jinja2.TemplateError, RecursionError):
        return frozenset()
    return frozenset(name.name for name in tree.find_all(jinja2.nodes.Name))
