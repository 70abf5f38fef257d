"""Several sequences in one context, decoded in mixed batches: one may draft while another verifies.

Each reply runs in its own thread and decodes through a `SequenceContext`, which looks like a context of its own. Its
decodes meet in the `Mixer`: whoever comes first waits a moment for the others, runs one batch for all that came, and
hands out the rows. One batch runs at a time, whatever the model: two would fight for the same cores. A user who must be
alone has contexts that nobody shares. Knows nothing of replies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...errors import AbortedError, ContextFullError, DecodeError, EngineError
from ...native.protocol import Chunk, Context, ContextParams, Logits, Model, Vocab
from .fair_lock import Turns

_MAX_WAIT_S = 0.005
_WAIT_SHARE = 0.2  # of the last batch's time: what waiting for company may cost


@dataclass(eq=False, slots=True)
class _Job:
    """One sequence's wish for a decode, and what became of it."""

    chunk: Chunk
    rows: Logits | None = None
    error: EngineError | None = None

    @property
    def is_done(self) -> bool:
        return self.rows is not None or self.error is not None


class Mixer:
    """A context shared by n_seq sequences. Calls into the engine are made by whoever holds its lock."""

    def __init__(self, context: Context, params: ContextParams, n_seq: int, engine: Turns) -> None:
        self.context = context
        self.params = params
        self.n_seq = n_seq
        self.n_batches = 0
        self.n_mixed = 0
        self._engine = engine
        self._changed = threading.Condition()
        self._waiting: list[_Job] = []
        self._is_led = False
        self._last_s = 0.0
        self._last_seen: dict[int, float] = {}
        self._aborted: set[int] = set()
        self._running: list[_Job] = []

    def decode(self, chunk: Chunk) -> Logits:
        """The rows of one chunk, a copy. Raises what the engine raises; AbortedError where the sequence was stopped."""
        job = _Job(chunk)
        with self._changed:
            if chunk.seq in self._aborted:
                raise AbortedError(f"sequence {chunk.seq} was stopped")
            self._waiting.append(job)
            self._changed.notify_all()
        while not job.is_done:
            with self._changed:
                while self._is_led and not job.is_done:
                    self._changed.wait()
                if job.is_done:
                    break
                self._is_led = True
                self._gather()
                batch = self._running = self._take()
                self.context.resume()  # an abort that came too late was meant for the batch before
            try:
                self._run(batch)
            except BaseException:  # Ctrl-C in the thread that leads: nobody may wait for ever
                for other in batch:
                    other.error = other.error or DecodeError("the thread that ran the batch was interrupted")
                raise
            finally:
                with self._changed:
                    self._is_led, self._running = False, []
                    self._changed.notify_all()
        with self._changed:
            self._last_seen[chunk.seq] = time.perf_counter()
            if chunk.seq in self._aborted:
                job.error = job.error or AbortedError(f"sequence {chunk.seq} was stopped")
        if job.error is not None:
            raise job.error
        assert job.rows is not None
        return job.rows

    def company(self, seq: int) -> int:
        """How many other sequences decoded with the last batches."""
        recent = time.perf_counter() - 3 * self._last_s - _MAX_WAIT_S
        with self._changed:
            return sum(other != seq and seen > recent for other, seen in self._last_seen.items())

    def alone(self, act: Callable[[Context], bool]) -> bool:
        """Calls the engine while no batch runs."""
        with self._engine:
            return act(self.context)

    def save_state(self, seq: int) -> NDArray[np.uint8]:
        """A sequence's cells."""
        with self._engine:
            return self.context.save_state(seq=seq)

    def save_partial(self, seq: int, into: NDArray[np.uint8] | None) -> NDArray[np.uint8] | None:
        """The part of a sequence that cannot be truncated."""
        with self._engine:
            return self.context.save_partial(seq=seq, into=into)

    def clear(self, seq: int) -> None:
        """Forgets a sequence."""
        with self._engine:
            self.context.clear(seq=seq)

    def abort(self, seq: int) -> None:
        """Stops a sequence: what it waits for, or the batch it is in (the others' part runs again)."""
        with self._changed:
            self._aborted.add(seq)
            is_running = any(job.chunk.seq == seq for job in self._running)
            if is_running and (self.context.can_truncate or len(self._running) == 1):
                self.context.abort()  # else it would cost the others states that nobody can bring back
            for job in [job for job in self._waiting if job.chunk.seq == seq]:
                self._waiting.remove(job)
                job.error = AbortedError(f"sequence {seq} was stopped")
            self._changed.notify_all()

    def resume(self, seq: int) -> None:
        """Lets a sequence decode again."""
        with self._changed:
            self._aborted.discard(seq)

    # -- the thread that leads ----------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Waits a moment for those who decoded with the last batches and will be back soon."""
        wait_s = min(_MAX_WAIT_S, _WAIT_SHARE * self._last_s)
        deadline = time.perf_counter() + wait_s
        while (left_s := deadline - time.perf_counter()) > 0:
            recent = time.perf_counter() - 2 * self._last_s - _MAX_WAIT_S
            here = {job.chunk.seq for job in self._waiting}
            if all(seq in here for seq, seen in self._last_seen.items() if seen > recent):
                return
            self._changed.wait(left_s)

    def _take(self) -> list[_Job]:
        """What fits one batch, short chunks first: a long prompt does not hold up those who answer."""
        batch: list[_Job] = []
        n, n_rows = 0, 0
        for job in sorted(self._waiting, key=lambda job: len(job.chunk.tokens) > self.context.max_rows):
            n, n_rows = n + len(job.chunk.tokens), n_rows + job.chunk.n_rows
            if batch and (n > self.context.n_batch or n_rows > self.context.max_rows):
                break
            batch.append(job)
        self._waiting = [job for job in self._waiting if job not in batch]
        return batch

    def _run(self, batch: list[_Job]) -> None:
        begun = time.perf_counter()
        with self._engine:
            while batch:
                try:
                    rows = self.context.decode_mixed([job.chunk for job in batch])
                except AbortedError as error:
                    batch = self._without_aborted(batch, error)
                except EngineError as error:
                    self._undo(batch)
                    for job in batch:
                        job.error = error if len(batch) == 1 else DecodeError(str(error))
                    return
                else:
                    for job, mine in zip(batch, rows, strict=True):
                        job.rows = mine.copy()  # the next batch, of others, overwrites the view
                    break
        self.n_batches += 1
        self.n_mixed += len(batch) > 1
        self._last_s = time.perf_counter() - begun

    def _without_aborted(self, batch: list[_Job], error: AbortedError) -> list[_Job]:
        self._undo(batch)
        with self._changed:
            stopped = [job for job in batch if job.chunk.seq in self._aborted]
            self.context.resume()
            rest = self._running = [job for job in batch if job not in stopped and job.error is None]
        for job in stopped:
            job.error = error
        return rest

    def _undo(self, batch: list[_Job]) -> None:
        """The cells of a failed batch are undefined: back to what each sequence held before it. Who has to do with a
        sequence that cannot go back learns it from the error and brings it back itself (engine/kv_cache.py).
        """
        for job in batch:
            if not self.context.truncate(job.chunk.n_past, seq=job.chunk.seq):
                job.error = DecodeError("the cells of a failed batch cannot be dropped")


