"""What the server is told: limits, times, who may ask. Frozen; a reload replaces the whole object."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError

DEFAULT_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Sizes in bytes, times in seconds.

    api_key None asks for none. cors_origins: origins that browsers may call from; "*" is any. hosts: names that may
    stand in the Host header where no key is asked (against DNS rebinding); empty is loopback names only.
    """

    api_key: str | None = None
    cors_origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    queue: int = 32
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_body_bytes: int = 4 << 20
    max_header_bytes: int = 16 << 10
    body_timeout_s: float = 30.0
    header_timeout_s: float = 10.0
    send_timeout_s: float = 30.0
    ping_s: float = 15.0
    patience_s: float = 5.0  # a stream's headers wait so long for the first token, so that a bad prompt is still a 400
    drain_s: float = 30.0
    max_connections: int = 256
    max_choices: int = 16

    def __post_init__(self) -> None:
        for name in ("queue", "timeout_s", "max_body_bytes", "drain_s", "max_connections", "max_choices"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.api_key is not None and len(self.api_key) < 8:
            raise UsageError("the API key has fewer than 8 characters; choose a longer one")


class Live:
    """The options in force; `replace` takes effect for the next request."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options

    def replace(self, options: ServerOptions) -> None:
        """Puts new options in force."""
        self.options = options
