"""The listening process: binds, answers, reloads on SIGHUP, drains on SIGTERM, tells systemd.

Takes a runtime that is already open and closes nothing of it. Returns when the server has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn

from ..errors import EdgeSpecQuantError, UsageError
from .app import Services, create_app
from .http.connection import timed_connection
from .http.guards import is_loopback
from .http.systemd import READY, STOPPING, notify, reloading
from .options import ServerOptions

log = logging.getLogger("edge_specquant.server")

Reload = Callable[[], ServerOptions]


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 is any free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can come here."""
        return is_loopback(self.host.strip("[]").lower())


class Server(uvicorn.Server):
    """uvicorn's server with readiness, reload and a drain that lets streams end."""

    def __init__(self, services: Services, reload: Reload, on_ready: Callable[[str], None]) -> None:
        options = services.live.options
        super().__init__(
            uvicorn.Config(
                create_app(services),
                http=timed_connection(options.header_timeout_s),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                h11_max_incomplete_event_size=options.max_header_bytes,
                limit_concurrency=options.max_connections,
                timeout_graceful_shutdown=max(1, round(options.drain_s)),
            )
        )
        self._services = services
        self._reload = reload
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens, then says so."""
        self._services.engine.start()
        await super().startup(sockets)
        with contextlib.suppress(NotImplementedError, AttributeError, RuntimeError, ValueError):
            # Where there is no SIGHUP, or this is not the main thread, settings are read once.
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
        for listener in sockets or ():
            self._on_ready(url_of(listener))
        notify(READY)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drains: no new connections, running answers go on until they end or drain_s is over."""
        notify(STOPPING)
        log.info("draining: running answers may take %g s more", self._services.live.options.drain_s)
        await super().shutdown(sockets)

    def reload(self) -> None:
        """Reads the settings again; wrong ones change nothing."""
        notify(reloading())
        try:
            self._services.live.replace(self._reload())
            log.info("settings are reloaded")
        except EdgeSpecQuantError as error:
            log.error("settings stay as they were: %s", error)
        notify(READY)


def run(
    services: Services, listener: socket.socket, reload: Reload, on_ready: Callable[[str], None] = lambda _: None
) -> None:
    """Serves until SIGTERM or Ctrl-C; the latter raises KeyboardInterrupt at the end, as uvicorn does."""
    server = Server(services, reload, on_ready)
    with _sigterm_is_an_end():
        server.run([listener])


def listen(address: Address) -> socket.socket:
    """A listening socket. Raises UsageError where the address cannot be had."""
    host = address.host.strip("[]")
    try:
        family, _, _, _, place = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((place[0], address.port), family=family, backlog=128)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {address.host}:{address.port}: {error.strerror or error}; try another --port"
        ) from error


def url_of(listener: socket.socket) -> str:
    """http://127.0.0.1:8080."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _sigterm_is_an_end() -> Iterator[None]:
    """uvicorn raises a caught signal again when it has drained; that must not end us before the runtime is closed."""
    try:
        before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
