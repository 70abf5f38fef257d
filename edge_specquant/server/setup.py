"""Settings to a server: options, catalog and services. Knows no sockets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from ..config.settings import ServerSettings
from ..request import Request
from ..runtime import Runtime
from .app import Services
from .catalog import Catalog
from .engine import Engine
from .metrics import Metrics
from .options import DEFAULT_TIMEOUT_S, Live, ServerOptions


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


def services_for(runtime: Runtime, options: ServerOptions) -> Services:
    """Everything that the routes work with; the engine is not started."""
    manifest = runtime.family.manifest
    created = int(datetime.fromisoformat(manifest.created).timestamp()) if manifest is not None else 0
    catalog = Catalog(runtime.family.name, tuple(runtime.family.variants), created)
    live, metrics = Live(options), Metrics()
    return Services(Engine(runtime, live, metrics), catalog, live, metrics)


def warm_up(runtime: Runtime) -> None:
    """Loads what the first request would load, so that what is wrong shows now. Raises the runtime's errors."""
    with runtime.generate(Request(prompt="Hello", max_tokens=1)) as events:
        for _ in events:
            pass


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
