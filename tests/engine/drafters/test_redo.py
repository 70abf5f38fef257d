"""A redo is the target's own reply, whatever was put before it, and keeps exactly what the target agrees with."""

from __future__ import annotations

import functools

import pytest
from engine_rig import Rig
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_specquant.engine.control.draft_length import Fixed
from edge_specquant.engine.drafters.draft import NoDrafter
from edge_specquant.engine.drafters.lookup import LookupDrafter
from edge_specquant.engine.drafters.redo import ORIGIN, RedoController, RedoDrafter, agreement
from edge_specquant.native.fake import FakeModel, hashed

PROMPT = tuple(b"redo this, please: ")


def model(agree: float = 1.0) -> FakeModel:
    return FakeModel(hashed(11, agree=agree))


@functools.cache
def plain(n: int) -> tuple[int, ...]:
    return Rig(model()).reply(PROMPT, max_tokens=n).tokens if n else ()


@settings(max_examples=40, deadline=None)
@given(
    n_kept=st.integers(0, 70),
    tail=st.lists(st.integers(0, 255), max_size=20),
    max_tokens=st.integers(1, 90),
    n_draft=st.integers(0, 4),
)
def test_a_redo_is_the_targets_own_reply(n_kept: int, tail: list[int], max_tokens: int, n_draft: int) -> None:
    earlier = (*plain(n_kept), *tail)
    rig = Rig(model())
    drafter = RedoDrafter(earlier, LookupDrafter() if n_draft else NoDrafter())
    controller = RedoController(drafter, Fixed(n_draft), rig.target.context.max_rows - 1)
    redone = rig.reply(PROMPT, drafter=drafter, controller=controller, max_tokens=max_tokens)
    assert redone.tokens == plain(max_tokens)
    for token, origin, before in zip(redone.tokens, redone.origins, earlier, strict=False):
        assert origin != ORIGIN or token == before


@settings(max_examples=30, deadline=None)
@given(n_kept=st.integers(0, 120), tail=st.lists(st.integers(0, 255), max_size=5))
def test_agreement_is_the_length_of_the_common_beginning(n_kept: int, tail: list[int]) -> None:
    earlier = (*plain(n_kept), *tail)
    rig = Rig(model())
    own = plain(len(earlier))
    expected = next((i for i, (a, b) in enumerate(zip(earlier, own, strict=True)) if a != b), len(earlier))
    assert agreement(rig.target, PROMPT, earlier) == expected
    held = (*PROMPT, *earlier)
    assert tuple(rig.target.tokens) == held[: rig.target.n_past]


@pytest.mark.parametrize("n", [1, 100])
def test_a_reply_agreed_with_costs_few_decodes(n: int) -> None:
    earlier = plain(n)
    rig = Rig(model())
    drafter = RedoDrafter(earlier, NoDrafter())
    controller = RedoController(drafter, Fixed(0), rig.target.context.max_rows - 1)
    rig.reply(PROMPT, drafter=drafter, controller=controller, max_tokens=n)
    assert len(rig.target.context.widths) <= 1 + n // 48 + 1  # type: ignore[attr-defined]
