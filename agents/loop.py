"""The driver loop: it tells a node what has happened, and performs what the node wants done, in order.

It knows no clock, thread or socket, only ports (``agents.ports``), so real agents and simulated ones have the
same loop. Small durable words (the log, a job's record) are written before the effects that stand after them
are performed. All that may take a while is done beside the loop and comes back to the node as an event, as do
the writes of Raft groups: what rests on those waits in the node (``agents.node.groups``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

import overlay as ring
from agents.codec import Message
from agents.committing import panecommits, windowcommits
from agents.committing.making import Making
from agents.disk import groupstore, replicastore, shardstore, tablestore
from agents.disk.store import Store, StoreError
from agents.node.groups import Persisted
from agents.node.node import Node, NodeEffect, NodeEvent
from agents.ports import Ports, Queue, Told
from elf.job import effects as do
from elf.job import events as was
from elf.job.catalog.log import encode_entry
from elf.job.group import port as groups
from elf.job.program.port import ProgramEffect, ProgramSaved
from elf.job.replicas import ReplicaEvent
from elf.job.snapshots import SnapshotName
from elf.job.stamps import InspectStamps
from elf.job.tables import CopyShard, ReadShard, ReadTable
from elf.security.principals import Principal
from elf.wire import base
from overlay import raft

TICK_MS_MIN: Final = 1
"""Between two ticks of the node, at least."""
FORGET_MS: Final = 1_000
"""What is forgotten within so long is one transaction."""

Effect = NodeEffect | groupstore.ApplyRun
Found = TypeVar("Found")


class Loop:
    """See the module's docstring. Its methods are called one at a time. ``forget_ms``: 0 forgets at once;
    ``records_max``: records of job groups that are applied together."""

    def __init__(
        self,
        node: Node,
        store: Store,
        making: Making,
        ports: Ports,
        *,
        tick_ms_min: int = TICK_MS_MIN,
        forget_ms: int = FORGET_MS,
        records_max: int = groupstore.RUN_RECORDS_MAX,
    ) -> None:
        self.node = node
        self.store = store
        self.making = making
        self._ports = ports
        self._tick_ms_min = tick_ms_min
        self._forget_ms = forget_ms
        self._records_max = records_max
        self._looking = False
        self._forgotten: list[SnapshotName] = []

    # -- what happens ----------------------------------------------------------------------------------------

    def start(self, contacts: Sequence[str]) -> None:
        """The first call."""
        self.perform(self.node.start(contacts, self._ports.clock.now_ms()))

    def turn(self, action: Callable[[], None]) -> None:
        """What may bring several events, after which the node is looked at once, and at once: another turn
        of whatever calls this costs more than the look."""
        if self._looking:
            action()
            return
        self._looking = True
        try:
            action()
        except BaseException:
            self._looking = False
            raise
        self._look()

    def handle(self, event: NodeEvent) -> None:
        self._ports.seen(event)
        self.perform(self.node.handle(event, self._ports.clock.now_ms()))

    def tick(self) -> None:
        self.perform(self.node.tick(self._ports.clock.now_ms()))

    def _heard(self, event: groups.JobGroupEvent | ReplicaEvent | None) -> None:
        if event is not None:
            self.handle(event)

    def _delivered(self, event: was.Delivered) -> None:
        self._ports.reports.delivered(event)
        self.handle(event)

    def _applied(self, events: Sequence[groups.Applied]) -> None:
        for event in events:
            self.handle(event)

    def _look(self) -> None:
        """See that the node gets a tick when it wants one; asked once for all events of a turn.

        A tick is never put off: some deadlines are so long after now, whenever now is.
        """
        self._looking = False
        now_ms = self._ports.clock.now_ms()
        at_ms = max(self.node.deadline(now_ms), now_ms + self._tick_ms_min)
        self._ports.clock.wake(at_ms, self.tick)

    # -- what is wanted --------------------------------------------------------------------------------------

    def perform(self, effects: Sequence[NodeEffect]) -> None:
        """All of these, in order, unless the process ends meanwhile."""
        for effect in groupstore.in_runs(effects, self._records_max):
            if not self._ports.process.goes_on(effect):
                return
            self._perform(effect)
        self._ports.process.settled()
        if not self._looking:
            self._looking = True
            self._ports.clock.soon(self._look)

    def _perform(self, effect: Effect) -> None:
        ports = self._ports
        ports.seen(effect)
        match effect:
            case do.Send() | ring.Send() | raft.Send():
                ports.links.send(effect.to, effect.message)
            case do.Known():
                ports.links.known(effect.signed)
            case do.Work():
                ports.tasks.perform(effect.stream, effect.command)
            case do.Paced():
                ports.tasks.pace(effect)
            case do.Consult():
                ports.tasks.consult(effect)
            case do.Run():
                ports.tasks.run(effect)
            case do.Help():
                ports.tasks.help(effect)
            case do.Examine():
                ports.clock.soon(partial(self._examine, effect))
            case _ if isinstance(effect, Told):
                ports.reports.told(effect)
            case do.Stop():
                ports.process.end(effect)
            case do.SaveLog() | do.SaveJob() | do.SaveFlow() | do.SaveFact() | do.PrunePanes(below=None):
                self._save(effect)
            case do.Forget() | do.PrunePanes() | do.PruneWindows():
                self._tidy(effect)
            case _ if isinstance(effect, ProgramEffect):
                ports.programs.perform(effect)
            case _:
                self._submit(effect)

    def _examine(self, effect: do.Examine) -> None:
        match effect.request:
            case InspectStamps(flows=flows, jobs=jobs):
                found: msgspec.Struct = self._ports.seen.stamped(flows, jobs)
            case _:
                found = self._ports.process.stats()
        self.handle(was.Consulted(effect.request, "", msgspec.msgpack.encode(found)))

    def _save(self, effect: do.SaveLog | do.SaveJob | do.SaveFlow | do.SaveFact | do.PrunePanes) -> None:
        """Before anything that stands after it."""
        match effect:
            case do.SaveLog():
                new, old = ([(e.seq, encode_entry(e)) for e in s] for s in (effect.entries, effect.forgotten))
                self.store.append_log(new, old)
            case do.SaveJob():
                self.store.save_job(effect.spec.uid, groupstore.job_record(effect), effect.state)
                self.making.versions.saved(effect)
            case do.SaveFlow():
                self.store.save_flow(effect.flow, effect.first_pane)
            case do.SaveFact():
                self.store.put(effect.key, effect.value)
            case do.PrunePanes():
                self.store.prune_panes(effect.flow, effect.below)

    def _submit(self, effect: Effect) -> None:
        """What may take a while."""
        work, store = self._ports.work, self.store
        match effect:
            case (
                do.Combine()
                | do.CommitPanes()
                | do.CommitWindows()
                | do.MakeEarly()
                | do.MakeReady()
                | do.TryFunctions()
                | do.TryAggregate()
                | groups.Draft()
            ):
                queue, task = self.making.task(effect)
                work.submit(queue, task, self.handle)
            case do.Offload():
                work.submit("plan", partial(offloaded, effect), self.handle)
            case do.EvaluatePast():
                work.submit("past", partial(evaluated, effect), self.handle)
            case do.Fetch():
                self._read("fetch", partial(fetched, effect, store))
            case do.ReadCommits():
                self._read("read commits", partial(panecommits.read_commits, effect, store))
            case do.ReadWindows():
                me = self.node.me.address
                self._read("read windows", partial(windowcommits.windows_again, effect, store, me))
            case do.LookUp():
                self._look_up(effect)
            case do.SaveTable() | do.SaveShard():
                work.submit("groups", partial(store.tables.keep, effect), self.handle)
            case do.Deliver():
                work.submit("outputs", partial(self._ports.outputs.deliver, effect, store), self._delivered)
            case do.SaveProgram():
                saved = partial(store.save_program, effect.uid, effect.record)
                done = ProgramSaved(effect.uid, effect.number)
                work.submit("programs", saved, lambda _: self.handle(done))
            case do.ForgetProgram():
                work.submit("programs", partial(store.forget_program, effect.uid), lambda _: None)
            case do.StorePanes():
                work.submit("commit", partial(panecommits.store_panes, effect, store), self.handle)
            case raft.Persist():
                persist = partial(store.persist, effect.writes)
                work.submit("persist", persist, lambda _: self.handle(Persisted()))
            case groupstore.ApplyRun():
                work.submit("groups", partial(groupstore.apply_run, store, effect), self._applied)
            case groups.ForgetJobGroup():
                self.making.versions.forget(effect.uid)
                work.submit("groups", partial(groupstore.perform, store, effect), self._heard)
            case groups.InstallJobGroup() | groups.SummariseJobGroup() | groups.LoadJobGroup():
                work.submit("groups", partial(groupstore.perform, store, effect), self._heard)
            case _ if isinstance(effect, replicastore.REPLICA_EFFECTS):
                work.submit("replicas", partial(replicastore.perform, store, effect), self._heard)
            case _:
                raise TypeError(f"no such effect: {effect!r}")

    def _look_up(self, effect: do.LookUp) -> None:
        """Rows of one key are looked up at once: another thread would take longer to begin. Who asks for
        rows of a key that is not found so soon does not wait for those of all keys."""
        asked, about = effect.request, "look up"
        if isinstance(asked, ReadTable):
            found = _tried(partial(pointed_at, asked, self.store), about)
            if found is not None:
                self._ports.clock.soon(partial(self._was_read, found))
                return
        own: Queue = "tables" if isinstance(asked, ReadTable) else "compute"
        self._read(about, partial(looked_up, effect, self.store), own)

    def _read(self, about: str, work: Callable[[], NodeEvent], queue: Queue = "compute") -> None:
        """What somebody has asked to read, and changes nothing here: if it fails, nobody gets it."""
        self._ports.work.submit(queue, partial(_tried, work, about), self._was_read)

    def _was_read(self, found: NodeEvent | do.Faulted) -> None:
        if isinstance(found, do.Faulted):
            self._ports.reports.told(found)
        else:
            self.handle(found)

    # -- tidying up ------------------------------------------------------------------------------------------

    def _tidy(self, effect: do.Forget | do.PrunePanes | do.PruneWindows) -> None:
        match effect:
            case do.Forget(whole_flow=True):
                self._aside(partial(self.store.delete_flow, effect.flow))
            case do.Forget():
                self._forget([SnapshotName(effect.flow, *name) for name in effect.names])
            case do.PrunePanes():
                self._aside(partial(self.store.prune_panes, effect.flow, effect.below))
            case do.PruneWindows():
                self._aside(partial(self.store.prune_windows, effect.job, effect.below_us))

    def _forget(self, names: Sequence[SnapshotName]) -> None:
        """What is there longer is at worst offered once more."""
        begun = bool(self._forgotten)
        self._forgotten += names
        if not self._forget_ms:
            self._forget_all()
        elif not begun:
            self._ports.clock.after(self._forget_ms, self._forget_all)

    def _forget_all(self) -> None:
        names, self._forgotten = self._forgotten, []
        self._aside(partial(forget, self.store, names))

    def _aside(self, work: Callable[[], object]) -> None:
        self._ports.work.submit("aside", work, lambda _: None)


def offloaded(effect: do.Offload) -> was.Offloaded:
    """Text or plans for a client. Whatever is wrong is its own."""
    try:
        return was.Offloaded(effect.id, effect.work(), None)
    except Exception as error:
        return was.Offloaded(effect.id, None, error)


def evaluated(effect: do.EvaluatePast) -> was.Offloaded:
    """The same of a SELECT over past windows."""
    from agents.committing.past import evaluate  # DuckDB, as in agents.tasks.streams

    try:
        return was.Offloaded(effect.id, evaluate(effect.question), None)
    except Exception as error:
        return was.Offloaded(effect.id, None, error)


def forget(store: Store, names: Sequence[SnapshotName]) -> None:
    """After a crash they may be there again, and are offered once more: that is no reason to wait for the
    disk."""
    with store.unsynced():
        store.delete_snapshots(names)


def _tried(work: Callable[[], Found], about: str) -> Found | do.Faulted:
    """What it comes to; of an error that is not the store's, that alone."""
    try:
        return work()
    except StoreError:
        raise
    except Exception as error:
        return do.Faulted(error, about)


