"""Settings to a server: options, catalog and services. Knows no sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from ..config.settings import ServerSettings
from ..gguf.family.family import Family
from ..native.protocol import Model
from ..request import Request
from ..runtime import Runtime
from .answers.token_pieces import Pieces, vocabulary_of
from .app import Services
from .metrics import Metrics
from .options import DEFAULT_TIMEOUT_S, Live, ServerOptions
from .queue import Engine
from .requests.catalog import Catalog

SMALL_BYTES, SMALL_PARALLEL = 3 << 30, 4


def options_from(settings: ServerSettings, extra: Mapping[str, object] | None = None) -> ServerOptions:
    """Raises UsageError for values out of range."""
    return ServerOptions(
        api_key=settings.api_key,
        cors_origins=_listed(settings.cors_origins),
        hosts=tuple(name.lower() for name in _listed(settings.hosts)),
        queue=settings.queue,
        timeout_s=DEFAULT_TIMEOUT_S if settings.timeout_s is None else settings.timeout_s,
        drain_s=settings.drain_s,
        **(extra or {}),  # type: ignore[arg-type]
    )


def services_for(
    runtime: Runtime,
    options: ServerOptions,
    *,
    policy: str | None = None,
    guests: Sequence[str] = (),
    vocabulary: Callable[[], Model] | None = None,
) -> Services:
    """Everything that the routes work with; the engine is not started.

    policy: what FAMILY:auto routes by. guests: drafts from elsewhere that requests may name. vocabulary replaces how
    the vocabulary is opened.
    """
    manifest = runtime.family.manifest
    created = int(datetime.fromisoformat(manifest.created).timestamp()) if manifest is not None else 0
    # Known once a model was loaded (`warm_up`).
    n_ctx = max((resident.n_ctx for resident in runtime.status().residents), default=0) or None
    catalog = Catalog(runtime.family.name, tuple(runtime.family.variants), created, n_ctx, policy, guests)
    live, metrics = Live(options), Metrics()
    pieces = Pieces(vocabulary or (lambda: vocabulary_of(runtime.family)))
    return Services(Engine(runtime, live, metrics, runtime.options.n_parallel), catalog, pieces, live, metrics)


def default_parallel(family: Family) -> int:
    """Replies at a time where the settings name no number: each needs KV cells of its own, so large models take one."""
    largest = max(variant.n_bytes for variant in family.variants.values())
    return SMALL_PARALLEL if largest < SMALL_BYTES else 1


def warm_up(runtime: Runtime) -> None:
    """Loads what the first request would load, so that what is wrong shows now. Raises the runtime's errors."""
    with runtime.generate(Request(prompt="Hello", max_tokens=1)) as events:
        for _ in events:
            pass


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
