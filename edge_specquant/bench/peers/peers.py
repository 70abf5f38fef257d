"""Peers: other programs that answer the same prompts from the same files, each with its own baseline.

`xllamacpp` starts llama.cpp's server in child processes (one without and one with a draft); a URL is a server that
runs already: llama.cpp's own (recognised by /props), else anything that speaks OpenAI's API, Ollama included.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from ...engine.prompts.template import ChatTemplate
from ...errors import UsageError
from ...gguf.family.family import Family
from ...native.opening import open_model
from ...native.selftest.selftest import verdict
from ...placement.machine.this_machine import probe_here
from ...runtime import EngineOptions
from ..measure.measurement import Case, Contestant, Sample
from ..reports.result import Say
from ..runs.settings import drafter_for, reference_of
from .peer_http import HttpPeer, LlamaServerPeer, OpenAIPeer, PromptIds, is_llama_server
from .peer_process import ServerSettings, llama_server

OLLAMA_URL = "http://127.0.0.1:11434"
N_DRAFT = 3  # as in the fixed setting it is compared with


@contextlib.contextmanager
def open_peers(
    names: Sequence[str], family: Family, options: EngineOptions, *, targets: Sequence[str] = (), say: Say
) -> Iterator[list[Contestant]]:
    """Contestants of every peer named. Raises UsageError, EngineError when one cannot be reached."""
    with contextlib.ExitStack() as stack:
        contestants: list[Contestant] = []
        for name in names:
            if name == "xllamacpp":
                wanted = [family.variant(target).name for target in targets] or [reference_of(family.variants)]
                for target in wanted:
                    contestants += _llama_servers(stack, family, options, target, say)
            else:
                contestants.append(_remote(name))
        yield contestants


def _llama_servers(
    stack: contextlib.ExitStack, family: Family, options: EngineOptions, target: str, say: Say
) -> list[Contestant]:
    """llama.cpp's server with the target alone, and with the sibling that drafts for it."""
    tokens = stack.enter_context(prompt_ids(family, target))
    baseline = f"llama.cpp server, {target} alone"
    found = []
    drafter = drafter_for(target, family.variants)
    for draft in (None, drafter) if drafter else (None,):
        name = f"llama.cpp server, {target} + {draft}" if draft else baseline
        say(f"starting {name}")
        settings = ServerSettings(
            model=family.path(target),
            draft=family.path(draft) if draft else None,
            n_draft=N_DRAFT,
            n_ctx=options.n_ctx or 4096,
            n_threads=options.n_threads or probe_here().cpu.n_threads,
            n_gpu_layers=options.n_gpu_layers or 0,
            use_extra_bufts=verdict().use_extra_bufts,
        )
        server = stack.enter_context(llama_server(settings))
        peer = LlamaServerPeer(server.url, tokens)
        found.append(_contestant(name, baseline, target, draft or "none", peer))
    return found


def _remote(name: str) -> Contestant:
    kind, _, rest = name.partition(":")
    if kind == "ollama":
        peer: HttpPeer = OpenAIPeer(OLLAMA_URL, model=rest or None)
    elif kind in ("http", "https"):
        url, _, model = name.partition("#")
        peer = LlamaServerPeer(url, None) if is_llama_server(url) else OpenAIPeer(url, model=model or None)
    else:
        raise UsageError(f"there is no peer '{name}'; give xllamacpp, ollama:MODEL or a URL (http://host:port#model)")
    return _contestant(name, name, name, "none", peer)


def _contestant(name: str, baseline: str, target: str, draft: str, peer: HttpPeer) -> Contestant:
    def measure(case: Case) -> Sample:
        return peer.measure(case)

    return Contestant(name, baseline, f"server:{target}", draft, measure)


@contextlib.contextmanager
def prompt_ids(family: Family, target: str) -> Iterator[PromptIds]:
    """Token ids as our own runtime makes them, so that every server gets the very same prompt."""
    with open_model(family.path(target), vocab_only=True) as model:
        template = ChatTemplate(model.chat_template, model.vocab)
        yield lambda case: template.tokens([{"role": "user", "content": case.prompt}])
