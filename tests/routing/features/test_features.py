"""Features: any text is judged, in bounded time and memory (F2), and what cannot be judged takes the safe tier."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.routing.features.features import Features, extract
from edge_specquant.routing.features.language import UNKNOWN, guess_language
from edge_specquant.routing.features.sample import MAX_CHARS, take_sample
from edge_specquant.routing.features.syntax import RuleSyntax, Syntax
from edge_specquant.routing.policy.policy import Policy, shipped_policies
from edge_specquant.routing.policy.signals import values
from edge_specquant.routing.records.prompts import Prompt
from edge_specquant.routing.router import route

HUGE = 1_100_000
UNJUDGEABLE = {
    "empty": "",
    "white space": " \n\t\u3000\n",
    "emoji": "👍🏽🎉👨‍👩‍👧‍👦",
    "punctuation": "?!... --- ***",
    "code": "def f(x):\n    return x + 1\n\nclass A:\n    y = f(2)\n",
    "fenced code": "```\nanything at all in here\n```",
    "Armenian": "Բարեւ ձեզ, ինչպե՞ս եք",
    "Georgian": "როგორ ხარ დღეს",
    "nonsense": "zzxq wvvk pllrt",
}
HUGE_TEXTS = {
    "words": "The committee met in Geneva. ",
    "one word": "a",
    "brackets": "(",
    "code": "x = f(1);\n",
    "newlines": "\n",
    "commas": "1,",
    "camel": "aB",
    "snake": "a_",
    "quotes": "«",
    "emoji": "🙂",
    "kana": "カ",
    "spaces": " ",
}


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=400), st.integers(0, 10**9), st.integers(0, 10**6))
def test_any_text_gives_finite_signals_between_0_and_1(text: str, n_tokens: int, turns: int) -> None:
    found = extract(text, n_tokens=n_tokens, history_turns=turns)
    assert all(0 <= signal <= 1 for signal in values(found).values())
    assert found == extract(text, n_tokens=n_tokens, history_turns=turns)


@pytest.mark.parametrize("text", UNJUDGEABLE.values(), ids=UNJUDGEABLE)
@pytest.mark.parametrize("policy", shipped_policies())
def test_what_cannot_be_judged_takes_the_safe_tier(policy: str, text: str) -> None:
    chosen = Policy.load(policy)
    found = route(extract(text, n_tokens=5), chosen, available=["q4", "q8", "f16"])
    assert found.tier == chosen.safe_tier
    assert "safe tier" in found.reasons[0]


def test_a_sum_needs_no_language() -> None:
    assert extract("12 + 30 = ?", n_tokens=6).unsafe_reason is None


class _Recorder:
    """An estimator that notes how much it was given."""

    def __init__(self) -> None:
        self.longest = 0

    def measure(self, prose: str, language: str) -> Syntax:
        self.longest = max(self.longest, len(prose))
        return RuleSyntax().measure(prose, language)


@pytest.mark.parametrize("unit", HUGE_TEXTS.values(), ids=HUGE_TEXTS)
def test_a_huge_text_costs_no_more_than_its_sample(unit: str) -> None:
    text = unit * (HUGE // len(unit))
    recorder = _Recorder()
    tracemalloc.start()
    try:
        found = extract(text, n_tokens=HUGE // 4, estimator=recorder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.sampled
    assert recorder.longest <= MAX_CHARS + 10
    assert peak < 4 << 20


def test_the_sample_alone_decides() -> None:
    text = "Explain why the first answer contradicts the second. " * 25_000
    sample = take_sample(text)
    of_text, of_sample = extract(text, n_tokens=9), extract(sample.text, n_tokens=9)
    assert replace(of_text, sampled=False, n_words=0) == replace(of_sample, sampled=False, n_words=0)
    assert of_text.n_words == pytest.approx(of_sample.n_words * len(text) / len(sample.text), rel=0.01)


@given(st.text(max_size=200))
def test_a_short_text_is_its_own_sample(text: str) -> None:
    assert take_sample(text).text == text


def test_languages_of_the_labelled_set(prompts: list[Prompt]) -> None:
    with_words = [prompt for prompt in prompts if prompt.text != "12 + 30 = ?"]
    wrong = [p.id for p in with_words if guess_language(p.text) != p.labels["lang"]]
    assert not wrong


@pytest.mark.parametrize(
    ("text", "field", "least"),
    [
        ("```\nx = 1\n```\nWhat does it print?", "code_share", 0.1),
        ("What is 12345 * 67890 - 4?", "math_share", 0.1),
        ("What is 12345 * 67890 - 4?", "digit_share", 0.3),
        ("Write about it in 300 words.", "requested_tokens", 300),
        ("Prove that it holds without induction.", "n_demands", 2),
        ("Who, when and why?", "n_questions", 3),
    ],
)
def test_each_feature_sees_its_kind_of_text(text: str, field: str, least: float) -> None:
    assert getattr(extract(text, n_tokens=9), field) >= least
    assert (getattr(extract("The sun was warm.", n_tokens=9), field) or 0) < least


def test_the_limit_of_the_reply_caps_what_the_prompt_asks_for() -> None:
    assert extract("Write 2000 words.", n_tokens=4, max_output=64).requested_tokens == 64


def test_unknown_is_said_not_guessed() -> None:
    found: Features = extract("blorp fnord", n_tokens=4)
    assert found.language == UNKNOWN
