"""The rows that panes have counted, out of an archive: shipped or not, masked, deleted, or never known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from agents.disk.store import Store
from agents.formats import get_format
from agents.inputs.values import Chunk, Source
from agents.tasks.archive import Archive
from agents.tasks.archived import Archived
from agents.tasks.masking import lines_of
from agents.tasks.sinks import Sinks
from agents.tasks.streamtask import StreamTask, TaskStatus
from agents.tasks.tracing import Masks
from elf.batch import decode
from elf.errors import UserError
from elf.job.commands import Finish, Install
from elf.job.messages.inquiries import TracedRows, TraceRows
from elf.job.spec import Flow, JobSpec, flow_uid
from elf.job.worker.stream import WorkerSettings
from lab.bench.measure import plan_of
from lab.chaos.engine import spec_of

JSON = get_format("json")
FIRST_US = 1_767_225_600_000_000
MINUTE_US = 60_000_000
PAGES = ("/", "/cart", "/help")
Line = tuple[float, str, int]
"""Seconds since ``FIRST_US``, page and milliseconds."""


def line_of(at: float, page: str, ms: int) -> str:
    minute, second = divmod(at, 60)
    return json.dumps({"ts": f"2026-01-01T00:{int(minute):02d}:{second:06.3f}Z", "page": page, "ms": ms})


SCHEMA = JSON.schema(pa.array([line_of(0, "/", 1)]), None)


class Agent:
    """A stream task with an archive and one flow; its data folder outlives it."""

    def __init__(self, folder: Path, sql: str) -> None:
        plan = plan_of(sql, SCHEMA)
        each = enumerate(plan.fragments)
        self.flows = [Flow(flow_uid(one, f"f{n}"), one, bytes(16), "") for n, one in each]
        self.spec: JobSpec = spec_of("busy", "me", 1, plan, tuple(self.flows))
        self._folder, self._masks = folder, Masks()
        self._at: dict[str, int] = {}
        self.start()

    def start(self) -> None:
        rolls, target = self._folder / "rolls", str(self._folder / "archive")
        facts = {"format": "json", "timestamp": "", "mask": self._masks.fact}
        archive = Archive(
            rolls, target, stream="s", agent="a", roll_secs=1e6, roll_bytes=1 << 30, facts=facts
        )
        self.store = Store(self._folder / "store")
        self.task = StreamTask(
            TaskStatus("s", JSON, "ts", target),
            WorkerSettings(future_us=None, lateness_us=1_000_000, checkpoint_ms=1 << 40, traces=True),
            self.store,
            sinks=Sinks(archive),
            archived=Archived(rolls, target, "s", "a"),
            masks=self._masks,
        )
        for flow in self.flows:
            self.task.perform(Install(flow), 0)

    def kill(self) -> None:
        """What is not in the last checkpoint is gone; the next one reads it again."""
        self.task.close(checkpoint=False)
        self.store.close()
        self.start()
        self._at = {source.id: source.end for source in self.task.worker.checkpoint().sources}

    def durable(self, lines: Sequence[Line], source: str = "log") -> int:
        """How many of the lines of a log it need not read again."""
        ends = np.cumsum([len(line_of(*one)) + 1 for one in lines])
        return int(np.count_nonzero(ends <= self._at.get(source, 0)))

    def feed(self, lines: Sequence[Line], source: str = "log") -> None:
        texts = [line_of(*one) for one in lines]
        start = self._at.get(source, 0)
        sizes = np.array([len(text) + 1 for text in texts], np.int64)
        offsets = start + np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        self._at[source] = start + int(sizes.sum())
        chunk = Chunk(
            Source(source, f"/{source}"), start, self._at[source], pa.array(texts), offsets, (), at_end=True
        )
        self.task.feed(chunk, (), 0)

    def asked(
        self, minute: int, where: str = "", parts: Sequence[int] = (), *, limit: int = 100, flow: int = 0
    ) -> TracedRows:
        pane_us = self.flows[0].fragment.pane_us
        pane = (FIRST_US + minute * MINUTE_US) // pane_us
        request = TraceRows(
            id=0,
            origin="",
            stream="s",
            spec=self.spec,
            flow=self.flows[flow].uid,
            spans=((pane, pane + MINUTE_US // pane_us),) if not parts else (),
            parts=tuple((pane, part) for part in parts),
            columns=SCHEMA.columns if where else (),
            where=where,
            rows_max=limit,
            bytes_max=1 << 20,
        )
        return msgspec.msgpack.decode(self.task.row_sample(request, 0), type=TracedRows)


def lines_in(traced: TracedRows) -> list[str]:
    return decode(traced.rows)["_line"].to_pylist() if traced.rows else []


COUNT = "SELECT page, COUNT(*) AS n FROM s WHERE ms < 50 GROUP BY page WINDOWING 1 MINUTES"
DAY: list[Line] = [(7.0 * n, PAGES[n % 3], n % 60) for n in range(60)]
"""Seven minutes of lines, in order."""


def wanted(minute: int, page: str = "") -> list[str]:
    return [line_of(at, p, ms) for at, p, ms in DAY if at // 60 == minute and ms < 50 and page in ("", p)]


def test_rows_are_found_in_rolls_and_in_files_and_after_a_kill(tmp_path: Path) -> None:
    agent = Agent(tmp_path, COUNT)
    agent.feed(DAY[:20])
    agent.task.roll_archive()
    agent.feed(DAY[20:35])
    agent.feed(DAY[35:40])
    agent.kill()
    agent.feed(DAY[agent.durable(DAY) :])
    for minute in range(6):
        traced = agent.asked(minute)
        assert lines_in(traced) == wanted(minute), minute
        assert traced.why == ()
        assert traced.counted == traced.found == sum(at // 60 == minute for at, _, _ in DAY)
        assert traced.matched == len(wanted(minute))
        assert lines_in(agent.asked(minute, "page = '/cart'")) == wanted(minute, "/cart")
    few = agent.asked(0, limit=2)
    assert (lines_in(few), few.matched) == (wanted(0)[:2], len(wanted(0)))


def test_late_rows_are_there_with_their_part_and_others_are_not(tmp_path: Path) -> None:
    agent = Agent(tmp_path, f"{COUNT} EMIT FINAL REVISE 2 MINUTES")
    agent.feed([(1, "/", 1), (100, "/", 2)])
    agent.feed([(30, "/cart", 3), (130, "/", 4)])  # within the bound: a part
    agent.feed([(400, "/", 5)])
    agent.feed([(40, "/help", 6)])  # later than that: late, and counted as such alone
    agent.task.perform(Finish(), 0)
    assert lines_in(agent.asked(0)) == [line_of(1, "/", 1)]
    parts = {one.part for one in agent.store.traced(agent.flows[0].uid, -(1 << 62), 1 << 62)} - {0}
    assert parts == {1}
    assert lines_in(agent.asked(0, parts=[1])) == [line_of(30, "/cart", 3)]
    unknown = agent.asked(0, parts=[99])
    assert lines_in(unknown) == []
    assert "does not know" in unknown.why[0]


def test_what_is_gone_or_was_never_known_is_said(tmp_path: Path) -> None:
    agent = Agent(tmp_path, COUNT)
    agent.feed(DAY)
    agent.task.roll_archive()
    (path,) = (tmp_path / "archive").rglob("*.parquet")
    whole = path.read_bytes()
    path.unlink()
    gone = agent.asked(1)
    assert (gone.counted, gone.found, lines_in(gone)) == (9, 0, [])
    assert any("9 of the 9 rows that it has counted are not in its archive" in why for why in gone.why)
    path.write_bytes(whole[: len(whole) // 2])
    assert any(
        "its archive cannot be read" in why or "not in its archive" in why for why in agent.asked(1).why
    )
    path.write_bytes(whole)
    assert agent.asked(1).why == ()
    never = agent.asked(500_000)
    assert (never.counted, "does not know" in never.why[0]) == (0, True)


def test_each_key_range_has_its_own_rows(tmp_path: Path) -> None:
    agent = Agent(tmp_path, f"{COUNT} TREES 2")
    agent.feed(DAY)
    both = [agent.asked(2, flow=place) for place in (0, 1)]
    assert sorted(line for one in both for line in lines_in(one)) == sorted(wanted(2))
    assert all(one.counted == one.found for one in both)


def test_lines_are_masked_before_anything_is_chosen_by_them(tmp_path: Path) -> None:
    agent = Agent(tmp_path, COUNT)
    agent.feed(DAY)
    mask = {"page": "hash"}
    agent._masks = Masks(json.dumps(mask), lambda: lines_of(JSON, mask, bytes(32)))
    agent.task.close(checkpoint=True)
    agent.store.close()
    agent.start()
    shown = agent.asked(0)
    assert len(lines_in(shown)) == len(wanted(0))
    assert not any(json.loads(line)["page"] in PAGES for line in lines_in(shown))
    assert agent.asked(0, "page = '/cart'").matched == 0
    assert shown.why == ()


def test_who_archives_nothing_says_so(tmp_path: Path) -> None:
    agent = Agent(tmp_path, COUNT)
    agent.task._tracing = None
    with pytest.raises(UserError, match="its archive is off"):
        agent.asked(0)
