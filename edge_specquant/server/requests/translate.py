"""A caller's body to the runtime's requests: one for every choice that is asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...params import RANDOM_SEEDS, SamplingParams, SpeculationParams
from ...request import Request
from ..errors import bad_request
from .bodies import ChatRequest, CommonRequest, CompletionRequest, Prompt
from .catalog import Catalog
from .conversation import Turn, repaired, turns
from .forms import form_fields
from .native_tools import CallStream, is_spoken_by, lark, native_turns
from .tools import ToolPlan, ToolReader, ToolStream, plan_tools

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's, where a completion names no max_tokens
_TINY_TOP_P = 1e-6  # OpenAI allows 0: the first token alone

_PLAIN_NAMES = ("temperature", "seed", "presence_penalty", "frequency_penalty")
_ENGINE_NAMES = ("top_k", "min_p", "typical_p", "repeat_penalty")


@dataclass(frozen=True, slots=True)
class Ask:
    """One reply to be made. fallback: what to ask when the template refuses the conversation."""

    request: Request
    fallback: Request | None = None


@dataclass(frozen=True, slots=True)
class ChatJob:
    """All that a chat needs: its replies, and how they are to be read."""

    asks: tuple[Ask, ...]
    reader: Callable[[], ToolReader] | None


def chat_job(body: ChatRequest, catalog: Catalog, template: str | None) -> ChatJob:
    """template: the family's own, which says how its models call functions. Raises ApiError 400 or 404, UsageError."""
    target = catalog.target(body.model, body.target)
    catalog.check_draft(body.draft)
    tools = plan_tools(body)
    is_native = tools is not None and is_spoken_by(template)
    given = native_turns(body.messages) if is_native else turns(body.messages)
    if tools is not None and not is_native:
        given = _with_system(given, tools.system_text())
    catalog.check_length("".join(str(turn["content"]) for turn in given))
    request = Request(
        messages=given,
        target=target,
        max_tokens=body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens,
        logprobs=_chat_logprobs(body),
        template_args=_template_args(body),
        reasoning_effort=body.reasoning_effort,
        think_budget=_budget(body),
        **_common_fields(body, catalog),
        **_form(body, tools, is_native=is_native),
    )
    if tools is not None and is_native:
        return ChatJob(tuple(_choices(Ask(replace(request, tools=tools.described())), body)), CallStream)
    mended = repaired(given)
    fallback = None if mended is None else replace(request, messages=mended)
    return ChatJob(tuple(_choices(Ask(request, fallback), body)), ToolStream if tools is not None else None)


def completion_asks(body: CompletionRequest, catalog: Catalog) -> list[Ask]:
    """Every prompt's choices, prompt by prompt. Raises ApiError 400 or 404, UsageError."""
    if body.suffix:
        raise bad_request("suffix is not supported", "suffix")
    if body.best_of not in (None, body.n or 1):
        raise bad_request("best_of must equal n: choices are not ranked here", "best_of")
    target = catalog.target(body.model, body.target)
    catalog.check_draft(body.draft)
    asks: list[Ask] = []
    for prompt in prompts(body.prompt):
        if isinstance(prompt, str):
            catalog.check_length(prompt)
        given: dict[str, Any] = {"prompt": prompt} if isinstance(prompt, str) else {"prompt_tokens": tuple(prompt)}
        request = Request(
            raw=True,
            target=target,
            max_tokens=DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens,
            logprobs=body.logprobs,
            prompt_logprobs=body.logprobs if body.echo else None,
            **given,
            **_common_fields(body, catalog),
            **form_fields(body),
        )
        asks += _choices(Ask(request), body)
    return asks


def prompts(prompt: Prompt) -> list[str | list[int]]:
    """The separate prompts of a completion: texts or lists of token ids."""
    if isinstance(prompt, str):
        return [prompt]
    if prompt and isinstance(prompt[0], int):
        return [[token for token in prompt if isinstance(token, int)]]
    return [part for part in prompt if not isinstance(part, int)]


def _common_fields(body: CommonRequest, catalog: Catalog) -> dict[str, Any]:
    """The fields of a Request that chats and completions share."""
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return {
        "sampling": _sampling(body),
        "speculation": SpeculationParams(draft=body.draft, n_draft=body.n_draft, strict=bool(body.strict)),
        "stop": tuple(stop),
        "min_tokens": body.min_tokens or 0,
        "policy": catalog.policy_for(body.model, body.target, body.policy),
    }


def _sampling(body: CommonRequest) -> SamplingParams:
    """The house's defaults where the caller says nothing."""
    given = {name: getattr(body, name) for name in (*_PLAIN_NAMES, *_ENGINE_NAMES)}
    if body.top_p is not None:
        given["top_p"] = max(body.top_p, _TINY_TOP_P)
    if body.logit_bias:
        given["logit_bias"] = {_token_id(key): bias for key, bias in body.logit_bias.items()}
    return SamplingParams(**{name: value for name, value in given.items() if value is not None})


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) < 10):
        raise bad_request('the keys of logit_bias are token ids, such as "42"', "logit_bias")
    return int(key)


def _choices(ask: Ask, body: CommonRequest) -> list[Ask]:
    """n asks; a seed counts up, so that the choices differ and each can be had again."""
    seed = ask.request.sampling.seed
    if seed is None:
        return [ask] * (body.n or 1)
    seeds = (number for number in itertools.count(seed) if number not in RANDOM_SEEDS)
    return [_seeded(ask, number) for number in itertools.islice(seeds, body.n or 1)]


def _seeded(ask: Ask, seed: int) -> Ask:
    def seeded(request: Request) -> Request:
        return replace(request, sampling=replace(request.sampling, seed=seed))

    return Ask(seeded(ask.request), None if ask.fallback is None else seeded(ask.fallback))


def _template_args(body: ChatRequest) -> dict[str, Any]:
    """What the caller gives the chat template beside messages and tools, by transformers' names."""
    form = {"add_generation_prompt": body.add_generation_prompt, "continue_final_message": body.continue_final_message}
    return {**{name: value for name, value in form.items() if value is not None}, **(body.chat_template_kwargs or {})}


def _chat_logprobs(body: ChatRequest) -> int | None:
    if body.top_logprobs is not None and not body.logprobs:
        raise bad_request("top_logprobs needs logprobs to be true", "top_logprobs")
    return (body.top_logprobs or 0) if body.logprobs else None


def _budget(body: ChatRequest) -> int | None:
    """-1 is no limit, to llama.cpp's clients."""
    n = body.thinking_budget_tokens
    return None if n is None or n < 0 else n


def _form(body: ChatRequest, tools: ToolPlan | None, *, is_native: bool) -> dict[str, Any]:
    """What binds the reply: the tools alone where there are some. Raises ApiError 400."""
    asked = form_fields(body, body.response_format)
    if tools is None:
        return asked
    if asked:
        name = "response_format" if body.response_format is not None else next(iter(asked))
        raise bad_request(f"tools and {name} cannot be used together", name)
    parallel = body.parallel_tool_calls is not False
    rules = lark(tools, parallel=parallel) if is_native else tools.lark()
    return {"lark": rules, "lark_schemas": tools.schemas()}


def _with_system(given: Sequence[Turn], text: str) -> list[Turn]:
    """The text behind what the system already says."""
    if given and given[0]["role"] == "system":
        first = {"role": "system", "content": f"{given[0]['content']}\n\n{text}"}
        return [first, *given[1:]]
    return [{"role": "system", "content": text}, *given]
