"""What a simulated fleet has ever made durable: every snapshot, pane commit and window commit, once.

Agents write through a ``SimStore``, which tells the ledger what has become durable, and on whose disk. The
ledger outlives crashes, prunings and drops. It checks each commit when it first hears it, and that no other
commit has its name: this is the running half of the oracle (``judge`` is the other).

Three sums are compared, each with the one below it, as far as a commit claims it: a window's rows with the
pane commits that it names; a pane commit with the snapshots of the members that it names (through the flow's
reduce function, if it has one); and the judge compares snapshots with the rows of the logs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from elf.batch import decode
from elf.job.checkpoint import FlowCheckpoint, StreamCheckpoint
from elf.job.commands import Outcome
from elf.job.commits import PaneCommit
from elf.job.contributions import from_bytes, numbers
from elf.job.gaps import GAPS, Gap, gaps_of
from elf.job.gaps import from_bytes as from_bytes_of_gaps
from elf.job.gaps import to_bytes as to_bytes_of_gaps
from elf.job.messages.log import FlowEnded, LogEntry, MemberJoined, MemberLeft
from elf.job.openparts import in_part, is_open
from elf.job.parts import from_bytes as parts_of
from elf.job.provenance import PaneRows, is_traced
from elf.job.rollup.decisions import follows, siblings
from elf.job.snapshots import Name, Sealed
from elf.job.spec import Flow, JobSpec
from elf.job.units import is_mergeable
from lab.chaos.books import (
    DOUBLED,
    LOST,
    WRONG,
    Book,
    Finding,
    PaneCounts,
    PaneWord,
    bootstrapped,
    counts_of,
    plain,
    short,
    unreduced,
)
from lab.chaos.reference import BANG, Span, chosen, reduced
from lab.chaos.rekeying import Rekeyings
from lab.chaos.replicas import Replicas
from lab.chaos.sampled import Pane, Weights, of_all, pane_of
from lab.chaos.windows import Windows

if TYPE_CHECKING:
    from lab.chaos.task import SimArchive

_NO_GAPS = to_bytes_of_gaps(())
MERGED_MOST = 1 << 10
"""No head holds as many panes: a commit of more is of what came before the flow, or of a member's past."""
CLOCKS_US = 3_500_000
"""How early a pane may seem to be over, to an agent with a fast clock."""


