"""What an agent measures about itself, for ``/metrics``: one typed method for each thing that happens.
``agents.exposition`` writes it down.

Rules: the prefix is ``elf_``, units are base units, and what only grows is a counter (``…_total``); labels
are ``stream``, ``reason`` and ``kind`` only, and take a bounded number of values (beyond it: ``other``). A
GROUP BY value, a job's or a file's name is never a label. Methods may be called from any thread.
"""

from __future__ import annotations

import collections
import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from elf.transport.base import Counters

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text format of Prometheus."""
LABEL_VALUES_MAX: Final = 64
OTHER: Final = "other"
CHECKPOINT_SECONDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

Loss = Literal[
    "input_bytes",
    "files_truncated",
    "files_vanished",
    "reads_failed",
    "rejects_not_kept",
    "snapshots_left_out",
    "pieces_unusable",
    "copies_dropped",
    "copies_damaged",
    "slices_of_unknown_flows",
    "multicasts_missed",
    "job_calls",
    "job_messages",
    "audit_records",
]
"""Ways in which data or words are lost, each counted where it happens."""

LeftOut = Literal["late", "future", "unrostered", "shed", "leapt"]
"""Why a row that was parsed is in no result."""


Kind = Literal["counter", "gauge"]
Counts = collections.Counter[str]


class _Bounded:
    """Lets the first values of a label through, and calls all further ones ``other``."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, value: str) -> str:
        if value in self._seen:
            return value
        with self._lock:
            if len(self._seen) < LABEL_VALUES_MAX:
                self._seen.add(value)
                return value
        return OTHER


class Family:
    """One measurement: a number for each combination of values of its labels; without labels one number,
    which is 0 at first."""

    def __init__(self, kind: Kind, name: str, about: str, labels: tuple[str, ...]) -> None:
        self.kind = kind
        self.name = name
        self.about = about
        self.labels = labels
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}
        self._lock = threading.Lock()

    def add(self, more: float = 1, *of: str) -> None:
        with self._lock:
            self._values[of] = self._values.get(of, 0) + more

    def set(self, value: float, *of: str) -> None:
        """Of a counter: what somebody else has counted since the start."""
        with self._lock:
            self._values[of] = value

    def values(self) -> list[tuple[tuple[str, ...], float]]:
        """The values of the labels, in their order, and the number."""
        with self._lock:
            return list(self._values.items())


class Times:
    """How long something took: how often no longer than each of ``CHECKPOINT_SECONDS``, and in all."""

    def __init__(self, name: str, about: str) -> None:
        self.name = name
        self.about = about
        self._counts = [0] * (len(CHECKPOINT_SECONDS) + 1)
        self._seconds = 0.0
        self._lock = threading.Lock()

    def add(self, secs: float) -> None:
        with self._lock:
            self._counts[bisect_left(CHECKPOINT_SECONDS, secs)] += 1
            self._seconds += secs

    def values(self) -> tuple[list[int], float]:
        """How often it took longer than the bound before and not longer than each; the last has no bound."""
        with self._lock:
            return list(self._counts), self._seconds


