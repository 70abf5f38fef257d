"""Every setting: its section, type, default and meaning. Plain values; their ranges are judged where they are used.

None means that the program decides (the plan, the family, the model). Knows nothing of files or the environment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

KV_TYPES = ("f32", "f16", "q8_0", "q4_0")


def _setting(default: object, meaning: str, *, choices: Sequence[str] = (), is_secret: bool = False) -> Any:
    return field(default=default, metadata={"meaning": meaning, "choices": tuple(choices), "is_secret": is_secret})


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How models are loaded and decoded."""

    n_ctx: int | None = _setting(None, "context length in tokens")
    n_batch: int | None = _setting(None, "tokens decoded at once in a prefill")
    n_threads: int | None = _setting(None, "threads of a decode")
    n_gpu_layers: int | None = _setting(None, "layers on the GPU; 0 is none")
    kv_type: str | None = _setting(None, "weight type of the KV cache", choices=KV_TYPES)
    use_mmap: bool = _setting(True, "map model files instead of reading them, where the plan does")
    use_kernel: bool = _setting(True, "compute products by the compiled kernel where it is faster than the engine")
    objective: str = _setting("speed", "what drafts are to save: time, or joules", choices=("speed", "energy"))
    rpc: str | None = _setting(None, "llama.cpp RPC servers, host:port, separated by commas")


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Who answers, and how tokens are chosen; names as in SamplingParams and SpeculationParams."""

    family: str | None = _setting(None, "the family to open when none is named")
    target: str | None = _setting(None, "the sibling that answers")
    draft: str | None = _setting(None, "who drafts: a sibling, 'lookup', a chain such as 'lookup+q4', or 'none'")
    policy: str | None = _setting(None, "the routing policy that chooses siblings by prompt, where none is named")
    system: str = _setting("", "system prompt of a new conversation")
    temperature: float = _setting(0.8, "0 is greedy")
    top_k: int = _setting(40, "0 is off")
    top_p: float = _setting(0.95, "1 is off")
    min_p: float = _setting(0.05, "0 is off")
    max_tokens: int | None = _setting(None, "most tokens of a reply; none is what the context holds")
    seed: int | None = _setting(None, "repeats a sampled reply")
    repeat_penalty: float = _setting(1.0, "1 is off")
    presence_penalty: float = _setting(0.0, "0 is off")
    frequency_penalty: float = _setting(0.0, "0 is off")
    n_draft: int | None = _setting(None, "draft tokens a round; none lets the controller decide")
    controller: str = _setting("goodput", "who decides the draft length")
    accept: str = _setting("match", "how drafts are judged", choices=("match", "rejection"))
    think: str = _setting("auto", "whether a model thinks before it answers", choices=("auto", "on", "off"))
    think_budget: int | None = _setting(None, "tokens after which a thought is closed; none is no limit")
    strict: bool = _setting(False, "decode only at widths that compute the same bits")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The OpenAI-compatible server."""

    host: str = _setting("127.0.0.1", "address to listen on; another than loopback needs an API key")
    port: int = _setting(8080, "port to listen on; 0 is any free one")
    api_key: str | None = _setting(None, "clients must send it", is_secret=True)
    parallel: int | None = _setting(None, "replies written at the same time, in mixed batches")
    queue: int = _setting(32, "requests that may wait; more are refused with 429")
    timeout_s: float | None = _setting(None, "longest time of a request in seconds")
    drain_s: float = _setting(30.0, "seconds that running answers have when the server is told to end")
    cors_origins: str | None = _setting(None, "origins that browsers may call from, separated by commas; * is any")
    hosts: str | None = _setting(None, "names in the Host header that are ours, separated by commas, besides loopback")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Conversations on disk."""

    enabled: bool = _setting(True, "keep conversations in a file; false keeps them in memory")
    path: str | None = _setting(None, "the file; none is conversations/conversations.db in the data folder")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log file."""

    level: str = _setting("info", "least serious entry", choices=("debug", "info", "warning", "error"))
    prompts: bool = _setting(False, "log prompts and replies too")


@dataclass(frozen=True, slots=True)
class TuiSettings:
    """The full-screen chat."""

    theme: str | None = _setting(None, "a Textual theme")
    origins: bool = _setting(False, "colour tokens by who proposed them")
    panel: bool = _setting(True, "show the side panel at start; as it was left, where nothing is set")


@dataclass(frozen=True, slots=True)
class Settings:
    """All sections."""

    engine: EngineSettings = field(default_factory=EngineSettings)
    chat: ChatSettings = field(default_factory=ChatSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    log: LogSettings = field(default_factory=LogSettings)
    tui: TuiSettings = field(default_factory=TuiSettings)


@dataclass(frozen=True, slots=True)
class Key:
    """One setting's name and nature."""

    section: str
    name: str
    types: frozenset[str]
    """Of bool, int, float, str, None."""
    default: object
    meaning: str
    choices: tuple[str, ...]
    is_secret: bool

    @property
    def dotted(self) -> str:
        """'chat.seed'."""
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """'EDGE_SPECQUANT_CHAT_SEED'."""
        return f"EDGE_SPECQUANT_{self.section}_{self.name}".upper()


def keys() -> Iterator[Key]:
    """Every setting, in order."""
    for section in dataclasses.fields(Settings):
        assert callable(section.default_factory)
        for entry in dataclasses.fields(section.default_factory()):
            # Annotations are text here (postponed evaluation), so the types are read from it.
            types = frozenset(part.strip() for part in str(entry.type).split("|"))
            yield Key(section.name, entry.name, types, entry.default, **entry.metadata)
