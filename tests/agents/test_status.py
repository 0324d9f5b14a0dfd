"""The rows of a table as an agent tells them over HTTP: whose, how many, and made ready where."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import msgspec
import pyarrow as pa
import pytest

from agents import status
from agents.driver import Driver
from agents.status import ROWS_AT_ONCE, ROWS_MAX, Status
from elf.batch import encode
from elf.client.values import plain
from elf.errors import UserError
from elf.job.output import OutputSpec
from elf.wire.clients import Execute, Reply


def table_of(creator: str) -> OutputSpec:
    return OutputSpec("seen", creator, 1, "job", "table:", options=(("key", "ip"),))


class Asked:
    """In the place of a client inside the agent: answers with so many rows, in two portions."""

    rows = 3

    def __init__(self, driver: Driver, who: object, creator: str) -> None:
        self.creator = creator

    async def anywhere(self, asked: Execute) -> AsyncIterator[Reply]:
        first = pa.table({"ip": [asked.creator] * (self.rows - 1)})
        yield Reply(request=1, payload=encode(first), done=False)
        body = msgspec.json.encode({"number": 7, "as_of": None})
        yield Reply(request=1, payload=encode(first.slice(0, 1)), body=body)


def facts(monkeypatch: pytest.MonkeyPatch, *creators: str, rows: int = 3) -> Status:
    monkeypatch.setattr(Asked, "rows", rows)
    monkeypatch.setattr(status, "Inside", Asked)
    log = SimpleNamespace(outputs=lambda: [table_of(one) for one in creators])
    return Status(cast(Driver, SimpleNamespace(node=SimpleNamespace(log=log))))


async def test_a_table_is_that_of_who_is_named_where_several_have_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = await facts(monkeypatch, "ann").rows("seen", [("ip", "a")], anywhere=False)
    assert told == {"rows": [{"ip": "ann"}] * 3, "number": 7, "as_of": None}
    both = facts(monkeypatch, "bob", "ann", "ann")
    for creator in ("", "eve"):
        with pytest.raises(UserError, match="there are tables seen of ann, bob: creator=… says whose"):
            await both.rows("seen", [("ip", "a")], anywhere=False, creator=creator)
    told = await both.rows("seen", [("ip", "a")], anywhere=False, creator="ann")
    assert told is not None
    assert told["rows"] == [{"ip": "ann"}] * 3
    assert await both.rows("none", [("ip", "a")], anywhere=False) is None


async def test_many_rows_are_made_ready_on_a_thread_and_too_many_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = set[str]()

    def noted(value: object) -> object:
        threads.add(threading.current_thread().name)
        return plain(value)

    monkeypatch.setattr(status, "plain", noted)
    here = threading.current_thread().name
    for rows, on_loop in ((ROWS_AT_ONCE, True), (ROWS_MAX, False)):
        threads.clear()
        told = await facts(monkeypatch, "ann", rows=rows).rows("seen", [("ip", "a")], anywhere=False)
        assert told is not None
        assert len(cast(list[object], told["rows"])) == rows
        assert (threads == {here}) is on_loop
        assert (here in threads) is on_loop
    with pytest.raises(UserError, match="10,001 rows have this key, and 10,000 is the most here"):
        await facts(monkeypatch, "ann", rows=ROWS_MAX + 1).rows("seen", [("ip", "a")], anywhere=False)
