"""Flags that several verbs share, and what they build."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..params import ACCEPT_RULES, MAX_DRAFT, SamplingParams, SpeculationParams

if TYPE_CHECKING:
    from ..runtime import EngineOptions

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_DEFAULTS = SamplingParams()

_SIBLING_FLAGS = (
    click.option("--target", metavar="VARIANT", help="Sibling that verifies and answers (f16, q8, q4 ...)."),
    click.option("--draft", metavar="VARIANT", help="Who drafts: a sibling, 'lookup', or 'none'."),
    click.option("--n-draft", type=click.IntRange(0, MAX_DRAFT), help="Draft tokens per round."),
    click.option("--accept", type=click.Choice(ACCEPT_RULES), default="match", show_default=True, help="Accept rule."),
)
_SAMPLING_FLAGS = (
    click.option("--max-tokens", type=click.IntRange(0), help="Most tokens of a reply (default: what fits)."),
    click.option("--min-tokens", type=click.IntRange(0), default=0, help="Fewest tokens before the reply may end."),
    click.option("--temperature", type=float, default=_DEFAULTS.temperature, show_default=True, help="0 is greedy."),
    click.option("--top-k", type=int, default=_DEFAULTS.top_k, show_default=True, help="0 is off."),
    click.option("--top-p", type=float, default=_DEFAULTS.top_p, show_default=True, help="1 is off."),
    click.option("--min-p", type=float, default=_DEFAULTS.min_p, show_default=True, help="0 is off."),
    click.option("--seed", type=int, help="Repeats a sampled reply."),
    click.option("--stop", multiple=True, metavar="TEXT", help="Ends the reply; may be given several times."),
)
_ENGINE_FLAGS = (
    click.option("--ctx", "n_ctx", type=click.IntRange(1), help="Context length in tokens."),
    click.option("--batch", "n_batch", type=click.IntRange(1), default=512, show_default=True, help="Prefill chunk."),
    click.option("--threads", "n_threads", type=click.IntRange(0), default=0, help="0: the engine's choice."),
)


def generation_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """All flags of `run` and `chat`, in the order the help shows them."""
    for flag in reversed((*_SIBLING_FLAGS, *_SAMPLING_FLAGS, *_ENGINE_FLAGS)):
        command = flag(command)
    return command


def take_sampling(flags: dict[str, Any]) -> SamplingParams:
    """Removes the sampling flags and builds their params. Raises UsageError."""
    names = ("temperature", "top_k", "top_p", "min_p", "seed")
    return SamplingParams(**{name: flags.pop(name) for name in names})


def take_speculation(flags: dict[str, Any]) -> SpeculationParams:
    """Removes the speculation flags and builds their params. Raises UsageError."""
    return SpeculationParams(**{name: flags.pop(name) for name in ("draft", "n_draft", "accept")})


def take_engine(flags: dict[str, Any]) -> EngineOptions:
    """Removes the engine flags and builds their options."""
    from ..runtime import EngineOptions

    return EngineOptions(**{name: flags.pop(name) for name in ("n_ctx", "n_batch", "n_threads")})