def pointed_at(asked: ReadTable, store: Store) -> was.Consulted | None:
    """Rows of a table that have one key, if that takes no longer than a hand-over to a thread."""
    found = store.tables.point(asked)
    return None if found is None else was.Consulted(asked, *tablestore.encoded(found))


def looked_up(effect: do.LookUp, store: Store) -> was.Consulted:
    """Rows of a table that somebody has asked for, or results for one of its shards."""
    asked = effect.request
    if isinstance(asked, CopyShard):
        return was.Consulted(asked, *store.tables.some(asked))
    if isinstance(asked, ReadShard):
        return was.Consulted(asked, *shardstore.answer(store, asked))
    return was.Consulted(asked, *tablestore.answer(store.tables, asked))


def fetched(effect: do.Fetch, store: Store) -> was.Fetched:
    """Retained snapshots that are asked for again."""
    rows = store.overlapping(effect.flow.uid, effect.start, effect.end)
    return was.Fetched(effect.flow, tuple(row for row in rows if row.part == effect.part))


def arrived(sender: str, message: Message, who: Principal | None = None) -> NodeEvent:
    """The event of a message. ``sender``: where an answer goes to."""
    if isinstance(message, base.Message):
        return was.Arrived(sender, message, who)
    if isinstance(message, raft.Message):
        return raft.Received(message)
    return ring.Received(message)
