"""Traces of panes: what a real fleet tells a collector, as OpenTelemetry's own types read it."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from elf.client import Client
from elf.errors import ElfError
from tests.support.fleet import Fleet
from tests.support.receiver import serving
from tests.support.waiting import eventually
from tests.support.watching import CREATE, connected, create, watched


async def test_each_step_of_a_pane_is_a_span_of_one_trace(tmp_path: Path) -> None:
    with serving() as collector:
        fleet = Fleet(tmp_path, 3)
        for agent in fleet.agents:
            agent.more = {"traces": {"target": collector.url, "one_in": 1}}
        try:
            fleet.start()
            client = await connected(fleet, 0)
            fleet.begin_writing()
            await create(client)
            async with watched(client, "popular") as windows:
                await eventually(lambda: len(windows) >= 2, "windows")
                told = await eventually(lambda: _latency(client), "stamped panes")
                await _promised(await connected(fleet, 1))
            pane = await eventually(lambda: _whole([body for _, body in collector.requests]), "a trace")
            fleet.end_writing()
            await client.close()
            assert not any(agent.metric("spans_dropped_total") for agent in fleet.agents)
        finally:
            fleet.stop()
    assert told is not None
    assert (told["asked"], told["silent"], told["windows"], told["lateness_s"]) == (3, [], True, 0.5)
    phases = {name: one["mean_ms"] for name, one in told["phases"].items()}
    assert abs(sum(phases.values()) - told["total"]["mean_ms"]) < 0.1
    assert all(phases[name] > 0 for name in ("wait", "seal", "tree", "draft", "commit"))
    assert pane is not None
    (root,) = (span for span, _ in pane if span.name == "pane")
    assert not root.parent_span_id
    steps: defaultdict[str, list[str]] = defaultdict(list)
    for span, name in pane:
        steps[span.name].append(name)
        assert span.start_time_unix_nano <= span.end_time_unix_nano <= time.time_ns()
        assert span is root or span.parent_span_id == root.span_id
    assert sorted(steps["seal"]) == sorted(agent.name for agent in fleet.agents)
    assert steps["gather"] == steps["draft"] == steps["commit"] == steps["pane"]
    (gathered,) = (span for span, _ in pane if span.name == "gather")
    slices = {event.name for event in gathered.events}
    slices |= {event.name for span, _ in pane if span.name == "combine" for event in span.events}
    assert len(slices) == 2, "the root's own needs no message"
    windows_of = [span for span, _ in pane if span.name == "window"]
    assert [one.value.string_value for span in windows_of for one in span.attributes] == [
        "popular",
        *steps["pane"],
    ]
    assert len({span.span_id for span, _ in pane}) == len(pane)


async def _promised(client: Client) -> None:
    """WITHIN: what cannot be kept is refused with what can; what can is created, and its windows tell."""
    query = f"{CREATE.partition(' AS ')[2]} LATENESS 500 MILLISECONDS"
    with pytest.raises(
        ElfError, match=r"WITHIN 1 MILLISECONDS ON AVERAGE cannot be kept: .* Say WITHIN \d+ MILL"
    ):
        await client.sql(f"CREATE JOB soon AS {query} WITHIN 1 MILLISECOND ON AVERAGE")
    asked = f"{query} WITHIN 1 MILLISECOND ON AVERAGE BEST EFFORT"
    explained = await client.sql(f"EXPLAIN {asked}")
    assert "not kept: by the model" in explained.text
    made = await client.sql(f"CREATE JOB soon AS {asked}")
    assert "counted from a window's end and LATENESS, 0.5 s: by the model it is not kept" in made.text
    async with watched(client, "soon") as windows:
        await eventually(lambda: len(windows) >= 2, "windows")
        statuses = [one.status for one in windows.values() if not one.revision]
        assert all(one["promised_ms"] == 1 for one in statuses)
        late = [one for one in windows.values() if not one.revision and not one.whole]
        assert late
        assert all("after it was due, 1 promised" in one.coverage for one in late)
        jobs = (await client.sql("SHOW JOBS")).table
        assert jobs is not None
        told = {row["job"]: row["promise"] for row in jobs.to_pylist()}
        assert told["popular"] == ""
        assert told["soon"].startswith("WITHIN 1 MILLISECONDS ON AVERAGE BEST EFFORT: too few to tell; 0 of")
        facts = (await client.sql("DESCRIBE soon")).table
        assert facts is not None
        assert any(row["fact"] == "promise" for row in facts.to_pylist())
        await client.sql("DROP JOB soon")


async def _latency(client: Client) -> Any:
    told: Any = (await client.sql("EXPLAIN LATENCY popular")).data
    return told if told["panes"] >= 2 else None


def _whole(bodies: list[bytes]) -> list[tuple[Span, str]] | None:
    """The spans of one trace that has all three agents' and a window, each with the agent that told it."""
    traces: defaultdict[bytes, list[tuple[Span, str]]] = defaultdict(list)
    for body in bodies:
        for told in json_format.Parse(body, ExportTraceServiceRequest()).resource_spans:
            facts = {one.key: one.value.string_value for one in told.resource.attributes}
            for span in told.scope_spans[0].spans:
                traces[span.trace_id].append((span, facts["service.instance.id"]))
    for spans in traces.values():
        names = [span.name for span, _ in spans]
        if names.count("seal") == 3 and "window" in names and "pane" in names and "gather" in names:
            return spans
    return None
