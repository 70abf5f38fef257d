"""`eval agreement FAMILY`: how often each sibling picks the token that the reference picks, and the KL divergence.

Teacher-forced on the reference's own greedy replies (agreement.py); one figure a prompt, then intervals.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ...engine.prompts.template import ChatTemplate
from ...errors import ContextFullError
from ...gguf.family.family import Family
from ...native.protocol import Model
from ...placement.machine.this_machine import probe_here
from ...runtime import EngineOptions
from ..measure.environment import environment_line, record_environment
from ..measure.statistics import Interval, mean_interval
from ..reports import tables
from ..reports.document import make_document
from ..reports.result import Result, Say
from ..reports.tables import Table
from ..runs.settings import by_precision, reference_of
from ..runs.workplace import open_sibling
from .agreement import AgreementMeter, PromptAgreement
from .questions import Question

N_REPLY = 48


def evaluate_agreement(
    family: Family, options: EngineOptions, questions: Sequence[Question], say: Say, *, n_reply: int = N_REPLY
) -> Result:
    """Measures every sibling against the most precise one. Raises EngineError."""
    reference = reference_of(family.variants)
    environment = record_environment(probe_here(), family, options.n_threads)
    found = measure_agreement(family, options, [question.text for question in questions], say, n_reply=n_reply)
    names = [name for name in by_precision(family.variants) if name != reference]
    agreement = {name: mean_interval([one.siblings[name].agreement for one in found]) for name in names}
    kld = {name: mean_interval([one.siblings[name].kld for one in found]) for name in names}
    rows = tuple((name, tables.share_interval(agreement[name]), _nats(kld[name])) for name in names)
    n_tokens = sum(len(one.reply) for one in found)
    notes = (environment_line(environment), f"{len(found)} prompts, {n_tokens} tokens of {reference}'s own replies")
    table = Table(
        f"{family.name}: agreement with {reference}",
        ("sibling", "top-1 agreement [95 %]", "KLD, nats [95 %]"),
        rows,
        notes,
    )
    document = make_document(
        "eval agreement",
        environment=environment,
        family=family.name,
        reference=reference,
        n_prompts=len(found),
        n_tokens=n_tokens,
        agreement=agreement,
        kld=kld,
    )
    return Result("Agreement", document, (table,), ())


def measure_agreement(
    family: Family, options: EngineOptions, prompts: Sequence[str], say: Say, *, n_reply: int = N_REPLY
) -> list[PromptAgreement]:
    """Every sibling's verdict on the reference's reply to each prompt; prompts that do not fit are passed over."""
    reference = reference_of(family.variants)
    found: list[PromptAgreement] = []
    with contextlib.ExitStack() as stack:
        models: dict[str, Model] = {}
        for name in by_precision(family.variants):
            model = open_sibling(family, name, options)
            models[name] = stack.enter_context(contextlib.closing(model))
        meter = stack.enter_context(AgreementMeter(models, reference, n_reply=n_reply, n_threads=options.n_threads))
        template = ChatTemplate(models[reference].chat_template, models[reference].vocab)
        for number, prompt in enumerate(prompts):
            say(f"agreement of siblings: prompt {number + 1} of {len(prompts)}")
            with contextlib.suppress(ContextFullError):
                found.append(meter.measure(template.tokens([{"role": "user", "content": prompt}])))
    return found


def _nats(found: Interval | None) -> str:
    if found is None:
        return tables.UNKNOWN
    if found.low is None or found.high is None:
        return f"{found.value:.4f}"
    return f"{found.value:.4f} [{found.low:.4f}, {found.high:.4f}]"
