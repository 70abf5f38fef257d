"""Tells systemd what state the server is in (sd_notify): one datagram to $NOTIFY_SOCKET. Elsewhere nothing happens."""

from __future__ import annotations

import logging
import os
import socket
import time

log = logging.getLogger("edge_specquant.server")

READY = "READY=1"
STOPPING = "STOPPING=1"


def reloading() -> str:
    """The message at the beginning of a reload; systemd wants the time with it."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def notify(state: str) -> bool:
    """Sends one state; False where nobody listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # Linux's abstract names
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(state.encode(), address)
    except OSError as error:
        log.warning("systemd cannot be told '%s': %s", state.partition("\n")[0], error)
        return False
    return True
