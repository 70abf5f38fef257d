"""What may be asked: an empty prompt is an error, a reply may begin with given words."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from edge_specquant.cli.main import root
from edge_specquant.cli.shared.options import parse_template_args
from edge_specquant.errors import UsageError
from edge_specquant.request import Request


@pytest.mark.parametrize("fields", [{"prompt": ""}, {"prompt": " \n"}, {"prompt": "", "raw": True}])
def test_an_empty_prompt_is_an_error(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="empty"):
        Request(**fields)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="empty"):
        Request(messages=[{"role": "user", "content": ""}])


@pytest.mark.parametrize("arguments", [["run", "nowhere.gguf", ""], ["run", "nowhere.gguf"]])
def test_the_command_line_says_so_before_anything_is_opened(arguments: list[str]) -> None:
    done = CliRunner().invoke(root, arguments, input="")
    assert done.exit_code != 0
    assert isinstance(done.exception, (UsageError, SystemExit))
    assert "empty" in str(done.exception) + done.output


def test_a_reply_may_begin_with_given_words() -> None:
    asked = Request(prompt="hi", prefill="It is", system="s").as_messages()
    assert [message["role"] for message in asked] == ["system", "user", "assistant"]
    assert asked[-1]["content"] == "It is"
    with pytest.raises(UsageError, match="raw"):
        Request(prompt="hi", raw=True, prefill="x")
    with pytest.raises(UsageError, match="'tools'"):
        Request(prompt="hi", template_args={"tools": []})


def test_template_arguments_are_json_or_text() -> None:
    given = parse_template_args(["enable_thinking=false", "mood=very gay", "n=3", 'who={"a": [1]}', "x=a=b"])
    assert given == {"enable_thinking": False, "mood": "very gay", "n": 3, "who": {"a": [1]}, "x": "a=b"}
    for wrong in ("no value", "=x", "two words=1"):
        with pytest.raises(UsageError, match="--template-arg"):
            parse_template_args([wrong])