class Metrics:
    """The measurements of one node."""

    def __init__(self) -> None:
        self._families: list[Family] = []
        self._transports: list[Counters] = []
        self._stream = _Bounded()
        self._reason = _Bounded()
        self._kind = _Bounded()
        self._rows = self._counter("rows", "Rows that were parsed.", "stream")
        self._bytes = self._counter("input_bytes", "Bytes that were read from inputs.", "stream")
        self._rejected = self._counter("rows_rejected", "Lines that did not parse.", "stream", "reason")
        self._received = self._counter(
            "lines_received_bytes", "Bytes of lines that were sent here.", "stream"
        )
        self._receive_refused = self._counter(
            "receive_refused",
            "Messages and connections that a stream's receiver did not take (full: their sender waits).",
            "stream",
            "reason",
        )
        self._left_out = self._counter(
            "rows_left_out", "Parsed rows that are in no result.", "stream", "kind"
        )
        self._uncast = self._counter(
            "values_uncast", "Values that did not fit their column's type.", "stream"
        )
        self._beyond = self._counter("rows_beyond", "Lines with more fields than their format.", "stream")
        self._archive_failed = self._counter(
            "archive_failures", "Times that the archive could not be written to.", "stream"
        )
        self._archive_files = self._gauge("archive_files", "Files in the archive.", "stream")
        self._archive_bytes = self._gauge("archive_bytes", "Bytes of these.", "stream")
        self._archive_gone = self._counter(
            "archive_rows_gone", "Archived rows that archive.days, bytes or free_bytes has deleted.", "stream"
        )
        self._answered = self._counter(
            "rows_answered",
            "Rows in windows since another agent has read them again.",
            "stream",
        )
        self._refused = self._counter("messages_refused", "Messages that could not be used.", "reason")
        self._http_refused = self._counter(
            "http_refused", "Requests that were not answered, and connections that were cut.", "reason"
        )
        self._faulted = self._counter("messages_faulted", "Messages that elf has failed to handle.", "kind")
        self._skipped = self._counter("records_skipped", "Committed records that nobody can use.", "kind")
        self._disbelieved = self._counter(
            "messages_disbelieved", "Messages of agents that may not say so.", "kind"
        )
        self._held_back = self._counter(
            "held_back_seconds", "Time for which inputs waited for what the agent may take.", "stream"
        )
        self._sampled = self._counter(
            "rows_sampled", "Rows that were left out over a budget: others stand for them.", "stream"
        )
        self._budgets_over = self._gauge(
            "budgets_over", "Jobs, creators and the agent itself that have rows left out over a budget."
        )
        self._over_quota = self._counter("over_quota", "Requests refused for a creator's quota.", "reason")
        self._windows = self._counter("windows_committed", "Windows that this node committed as a master.")
        self._promised = self._counter(
            "windows_promised", "Windows of jobs with WITHIN: kept, or broken, as they came too late.", "kind"
        )
        self._delivered = self._counter("outputs_windows", "Windows that outputs of jobs have brought out.")
        self._lost_results = self._counter(
            "outputs_results_lost", "Results that were no longer kept when an output came to them."
        )
        self._deliveries_failed = self._counter("outputs_failures", "Deliveries that something was against.")
        self._waiting = self._gauge("outputs_results_waiting", "Results that outputs here are behind.")
        self._panes = self._counter("panes_committed", "Panes that this node committed as a root.")
        self._broadcasts = self._counter("notices", "Notices of jobs that came to this node.")
        self._map_seconds = self._counter("map_seconds", "Time spent in parsing and mapping.", "stream")
        self._retained = self._gauge("snapshots_retained", "Snapshots that wait for their commit.")
        self._wanting = self._gauge(
            "snapshots_wanting_copies", "Snapshots that wait (long, or for mirrors) on too few neighbours."
        )
        self._copied = self._gauge("snapshots_copied", "Snapshots that wait, and are on neighbours.")
        self._replicas = self._gauge("copies_held", "Copies of other agents' snapshots that are kept here.")
        self._copies_bytes = self._gauge("copies_held_bytes", "Bytes of these.")
        self._copies_sent = self._counter(
            "copies_sent_bytes", "Bytes of copies of this agent's snapshots that were sent since its start."
        )
        self._slices = self._counter(
            "slices_sent_bytes",
            "Bytes of partial aggregates that were sent: within this agent's region, and across its border.",
            "kind",
        )
        self._arrived = self._counter(
            "slices_arrived_bytes",
            "Bytes of partial aggregates that came from agents of other regions.",
            "region",
        )
        self._probes = self._counter(
            "probes_sent_bytes", "Bytes that were sent to find out what links to other regions carry."
        )
        self._mirrored = self._counter(
            "snapshots_mirrored", "Snapshots that roots here have from neighbours of agents that are behind."
        )
        self._rolls = self._gauge(
            "archive_rolls_waiting",
            "Closed rolls that are not in the archive yet; reading waits beyond 32.",
            "stream",
        )
        self._run_again = self._counter(
            "panes_run_again", "Panes of agents that are behind that others have run again for roots here."
        )
        self._not_run_again = self._counter(
            "panes_not_run_again", "How often roots here asked for that and it could not be."
        )
        self._gaps = self._counter("gaps", "Places in logs whose lines are gone unread.", "stream")
        self._gap_bytes = self._counter("gap_bytes", "Bytes in these, as far as it is known.", "stream")
        self._spans_dropped = self._counter("spans_dropped", "Spans of traces that no collector has taken.")
        self._losses = self._counter("losses", "What could not be read, used or kept.", "kind")
        self._members = self._gauge(
            "members_live", "Live nodes of the ring that this node knows, and itself."
        )
        self._jobs = self._gauge("jobs", "Jobs that this node knows.")
        self._flows = self._gauge("flows", "Flows that this node computes, each for any number of jobs.")
        self._log = self._gauge("log_entries", "Entries of the catalog log that this node knows.")
        self._keeps = self._gauge(
            "log_voter", "1 if this node keeps the catalog log, 2 if it leads those that do."
        )
        self._skew = self._gauge(
            "clock_skew_seconds",
            "The most that a clock is off the median of those that this node hears as a root.",
        )
        self.checkpoints = Times("elf_cut_seconds", "Time to make a cut durable.")

    # -- inputs ----------------------------------------------------------------------------------------------

    def rows(self, stream: str, rows: int, nbytes: int) -> None:
        """A chunk of ``rows`` parsed rows, read as ``nbytes`` bytes."""
        label = self._stream(stream)
        self._rows.add(rows, label)
        self._bytes.add(nbytes, label)

    def rejected(self, stream: str, reason: str, lines: int = 1) -> None:
        self._rejected.add(lines, self._stream(stream), self._reason(reason))

    def received(self, stream: str, nbytes: int) -> None:
        """Lines that a receiver has taken."""
        self._received.add(nbytes, self._stream(stream))

    def receive_refused(self, stream: str, reason: str, times: int = 1) -> None:
        """What a receiver did not take."""
        self._receive_refused.add(times, self._stream(stream), self._reason(reason))

    def left_out(self, stream: str, kind: LeftOut, rows: int = 1) -> None:
        self._left_out.add(rows, self._stream(stream), kind)

    def uncast(self, stream: str, values: int = 1) -> None:
        self._uncast.add(values, self._stream(stream))

    def beyond(self, stream: str, lines: int) -> None:
        self._beyond.add(lines, self._stream(stream))

    def archive_failed(self, stream: str) -> None:
        """A roll could not be shipped; it stays, and is tried again."""
        self._archive_failed.add(1, self._stream(stream))

    def rolls_waiting(self, stream: str, rolls: int) -> None:
        self._archive_failed.add(0, self._stream(stream))  # there from the start, with 0
        self._rolls.set(rolls, self._stream(stream))

    def archived(self, stream: str, files: int, nbytes: int, rows_gone: int) -> None:
        """What the archive has of a stream, and what of it is deleted."""
        label = self._stream(stream)
        self._archive_files.set(files, label)
        self._archive_bytes.set(nbytes, label)
        self._archive_gone.set(rows_gone, label)

    def answered(self, stream: str, rows: int) -> None:
        """Rows that another agent has answered for."""
        self._answered.add(rows, self._stream(stream))

    def mapped(self, stream: str, secs: float) -> None:
        """A chunk took so long to parse and map."""
        self._map_seconds.add(secs, self._stream(stream))

    def gap(self, stream: str, size: int) -> None:
        """So many bytes of a log are gone unread."""
        self._gaps.add(1, self._stream(stream))
        self._gap_bytes.add(size, self._stream(stream))

    def lost(self, kind: Loss, count: int) -> None:
        """So much was lost in this way since the start."""
        self._losses.set(count, kind)

    def checkpoint(self, secs: float) -> None:
        """A checkpoint took so long to become durable."""
        self.checkpoints.add(secs)

    # -- the protocol ----------------------------------------------------------------------------------------

    def judged(self, kept: int, broken: int) -> None:
        self._promised.add(kept, "kept")
        self._promised.add(broken, "broken")

    def windows_committed(self, windows: int = 1) -> None:
        self._windows.add(windows)

    def delivered(self, windows: int, lost: int, *, failed: bool) -> None:
        """A delivery of an output has ended."""
        self._delivered.add(windows)
        self._lost_results.add(lost)
        self._deliveries_failed.add(failed)

    def outputs_waiting(self, results: int) -> None:
        self._waiting.set(results)

    def noticed(self) -> None:
        self._broadcasts.add()

    def spans_dropped(self, spans: int) -> None:
        self._spans_dropped.add(spans)

    def panes_committed(self, panes: int = 1) -> None:
        self._panes.add(panes)

    def snapshots_retained(self, snapshots: int) -> None:
        self._retained.set(snapshots)

    def replicas(
        self,
        *,
        wanting: int,
        copied: int,
        held: int,
        held_bytes: int,
        sent_bytes: int,
        mirrored: int,
        run_again: int,
        not_run_again: int,
    ) -> None:
        """Of our snapshots at neighbours, of theirs here, and of those that neighbours sent to roots here."""
        self._wanting.set(wanting)
        self._copied.set(copied)
        self._replicas.set(held)
        self._copies_bytes.set(held_bytes)
        self._copies_sent.set(sent_bytes)
        self._mirrored.set(mirrored)
        self._run_again.set(run_again)
        self._not_run_again.set(not_run_again)

    def slices(self, *, within: int, across: int, arrived: Mapping[str, int]) -> None:
        """Bytes of partial aggregates that were sent since the start; that came, by region."""
        self._slices.set(within, "within")
        self._slices.set(across, "across")
        for region, size in arrived.items():
            self._arrived.set(size, region)

    def probes(self, size: int) -> None:
        """Bytes of probes since the start."""
        self._probes.set(size)

    def members_live(self, members: int) -> None:
        self._members.set(members)

    def jobs(self, jobs: int) -> None:
        self._jobs.set(jobs)

    def flows(self, flows: int) -> None:
        self._flows.set(flows)

    def log(self, entries: int, *, keeps: bool, leads: bool) -> None:
        self._log.set(entries)
        self._keeps.set(2 if leads else 1 if keeps else 0)

    def skew(self, seconds: float) -> None:
        self._skew.set(seconds)

    def refused(self, reason: str) -> None:
        """A message from a peer that the codec did not take (``FrameRefused.reason``)."""
        self._refused.add(1, self._reason(reason))

    def http_refused(self, reason: str) -> None:
        """A request over HTTP that was not answered, or a connection that was cut."""
        self._http_refused.add(1, self._reason(reason))

    def faulted(self, kind: str) -> None:
        """A message was dropped since handling it failed."""
        self._faulted.add(1, self._kind(kind))

    def skipped(self, kind: str) -> None:
        """A committed record was skipped."""
        self._skipped.add(1, self._kind(kind))

    def disbelieved(self, kind: str) -> None:
        """An agent has said what it may not say."""
        self._disbelieved.add(1, self._kind(kind))

    def held_back(self, stream: str, secs: float) -> None:
        """An input waits for so long, as the agent has taken its share of CPU."""
        self._held_back.add(secs, stream)

    def sampled(self, stream: str, rows: int) -> None:
        """Rows of a flow were left out over a budget."""
        self._sampled.add(rows, self._stream(stream))

    def budgets_over(self, count: int) -> None:
        """So many have rows left out over their budgets."""
        self._budgets_over.set(count)

    def over_quota(self, what: str) -> None:
        """A client was refused what is over a quota."""
        self._over_quota.add(1, self._reason(what))

    def watch(self, counters: Counters) -> None:
        """Show what a transport counts. Once a node."""
        self._transports.append(counters)

    # -- asking ----------------------------------------------------------------------------------------------

    def committed(self) -> int:
        """Windows that this node has committed as a master."""
        return sum(int(value) for _, value in self._windows.values())

    def streams(self) -> dict[str, Counts]:
        """What was counted of each stream, under the names of ``elf.wire.clients.StreamStats``."""
        found: dict[str, Counts] = {}
        kept = {"rows": self._rows, "bytes": self._bytes, "rejected": self._rejected, "uncast": self._uncast}
        for name, counter in kept.items():
            for (stream, *_), value in counter.values():
                found.setdefault(stream, Counts())[name] += int(value)
        for (stream, kind), value in self._left_out.values():
            found.setdefault(stream, Counts())[kind] += int(value)
        return found

    # -- showing ---------------------------------------------------------------------------------------------

    def families(self) -> Sequence[Family]:
        """All measurements but the histogram and what is read elsewhere, in the order of ``/metrics``."""
        return self._families

    def transports(self) -> Sequence[Counters]:
        """What transports count."""
        return self._transports

    def _counter(self, name: str, about: str, *labels: str) -> Family:
        return self._family("counter", name, about, labels)

    def _gauge(self, name: str, about: str, *labels: str) -> Family:
        return self._family("gauge", name, about, labels)

    def _family(self, kind: Kind, name: str, about: str, labels: tuple[str, ...]) -> Family:
        self._families.append(family := Family(kind, f"elf_{name}", about, labels))
        return family
