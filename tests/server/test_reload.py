"""Settings that are read again take effect for the next request; wrong ones change nothing."""

from __future__ import annotations

from typing import Any

from server_rig import Rig, saying, serving

from edge_specquant.errors import UsageError
from edge_specquant.server.options import ServerOptions
from edge_specquant.server.serve import Server

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "fake:q4", "messages": [{"role": "user", "content": "hi"}]}


def test_reload_changes_the_key_and_the_limits_at_once() -> None:
    with serving(Rig(saying(b"x")).runtime()) as served:
        assert served.post(CHAT, BODY)[0] == 200
        fresh = ServerOptions(api_key="sk-a-new-one", max_choices=2, drain_s=1)
        Server(served.services, lambda: fresh, lambda _url: None).reload()
        assert served.post(CHAT, BODY)[0] == 401
        headers = {"Authorization": "Bearer sk-a-new-one"}
        assert served.post(CHAT, {**BODY, "n": 2}, headers)[0] == 200
        assert served.post(CHAT, {**BODY, "n": 3}, headers)[0] == 400


def test_wrong_settings_change_nothing() -> None:
    def broken() -> ServerOptions:
        raise UsageError("queue is 0; it must be above 0")

    with serving(Rig(saying(b"x")).runtime()) as served:
        before = served.services.live.options
        Server(served.services, broken, lambda _url: None).reload()
        assert served.services.live.options is before
        assert served.post(CHAT, BODY)[0] == 200
