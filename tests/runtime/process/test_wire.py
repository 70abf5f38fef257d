"""Frames come out as they went in, several at once when several are ready; a closed pipe is seen."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from edge_specquant.runtime.process.wire import FrameReader, FrameWriter, Outbox


@pytest.fixture
def pipe() -> Iterator[tuple[FrameReader, FrameWriter]]:
    inlet, outlet = os.pipe()
    reader, writer = FrameReader(inlet), FrameWriter(outlet)
    yield reader, writer
    writer.close()
    reader.close()


def test_messages_of_any_size_and_kind_survive(pipe: tuple[FrameReader, FrameWriter]) -> None:
    reader, writer = pipe
    sent = [("token", 1, "😀\x00\ud800", 5, "q4"), ("big", b"x" * 3_000_000), ("none", None)]
    thread = threading.Thread(target=lambda: writer.write(*sent))  # larger than the pipe: somebody must read
    thread.start()
    assert reader.read() == sent
    thread.join()


def test_what_is_ready_goes_in_order_and_together(pipe: tuple[FrameReader, FrameWriter]) -> None:
    reader, writer = pipe
    outbox = Outbox(writer)
    for number in range(2000):
        outbox.put(("token", number))
    got: list[int] = []
    n_frames = 0
    while len(got) < 2000:
        got += [message[1] for message in reader.read()]
        n_frames += 1
    assert got == list(range(2000))
    assert n_frames < 2000
    outbox.close()


def test_a_closed_pipe_is_an_end_also_in_the_middle_of_a_frame(pipe: tuple[FrameReader, FrameWriter]) -> None:
    reader, writer = pipe
    os.write(writer._descriptor or 0, b"\x00\x00\x00\x09abc")
    writer.close()
    with pytest.raises(EOFError):
        reader.read()
    with pytest.raises(OSError):
        writer.write(("late",))
