"""Measures a family on a set of prompts, one line of a file a prompt, and goes on where a stopped run left off.

Takes a family, prompts and a file; gives the measurements in it. Decides nothing: `routing.fit` does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...engine.prompts.template import ChatTemplate
from ...errors import ContextFullError, FamilyError, FileError
from ...gguf.family.family import Family
from ...gguf.nested.nested_open import open_sibling
from ...native.protocol import Model
from ...routing.features.features import extract
from ...routing.features.syntax import SyntaxEstimator
from ...routing.records.measurements import Measured, SiblingMeasure, append_measured, read_measured
from ...routing.records.prompts import Prompt
from .agreement import AgreementMeter

REFERENCES = ("f16", "bf16", "f32")
N_CTX = 2048

OnPrompt = Callable[[int, int, str], None]
"""Called with (prompts done, prompts in all, what happened to the last one)."""


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """siblings: variants to measure besides the reference, all when empty. n_reply: most tokens of a reply.

    n_gpu_layers: layers on a GPU. n_threads 0 is the engine's choice.
    """

    siblings: tuple[str, ...] = ()
    n_reply: int = 48
    n_gpu_layers: int = 0
    n_threads: int = 0


def measure_prompts(
    family: Family,
    prompts: Sequence[Prompt],
    file: Path,
    options: MeasureOptions,
    estimator: SyntaxEstimator | None = None,
    on_prompt: OnPrompt | None = None,
) -> list[Measured]:
    """All prompts' measurements: those of the file, then the missing ones, each written as soon as it is made.

    A prompt that does not fit the context is passed over and named to `on_prompt`. Raises FamilyError, FileError and
    the engine's errors.
    """
    reference = reference_of(family)
    names = [reference, *(name for name in _siblings(family, options) if name != reference)]
    done = {measured.id: measured for measured in read_measured(file)} if file.is_file() else {}
    _require_same_models(done.values(), reference, names, file)
    missing = [prompt for prompt in prompts if prompt.id not in done]
    if missing:
        with _opened(family, names, options) as models, _meter(models, reference, options) as meter:
            template = ChatTemplate(models[reference].chat_template, models[reference].vocab)
            for prompt in missing:
                note = f"{prompt.id} does not fit the context"
                with contextlib.suppress(ContextFullError):
                    done[prompt.id] = _measure_one(prompt, reference, models[reference], template, meter, estimator)
                    append_measured(file, done[prompt.id])
                    note = prompt.id
                if on_prompt:
                    on_prompt(len(done), len(prompts), note)
    return [done[prompt.id] for prompt in prompts if prompt.id in done]


def reference_of(family: Family) -> str:
    """The sibling that the others are judged by. Raises FamilyError when the family has no full-precision one."""
    found = next((name for name in REFERENCES if name in family.variants), None)
    if found is None:
        raise FamilyError(
            f"family '{family.name}' has no full-precision sibling ({', '.join(family.variants)}); "
            "add one: edge-specquant convert --variants f16"
        )
    return found


def _siblings(family: Family, options: MeasureOptions) -> list[str]:
    return [family.variant(name).name for name in options.siblings] or list(family.variants)


def _require_same_models(done: Iterable[Measured], reference: str, names: list[str], file: Path) -> None:
    for measured in done:
        if measured.reference != reference or set(measured.siblings) != set(names):
            raise FileError(
                f"{file} holds measurements of {', '.join(measured.siblings)}, not of {', '.join(names)}; "
                "give another file with --measured"
            )


@contextlib.contextmanager
def _opened(family: Family, names: list[str], options: MeasureOptions) -> Iterator[dict[str, Model]]:
    with contextlib.ExitStack() as stack:
        models: dict[str, Model] = {}
        for name in names:
            models[name] = open_sibling(family, name, n_gpu_layers=options.n_gpu_layers)
            stack.callback(models[name].close)
        yield models


def _meter(models: dict[str, Model], reference: str, options: MeasureOptions) -> AgreementMeter:
    return AgreementMeter(models, reference, n_reply=options.n_reply, n_ctx=N_CTX, n_threads=options.n_threads)


def _measure_one(
    prompt: Prompt,
    reference: str,
    model: Model,
    template: ChatTemplate,
    meter: AgreementMeter,
    estimator: SyntaxEstimator | None,
) -> Measured:
    tokens = template.tokens([{"role": "user", "content": prompt.text}])
    found = meter.measure(tokens)
    n_tokens = len(model.vocab.tokenize(prompt.text))
    start = time.perf_counter()
    features = extract(prompt.text, n_tokens=n_tokens, estimator=estimator)
    decide_s = time.perf_counter() - start
    return Measured(
        id=prompt.id,
        group=prompt.group,
        reference=reference,
        n_prompt=len(tokens),
        n_reply=len(found.reply),
        features=features,
        siblings={
            name: SiblingMeasure(one.agreement, one.kld, one.prefill_s_per_token, one.decode_s_per_token)
            for name, one in found.siblings.items()
        },
        decide_s=decide_s,
        labels=prompt.labels,
    )
