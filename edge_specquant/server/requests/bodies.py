"""What callers may send: OpenAI's request bodies, field by field, and what we add. Types and ranges only.

Unknown fields are refused, as OpenAI refuses them; fields that OpenAI's clients send and that mean nothing here are
named in `Ignored` and have no effect.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ...params import MAX_DRAFT

MAX_STOPS = 16
MAX_TOP_LOGPROBS = 20
_INT64 = 1 << 63

Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
Stop = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
ShortText = Annotated[str, StringConstraints(max_length=256)]
Bias = Annotated[float, Field(ge=-100, le=100)]


class Strict(BaseModel):
    """No unknown fields, no guessing of types ("1" is no number), no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Lenient(BaseModel):
    """As Strict, but passes over fields that it does not know: replies that clients send back carry many."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class StreamOptions(Lenient):
    """include_usage: one more chunk, with the usage and no choices, before the end."""

    include_usage: bool | None = None


class Ignored(Strict):
    """Taken and without effect."""

    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    verbosity: Any = None
    prediction: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    cache_prompt: Any = None
    user: ShortText | None = None


class Siblings(Strict):
    """Ours, by `extra_body`: who answers and who drafts."""

    policy: ShortText | None = None
    target: ShortText | None = None
    draft: ShortText | None = None
    n_draft: Annotated[int, Field(ge=0, le=MAX_DRAFT)] | None = None
    strict: bool | None = None


class Sampling(Strict):
    """How tokens are chosen; the last block is llama.cpp's, by its names."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-_INT64, lt=_INT64)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: Annotated[dict[str, Bias], Field(max_length=1024)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = None

    top_k: Annotated[int, Field(ge=0, le=1 << 20)] | None = None
    min_p: Annotated[float, Field(ge=0, lt=1)] | None = None
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repeat_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=1 << 20)] | None = None


Grammar = Annotated[str, StringConstraints(max_length=64 << 10)]
Choices = Annotated[list[ShortText], Field(min_length=1, max_length=1024)]


class StructuredOutputs(Lenient):
    """vLLM's object for the form of a reply."""

    json_: Annotated[dict[str, Any] | str | None, Field(alias="json")] = None
    regex: Grammar | None = None
    choice: Choices | None = None
    grammar: Grammar | None = None


class Forms(Strict):
    """The form of a reply, as llama.cpp's server names it, then as vLLM's does; one a request."""

    grammar: Grammar | None = None
    json_schema: dict[str, Any] | bool | None = None
    regex: Grammar | None = None
    lark: Grammar | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: Grammar | None = None
    guided_choice: Choices | None = None
    guided_grammar: Grammar | None = None


class CommonRequest(Ignored, Siblings, Sampling, Forms):
    """What both kinds of completion take."""

    model: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class Part(Lenient):
    """A piece of a message; only text can be read here."""

    type: ShortText
    text: str | None = None


class FunctionCall(Lenient):
    """A call that a model made; arguments are JSON as text."""

    name: str
    arguments: str


class ToolCall(Lenient):
    """One entry of an assistant's tool_calls."""

    id: ShortText
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Lenient):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: ShortText | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=128)] | None = None
    tool_call_id: ShortText | None = None
    reasoning_content: str | None = None


class Function(Lenient):
    """A function that the model may call; parameters is a JSON schema."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Lenient):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: Function


class ChosenFunction(Lenient):
    """The name in a tool_choice."""

    name: Name


class ToolChoice(Lenient):
    """The one tool to call."""

    type: Literal["function"]
    function: ChosenFunction


class JsonSchema(Lenient):
    """The schema of a reply. OpenAI spells it `schema`, a name that pydantic keeps for itself."""

    name: Name | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | bool, Field(alias="schema")]


class ResponseFormat(Strict):
    """Text, any JSON object, or JSON of a schema; llama.cpp's clients put the schema beside the type."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema_: Annotated[dict[str, Any] | bool | None, Field(alias="schema")] = None


class ChatRequest(CommonRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=4096)]
    max_tokens: Annotated[int, Field(ge=0, le=1 << 31)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=0, le=1 << 31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    chat_template_kwargs: Annotated[dict[ShortText, Any], Field(max_length=64)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    modalities: list[Literal["text"]] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    thinking_budget_tokens: Annotated[int, Field(ge=-1, lt=1 << 31)] | None = None


TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
Prompt = (
    str
    | Annotated[list[str], Field(min_length=1, max_length=64)]
    | Annotated[list[TokenId], Field(min_length=1)]
    | Annotated[list[Annotated[list[TokenId], Field(min_length=1)]], Field(min_length=1, max_length=64)]
)


class CompletionRequest(CommonRequest):
    """POST /v1/completions."""

    prompt: Prompt
    max_tokens: Annotated[int, Field(ge=0, le=1 << 31)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    best_of: Annotated[int, Field(ge=1, le=128)] | None = None
    suffix: str | None = None
