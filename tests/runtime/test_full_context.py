"""A full context under on_full "shift": the oldest turns go whole, the system text stays, a draft changes nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_rig import GREEDY, drained, fake_runtime

from edge_specquant.engine.prompts.shorten import n_forgotten
from edge_specquant.errors import PromptTooLongError
from edge_specquant.native.fake import FakeModel
from edge_specquant.params import SpeculationParams
from edge_specquant.request import Request
from edge_specquant.runtime.options import EngineOptions

N_CTX = 128
OWN_SYSTEM = "<sys>own words</sys>"
TEMPLATE = (
    "{% if messages[0].role == 'system' %}<sys>{{ messages[0].content }}</sys>{% else %}" + OWN_SYSTEM + "{% endif %}"
    "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
TURNS = [
    message
    for i in range(3)
    for message in ({"role": "user", "content": f"question {i}"}, {"role": "assistant", "content": f"answer {i}"})
]


class WithSystem(FakeModel):
    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **{**fields, "chat_template": TEMPLATE})


def reply(draft: str, n_turns: int, system: str | None, max_tokens: int = 200) -> tuple[str, str, list[str]]:
    """(text, how it ended, the prompts and replies as the target's cache held them at every shift)."""
    runtime, engine = fake_runtime(EngineOptions(calibrate=False, n_ctx=N_CTX), model_type=WithSystem)
    messages = [*TURNS[: 2 * n_turns], {"role": "user", "content": "last"}]
    request = Request(
        messages=messages if system is None else [{"role": "system", "content": system}, *messages],
        max_tokens=max_tokens,
        on_full="shift",
        sampling=GREEDY,
        speculation=SpeculationParams(draft=draft, n_draft=None if draft == "none" else 7),
    )
    held: list[str] = []
    text = ""
    with runtime:
        for event in runtime.generate(request):
            text += event.text
            if event.note:
                context = engine.models["f16"].contexts[0] if engine.models["f16"].contexts else None
                held.append(bytes(context.cells.get(0, [])).decode() if context else "")
    return text, event.finish_reason or "", held


@pytest.mark.parametrize("system", [None, "be kind"])
def test_whole_turns_go_and_the_system_text_stays(system: str | None) -> None:
    text, end, held = reply("none", 2, system)
    own = OWN_SYSTEM if system is None else f"<sys>{system}</sys>"
    last = "[user]last\n[assistant]"
    shifts = [each for each in held if each]
    assert shifts and end == "length"
    for each in shifts:
        assert each.startswith(own)
        said = each[each.index(last) + len(last) :]
        assert text.startswith(said)
        turns = each[len(own) : each.index(last)]
        assert turns == "".join(f"[{m['role']}]{m['content']}\n" for m in TURNS[:4])[-len(turns) :] or not turns
        assert turns == "" or turns.startswith("[user]question")
    assert len(text) == N_CTX - len(own + last)  # with nothing left to forget, a reply ends as without shift


@pytest.mark.parametrize("n_turns", [0, 1, 2, 3])
def test_a_draft_changes_nothing(n_turns: int) -> None:
    plain = reply("none", n_turns, None)
    assert reply("q4", n_turns, None)[:2] == plain[:2]


def test_a_conversation_too_long_from_the_start_is_shortened_or_refused() -> None:
    text, _, held = reply("none", 3, "s" * 40, max_tokens=5)
    assert len(text) == 5
    assert len(held) == 1
    with pytest.raises(PromptTooLongError):
        reply("none", 1, "s" * 200)


def test_raw_text_goes_on_after_its_newer_half() -> None:
    runtime, _ = fake_runtime(EngineOptions(calibrate=False, n_ctx=64))
    request = Request(prompt="once upon", raw=True, max_tokens=200, on_full="shift", sampling=GREEDY)
    with runtime:
        text, _, last = drained(runtime.generate(request))
    assert len(text) == 200
    assert last.stats is not None and last.stats.n_shifted > 0


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(0, 20))
def test_what_is_forgotten_stays_the_same_while_a_conversation_grows(sizes: list[int], n_fixed: int) -> None:
    gone = [n_forgotten(sizes[:n], n_fixed, 0, 100) for n in range(1, len(sizes) + 1)]
    assert gone == sorted(gone)
    for n, n_gone in enumerate(gone, start=1):
        assert n_gone < n
        assert n_gone == n - 1 or n_fixed + sum(sizes[n_gone:n]) < 100
    changes = sum(a != b for a, b in itertools.pairwise(gone))
    assert changes <= 1 + sum(sizes) // 20  # room for a while each time
