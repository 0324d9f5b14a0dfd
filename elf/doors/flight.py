"""The server of the door: Flight's calls, on its own threads, answered on the loop of the client.

A statement is performed when its ``FlightInfo`` is asked for, which has the schema. Its table waits for the
ticket; it is fetched once, within ``KEPT_SECS``. A prepared statement is its own text, so nothing is kept of
it.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as TooLong
from typing import Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from elf.doors.answers import KINDS, Answers
from elf.doors.messages import packed, unpacked
from elf.errors import ElfError, UserError

AT_ONCE: Final = 4
"""Statements that are being answered."""
ANSWER_SECS: Final = 600.0
KEPT_SECS: Final = 60.0
"""So long a result waits for whoever asked."""
KEPT_BYTES_MAX: Final = 256 << 20
"""Of all results that wait."""
_BEARER: Final = "Bearer "
_HOW: Final = "show the token that elf flight has printed: authorization: Bearer …"
_CATALOGS: Final = pa.schema([pa.field("catalog_name", pa.string(), nullable=False)])
_SCHEMAS: Final = pa.schema(
    [("catalog_name", pa.string()), pa.field("db_schema_name", pa.string(), nullable=False)]
)
_TYPES: Final = pa.schema([pa.field("table_type", pa.string(), nullable=False)])


class _Admitting(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in who shows the token."""

    def __init__(self, token: str) -> None:
        self._shown = f"{_BEARER}{token}".encode()

    def start_call(self, info: object, headers: dict[str, list[str]]) -> None:
        """Before each call."""
        shown = headers.get("authorization", [])
        if len(shown) != 1 or not hmac.compare_digest(str(shown[0]).encode(), self._shown):
            raise fl.FlightUnauthenticatedError(_HOW)


class Kept:
    """Results that wait for whoever asked, by ticket; on any thread."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._tables: OrderedDict[bytes, tuple[pa.Table, float]] = OrderedDict()

    def put(self, table: pa.Table, now: float) -> bytes:
        """The ticket of a result. The oldest that nobody has fetched make room. Raises ``UserError``."""
        if table.nbytes > self._bytes_max:
            raise UserError(
                f"the result has {table.nbytes >> 20:,} MiB, more than the {self._bytes_max >> 20:,} that "
                "this door takes: ask for fewer rows, or write them to a file (elf offline export)"
            )
        ticket = secrets.token_bytes(16)
        with self._lock:
            self._tables[ticket] = table, now
            while (
                sum(one.nbytes for one, _ in self._tables.values()) > self._bytes_max
                or next(iter(self._tables.values()))[1] < now - KEPT_SECS
            ):
                self._tables.popitem(last=False)
        return ticket

    def take(self, ticket: bytes) -> pa.Table | None:
        """The result of a ticket, once."""
        with self._lock:
            found = self._tables.pop(ticket, None)
        return None if found is None else found[0]


class Server(fl.FlightServerBase):  # type: ignore[misc]
    """``loop``: that of ``answers``. ``serve`` blocks the thread that calls it."""

    def __init__(self, place: str, token: str, answers: Answers, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(f"grpc://{place}", middleware={"token": _Admitting(token)})
        self._answers = answers
        self._loop = loop
        self._kept = Kept()
        self._room = threading.BoundedSemaphore(AT_ONCE)

    # -- what Flight asks ------------------------------------------------------------------------------------

    def get_flight_info(self, _context: object, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        """Perform a statement, or list what there is."""
        name, message = _read(descriptor.command)
        match name:
            case "CommandStatementQuery":
                table = self._answered(self._answers.table(message.query))
            case "CommandPreparedStatementQuery":
                table = self._answered(self._answers.table(_text(message.prepared_statement_handle)))
            case "CommandGetTables":
                table = self._answered(
                    self._answers.tables(
                        message.table_name_filter_pattern,
                        message.db_schema_filter_pattern,
                        tuple(message.table_types),
                        columns=message.include_schema,
                    )
                )
            case "CommandGetCatalogs":
                table = _CATALOGS.empty_table()
            case "CommandGetDbSchemas":
                table = pa.Table.from_arrays(
                    [pa.nulls(len(KINDS), pa.string()), pa.array(KINDS)], schema=_SCHEMAS
                )
            case "CommandGetTableTypes":
                table = pa.Table.from_arrays([pa.array(KINDS.values())], schema=_TYPES)
            case _:
                raise NotImplementedError(f"this door does not know {name or 'this request'}")
        try:
            ticket = self._kept.put(table, time.monotonic())
        except UserError as error:
            raise pa.ArrowInvalid(str(error)) from None
        endpoint = fl.FlightEndpoint(fl.Ticket(ticket), [])
        return fl.FlightInfo(table.schema, descriptor, [endpoint], table.num_rows, table.nbytes)

    def do_get(self, _context: object, ticket: fl.Ticket) -> fl.FlightDataStream:
        """The rows of a result."""
        table = self._kept.take(ticket.ticket)
        if table is None:
            raise KeyError(f"this result is gone: it is fetched once, within {KEPT_SECS:.0f} s; ask again")
        return fl.RecordBatchStream(table)

    def do_action(self, _context: object, action: fl.Action) -> Iterator[bytes]:
        """Prepare a statement, which is read and not performed, and forget it."""
        if action.type == "ClosePreparedStatement":
            return iter(())
        if action.type != "CreatePreparedStatement":
            raise NotImplementedError(f"this door does not know {action.type}")
        name, message = _read(action.body.to_pybytes())
        if name != "ActionCreatePreparedStatementRequest":
            raise pa.ArrowInvalid(f"a statement is wanted to prepare, not {name or 'nothing'}")
        handle = message.query.encode()
        return iter([packed("ActionCreatePreparedStatementResult", prepared_statement_handle=handle)])

    def list_actions(self, _context: object) -> list[tuple[str, str]]:
        """See ``do_action``."""
        return [
            ("CreatePreparedStatement", "A statement that is performed later."),
            ("ClosePreparedStatement", "It is not performed any more."),
        ]

    # -- and how it is answered ------------------------------------------------------------------------------

    def _answered(self, work: Coroutine[Any, Any, pa.Table]) -> pa.Table:
        if not self._room.acquire(blocking=False):
            work.close()
            raise fl.FlightUnavailableError(f"{AT_ONCE} statements are being answered; try again in a moment")
        try:
            asked = asyncio.run_coroutine_threadsafe(work, self._loop)
            try:
                return asked.result(ANSWER_SECS)
            except TooLong:
                asked.cancel()
                raise fl.FlightTimedOutError(f"no answer within {ANSWER_SECS:.0f} s") from None
            except CancelledError:
                raise fl.FlightUnavailableError("the door is being closed") from None
        except UserError as error:
            raise pa.ArrowInvalid(str(error)) from None
        except ElfError as error:
            raise fl.FlightUnavailableError(str(error)) from None
        finally:
            self._room.release()


def _read(data: bytes | None) -> tuple[str, Any]:
    try:
        return unpacked(data or b"")
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from None


def _text(handle: bytes) -> str:
    try:
        return handle.decode()
    except UnicodeDecodeError:
        raise pa.ArrowInvalid("no statement was prepared under this handle") from None
