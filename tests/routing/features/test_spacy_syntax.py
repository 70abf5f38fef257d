"""The parser in the background: it never makes a prompt wait, and where it is missing the rules answer (F1)."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import textwrap

import pytest

from edge_specquant.routing.features.features import extract
from edge_specquant.routing.features.features_spacy import MAX_CHARS, MODELS, SpacySyntax
from edge_specquant.routing.records.prompts import Prompt

installed = pytest.mark.skipif(
    importlib.util.find_spec("spacy") is None or importlib.util.find_spec(MODELS[0]) is None,
    reason="the [router] extra is not installed",
)
TEXT = "The report that Anna Kowalska wrote in Geneva says that nobody knew what the figures meant."


def test_before_it_is_loaded_the_rules_answer() -> None:
    parser = SpacySyntax()
    assert parser.measure(TEXT, "en") is None
    assert extract(TEXT, n_tokens=20, estimator=parser).estimator == "rules"


def test_a_missing_model_is_one_notice_and_the_rules() -> None:
    parser = SpacySyntax(models=("no_such_model_anywhere",)).start().start()
    assert not parser.wait(20)
    assert parser.notice is not None
    assert "\n" not in parser.notice
    assert "pip install" in parser.notice
    assert extract(TEXT, n_tokens=20, estimator=parser) == extract(TEXT, n_tokens=20)


# A library may ask the kernel for a socket to see whether IPv6 is there; a name looked up or a peer called is a try.
REACHES_OUT = {
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendto",
    "urllib.Request",
    "http.client.connect",
    "subprocess.Popen",
    "os.system",
    "os.exec",
}
CHILD = """
import json, sys
seen = []
def watch(event, arguments):
    if event in {reaches_out}:
        seen.append(event)
{before}
sys.addaudithook(watch)
from edge_specquant.routing.features.features import extract
from edge_specquant.routing.features.features_spacy import SpacySyntax
parser = SpacySyntax({models}).start()
ready = parser.wait(60)
found = extract({text!r}, n_tokens=20, estimator=parser)
print(json.dumps([ready, found.estimator, parser.notice, seen]))
"""


def in_child(before: str = "", models: str = "") -> list[object]:
    """What an interpreter of its own saw: ready, estimator, notice, and every try to reach out."""
    code = textwrap.dedent(CHILD).format(before=before, models=models, text=TEXT, reaches_out=REACHES_OUT)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    result: list[object] = json.loads(done.stdout)
    return result


def test_without_spacy_nothing_is_fetched() -> None:
    ready, estimator, notice, seen = in_child("sys.modules['spacy'] = None")
    assert (ready, estimator, seen) == (False, "rules", [])
    assert "spacy" in str(notice)


@installed
def test_without_the_model_nothing_is_fetched() -> None:
    ready, estimator, notice, seen = in_child(models="models=('no_such_model_anywhere',)")
    assert (ready, estimator, seen) == (False, "rules", [])
    assert "no_such_model_anywhere" in str(notice)


@installed
def test_with_the_model_nothing_is_fetched_either() -> None:
    assert in_child() == [True, "spacy", None, []]


@pytest.fixture(scope="module")
def parser() -> SpacySyntax:
    loaded = SpacySyntax().start()
    assert loaded.wait(60), loaded.notice
    return loaded


@installed
def test_nesting_deepens_and_names_count(parser: SpacySyntax) -> None:
    nested, flat = parser.measure(TEXT, "en"), parser.measure("The dog ran. It was warm.", "en")
    assert nested is not None
    assert flat is not None
    assert nested.depth > flat.depth
    assert nested.clauses > flat.clauses == 1
    assert nested.n_names >= 2 > flat.n_names


@installed
def test_only_english_and_only_so_much_of_it(parser: SpacySyntax) -> None:
    assert parser.measure(TEXT, "de") is None
    long = parser.measure(TEXT * 200, "en")
    assert long is not None
    assert long.n_words <= MAX_CHARS


@installed
def test_rules_and_parser_speak_on_one_scale(parser: SpacySyntax, prompts: list[Prompt]) -> None:
    both = []
    for prompt in prompts:
        parsed = extract(prompt.text, n_tokens=9, estimator=parser)
        if parsed.estimator == "spacy" and not parsed.sampled and len(prompt.text) < MAX_CHARS:
            both.append((parsed, extract(prompt.text, n_tokens=9)))
    assert len(both) > 60
    for field, tolerance in (("depth", 1.0), ("clauses", 0.7)):
        gap = sum(getattr(a, field) - getattr(b, field) for a, b in both) / len(both)
        assert abs(gap) < tolerance
