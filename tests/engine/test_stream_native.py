"""The laws of the loop on the real engine: tiny random Llamas, and the demo family."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_rig import GREEDY, Rig

from edge_specquant.engine.drafters.lookup import LookupDrafter
from edge_specquant.engine.stream import stream
from edge_specquant.native.model import NativeModel
from edge_specquant.params import SamplingParams

MakeRig = Callable[..., Rig]
SAMPLED = SamplingParams(temperature=0.9, seed=42)


def prompt_of(model: NativeModel, text: str = "The stone was cold and the") -> list[int]:
    return model.vocab.tokenize(text)


@pytest.mark.parametrize("n_draft", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("target", ["f16", "q8"])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_draft_changes_nothing(
    rig: MakeRig, tiny_models: dict[str, NativeModel], n_draft: int, target: str, sampling: SamplingParams
) -> None:
    model = tiny_models[target]
    plain = rig(model).reply(prompt_of(model), max_tokens=60, sampling=sampling)
    drafted = rig(model, tiny_models["q4"]).reply(prompt_of(model), max_tokens=60, sampling=sampling, n_draft=n_draft)
    assert drafted.tokens == plain.tokens
    assert drafted.stats.n_drafted > 0


def test_target_as_its_own_draft_accepts_everything(rig: MakeRig, tiny_models: dict[str, NativeModel]) -> None:
    """T2, where every width computes the same bits: a quantized model under flash attention."""
    model = tiny_models["q8"]
    reply = rig(model, model).reply(prompt_of(model), max_tokens=60, n_draft=5)
    assert reply.stats.acceptance_rate == 1.0


def test_lookup_changes_nothing(rig: MakeRig, tiny_models: dict[str, NativeModel]) -> None:
    model = tiny_models["q8"]
    plain = rig(model).reply(prompt_of(model), max_tokens=80)
    drafted = rig(model).reply(prompt_of(model), max_tokens=80, drafter=LookupDrafter(), n_draft=7)
    assert drafted.tokens == plain.tokens


def test_closing_in_mid_block_then_going_on(rig: MakeRig, tiny_models: dict[str, NativeModel]) -> None:
    model = tiny_models["q8"]
    made = rig(model, tiny_models["q4"])
    prompt = prompt_of(model)
    events = stream(made.job(prompt, n_draft=5, max_tokens=60))
    for _ in range(7):
        next(events)
    events.close()
    for cache in (made.target, made.draft):
        assert cache is not None and cache.n_past == cache.context.used()
    assert made.reply(prompt, n_draft=5, max_tokens=60).tokens == rig(model).reply(prompt, max_tokens=60).tokens


def test_transplanted_prompt_drafts_as_well(rig: MakeRig, tiny_models: dict[str, NativeModel]) -> None:
    """A prompt long enough to be copied from the target's cells; output unharmed, the draft decodes no prompt."""
    model = tiny_models["q8"]
    prompt = prompt_of(model, "the stone on the river and the land of the sea " * 8)
    made = rig(model, tiny_models["q4"])
    reply = made.reply(prompt, max_tokens=40, n_draft=3)
    assert reply.tokens == rig(model).reply(prompt, max_tokens=40).tokens
    assert made.draft is not None and made.draft.n_past >= len(prompt)


def test_states_of_other_formats_are_refused(rig: MakeRig, tiny_models: dict[str, NativeModel]) -> None:
    made = rig(tiny_models["f16"], tiny_models["q4"])
    made.target.hold(prompt_of(tiny_models["f16"]))
    other = Rig(tiny_models["q4"], type_k="q8_0")  # type: ignore[arg-type]
    assert not other.target.copy_from(made.target)
    other.close()


EDGES = """
    import sys
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    from engine_rig import Rig, GREEDY
    from edge_specquant.native.model import NativeModel
    from edge_specquant.params import SamplingParams
    with NativeModel(Path({model!r}), use_extra_bufts={bufts}) as model:
        text = model.vocab.tokenize("the stone and the river of the land were cold")
        for n_batch in (1, 8, 32):
            for n_draft in (8, 32):
                for max_tokens in (1, 2, 40):
                    for prompt in (text[:1], text):
                        rig = Rig(model, model, n_batch=n_batch, n_ctx=64)
                        plain = Rig(model, n_batch=n_batch, n_ctx=64)
                        got = rig.reply(prompt, n_draft=n_draft, max_tokens=max_tokens)
                        assert got.tokens == plain.reply(prompt, max_tokens=max_tokens).tokens
                        assert len(got.tokens) <= max_tokens
                        rig.close(), plain.close()
        for n_prompt in (40, 63, 64):
            rig = Rig(model, model, n_ctx=64)
            reply = rig.reply((text * 9)[:n_prompt], n_draft=16)
            assert n_prompt + len(reply.tokens) == 64 or reply.finish_reason == "stop", (n_prompt, len(reply.tokens))
            rig.close()
    print("survived")
"""


@pytest.mark.parametrize("bufts", [True, False], ids=["repacked", "plain"])
def test_odd_sizes_never_abort_the_process(tiny_gguf: Path, bufts: bool) -> None:
    """Cases A7 and A8 on the real engine, in a child: an abort there would be a negative exit status."""
    program = textwrap.dedent(EDGES).format(tests=str(Path(__file__).parents[1]), model=str(tiny_gguf), bufts=bufts)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, "survived"), done.stderr[-2000:]
