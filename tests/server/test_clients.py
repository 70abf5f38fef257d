"""Real clients on a real server with the demo family: the openai package, streamed and not, and the llm command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from openai import OpenAI
from patience import PATIENCE_S
from pydantic import BaseModel, Field
from server_rig import Served, serving

from edge_specquant.gguf.family.family import Family
from edge_specquant.runtime import EngineOptions, Runtime

PROMPT = [{"role": "user", "content": "Name three colours."}]
PROMPTS = ("Name three colours.", "What is 2 + 2?", "Say hello.", "Where is Paris?")


@pytest.fixture(scope="module")
def demo(demo_family: Family) -> Iterator[Served]:
    with serving(Runtime.local(demo_family.name, EngineOptions(n_ctx=1024, n_parallel=2)), policy="fast") as served:
        yield served


@pytest.fixture(scope="module")
def client(demo: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{demo.url}/v1", api_key="none is asked for", max_retries=0, timeout=PATIENCE_S) as made:
        yield made


def ask(client: OpenAI, **fields: Any) -> Any:
    base: dict[str, Any] = {"model": "demo:f16", "messages": PROMPT, "temperature": 0, "max_tokens": 12}
    return client.chat.completions.create(**base | fields)


def test_models(client: OpenAI) -> None:
    assert {model.id for model in client.models.list()} == {"demo:q4", "demo:q8", "demo:f16", "demo:auto"}
    assert client.models.retrieve("demo:auto").owned_by == "edge_specquant"


def test_chat_streamed_and_whole_agree_for_every_model(client: OpenAI) -> None:
    for model in ("demo:q4", "demo:q8", "demo:f16", "demo:auto"):
        whole = ask(client, model=model)
        chunks = list(ask(client, model=model, stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == whole.choices[0].message.content != ""
        assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
        assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
        assert whole.model_extra["x_edge_specquant"]["route"]["target"]


def test_draft_changes_nothing_but_the_figures(client: OpenAI) -> None:
    drafted = ask(client, extra_body={"draft": "q4", "n_draft": 3})
    alone = ask(client, extra_body={"draft": "none"})
    assert drafted.choices[0].message.content == alone.choices[0].message.content
    assert drafted.model_extra["x_edge_specquant"]["acceptance_rate"] > 0
    assert alone.model_extra["x_edge_specquant"]["acceptance_rate"] is None


def test_seed_repeats_and_choices_differ(client: OpenAI) -> None:
    fields = {"temperature": 1.5, "seed": 7, "n": 2, "max_tokens": 12}
    one, again = ask(client, **fields), ask(client, **fields)
    texts = [choice.message.content for choice in one.choices]
    assert texts == [choice.message.content for choice in again.choices]
    assert texts[0] != texts[1]


class Colour(BaseModel):
    """What the parsed reply is read into."""

    name: Literal["red", "green", "blue"]
    shade: int = Field(ge=1, le=5)


def test_parse_fills_parsed(client: OpenAI) -> None:
    """The schema is pydantic's own, by way of the client's strict form."""
    for model in ("demo:q4", "demo:q8"):
        made = client.chat.completions.parse(
            model=model, messages=PROMPT, temperature=0, max_tokens=60, response_format=Colour
        )
        parsed = made.choices[0].message.parsed
        assert isinstance(parsed, Colour) and made.choices[0].finish_reason == "stop"


def test_completions(client: OpenAI) -> None:
    made = client.completions.create(model="demo:q8", prompt="One, two, three,", max_tokens=6, temperature=0, echo=True)
    assert made.choices[0].text.startswith("One, two, three,")
    pieces = client.completions.create(
        model="demo:q8", prompt="One, two, three,", max_tokens=6, temperature=0, echo=True, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in pieces) == made.choices[0].text


def test_clients_see_openais_error_classes(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="demo:q8"):
        ask(client, model="gpt-4o")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        ask(client, temperature=5)
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, messages=[{"role": "user", "content": "word " * 2000}])
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.InternalServerError) as not_offered:
        client.embeddings.create(model="demo:q4", input="x")
    assert not_offered.value.status_code == 501


def test_stream_that_is_closed_frees_the_engine(client: OpenAI) -> None:  # D1
    stream = ask(client, stream=True, max_tokens=900, messages=[{"role": "user", "content": "Count to 1000."}])
    for _, _chunk in zip(range(3), stream, strict=False):
        pass
    stream.close()

    def cached() -> bool:
        after = ask(client, max_tokens=1, messages=[{"role": "user", "content": "Count to 1000."}])
        return bool(after.usage.prompt_tokens_details.cached_tokens >= after.usage.prompt_tokens - 1)

    assert cached() or cached()  # the first may come before the server has seen the close, and takes another slot


def test_clients_at_once_get_their_solo_answers(client: OpenAI) -> None:  # D2
    def answer(prompt: str) -> str:
        return str(ask(client, messages=[{"role": "user", "content": prompt}], max_tokens=8).choices[0].message.content)

    solo = [answer(prompt) for prompt in PROMPTS]
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        assert list(pool.map(answer, PROMPTS)) == solo


def llm(demo: Served, folder: Path, *arguments: str) -> str:
    """Runs the llm command with our server as one of its models."""
    models = [
        {"model_id": "demo-chat", "model_name": "demo:q8", "api_base": f"{demo.url}/v1", "api_key_name": "none"},
        {
            "model_id": "demo-text",
            "model_name": "demo:q8",
            "api_base": f"{demo.url}/v1",
            "api_key_name": "none",
            "completion": True,
        },
    ]
    folder.joinpath("extra-openai-models.yaml").write_text(json.dumps(models))  # JSON is YAML
    environment = {**os.environ, "LLM_USER_PATH": str(folder), "LLM_LOAD_PLUGINS": ""}
    command = [sys.executable, "-W", "ignore", "-m", "llm", *arguments, "--key", "x", "--no-log"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_llm_command(demo: Served, client: OpenAI, tmp_path: Path) -> None:
    wanted = ask(client, model="demo:q8", max_tokens=12).choices[0].message.content
    options = ("-o", "temperature", "0", "-o", "max_tokens", "12")
    prompt = PROMPT[0]["content"]
    assert llm(demo, tmp_path, "prompt", "-m", "demo-chat", prompt, *options) == wanted.strip()
    assert llm(demo, tmp_path, "prompt", "-m", "demo-chat", prompt, "--no-stream", *options) == wanted.strip()
    assert llm(demo, tmp_path, "prompt", "-m", "demo-text", "One, two,", *options)
