"""Inside a sandbox: takes calls one at a time, runs the user's code, says what came of it.

What the user's code raises goes back as one line with the line of the user's own file; running out of memory
is told as such, since the agent then starts afresh. Nothing here is a wall: the walls are around this process
(``elf.functions.confinement``).
"""

from __future__ import annotations

import io
import os
import socket
import sys
from collections.abc import Callable

import msgspec
import pyarrow as pa
import pyarrow.acero  # with it groups are made: not by each process anew

from elf.functions import wire
from elf.functions.aggregate import aggregate_of
from elf.job.program.calls import LASTING, JobEffect, Keep
from elf.job.program.runner import JobRunner, UserCodeError, failure_of, load
from elf.ql.own import KIND as AGGREGATE

RowFunction = Callable[[pa.RecordBatch], object]


def main(sock: socket.socket, payload_bytes: int) -> None:
    """Serve until the agent closes its end."""
    sys.stdin = io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    try:
        _Sandbox(wire.Frames(sock, payload_bytes)).serve()
    except (EOFError, OSError):
        os._exit(0)


class _Sandbox:
    def __init__(self, frames: wire.Frames) -> None:
        self._frames = frames
        self._function: RowFunction | None = None
        self._filename = ""
        self._job: JobRunner | None = None
        self._outer: list[JobEffect] | None = None
        """What the callback that waits for a reply has asked for."""
        self._queries = os.getpid() << 20  # no number of an earlier process's
        self._replies: dict[int, wire.Replied] = {}

    def serve(self) -> None:
        while True:
            call, payload = self._frames.take_by_sandbox()
            self._serve(call, payload)

    def _serve(self, call: wire.ToSandbox, payload: bytes) -> None:
        before: list[JobEffect] = []
        try:
            answer, result = self._answer(call, payload, before)
        except (OSError, EOFError) as error:
            if isinstance(error, EOFError) or self._gone():
                raise EOFError from None
            answer, result = self._raised(error), b""
        except BaseException as error:
            answer, result = self._raised(error), b""
        if isinstance(call, wire.CallJob) and isinstance(answer, wire.Acted | wire.Raised):
            answer, result = self._acted(call, answer, before)
        self._frames.send(answer, result)

    def _acted(
        self, call: wire.CallJob, answer: wire.Acted | wire.Raised, before: list[JobEffect]
    ) -> tuple[wire.FromSandbox, bytes]:
        """The answer with the effects of the call, and with the state behind those that wait for it. Within a
        callback that waits there is no such state: it has these effects beside its own."""
        if self._outer is not None:
            self._outer += [effect for effect in before if isinstance(effect, LASTING)]
            now = tuple(effect for effect in before if not isinstance(effect, LASTING))
            return msgspec.structs.replace(answer, effects=now), b""
        wanted = isinstance(call.event, Keep) or any(isinstance(effect, LASTING) for effect in before)
        if not wanted or self._job is None:
            return msgspec.structs.replace(answer, effects=tuple(before)), b""
        try:
            state = self._job.state()
        except BaseException as error:
            raised = self._raised(error)
            kind = "state" if raised.kind == "raised" else raised.kind
            return msgspec.structs.replace(raised, kind=kind), b""
        return msgspec.structs.replace(answer, effects=tuple(before), kept=True), state

    def _gone(self) -> bool:
        """Whether the agent has closed its end: an OSError of the user's own is another matter."""
        try:
            return not self._frames.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _raised(self, error: BaseException) -> wire.Raised:
        failure = failure_of(error, self._filename)
        return wire.Raised(failure.kind, failure.text, failure.line, failure.source)

    def _answer(
        self, call: wire.ToSandbox, payload: bytes, before: list[JobEffect]
    ) -> tuple[wire.FromSandbox, bytes]:
        match call:
            case wire.LoadFunction():
                self._filename = call.filename
                self._function = code_of(call.text, call.kind, call.filename)
                return wire.Done(), b""
            case wire.CallFunction():
                return wire.Done(), self._call(call, payload)
            case wire.LoadJob():
                self._filename = call.filename
                self._job = JobRunner(
                    call.text, call.filename, call.name, call.creator, self._ask, call.taps, call.trees
                )
                return wire.Ready(self._job.start(call.place, payload)), b""
            case wire.CallJob() if self._job is not None:
                self._job.handle(call.event, call.place, payload, before)
                return wire.Acted(()), b""
        raise UserCodeError(f"{type(call).__name__} before anything is loaded")

    def _call(self, call: wire.CallFunction, payload: bytes) -> bytes:
        if self._function is None:
            raise UserCodeError("no function is loaded")
        result = batch_of(self._function(wire.from_bytes(payload, sys.maxsize)))
        if result.num_rows > call.rows_max:
            raise UserCodeError(f"it returns {result.num_rows} rows; at most {call.rows_max} are taken")
        if result.nbytes > call.bytes_max:
            raise UserCodeError(f"it returns {result.nbytes} bytes; at most {call.bytes_max} are taken")
        return wire.to_bytes(result)

    def _ask(
        self, app: bytes, name: str, value: bytes, path: tuple[str, ...], timeout_ms: int
    ) -> tuple[bytes, str]:
        """A query: the callback waits here, and only other jobs' messages are delivered meanwhile."""
        self._queries += 1
        number = self._queries
        self._frames.send(wire.Asks(number, app, name, value, path, timeout_ms))
        outer = self._outer
        beside = self._outer = [] if outer is None else outer
        try:
            while number not in self._replies:
                call, payload = self._frames.take_by_sandbox()
                if isinstance(call, wire.Replied):
                    self._replies[call.number] = call
                else:
                    self._serve(call, payload)
        finally:
            self._outer = outer
        if outer is None and self._job is not None:
            self._job.asked_beside(beside)
        reply = self._replies.pop(number)
        return reply.value, reply.error


def code_of(text: str, kind: str, filename: str) -> RowFunction:
    """What a text has to call: a function of this kind, or an aggregate. Raises ``UserCodeError``, and what
    the text raises."""
    names = load(text, filename)
    return aggregate_of(names, text, filename) if kind == AGGREGATE else function_of(names, kind, filename)


def function_of(names: dict[str, object], kind: str, filename: str) -> RowFunction:
    found = names.get(kind)
    if not callable(found):
        raise UserCodeError(f"{filename} has no function {kind}(batch)")
    return found


def batch_of(result: object) -> pa.RecordBatch:
    """What a function returned, as a batch."""
    if isinstance(result, pa.RecordBatch):
        return result
    if isinstance(result, pa.Table):
        return wire.one_batch(result)
    raise UserCodeError(f"it returns {type(result).__name__}, not a pyarrow.RecordBatch or Table")