class Ledger:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.books: dict[tuple[str, int], Book] = {}
        self.panes: dict[str, dict[tuple[int, int, int], PaneWord]] = defaultdict(dict)
        self.units: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """Panes of flows that were committed together, as heads had merged some of them."""
        self.windows = Windows(self)
        self.tables: dict[str, tuple[int, int, int]] = {}
        """By table, the numbers of the last result before it and of the one that it began with, and how long
        it retains rows (µs)."""
        self.rekeyings = Rekeyings(partial(self.found, WRONG))
        self.flows: dict[str, Flow] = {}
        self.shed: set[tuple[str, int]] = set()
        """Flows that agents ever suspended, as they retained too much of them."""
        self.now_ms = 0
        self.first_us = 0
        """No row has a time before this."""
        self.weights = Weights()
        self.postponed = 0
        """Flows with rows that waited for their turn when a checkpoint was written, of all checkpoints."""
        self._banged: set[str] = set()
        """Flows with a row on which the reduce function fails."""
        self._agents: dict[tuple[str, int], int] = {}
        self._numbers: dict[str, int] = {}
        self._since: dict[tuple[str, int], int] = {}
        """The entry of the log with which an agent joined a stream."""
        self._left: set[tuple[str, int]] = set()
        self.over: set[str] = set()
        """Flows that have ended."""
        self.replicas = Replicas(self)

    def found(self, kind: str, text: str) -> None:
        self.findings.append(Finding(kind, text, self.now_ms))

    # -- what goes on ----------------------------------------------------------------------------------------

    def agent(self, agent_id: str, index: int) -> None:
        self._numbers[agent_id] = index

    def heard(self, entry: LogEntry) -> None:
        """A new entry of the catalog log: which agent has which member number, and more."""
        self.rekeyings.heard(entry)
        if isinstance(entry, MemberJoined):
            self._agents[entry.stream, entry.number] = self._numbers[entry.agent_id]
            self._since.setdefault((entry.stream, entry.number), entry.seq)
        elif isinstance(entry, MemberLeft):
            self._left.add((entry.stream, entry.number))
        elif isinstance(entry, FlowEnded):
            self.over.add(entry.uid)

    def who(self, flow: str, members: int) -> list[int]:
        """The agents of a contribution set."""
        stream = self.flows[flow].fragment.stream
        return [self._agents[stream, number] for number in numbers(members)]

    def numbers(self, stream: str) -> dict[int, int]:
        """Member number → agent."""
        return {number: agent for (name, number), agent in self._agents.items() if name == stream}

    def begins(self, agent: int, flow: Flow, live_from: int) -> None:
        """An agent has durably begun to compute a flow."""
        self.flows.setdefault(flow.uid, flow)
        self.books.setdefault((flow.uid, agent), Book(live_from))

    def checkpoint(
        self,
        agent: int,
        checkpoint: StreamCheckpoint,
        rows: Sequence[Sealed],
        forgotten: Sequence[tuple[str, Name]],
    ) -> None:
        """An agent has written a checkpoint, with these snapshots; it no longer needs those."""
        for flow in checkpoint.flows:
            self.begins(agent, flow.flow, flow.live_from)
            self.postponed += bool(flow.postponed)
        for row in rows:
            self.sealed(agent, row)
        for row in rows:
            self._adds_up(agent, row)
        for flow in checkpoint.flows:
            self.drops(agent, flow, [name for uid, name in forgotten if uid == flow.flow.uid])

    def traced(self, agent: int, outcome: Outcome, archive: SimArchive) -> None:
        """An agent has written down which rows its snapshots have counted: counted again, they give these
        (protocol 7.11)."""
        known = {(one.flow, one.start, one.end, one.part): one.panes for one in outcome.traced}
        for row in outcome.sealed:
            fragment = self.flows[row.flow].fragment
            if not is_traced(fragment) or fragment.cells or is_open(row.part):
                continue
            name = (
                f"a{agent}'s snapshot of panes [{row.start}, {row.end}) of {short(row.flow)}, part {row.part}"
            )
            panes = known.get((row.flow, *row.name[1:]))
            if panes is None:
                self.found(WRONG, f"{name}: nobody has written down which rows it has counted")
                continue
            sums = counts_of(row.payload, row.start, row.end)
            for pane in {*sums, *(one.pane for one in panes)}:
                wrote = next((one for one in panes if one.pane == pane), PaneRows(pane, 0, ()))
                there = archive.counted(wrote, fragment.pane_us)
                rows = of_all(there) if row.part else pane_of(self.weights, agent, row.flow, there)
                again, sealed = chosen(fragment, rows.counts), sums.get(pane, Counter())
                if +again != +sealed or rows.rows != wrote.rows:
                    text = f"{name}, pane {pane}: its rows are {wrote.rows}, of which {dict(again)}"
                    self.found(WRONG, f"{text} are wanted; the snapshot has {dict(sealed)}")
                if not (row.part or fragment.range[0]):
                    self._sampled(agent, row.flow, pane, rows)

    def _sampled(self, agent: int, flow: str, pane: int, rows: Pane) -> None:
        """A pane says how many of its rows were left out over a budget, and at which weights (protocol
        3.9)."""
        book = self.books[flow, agent]
        told = book.counter_tables.get(pane, Counter[str]())["sampled"]
        weights = {gap.weight for gap in book.gaps.get(pane, ()) if gap.weight > 1}
        if (told, weights) != (rows.left_out, rows.weights):
            text = f"a{agent}'s pane {pane} of {short(flow)} says that {told} rows were left out at {weights}"
            self.found(WRONG, f"{text}; they are {rows.left_out} at {rows.weights}")

    def weighs(self, agent: int, weight: int, whose: str, readers: Sequence[JobSpec]) -> None:
        """Rows of a flow are about to be left out. For a promise they are where all readers have agreed to
        it: one of them promises that, or all give way (protocol 3.11)."""
        if weight == 1 or not whose.startswith("the promise"):
            return
        own = [f"the promise of job {spec.creator}/{spec.name}" for spec in readers]
        others = [s.name for s in readers if s.plan.promise is None and not s.plan.gives_way]
        if others or not (whose in own or all(spec.plan.gives_way for spec in readers)):
            names = ", ".join(others or (spec.name for spec in readers))
            self.found(WRONG, f"a{agent} leaves out rows of {names} for {whose}")

    def suspends(self, agent: int, flow: str, held: int, most: int) -> None:
        """An agent is about to shed the rows of a flow."""
        self.shed.add((flow, agent))
        if held <= most:
            self.found(LOST, f"a{agent} suspends {short(flow)}: it retains {held} bytes of it, of {most}")

    # -- snapshots -------------------------------------------------------------------------------------------

    def sealed(self, agent: int, row: Sealed) -> None:
        book = self.books[row.flow, agent]
        rows = counts_of(row.payload, row.start, row.end)
        name = f"a{agent}'s snapshot of panes [{row.start}, {row.end}) of {short(row.flow)}, part {row.part}"
        if row.part:
            (pane,) = range(row.start, row.end)
            known = book.parts.setdefault((pane, row.part), rows.get(pane, Counter()))
            if known != rows.get(pane, Counter()):
                self.found(DOUBLED, f"{name}: it had other contents before")
                return
        else:
            for start, end, payload in book.ranges:
                if (start, end, payload) == (row.start, row.end, row.payload):
                    return
                if start < row.end and row.start < end:
                    self.found(DOUBLED, f"{name}: [{start}, {end}) was sealed before")
                    return
            book.ranges.append((row.start, row.end, row.payload))
            for pane, counts in rows.items():
                book.rows.setdefault(pane, Counter()).update(counts)
        for counted in decode(row.counters).to_pylist() if row.counters else ():
            if is_open(row.part):  # the main snapshot has them too
                book.part_gaps[counted["_pane"], row.part].update(
                    from_bytes_of_gaps(counted.get(GAPS) or _NO_GAPS)
                )
                continue
            pane, named = counted.pop("_pane"), counted.pop(GAPS, None)
            gaps = book.part_gaps[pane, row.part] if row.part else book.gaps[pane]
            gaps.update(from_bytes_of_gaps(named) if named else ())
            book.rows_in[pane] += counted["rows_in"]
            book.counted.update(counted)
            if not row.part:
                book.counter_tables[pane] = Counter(counted)

    def _adds_up(self, agent: int, row: Sealed) -> None:
        """The open parts of a pane are its main snapshot."""
        book = self.books[row.flow, agent]
        if not (is_open(row.part) and row.part & 1) or self.flows[row.flow].fragment.keep is not None:
            return
        parts = sum((book.parts[row.start, part] for part in book.opened(row.start)), Counter[str]())
        if +parts != +book.rows.get(row.start, Counter()) or not book.covers(row.start):
            name = f"a{agent}'s pane {row.start} of {short(row.flow)}"
            self.found(
                WRONG, f"{name} has {dict(parts)} in parts, {dict(book.rows.get(row.start, {}))} in all"
            )

    def drops(self, agent: int, checkpoint: FlowCheckpoint, names: Iterable[Name]) -> None:
        """An agent has durably dropped panes of a flow: those of these snapshots that are in no commit, and
        the open ones that its checkpoint names."""
        flow, book = checkpoint.flow.uid, self.books[checkpoint.flow.uid, agent]
        (number,) = (n for n, who in self.numbers(checkpoint.flow.fragment.stream).items() if who == agent)
        first = min((start for lead in self._leads(flow) for start, _, _ in self.panes[lead]), default=0)
        for start, end in [name[:2] for name in names]:
            for pane in self.panes_of(flow, max(start, first), end):
                words = self._deciding(flow, pane)
                if not words:
                    self.found(LOST, f"a{agent} leaps over pane {pane} of {short(flow)}, not committed yet")
                elif not any(word.members >> number & 1 for word in words):
                    book.leapt.add(pane)
                    book.counted.subtract(book.counter_tables.get(pane, Counter()))
        for pane in self.panes_of(flow, *checkpoint.leapt):
            if book.covers(pane) or (pane >= first and not self._deciding(flow, pane)):
                what = "it has sealed" if book.covers(pane) else "nobody has committed"
                self.found(LOST, f"a{agent} leaps over pane {pane} of {short(flow)}, which {what}")
            book.leapt.add(pane)

    def _leads(self, flow: str) -> list[str]:
        """The flows whose commits say who is in the panes of a flow that leaps over stragglers."""
        fragment = self.flows[flow].fragment
        if not follows(fragment):
            return [flow]
        leads = (one for one in self.flows.values() if not one.fragment.range[0])
        return [one.uid for one in leads if siblings(one.fragment, fragment)]

    def _deciding(self, flow: str, pane: int) -> list[PaneWord]:
        """Their last words on a pane."""
        words = (self.latest(lead, pane) for lead in self._leads(flow))
        return [word for word in words if word is not None]

    def panes_of(self, flow: str, start: int, end: int) -> range:
        """The panes in which there can be rows."""
        return range(max(start, self.first_us // self.flows[flow].fragment.pane_us), end)

    # -- pane commits ----------------------------------------------------------------------------------------

    def committed(self, agent: int, row: PaneCommit) -> None:
        if bootstrapped(row.flow) != row.flow:
            self._copied(agent, row)
            return
        name = f"panes [{row.start}, {row.end}) of {short(row.flow)}, revision {row.revision}"
        words, key = self.panes[row.flow], (row.start, row.end, row.revision)
        if key in words:
            if words[key].row != row:
                self.found(DOUBLED, f"{name}: a{agent} has another word of it than the first")
            return
        for word in words.values():
            if word.revision == row.revision and word.start < row.end and row.start < word.end:
                self.found(DOUBLED, f"{name}: [{word.start}, {word.end}) was committed with that revision")
                return
        rows = counts_of(row.payload, row.start, row.end)
        parts = parts_of(row.parts)
        before = self.latest(row.flow, row.start, row.revision - 1) if row.revision else None
        if before is not None:
            parts |= before.parts
        members, failed = from_bytes(row.members), unreduced(row)
        gaps = gaps_of([decode(row.counters)]) if row.counters else {}
        staged = self.flows[bootstrapped(row.flow)].fragment.stage is not None
        before_it = counts_of(row.raw or row.payload, row.start, row.end) if staged else rows
        word = PaneWord(row.start, row.end, row.revision, members, parts, rows, row, failed, gaps, before_it)
        words[key] = word
        self._check_panes(name, word)
        self._check_gaps(name, word)
        self._check_policy(name, word)

    def _claimed(self, word: PaneWord, start: int, end: int) -> dict[int, Counter[str]]:
        """Rows by key of panes ``[start, end)`` of a commit, as the snapshots and parts have them that it
        names."""
        flow, sums = word.row.flow, defaultdict[int, Counter[str]](Counter)
        for agent in self.who(flow, word.members):
            for pane, counts in self.books[flow, agent].rows.items():
                if start <= pane < end:
                    sums[pane].update(counts)
        stream = self.flows[flow].fragment.stream
        for number, part in word.parts:
            book = self.books[flow, self._agents[stream, number]]
            sums[word.start].update(book.parts.get((word.start, part), Counter()))
        return sums

    def _units(self, word: PaneWord) -> dict[int, Span]:
        """The units of which a commit has panes, by pane: panes that were committed together, since some of
        them had been merged into one (protocol 4.11)."""
        units = (one for one in self.units[word.row.flow] if one[0] < word.end and word.start < one[1])
        return {pane: unit for unit in units for pane in range(*unit)}

    def _begins_unit(self, word: PaneWord) -> bool:
        """Panes that were committed together are a unit from now on. False: nothing of the flow is merged."""
        flow = word.row.flow
        if not is_mergeable(self.flows[flow].fragment):
            return False
        if not word.revision and 1 < word.end - word.start < MERGED_MOST:
            self.units[flow].append((word.start, word.end))
        return True

    def _is_in_units(self, word: PaneWord, claimed: PaneCounts) -> bool:
        """Whether a commit is of panes in units, each of which has as a whole what its last commits claim,
        and has of other panes what it claims itself."""
        flow = word.row.flow
        if not self._begins_unit(word):
            return False
        units, balance = self._units(word), defaultdict[Span, Counter[str]](Counter)
        for pane in {*units, *word.rows, *claimed}:
            last, unit = self.latest(flow, pane), units.get(pane, (pane, pane + 1))
            if last is not None:
                balance[unit].update(last.rows.get(pane, Counter()))
                balance[unit].subtract(self._claimed(last, pane, pane + 1).get(pane, Counter()))
        return bool(units) and not any(count for counts in balance.values() for count in counts.values())

    def _check_policy(self, name: str, word: PaneWord) -> None:
        """Check that the commit came when its jobs' STRAGGLERS allow it."""
        flow, fragment = word.row.flow, self.flows[word.row.flow].fragment
        if twice := word.members & in_part(word.parts):
            self.found(DOUBLED, f"{name}: main snapshot and open parts of {numbers(twice)}")
        if fragment.leap and word.revision and not follows(fragment):
            self.found(WRONG, f"{name}: a job that leaps is never revised")
        for pane in range(word.start, min(word.end, word.start + 64)) if follows(fragment) else ():
            there = self._deciding(flow, pane)
            if there and all(word.members & ~one.members for one in there):
                self.found(WRONG, f"{name}: it has {numbers(word.members)}, and the first key range has not")
        if fragment.wait_us is None or word.revision:
            return
        waited_us = self.now_ms * 1_000 - word.end * fragment.pane_us
        for number, agent in self.numbers(fragment.stream).items():
            who, book = (fragment.stream, number), self.books.get((flow, agent))
            known = self._since[who] <= word.row.roster_version and who not in self._left
            begun = book is not None and book.live_from <= word.start and (flow, agent) not in self.shed
            missing = not word.members >> number & 1
            if known and begun and missing and waited_us < fragment.wait_us - CLOCKS_US:
                self.found(WRONG, f"{name}: it has waited {waited_us / 1e6:g} s only for a{agent}")

    def _check_panes(self, name: str, word: PaneWord) -> None:
        """Compare with the snapshots that the commit claims."""
        flow = word.row.flow
        for agent in self.who(flow, word.members):
            book = self.books.get((flow, agent))
            if book is None or not self._has(book, word.start, word.end):
                self.found(WRONG, f"{name}: a{agent} is in it, and has made no such snapshot durable")
                return
        sums = self._claimed(word, word.start, word.end)
        self._banged |= {flow} if any(BANG in counts for counts in sums.values()) else set()
        if word.failed and flow not in self._banged:
            self.found(WRONG, f"{name}: it is not reduced, and nothing of the flow ever made that fail")
        wanted = {p: reduced(self.flows[flow].fragment, c, failed=p in word.failed) for p, c in sums.items()}
        if None in wanted.values() or {p: c for p, c in wanted.items() if c} != word.rows:
            if self._is_in_units(word, sums):
                return
            who = ", ".join(f"a{agent}" for agent in self.who(flow, word.members))
            self.found(
                WRONG, f"{name}: it has {plain(word.rows)}; the snapshots of {who} have {plain(dict(sums))}"
            )

    def _check_gaps(self, name: str, word: PaneWord) -> None:
        """Check that the commit lacks what its snapshots lack, and says so."""
        wanted = self._lacking(word)
        if wanted == word.gaps:
            return
        self._begins_unit(word)  # also where its rows are right, as none is there
        units = self._units(word)
        has, lacks = defaultdict[Span, set[Gap]](set), defaultdict[Span, set[Gap]](set)
        for pane in {*units, *wanted, *word.gaps}:
            last, unit = self.latest(word.row.flow, pane), units.get(pane, (pane, pane + 1))
            if last is not None:
                has[unit] |= last.gaps.get(pane, set())
                lacks[unit] |= self._lacking(last).get(pane, set())
        if not units or has != lacks:
            self.found(WRONG, f"{name}: it says that it lacks {word.gaps}; its snapshots lack {wanted}")

    def _lacking(self, word: PaneWord) -> dict[int, set[Gap]]:
        """What the snapshots and parts of a commit lack, by pane."""
        flow, lacks = word.row.flow, defaultdict[int, set[Gap]](set)
        stream = self.flows[flow].fragment.stream
        known = ((flow, agent) for agent in self.who(flow, word.members))
        books = [self.books[key] for key in known if key in self.books]
        for pane, gaps in (item for book in books for item in book.gaps.items()):
            if word.start <= pane < word.end:
                lacks[pane].update(gaps)
        for number, part in word.parts:
            book = self.books[flow, self._agents[stream, number]]
            lacks[word.start].update(book.part_gaps.get((word.start, part), ()))
        return {pane: gaps for pane, gaps in lacks.items() if gaps}

    @staticmethod
    def _has(book: Book, start: int, end: int) -> bool:
        """Whether snapshots cover panes ``[start, end)`` without a hole."""
        at = start
        for left, right, _ in sorted(book.ranges):
            if left <= at < right:
                at = right
        return at >= end

    def _copied(self, agent: int, row: PaneCommit) -> None:
        """A reader's copy may lack rows that its jobs do not need, and nothing else."""
        flow = bootstrapped(row.flow)
        word = self.panes[flow].get((row.start, row.end, row.revision))
        name = f"a{agent}'s copy of panes [{row.start}, {row.end}) of {short(flow)}, revision {row.revision}"
        if word is None:
            self.found(WRONG, f"{name}: nobody has committed that")
        elif from_bytes(row.members) != word.members:
            self.found(WRONG, f"{name}: of other members than the commit")
        else:
            for pane, counts in counts_of(row.payload, row.start, row.end).items():
                if any(word.rows.get(pane, Counter())[key] != n for key, n in counts.items()):
                    self.found(WRONG, f"{name}: it says {dict(counts)} of pane {pane}")

    def latest(self, flow: str, pane: int, revision: int = 1 << 62) -> PaneWord | None:
        """The last commit of a pane, up to a revision."""
        flow = bootstrapped(flow)
        holding = (w for w in self.panes[flow].values() if w.start <= pane < w.end and w.revision <= revision)
        return max(holding, key=lambda word: word.revision, default=None)
