"""Who is answered when: order, limits, clients that leave, time that runs out, an end that drains. Scripted logits."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from patience import PATIENCE_S
from server_rig import Rig, Served, echoing, endless, eventually, saying, serving

from edge_specquant.server.options import ServerOptions

CHAT = "/v1/chat/completions"


def chat(content: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"model": "fake:f16", "messages": [{"role": "user", "content": content}], "temperature": 0, **fields}


def begin(served: Served, body: dict[str, Any]) -> socket.socket:
    """A request sent on a connection that the test holds."""
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection = served.raw()
    connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def running(served: Served) -> bool:
    return served.services.engine.n_running > 0


def n_decodes(rig: Rig) -> int:
    return sum(len(context.widths) for context in rig.contexts)


def test_client_that_leaves_a_stream_stops_the_decoding_and_the_next_is_served_at_once() -> None:  # D1
    rig = Rig(endless, pause_s=0.01, n_ctx=100_000)
    with serving(rig.runtime()) as served:
        connection = begin(served, chat(stream=True, draft="none"))
        received = b""
        while received.count(b"data: ") < 3:
            received += connection.recv(4096)
        connection.close()
        assert eventually(lambda: not running(served))
        stopped_at = n_decodes(rig)
        time.sleep(0.1)
        assert n_decodes(rig) == stopped_at
        _, answer, _ = served.post(CHAT, chat(max_tokens=3, draft="none"))
        assert answer["usage"]["completion_tokens"] == 3
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= answer["usage"]["prompt_tokens"] - 1


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_leaves_during_a_long_prefill_stops_it_within_a_batch(stream: bool) -> None:  # D1
    rig = Rig(endless, pause_s=0.05, n_ctx=1 << 18)
    with serving(rig.runtime()) as served:
        connection = begin(served, chat("x" * 200_000, stream=stream))
        assert eventually(lambda: n_decodes(rig) > 2)
        connection.close()
        left_at = n_decodes(rig)
        assert eventually(lambda: not running(served))
        assert n_decodes(rig) - left_at < 20, "400 batches were to come"
        assert served.post(CHAT, chat(max_tokens=1))[0] == 200


def test_client_that_leaves_the_queue_takes_its_place_with_it() -> None:
    rig = Rig(endless, pause_s=0.005, n_ctx=100_000)
    with serving(rig.runtime()) as served:
        first = begin(served, chat(stream=True))
        assert eventually(lambda: running(served))
        second = begin(served, chat())
        assert eventually(lambda: served.services.engine.n_waiting == 1)
        second.close()
        assert eventually(lambda: not served.services.engine.n_waiting)
        assert running(served), "only the one who left is cancelled"
        first.close()
        assert eventually(lambda: not running(served))


@pytest.mark.parametrize("n_parallel", [1, 4])
def test_leaving_cancels_nobody_else(n_parallel: int) -> None:  # D2: 20 rounds of cancel and resend
    rig = Rig(echoing, pause_s=0.001, n_ctx=8192, n_parallel=n_parallel)
    with serving(rig.runtime()) as served:
        prompts = [f"{name} asks" * 3 for name in ("anna", "bert", "cleo")]
        solo = {prompt: served.post(CHAT, chat(prompt, max_tokens=40))[1] for prompt in prompts}

        def ask(prompt: str) -> bool:
            _, answer, _ = served.post(CHAT, chat(prompt, max_tokens=40))
            return bool(answer["choices"] == solo[prompt]["choices"])

        with ThreadPoolExecutor(3) as pool:
            results = []
            for i in range(20):
                leaver = begin(served, chat(f"leaver {i}", stream=True))
                results += [pool.submit(ask, prompt) for prompt in prompts]
                time.sleep(0.01)
                leaver.close()
            assert all(result.result() for result in results)


def test_replies_are_written_at_the_same_time() -> None:
    rig = Rig(endless, pause_s=0.005, n_ctx=8192, n_parallel=3)
    with serving(rig.runtime()) as served:
        held = [begin(served, chat(f"{i}", stream=True)) for i in range(3)]
        for connection in held:
            received = b""
            while received.count(b"data: ") < 5:
                received += connection.recv(4096)
        assert served.services.engine.n_running == 3
        held.pop().close()
        assert eventually(lambda: served.services.engine.n_running == 2)
        assert served.post(CHAT, chat(max_tokens=2))[1]["usage"]["completion_tokens"] == 2
        for connection in held:
            connection.close()
        assert eventually(lambda: not running(served))


def test_full_queue_is_429_with_a_time_to_come_back() -> None:
    rig = Rig(endless, pause_s=0.005, n_ctx=100_000)
    with serving(rig.runtime(), ServerOptions(queue=2, drain_s=1)) as served:
        held = [begin(served, chat(stream=True))]
        assert eventually(lambda: running(served))
        held += [begin(served, chat()) for _ in range(2)]
        assert eventually(lambda: served.services.engine.n_waiting == 2)
        status, answer, headers = served.post(CHAT, chat())
        assert (status, answer["error"]["code"]) == (429, "queue_full")
        assert int(headers["retry-after"]) >= 1
        assert served.post(CHAT, chat(stream=True))[0] == 429
        for connection in held:
            connection.close()
        assert eventually(lambda: not running(served) and not served.services.engine.n_waiting)
        assert served.post(CHAT, chat(max_tokens=1))[0] == 200


def test_choices_beyond_the_queue_are_refused_as_a_whole() -> None:
    with serving(Rig(saying(b"x")).runtime(), ServerOptions(queue=2, drain_s=1)) as served:
        status, answer, _ = served.post(CHAT, chat(n=3))
        assert (status, answer["error"]["param"]) == (400, "n")
        assert served.post(CHAT, chat(n=2))[0] == 200


@pytest.mark.parametrize("stream", [False, True])
def test_request_that_takes_too_long_ends_with_an_error_and_frees_its_place(stream: bool) -> None:
    rig = Rig(endless, pause_s=0.01, n_ctx=100_000)
    with serving(rig.runtime(), ServerOptions(timeout_s=0.3, drain_s=1)) as served:
        if stream:
            last = json.loads(served.events(CHAT, chat())[-1])
            assert last["error"]["code"] == "timeout"
        else:
            status, answer, _ = served.post(CHAT, chat())
            assert (status, answer["error"]["code"]) == (504, "timeout")
        assert eventually(lambda: not running(served))
        assert served.post(CHAT, chat(max_tokens=1))[0] == 200


def test_order_of_arrival_is_order_of_answers() -> None:
    rig = Rig(endless, pause_s=0.002, n_ctx=100_000)
    with serving(rig.runtime()) as served:
        ended: list[int] = []

        def ask(i: int) -> None:
            served.post(CHAT, chat(max_tokens=20))
            ended.append(i)

        threads = []
        for i in range(4):
            threads.append(threading.Thread(target=ask, args=(i,)))
            threads[-1].start()
            assert eventually(lambda i=i: served.services.engine.n_waiting >= i or len(ended) > 0)
            time.sleep(0.005)
        for thread in threads:
            thread.join()
        assert ended == sorted(ended)


def test_engine_error_is_500_told_in_general_and_the_next_request_works() -> None:
    rig = Rig(saying(b"fine"))

    def fail() -> None:
        rig.before_decode = None
        raise ZeroDivisionError("the secret prompt")

    with serving(rig.runtime()) as served:
        rig.before_decode = fail
        status, answer, _ = served.post(CHAT, chat())
        assert (status, answer["error"]["type"]) == (500, "server_error")
        assert "secret" not in json.dumps(answer)
        assert served.post(CHAT, chat())[1]["choices"][0]["message"]["content"] == "fine"


def test_engine_error_in_a_stream_is_told_in_it() -> None:
    rig = Rig(endless, n_ctx=100_000)
    n_before = [0]

    def fail_later() -> None:
        n_before[0] += 1
        if n_before[0] == 10:
            raise ZeroDivisionError("the secret prompt")

    rig.before_decode = fail_later
    with serving(rig.runtime()) as served:
        *_, last = served.events(CHAT, chat(draft="none"))
        assert json.loads(last)["error"]["type"] == "server_error", "and no [DONE] after it"
        assert "secret" not in last


def test_ending_server_lets_a_stream_end() -> None:
    rig = Rig(saying(b"0123456789" * 20), pause_s=0.005)
    results: list[list[str]] = []
    with serving(rig.runtime(), ServerOptions(drain_s=30)) as served:
        reader = threading.Thread(target=lambda: results.append(served.events(CHAT, chat(stream=True))))
        reader.start()
        assert eventually(lambda: n_decodes(rig) > 5)
    reader.join(PATIENCE_S)
    assert results[0][-1] == "[DONE]"


def test_ending_server_cuts_what_takes_longer_than_its_time() -> None:
    rig = Rig(endless, pause_s=0.01, n_ctx=100_000)
    with serving(rig.runtime(), ServerOptions(drain_s=1)) as served:
        connection = begin(served, chat(stream=True))
        assert eventually(lambda: running(served))
    connection.close()


def test_reader_that_does_not_read_holds_no_slot() -> None:
    rig = Rig(endless, n_ctx=20_000)
    with serving(rig.runtime(), ServerOptions(send_timeout_s=0.5, drain_s=1)) as served:
        connection = begin(served, chat(stream=True))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        assert eventually(lambda: running(served))
        assert eventually(lambda: not running(served), within_s=60), "the stream is given up or comes to its end"
        assert served.post(CHAT, chat(max_tokens=1))[0] == 200
        connection.close()


def test_common_beginning_is_decoded_once() -> None:  # D7
    rig = Rig(echoing, n_ctx=8192)
    system = {"role": "system", "content": "You are terse. " * 40}
    with serving(rig.runtime()) as served:
        for i, user in enumerate(("one", "two", "three")):
            body = chat() | {"messages": [system, {"role": "user", "content": user}], "max_tokens": 4}
            _, answer, _ = served.post(CHAT, body)
            usage = answer["usage"]
            if i:
                assert usage["prompt_tokens_details"]["cached_tokens"] > len(system["content"])
                assert answer["x_edge_specquant"]["cached_tokens"] > len(system["content"])


def test_second_turn_decodes_only_what_is_new() -> None:  # D7
    template = (
        "{% for m in messages %}{{ m.role | capitalize }}:{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}Assistant:{% endif %}"
    )
    rig = Rig(saying(b"first answer", b"second answer"), chat_template=template)
    with serving(rig.runtime()) as served:
        messages = [{"role": "user", "content": "a question " * 20}]
        _, one, _ = served.post(CHAT, chat() | {"messages": messages})
        reply = one["choices"][0]["message"]
        assert reply["content"] == "first answer"
        _, two, _ = served.post(CHAT, chat() | {"messages": [*messages, reply, {"role": "user", "content": "more"}]})
        assert two["choices"][0]["message"]["content"] == "second answer"
        held = one["usage"]["prompt_tokens"] + len("first answer") - 1
        assert two["usage"]["prompt_tokens_details"]["cached_tokens"] >= held


def test_pings_keep_a_waiting_stream_alive() -> None:
    rig = Rig(saying(b"done"), pause_s=0.25)
    with serving(rig.runtime(), ServerOptions(ping_s=0.1, patience_s=0.05, drain_s=1)) as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
        body = json.dumps(chat(stream=True, draft="none"))
        connection.request("POST", CHAT, body, {"Content-Type": "application/json"})
        raw = connection.getresponse().read().decode()
        connection.close()
        assert "\n: \n\n" in f"\n{raw}"
        events = [part for part in raw.split("\n\n") if part.startswith("data: ")]
        assert events[-1] == "data: [DONE]"