class SequenceContext:
    """One sequence of a mixer, with the interface of a context. Whatever `seq` is asked for, it is this one."""

    def __init__(self, mixer: Mixer, seq: int) -> None:
        self.params = mixer.params
        self.n_ctx = mixer.params.n_ctx
        self.max_rows = min(mixer.params.max_rows, mixer.params.n_batch)
        # With others, half a batch at most, so that a long prompt leaves room for those who answer.
        self.n_batch = max(self.max_rows, mixer.context.n_batch // min(2, mixer.n_seq))
        self.n_vocab = mixer.context.n_vocab
        self.n_embd = mixer.context.n_embd
        self.can_truncate = mixer.context.can_truncate
        # A batch of two sequences may move the state copies of a third (native/undo.py).
        self.n_rollback = mixer.context.n_rollback if mixer.n_seq <= 2 else 0
        self._mixer = mixer
        self._seq = seq

    def decode(self, tokens: Sequence[int], n_past: int, n_rows: int = 1, *, seq: int = 0) -> Logits:
        """As Context.decode; the rows are a copy."""
        del seq
        if not 0 < len(tokens) <= self.n_batch:
            raise DecodeError(f"a batch of {len(tokens)} tokens; it must hold 1 to n_batch = {self.n_batch}")
        if not 0 <= n_rows <= min(len(tokens), self.max_rows):
            raise DecodeError(f"{n_rows} logits rows from {len(tokens)} tokens; at most {self.max_rows} here")
        if n_past + len(tokens) > self.n_ctx:
            raise ContextFullError(f"{n_past} + {len(tokens)} tokens do not fit a context of {self.n_ctx}; raise --ctx")
        return self._mixer.decode(Chunk(tokens, n_past, n_rows, self._seq))

    def company(self) -> int:
        """How many other sequences share the batches just now."""
        return self._mixer.company(self._seq)

    def decode_mixed(self, chunks: Sequence[Chunk]) -> list[Logits]:
        """One chunk after the other: a sequence has nobody to mix with."""
        return [self.decode(chunk.tokens, chunk.n_past, chunk.n_rows) for chunk in chunks]

    def truncate(self, n: int, *, seq: int = 0) -> bool:
        """Keeps the first n positions."""
        del seq
        return self._mixer.alone(lambda context: context.truncate(n, seq=self._seq))

    def save_partial(self, *, seq: int = 0, into: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The part that cannot be truncated, as bytes."""
        del seq
        return self._mixer.save_partial(self._seq, into)

    def load_partial(self, data: NDArray[np.uint8], n: int, *, seq: int = 0) -> bool:
        """Back to what `save_partial` gave."""
        del seq
        return self._mixer.alone(lambda context: context.load_partial(data, n, seq=self._seq))

    def keep_hidden(self) -> bool:
        """Not in batches of several sequences."""
        return False

    def decode_hidden(self, tokens: Sequence[int], hidden: NDArray[np.float32], n_past: int) -> Logits:
        """Not in batches of several sequences."""
        del tokens, hidden, n_past
        raise DecodeError("there are no next-token layers here")

    def hidden(self, n: int) -> NDArray[np.float32]:
        """None."""
        return np.zeros((n, 0), dtype=np.float32)

    def used(self, *, seq: int = 0) -> int:
        """Positions held."""
        del seq
        return self._mixer.context.used(seq=self._seq)

    def clear(self, *, seq: int = 0) -> None:
        """Forgets the sequence."""
        del seq
        self._mixer.clear(self._seq)

    def save_state(self, *, seq: int = 0) -> NDArray[np.uint8]:
        """The cells as bytes."""
        del seq
        return self._mixer.save_state(self._seq)

    def load_state(self, data: NDArray[np.uint8], *, seq: int = 0) -> bool:
        """Replaces the cells; False when the bytes do not fit."""
        del seq
        return self._mixer.alone(lambda context: context.load_state(data, seq=self._seq))

    def copy_state_from(self, other: SequenceContext, *, seq: int = 0) -> bool:
        """Takes over the same sequence of a sibling's mixer."""
        ours, theirs = self.params, other.params
        if (ours.type_k, ours.type_v) != (theirs.type_k, theirs.type_v) or self.n_vocab != other.n_vocab:
            return False
        return self.load_state(other.save_state(seq=seq), seq=seq)

    def abort(self) -> None:
        """Stops this sequence; later decodes fail too until `resume`."""
        self._mixer.abort(self._seq)

    def resume(self) -> None:
        """Clears an abort."""
        self._mixer.resume(self._seq)

    def close(self) -> None:
        """Forgets the sequence; the context belongs to all."""
        self.clear()


class SharedModels:
    """Models loaded once for n_seq users, who each see a model of their own: `view(name, user)`.

    When the last view of a model is closed, its contexts and weights are freed.

    User n_seq, one more, shares weights and nothing else: its contexts hold one sequence, as if nobody else were here.
    """

    def __init__(self, loader: Callable[[str], Model], n_seq: int) -> None:
        self._loader = loader
        self.n_seq = n_seq
        self._lock = threading.Lock()
        self._engine = Turns()
        self._models: dict[str, Model] = {}
        self._mixers: dict[tuple[str, int, bool], Mixer] = {}
        self._views: dict[str, set[int]] = {}

    def view(self, name: str, user: int) -> ModelView:
        """The model for one user, loaded if nobody did. Raises ModelLoadError."""
        with self._lock:
            if name not in self._models:
                self._models[name] = self._loader(name)
            self._views.setdefault(name, set()).add(user)
            return ModelView(self, name, self._models[name], user)

    def sequence(self, name: str, index: int, params: ContextParams, user: int) -> SequenceContext:
        """A user's sequence of context number `index` of a model, made by the first who asks. Raises ContextError."""
        is_alone = user == self.n_seq
        with self._lock:
            mixer = self._mixers.get((name, index, is_alone))
            if mixer is None:
                mixer = self._mixer(name, params, 1 if is_alone else self.n_seq)
                self._mixers[name, index, is_alone] = mixer
            return SequenceContext(mixer, 0 if is_alone else user)

    def release(self, name: str, user: int) -> None:
        """A user's view is closed, its contexts before it; the last one frees the model."""
        with self._lock:
            users = self._views.get(name, set())
            users.discard(user)
            if users or name not in self._models:
                return
            for key in [key for key in self._mixers if key[0] == name]:
                self._mixers.pop(key).context.close()
            self._models.pop(name).close()

    def mixers(self) -> tuple[Mixer, ...]:
        """All shared contexts."""
        return tuple(self._mixers.values())

    def close(self) -> None:
        """Frees contexts, then weights; twice is fine."""
        with self._lock:
            for mixer in self._mixers.values():
                mixer.context.close()
            for model in self._models.values():
                model.close()
            self._mixers.clear()
            self._models.clear()

    def _mixer(self, name: str, params: ContextParams, n_seq: int) -> Mixer:
        max_rows = min(params.max_rows * n_seq, params.n_batch)
        whole = replace(params, n_ctx=params.n_ctx * n_seq, n_seq=n_seq, max_rows=max_rows)
        return Mixer(self._models[name].context(whole), params, n_seq, self._engine)


class ModelView:
    """A shared model as one user sees it; each context it makes is this user's sequence of a shared one."""

    def __init__(self, models: SharedModels, name: str, model: Model, user: int) -> None:
        self.n_ctx_train = model.n_ctx_train
        self.chat_template = model.chat_template
        self.tool_template = model.tool_template
        self.can_truncate = model.can_truncate
        self._models, self._name, self._model, self._user = models, name, model, user
        self._n_contexts = 0

    @property
    def vocab(self) -> Vocab:
        """The vocabulary."""
        return self._model.vocab

    def context(self, params: ContextParams) -> SequenceContext:
        """This user's sequence of the model's next shared context. Raises ContextError."""
        self._n_contexts += 1
        return self._models.sequence(self._name, self._n_contexts - 1, params, self._user)

    def close(self) -> None:
        """Gives this user's view up; the weights belong to all."""
        self._models.release(self._name, self._user)
