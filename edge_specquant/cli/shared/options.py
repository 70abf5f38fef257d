"""Flags that several verbs share, and what they build. A flag that is not given falls back to environment and file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...config import load_settings
from ...config.settings import KV_TYPES
from ...errors import GrammarError, UsageError
from ...params import ACCEPT_RULES, CONTROLLERS, MAX_DRAFT, SamplingParams, SpeculationParams
from ...request import MAX_LOGPROBS, ON_FULL, THINK

if TYPE_CHECKING:
    from ...config.settings import Settings
    from ...runtime import EngineOptions

_SIBLING_FLAGS = (
    click.option("--target", metavar="VARIANT", help="Sibling that verifies and answers (f16, q8, q4 ...)."),
    click.option(
        "--draft",
        metavar="WHO",
        help="A sibling, FAMILY:SIBLING, PATH.gguf, 'lookup', 'mtp', a chain 'lookup+q4', or 'none'.",
    ),
    click.option("--n-draft", type=click.IntRange(0, MAX_DRAFT), help="Draft tokens per round, always."),
    click.option("--controller", type=click.Choice(CONTROLLERS), help="Who decides the draft length."),
    click.option("--accept", type=click.Choice(ACCEPT_RULES), help="How drafts are judged; both rules are exact."),
    click.option("--strict/--no-strict", default=None, help="Decode only at widths that compute the same bits."),
    click.option("--policy", metavar="NAME", help="Routing policy that picks the siblings (paper, fast, quality ...)."),
)
_SAMPLING_FLAGS = (
    click.option("--max-tokens", type=click.IntRange(0), help="Most tokens of a reply (default: what fits)."),
    click.option("--min-tokens", type=click.IntRange(0), default=0, help="Fewest tokens before the reply may end."),
    click.option("--temperature", type=float, help="0 is greedy."),
    click.option("--top-k", type=int, help="0 is off."),
    click.option("--top-p", type=float, help="1 is off."),
    click.option("--min-p", type=float, help="0 is off."),
    click.option("--typical-p", type=float, default=1.0, help="1 is off."),
    click.option("--seed", type=int, help="Repeats a sampled reply."),
    click.option("--repeat-penalty", type=float, help="1 is off."),
    click.option("--presence-penalty", type=float, help="0 is off."),
    click.option("--frequency-penalty", type=float, help="0 is off."),
    click.option(
        "--dry-multiplier", type=float, default=0.0, help="Strength of DRY against repeated phrases; 0 is off."
    ),
    click.option("--logit-bias", multiple=True, metavar="TOKEN=BIAS", help="Add to a token's logit; -inf forbids it."),
    click.option("--stop", multiple=True, metavar="TEXT", help="Ends the reply; may be given several times."),
    click.option(
        "--schema", "--json-schema", "schema", metavar="FILE|JSON", help="JSON schema that the reply must satisfy."
    ),
    click.option("--regex", metavar="REGEX", help="Regular expression that the whole reply must match."),
    click.option("--lark", type=click.Path(path_type=Path), metavar="FILE", help="Lark grammar the reply must follow."),
    click.option("--grammar", type=click.Path(path_type=Path), metavar="FILE", help="GBNF the reply must follow."),
    click.option("--logprobs", type=click.IntRange(0, MAX_LOGPROBS), metavar="N", help="Log-probabilities, top N."),
    click.option("--think", type=click.Choice(THINK), help="Whether a model that thinks does so (auto: its own way)."),
    click.option("--think-budget", type=click.IntRange(0), metavar="N", help="Close the thought after N tokens."),
    click.option("--on-full", type=click.Choice(ON_FULL), default="stop", help="When the context is full."),
    click.option(
        "--template-arg", multiple=True, metavar="NAME=VALUE", help="A variable of the chat template; JSON or text."
    ),
)
_ENGINE_FLAGS = (
    click.option("--ctx", "n_ctx", type=click.IntRange(1), help="Context length in tokens."),
    click.option("--batch", "n_batch", type=click.IntRange(1), help="Tokens decoded at once in a prefill."),
    click.option("--threads", "n_threads", type=click.IntRange(0), help="Threads; 0 is the engine's choice."),
    click.option("--gpu-layers", "n_gpu_layers", type=int, help="Layers on the GPU; -1 is all."),
    click.option("--kv", "kv_type", type=click.Choice(KV_TYPES), help="KV cache type (default: the plan's)."),
    click.option("--objective", type=click.Choice(["speed", "energy"]), help="What drafts save: time, or joules."),
)


def generation_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """All flags of `run` and `chat`, in the order the help shows them."""
    for flag in reversed((*_SIBLING_FLAGS, *_SAMPLING_FLAGS, *_ENGINE_FLAGS)):
        command = flag(command)
    return command


def take_sampling(flags: dict[str, Any]) -> SamplingParams:
    """Removes the sampling flags and builds their params. Raises UsageError, SettingsError."""
    plain = {name: flags.pop(name) for name in ("typical_p", "dry_multiplier")}
    bias = parse_logit_bias(flags.pop("logit_bias"))
    names = (
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "seed",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
    )
    chat = _settings(flags, "chat", names).chat
    return SamplingParams(**plain, logit_bias=bias, **{name: getattr(chat, name) for name in names})


def take_speculation(flags: dict[str, Any]) -> SpeculationParams:
    """Removes the speculation flags and builds their params. Raises UsageError, SettingsError."""
    names = ("draft", "n_draft", "controller", "accept", "strict")
    chat = _settings(flags, "chat", names).chat
    return SpeculationParams(**{name: getattr(chat, name) for name in names})


def take_request_fields(flags: dict[str, Any]) -> dict[str, Any]:
    """Removes every generation flag; gives the fields of a Request. Raises UsageError, SettingsError, GrammarError."""
    sampling, speculation = take_sampling(flags), take_speculation(flags)
    chat = _settings(flags, "chat", ("target", "max_tokens", "policy", "think", "think_budget")).chat
    grammar, lark, schema = flags.pop("grammar"), flags.pop("lark"), flags.pop("schema")
    return {
        "sampling": sampling,
        "speculation": speculation,
        "target": chat.target,
        "policy": chat.policy,
        "max_tokens": chat.max_tokens,
        "think": chat.think,
        "think_budget": chat.think_budget,
        "min_tokens": flags.pop("min_tokens"),
        "stop": tuple(flags.pop("stop")),
        "grammar": None if grammar is None else _read(grammar),
        "lark": None if lark is None else _read(lark),
        "regex": flags.pop("regex"),
        "schema": None if schema is None else _read_schema(schema),
        "logprobs": flags.pop("logprobs"),
        "on_full": flags.pop("on_full"),
        "template_args": parse_template_args(flags.pop("template_arg")),
    }


def take_engine(flags: dict[str, Any]) -> EngineOptions:
    """Removes the engine flags and builds their options."""
    from ...runtime import EngineOptions

    settings = _settings(flags, "engine", ("n_ctx", "n_batch", "n_threads", "n_gpu_layers", "objective", "kv_type"))
    engine = settings.engine
    return EngineOptions(
        n_ctx=engine.n_ctx,
        n_batch=engine.n_batch,
        n_threads=engine.n_threads or 0,
        n_gpu_layers=engine.n_gpu_layers,
        objective=engine.objective,
        use_kernel=engine.use_kernel,
        kv_type=engine.kv_type,
        use_mmap=None if engine.use_mmap else False,
        log_prompts=settings.log.prompts,
    )


def parse_logit_bias(pairs: Sequence[str]) -> dict[int, float]:
    """'123=-5' -> {123: -5.0}. Raises UsageError."""
    found: dict[int, float] = {}
    for pair in pairs:
        token, sign, bias = pair.partition("=")
        try:
            found[int(token)] = float(bias)
        except ValueError:
            raise UsageError(f"--logit-bias '{pair}' is not TOKEN=BIAS, such as 123=-5 or 123=-inf") from None
        if not sign:
            raise UsageError(f"--logit-bias '{pair}' has no '='; write it like 123=-5")
    return found


def parse_template_args(pairs: Sequence[str]) -> dict[str, Any]:
    """'enable_thinking=false' -> {"enable_thinking": False}; what is no JSON is text. Raises UsageError."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.isidentifier():
            raise UsageError(f"--template-arg '{pair}' is not NAME=VALUE, such as enable_thinking=false")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found


def _settings(flags: dict[str, Any], section: str, names: Sequence[str]) -> Settings:
    return load_settings({f"{section}.{name}": flags.pop(name) for name in names}).settings


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GrammarError(f"{path} cannot be read: {error}") from error


def _read_schema(given: str) -> Any:
    """A schema in a file, or written out: no path begins with a brace."""
    inline = given.lstrip().startswith("{") or given.strip() in ("true", "false")
    try:
        schema = json.loads(given if inline else _read(Path(given)))
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"{'the schema' if inline else given} is not JSON: {error}") from error
    if not isinstance(schema, (dict, bool)):
        raise GrammarError(f"{given} holds {type(schema).__name__}, not a JSON schema")
    return schema
