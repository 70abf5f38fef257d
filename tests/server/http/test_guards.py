"""What stands before the routes: key, Host, origins, sizes, slow clients, and a log without the caller's text."""

from __future__ import annotations

import io
import json
import logging
import time
from typing import Any

import pytest
from server_rig import Rig, Served, saying, serving

from edge_specquant.errors import UsageError
from edge_specquant.server.http import logs
from edge_specquant.server.http.auth import accepts, new_key
from edge_specquant.server.http.guards import host_name, is_loopback, route_name
from edge_specquant.server.options import ServerOptions

CHAT = "/v1/chat/completions"
KEY = "sk-a-key-of-the-test"
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
BODY: dict[str, Any] = {"model": "fake:q4", "messages": [{"role": "user", "content": "hi"}]}


def served_with(**options: Any) -> Any:
    return serving(Rig(saying(b"fine")).runtime(), ServerOptions(**{"drain_s": 1.0, **options}))


def test_key_is_asked_for_everywhere_but_at_health() -> None:
    with served_with(api_key=KEY) as served:
        for said in ("", "Bearer sk-wrong", KEY, f"Basic {KEY}"):
            wrong = {"Authorization": said} if said else {}
            status, answer, headers = served.post(CHAT, BODY, wrong)
            assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
            assert headers["www-authenticate"] == "Bearer"
            assert served.get("/v1/models", wrong)[0] == 401
            assert served.get("/metrics", wrong)[0] == 401
            assert served.get("/openapi.json", wrong)[0] == 401
        assert served.post(CHAT, BODY, {"Authorization": f"Bearer {KEY}"})[0] == 200
        assert served.get("/health")[0] == 200


def test_key_is_checked_before_the_body_is_read() -> None:
    with served_with(api_key=KEY, max_body_bytes=1000) as served:
        assert served.post(CHAT, b"x" * 5000)[0] == 401


def test_made_keys_differ_and_are_accepted() -> None:
    one, other = new_key(), new_key()
    assert one != other
    assert accepts(f"Bearer {one}", one)
    assert not accepts(f"Bearer {one}", other)
    assert not accepts("Bearer \udcff", one)


def test_short_key_is_refused() -> None:
    with pytest.raises(UsageError, match="8"):
        ServerOptions(api_key="short")


def test_another_name_in_host_is_refused_where_no_key_protects() -> None:
    with served_with(hosts=("my.proxy",)) as served:
        assert served.get("/v1/models", {"Host": "evil.example"})[0] == 403
        assert served.post(CHAT, BODY, {"Host": "evil.example:80"})[0] == 403
        for name in ("localhost", "127.0.0.1:1", "[::1]:80", "my.proxy", "LOCALHOST"):
            assert served.get("/v1/models", {"Host": name})[0] == 200
    with served_with(api_key=KEY) as served:
        assert served.get("/v1/models", {"Host": "any.name", "Authorization": f"Bearer {KEY}"})[0] == 200


@pytest.mark.parametrize(
    ("header", "name", "loopback"),
    [
        ("localhost:8080", "localhost", True),
        ("127.8.9.1", "127.8.9.1", True),
        ("[::1]:80", "::1", True),
        ("localhost.evil.example", "localhost.evil.example", False),
        ("0.0.0.0", "0.0.0.0", False),
        ("", "", False),
    ],
)
def test_names_of_this_machine(header: str, name: str, loopback: bool) -> None:
    assert host_name(header) == name
    assert is_loopback(name) is loopback


def test_no_cors_unless_asked_and_never_with_credentials() -> None:
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    with served_with() as served:
        _, _, headers = served.get("/v1/models", {"Origin": "https://a.example"})
        assert not [name for name in headers if name.startswith("access-control")]
        assert served.request("OPTIONS", CHAT, None, preflight)[0] == 405
    with served_with(cors_origins=("https://a.example",), api_key=KEY) as served:
        status, _, headers = served.request("OPTIONS", CHAT, None, preflight)
        assert status == 200, "a preflight carries no key"
        assert headers["access-control-allow-origin"] == "https://a.example"
        assert "access-control-allow-credentials" not in headers
        other = {**preflight, "Origin": "https://b.example"}
        assert "access-control-allow-origin" not in served.request("OPTIONS", CHAT, None, other)[2]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_body_that_another_sites_page_could_send_is_refused(kind: str) -> None:
    with served_with() as served:
        status, answer, _ = served.post(CHAT, BODY, {"Content-Type": kind})
        assert status == 415, answer


