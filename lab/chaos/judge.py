"""What must be true when the storm is over: nothing lost, nothing twice, and all windows complete.

While the fleet recovers, ``open`` says what is still missing; when that is nothing (or it took too long),
``close`` compares the sums. The ledger finds what is wrong at the moment of a commit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set

from agents.disk.groupstore import stored_jobs
from agents.outputs.parcels import Parcel, parcels, said
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.contributions import bitmap
from elf.job.effects import Deliver
from elf.job.openparts import in_part, is_open
from elf.job.output import OutputKept, OutputSpec
from elf.job.spec import JobSpec, VersionRecord
from elf.job.tables import is_table
from elf.job.worker.flowstate import FlowState
from elf.ql.plan import Fragment
from elf.windows import Sliding
from lab.chaos import joining, programs
from lab.chaos.agent import SimAgent
from lab.chaos.books import (
    DOUBLED,
    LOST,
    WRONG,
    Book,
    Finding,
    PaneWord,
    WindowsName,
    name_of_commit,
    short,
    windows_of,
)
from lab.chaos.fates import is_of
from lab.chaos.files import FileLog
from lab.chaos.filetask import FileTask
from lab.chaos.ledger import Ledger
from lab.chaos.outside import span_of
from lab.chaos.reference import Counts, Span, chosen, is_right
from lab.chaos.tables import TableReaders
from lab.chaos.task import Log, SimTask
from lab.chaos.world import BEGIN_MS, World

LOST_COUNTS = ("late", "rejected", "uncast", "future", "unrostered", "shed", "leapt")
"""The counters of rows that are in no result."""


class Judge:
    """Judges windows that end by ``until_ms``. ``told``: what has come to the reader of all jobs; None: there
    is none. ``in_time``: no row may come too late."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        until_ms: int,
        told: Set[WindowsName] | None = None,
        readers: TableReaders | None = None,
        *,
        in_time: bool = False,
    ) -> None:
        self._world = world
        self._ledger = ledger
        self._until_us = until_ms * 1_000
        self._told = told
        self._readers = readers
        self._in_time = in_time
        self._found: list[Finding] = []

    def _say(self, kind: str, text: str) -> None:
        self._found.append(Finding(kind, text, self._world.now))

    # -- what is still missing -------------------------------------------------------------------------------

    def open(self) -> list[Finding]:
        """What is not yet as it must be in the end, and may still become so."""
        self._found = []
        for agent in self._world.agents:
            if agent.life and not agent.ended and not (agent.up and agent.node.ready):
                self._say(LOST, f"a{agent.index} is not back")
            elif agent.up and agent.node.leaving:
                self._say(LOST, f"a{agent.index} cannot leave")
            for task in agent.tasks.values() if agent.up else ():
                if unread := task.unread:
                    self._say(LOST, f"a{agent.index} {unread}")
                for uid, state in task.worker.states().items():
                    if state.after is not None and state.after.waiting:
                        self._say(LOST, f"a{agent.index} has late rows of {short(uid)} in no part yet")
        log = self._world.longest()
        if log is not None and not self._found:  # all may have left, where all were asked to
            for flow in log.flows():
                self._panes(flow.uid)
            for spec in log.jobs():
                self._windows(spec)
            for output in log.outputs():
                self._outside(output, log)
            for text in self._ledger.rekeyings.unfinished(self._world, log):
                self._say(LOST, text)
            for text in self._readers.wrong() if self._readers is not None else ():
                self._say(WRONG, text)
            for program in log.programs():
                for text in programs.wrong(self._world, program):
                    self._say(WRONG, text)
        return self._found

    def _panes(self, uid: str) -> None:
        """Every snapshot is in the last commit of its pane; every live agent has made its own."""
        ledger = self._ledger
        words = ledger.panes.get(uid)
        if not words:
            return
        fragment = ledger.flows[uid].fragment
        least = BEGIN_MS * 1_000 // fragment.pane_us
        first = max(least, min(start for start, _, _ in words))
        books = {agent: book for (flow, agent), book in ledger.books.items() if flow == uid}
        number = {agent: n for n, agent in ledger.numbers(fragment.stream).items()}
        for pane in range(first, self._until_us // fragment.pane_us):
            word = ledger.latest(uid, pane)
            if word is None:
                self._say(LOST, f"pane {pane} of {short(uid)} is not committed")
                return
            for agent, book in books.items():
                name = f"a{agent}'s rows of pane {pane} of {short(uid)}"
                if pane in book.leapt:
                    if word.members & bitmap([number[agent]]):
                        self._say(DOUBLED, f"{name} are in the last commit, and counted as leapt over")
                elif not book.covers(pane):
                    if pane >= book.live_from and self._computes(agent, uid):
                        self._say(LOST, f"{name} are not sealed")
                elif self._must(agent, uid, pane) and not self._has(word, number[agent]):
                    self._say(LOST, f"{name} are sealed, and not in the last commit")
                in_main = word.members >> number[agent] & 1
                missing = [
                    part
                    for (p, part) in book.parts
                    if p == pane
                    and not (in_main and is_open(part))
                    and (number[agent], part) not in word.parts
                    and (not is_open(part) or self._is_owed(agent, uid, pane, word, number[agent]))
                    and self._must(agent, uid, pane, part)
                ]
                if missing:
                    self._say(LOST, f"{name}: part {missing[0]} is not in the last commit")

    @staticmethod
    def _has(word: PaneWord, number: int) -> bool:
        """Whether a commit has the member's main snapshot, or open parts in its place."""
        return bool((word.members | in_part(word.parts)) >> number & 1)

    def _is_owed(self, agent: int, uid: str, pane: int, word: PaneWord, number: int) -> bool:
        """Whether open parts must be in a commit that has no main snapshot of their member."""
        alive = agent not in self._ledger.replicas.gone
        return not alive or self._ledger.books[uid, agent].covers(pane) or self._has(word, number)

    def _must(self, agent: int, uid: str, pane: int, part: int = 0) -> bool:
        """Whether what an agent has sealed must be in the last commit: for an agent that is gone for good
        what others had of it then, where no job drops stragglers."""
        if agent not in self._ledger.replicas.gone:
            return True
        leap = self._ledger.flows[uid].fragment.leap
        return not leap and self._ledger.replicas.rescued(agent, pane, uid, part)

    def _computes(self, agent: int, uid: str) -> bool:
        """Whether an agent answers for all panes of a flow from its first one on."""
        there = self._world.agents[agent]
        states = [task.worker.states().get(uid) for task in there.tasks.values()] if there.up else []
        return any(states) and (uid, agent) not in self._ledger.shed

    def _windows(self, spec: JobSpec) -> None:
        """All windows of all versions are there, and their last commits agree with those of the last
        panes."""
        leader = self._world.leader(spec)
        stored = next((job for job in stored_jobs(leader.store) if job.spec.uid == spec.uid), None)
        if not leader.node.job_groups.has(spec.uid) or stored is None:
            self._say(LOST, f"{spec.name} has no master at {leader.address}")
            return
        for text in joining.wrong(spec.name, stored.versions, self._readers):
            self._ledger.found(WRONG, text)  # that stays so
        records = {v.spec.version: v for v in stored.versions if v.state in ("committed", "finished")}
        last: dict[Span, tuple[int, Mapping[str, object], Counts]] = {}
        for row in leader.store.windows(spec.uid, -(1 << 62), 1 << 62):
            for span, status, counts in windows_of(row):
                version, before, _ = last.get(span, (row.version, status, counts))
                if version != row.version:
                    self._say(DOUBLED, f"{spec.name}'s window {span} is of versions {version}, {row.version}")
                if int(str(before["revision"])) <= int(str(status["revision"])):
                    last[span] = row.version, status, counts
        self._heard(spec, leader)
        for number, record in records.items():
            mine = {span: (status, counts) for span, (of, status, counts) in last.items() if of == number}
            for span in sorted(self._wanted(record, mine) - mine.keys()):
                self._say(LOST, f"{spec.name}'s window {span} of version {number} is not committed")
            for span, (status, counts) in mine.items():
                self._last_word(spec, record, span, status, counts)

    def _heard(self, spec: JobSpec, leader: SimAgent) -> None:
        """The reader has heard of every commit, however many messages to it got lost."""
        if self._told is None:
            return
        for row in leader.store.windows_after(spec.uid, 0):
            if row.last_end <= self._until_us and name_of_commit(row) not in self._told:
                ends = f"({row.first_start}, {row.last_end}]"
                text = f"{spec.name}'s windows that end in {ends}, revision {row.revision}"
                self._say(LOST, f"{text}, have not come to their reader")

    def _outside(self, output: OutputSpec, log: CatalogLog) -> None:
        """All that is committed has come out, and what counts outside is what counts here."""
        job = log.job(output.job)
        if job is None:
            return
        leader = self._world.leader(job)
        if is_table(output):
            return  # nothing of it comes out
        if output.alert is not None:
            self._alerted(output, job, leader)
            return
        name, came = f"output {output.name} of {job.name}", self._world.outside.came[output.uid]
        last: dict[tuple[float, float], Parcel] = {}
        for row in leader.store.windows_after(job.uid, 0) if leader.up else ():
            some = parcels(output, job.name, row, "")
            if row.seq in came.numbers:
                for parcel in some:
                    span = span_of(parcel)
                    last[span] = max(parcel, last.get(span, parcel), key=lambda one: one.rank)
            elif some and row.last_end <= self._until_us:
                self._say(LOST, f"{name} has not got result {row.seq}")
        for span, parcel in last.items():
            if came.windows.get(span) != (parcel.rank, parcel.window.table.to_pylist()):
                self._say(LOST, f"{name} has not got the last word on {span}: {came.windows.get(span)}")

    def _alerted(self, output: OutputSpec, job: JobSpec, leader: SimAgent) -> None:
        """Everything that the committed results say to an alert has come out, by whichever masters, and
        nothing else."""
        name, got = f"alert {output.name} of {job.name}", OutputKept(job.uid, output.uid, 0)
        stored = next((one for one in stored_jobs(leader.store) if one.spec.uid == job.uid), None)
        if not leader.up or stored is None:
            return
        versions = tuple(one.spec for one in stored.versions)
        wanted, due = dict[str, bytes](), set[str]()
        for row in leader.store.windows_after(job.uid, 0):
            some, state = said(Deliver(output, job, got, versions), row, "", got)
            got = replace(got, number=row.seq, state=state)
            wanted |= {notice.key: notice.json for notice in some}
            if row.last_end <= self._until_us:
                due |= {notice.key for notice in some}
        came = self._world.outside.came[output.uid].notices
        known = dict(came)
        for key, notice in came:
            if notice != wanted.get(key):
                self._say(DOUBLED, f"{name}: {key} says {notice!r}, and should say {wanted.get(key)!r}")
        if lacking := due - known.keys():
            self._say(LOST, f"{name} has not said {sorted(lacking)}")

    def _wanted(self, record: VersionRecord, mine: Iterable[Span]) -> set[Span]:
        """The windows that a version has to make."""
        plan, first = record.spec.plan, record.first_pane
        if first is None:
            return set()
        found: set[Span] = set()
        begin = first * plan.fragment.pane_us
        if first < 0:  # nothing had been read then: from the first row on
            begin = min((start for start, _ in mine), default=self._until_us)
        for kind in plan.windows:
            assert isinstance(kind, Sliding)
            ends = min(record.ends_us, self._until_us) - kind.size_us
            starts = range(
                -(-begin // kind.slide_us) * kind.slide_us,
                min(record.until_us, self._until_us),
                kind.slide_us,
            )
            found |= {(start, start + kind.size_us) for start in starts if start <= ends}
        after_us = record.after_us  # for a version that goes on by ends
        return found if after_us is None else {span for span in found if span[1] > after_us}

    def _last_word(
        self, spec: JobSpec, record: VersionRecord, span: Span, status: Mapping[str, object], counts: Counts
    ) -> None:
        name = f"{spec.name}'s window {span} of version {record.spec.version}"
        if status["skipped"]:
            if span[1] <= min(record.cut_us, record.ends_us):  # PAUSE ends what an ALTER has cut off before
                self._say(LOST, f"{name} is skipped, and nobody has cut it off")
        elif record.state == "committed" and span[1] <= self._until_us:
            sums, failed = self._ledger.windows.last_sums(record.spec), bool(status["function_failed"])
            if not is_right(record.spec.plan, counts, sums, span, failed=failed):
                claimed = dict(sums(0, span))
                self._say(LOST, f"{name} says {dict(counts)}; the last words on its panes, {claimed}")

    # -- the books -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Rows against snapshots, and what was published against what is stored."""
        for (uid, index), book in self._ledger.books.items():
            agent = self._world.agents[index]
            stream = self._ledger.flows[uid].fragment.stream
            if agent.up and uid in agent.tasks[stream].worker.flows():
                self._account(agent, uid, book)
        for agent in self._world.agents:
            for stream, task in agent.tasks.items() if agent.up else ():
                self._files(f"a{agent.index}'s {stream}", task)
        for text in self._world.archives.wrong() if self._world.archives is not None else ():
            self._ledger.found(WRONG, text)
        log = self._world.longest()
        if log is None:
            return
        for spec in log.jobs():
            leader = self._world.leader(spec)
            kept = {
                (row.job, row.first_start, row.last_end, row.revision, row.version)
                for row in leader.store.windows(spec.uid, -(1 << 62), 1 << 62)
            }
            for name in self._ledger.windows.published:
                if name[0] == spec.uid and name not in kept:
                    self._ledger.found(
                        LOST, f"{spec.name}: {name[1:]} was published, and {leader.address} has it not"
                    )

    def _files(self, name: str, task: SimTask) -> None:
        """Each row of a log is read once, or a gap says that it was not."""
        if not isinstance(task, FileTask):
            return
        fates = task.finish()
        for text in fates.lost():
            self._ledger.found(LOST, f"{name}: {text}")
        if doubled := fates.doubled():
            self._ledger.found(DOUBLED, f"{name}: {doubled} rows of files were read more than once")

    def _lacking(self, name: str, log: Log, fragment: Fragment, book: Book, state: FlowState) -> None:
        """Where rows are gone their pane says so, or a later one if it was sealed by then."""
        if not isinstance(log, FileLog):
            return
        said = [(pane, gap) for pane, gaps in book.gaps.items() for gap in gaps]
        said += [(end - 1, gap) for _, end, gap in state.counters._gaps]
        for number, of in log.fates.missing():
            pane = log.rows[number][0] // fragment.pane_us
            named = any(at >= pane and is_of(gap.source, of) for at, gap in said)
            if book.live_from <= pane < state.sealed and not named:
                self._ledger.found(LOST, f"{name}, pane {pane}: rows of {of} are gone, and no pane says so")

    def _account(self, agent: SimAgent, uid: str, book: Book) -> None:
        """Every row is in one snapshot, or counted."""
        fragment = self._ledger.flows[uid].fragment
        task = agent.tasks[fragment.stream]
        state = task.worker.states()[uid]
        name = f"a{agent.index}'s {short(uid)}"
        truth: dict[int, Counter[str]] = defaultdict(Counter)
        for ts, key in task.read_rows():
            pane = ts // fragment.pane_us
            if book.live_from <= pane < state.sealed:
                truth[pane][key] += 1
        missing, shed = 0, (uid, agent.index) in self._ledger.shed
        gone = _gone(agent.logs[fragment.stream], fragment)
        for pane in sorted({*truth, *book.rows, *book.rows_in, *(p for p, _ in book.parts)}):
            sealed = Counter(book.rows.get(pane, Counter()))
            for (at, number), part in book.parts.items():
                sealed.update(part if at == pane and not is_open(number) else Counter())
            if not book.covers(pane):  # for a flow over its quota: the agent is named as missing
                missing += truth[pane].total() if not shed else 0
                continue
            short_of = truth[pane].total() - book.rows_in[pane]
            missing += short_of + (book.rows_in[pane] if pane in book.leapt else 0)
            wanted = chosen(fragment, truth[pane])
            if self._is_sampled(
                uid, agent.index, pane
            ):  # what it has is checked by its rows, as it is sealed
                continue
            if fragment.range[0]:  # rows are counted once for all key ranges
                missing, short_of = 0, wanted.total() - sealed.total()
            if short_of < 0 or not sealed <= wanted:
                self._ledger.found(DOUBLED, f"{name}, pane {pane}: {dict(sealed)} sealed of {dict(wanted)}")
            elif not short_of and sealed != wanted:
                self._ledger.found(WRONG, f"{name}, pane {pane}: {dict(sealed)} sealed of {dict(wanted)}")
        counted = Counter({what: book.counted[what] + state.counters.total(what) for what in LOST_COUNTS})
        told = counted.total() + state.shed
        most = sum(rows.total() for rows in gone.values())
        more = _late_before(agent.logs[fragment.stream], fragment, book.live_from)
        if not fragment.range[0] and (missing > told + most or (missing + more < told and not shed)):
            found = f"{missing} rows are in no snapshot, {told} are counted, and {most} were gone unread"
            self._ledger.found(LOST, f"{name}: {found}")
        if not (shed or book.leapt or fragment.range[0]):
            self._lacking(name, agent.logs[fragment.stream], fragment, book, state)
        if gone and missing > told and not isinstance(agent.logs[fragment.stream], FileLog):
            named = [gap for gaps in book.gaps.values() for gap in gaps]
            named += [gap for _, _, gap in state.counters._gaps]
            if not any(gap.source == "archive" for gap in named):
                self._ledger.found(LOST, f"{name}: rows are gone from the archive, and no pane says so")
        if self._in_time and counted["late"] and not shed:
            self._ledger.found(LOST, f"{name}: {counted['late']} rows came too late")

    def _is_sampled(self, uid: str, agent: int, pane: int) -> bool:
        """Whether rows of a pane may have been left out over a budget."""
        if self._ledger.flows[uid].fragment.range[0]:
            return self._ledger.weights.ever(agent, uid)
        return any(gap.weight > 1 for gap in self._ledger.books[uid, agent].gaps.get(pane, ()))


def _gone(log: Log, fragment: Fragment) -> dict[int, Counter[str]]:
    """The rows by pane that its agent need not have."""
    found: dict[int, Counter[str]] = defaultdict(Counter)
    if not isinstance(log, FileLog):
        for row, (ts, key) in enumerate(log.rows) if fragment.since_us is not None else ():
            if row in log.lost:
                found[ts // fragment.pane_us][key] += 1
        return found
    for number, (ts, key) in enumerate(log.rows):
        if log.fates.may_be_missing(number):
            found[ts // fragment.pane_us][key] += 1
    return found


def _late_before(log: Log, fragment: Fragment, live_from: int) -> int:
    """Rows from before a flow that are late for every agent: an agent that had the flow when it read them has
    counted them."""
    highest, found = -(1 << 62), 0
    for ts, _ in log.rows:
        pane = ts // fragment.pane_us
        late_us = fragment.lateness_us
        found += (
            pane < live_from and late_us is not None and (pane + 1) * fragment.pane_us + late_us <= highest
        )
        highest = max(highest, ts)
    return found