def test_large_body_is_413_whether_announced_or_not() -> None:
    with served_with(max_body_bytes=1000) as served:
        assert served.post(CHAT, b'"' + b"x" * 1000 + b'"')[0] == 413
        with served.raw() as connection:
            connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001 + b"\r\n")
            assert connection.recv(64).startswith(b"HTTP/1.1 413 ")


def test_large_head_is_refused() -> None:
    with served_with(max_header_bytes=4096) as served, served.raw() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 8192)
        assert connection.recv(64).startswith(b"HTTP/1.1 400 ")


def test_slow_body_is_408() -> None:
    with served_with(body_timeout_s=0.3) as served, served.raw() as connection:
        connection.sendall(HEAD + b'Content-Length: 100\r\n\r\n{"mod')
        assert connection.recv(64).startswith(b"HTTP/1.1 408 ")


def test_slow_head_is_let_go_first_or_later() -> None:
    with served_with(header_timeout_s=0.3) as served:
        with served.raw() as connection:
            connection.sendall(b"GET /hea")
            assert connection.recv(64) == b""
        with served.raw() as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b'"ok"' in receive_until(connection, b"}")
            connection.sendall(b"GET /hea")
            assert connection.recv(64) == b""


def receive_until(connection: Any, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        received += connection.recv(1024)
    return received


def test_slow_clients_leave_room_for_others() -> None:
    with served_with() as served:
        slow = [served.raw() for _ in range(50)]
        for connection in slow:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n")
        begun = time.monotonic()
        assert served.post(CHAT, BODY)[0] == 200
        assert time.monotonic() - begun < 30
        for connection in slow:
            connection.close()


HOSTILE = "secret\r\nfake line \x1b[31m [bold] [/ ]0;title\x07"


def log_of(served: Served) -> io.StringIO:
    stream = io.StringIO()
    logs.to_stream(stream, level="debug")
    served.post(CHAT, {**BODY, "messages": [{"role": "user", "content": HOSTILE}]})
    served.post(CHAT, {**BODY, "model": HOSTILE})
    served.post(CHAT, {**BODY, "temperature": HOSTILE, "secret\x1b": 1})
    served.post(CHAT, HOSTILE.encode())
    served.get("/v1/models/secret%0d%0afake%1b%5b31m")
    served.get("/secret%0d%0afake?prompt=secret", {"User-Agent": "secret", "X-Forwarded-For": "secret"})
    served.request("SECRET", "/secret", None, {})
    return stream


def test_log_holds_neither_prompts_nor_paths_nor_control_characters() -> None:  # G3, G4
    with served_with() as served:
        text = log_of(served).getvalue()
    assert "secret" not in text.lower()
    assert all(char.isprintable() or char == "\n" for char in text)
    assert f"POST {CHAT} 200" in text
    assert f"POST {CHAT} 404" in text
    assert "GET /v1/models/{model} 404" in text
    assert "(no route)" in text


def test_formatter_shows_control_characters_of_any_entry() -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "a\x1b[2Jb\r\x07[bold]\nline", None, None)
    assert logs.OneLine("%(message)s").format(record) == "a\\x1b[2Jb\\r\\x07[bold]\n    line"


def test_errors_show_the_callers_text_as_json_only() -> None:  # G1
    with served_with() as served:
        for field in ("[/", "[bold]", "[type=x, v={'a[0]'}]", "\x1b]0;x\x07"):
            status, answer, _ = served.post(CHAT, {**BODY, field: 1})
            assert status == 400
            assert field in answer["error"]["message"]


def test_values_are_not_repeated_in_errors() -> None:
    with served_with() as served:
        body = {**BODY, "messages": [{"role": "user", "content": 5}, {"role": "secret", "content": "secret"}]}
        status, answer, _ = served.post(CHAT, body)
        assert status == 400
        assert "secret" not in json.dumps(answer)


def test_routes_are_named_in_our_own_words() -> None:
    assert route_name("/v1/models/x\x1b") == "/v1/models/{model}"
    assert route_name("/v1/chat/completions/") == "(no route)"
