"""The windows that a simulated fleet has ever committed or published, each compared with the pane commits
that it names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agents.committing.sides import is_of
from agents.committing.windowcommits import panes_used
from elf.job.commits import WindowCommit
from elf.job.effects import CommitWindows, Coverage
from elf.job.gaps import Gap, budgets_shown
from elf.job.openparts import in_whole
from elf.job.spec import JobSpec
from elf.wire.clients import WindowResult
from lab.chaos.books import (
    DOUBLED,
    WRONG,
    PaneWord,
    WindowsName,
    bootstrapped,
    flows_by_side,
    name_of_commit,
    name_of_result,
    short,
    us_of,
    windows_of,
)
from lab.chaos.reference import Counts, Span, Sums, is_right

if TYPE_CHECKING:
    from lab.chaos.ledger import Ledger


class Windows:
    """See the module's docstring; those of a ``ledger``."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._found = ledger.found
        self.committed: dict[WindowsName, WindowCommit] = {}
        self.published: dict[WindowsName, tuple[bytes, bytes]] = {}
        self._numbered: dict[tuple[str, int], WindowsName] = {}
        self._meant: dict[tuple[str, int, bytes], CommitWindows] = {}

    def means(self, work: CommitWindows) -> None:
        """A master is about to make windows of what it names."""
        self._meant[work.spec.uid, work.spec.version, panes_used(work.coverage)] = work

    def assembled(self, agent: int, row: WindowCommit) -> None:
        key = name_of_commit(row)
        ends = f"({row.first_start}, {row.last_end}]"
        name = f"windows of {row.job[:6]} that end in {ends}, revision {row.revision}"
        known = self.committed.setdefault(key, row)
        if known is not row:
            if (known.rows, known.status) != (row.rows, row.status):
                self._found(DOUBLED, f"{name}: a{agent} has another word of it than the first")
            return
        work = self._meant.get((row.job, row.version, row.panes_used))
        if work is None:
            self._found(WRONG, f"{name}: nobody was to make it")
            return
        self._check_joined(name, work.spec)
        pane_us, sums = work.spec.plan.fragment.pane_us, self.sums(work)
        for span, status, counts in windows_of(row):
            if not status["skipped"]:
                failed = bool(status["function_failed"])
                if not is_right(work.spec.plan, counts, sums, span, failed=failed):
                    claimed = dict(sums(0, span))
                    self._found(WRONG, f"{name}: {dict(counts)} of {span}; its panes have {claimed}")
                if cut := self._cut(work, span, pane_us):
                    self._found(WRONG, f"{name}: {span} begins or ends within the panes {cut} of a unit")
                unreduced = self._unreduced(work.coverage, span, pane_us)
                if unreduced > failed or (failed > unreduced and work.spec.plan.final is None):
                    what = "says" if failed else "does not say"
                    self._found(WRONG, f"{name} {what} of {span} that a reduce function has failed")
                marked = sorted(self._gaps(work.coverage, span, pane_us))
                if status["budgets"] != budgets_shown(marked):
                    self._found(WRONG, f"{name} says of {span} that {status['budgets']} were over; {marked}")
                gaps = [gap.shown() for gap in marked if not gap.weight]
                said = [one | {at: us_of(one[at]) for at in ("from", "to")} for one in status["gaps"]]  # type: ignore[attr-defined]
                if said != gaps:
                    self._found(WRONG, f"{name} says of {span} that it lacks {said}; its panes lack {gaps}")
                missing = self._missing(work.coverage, span, pane_us)
                if missing != set(status["missing"]):  # type: ignore[call-overload]
                    self._found(
                        WRONG, f"{name} names {status['missing']} as missing; its panes lack {missing}"
                    )

    def _check_joined(self, name: str, spec: JobSpec) -> None:
        """Check that the flows of a version join the rows of tables that it has (protocol 7.17)."""
        for flow in spec.flows:
            known = self._ledger.flows.get(flow.uid, flow)
            has, wanted = ([one.data for one in f.fragment.tables] for f in (known, flow))
            if has != wanted:
                self._found(WRONG, f"{name}: {short(flow.uid)} joins other rows than version {spec.version}")

    def _cut(self, work: CommitWindows, span: Span, pane_us: int) -> list[Span]:
        """The units that a window has only a part of."""
        bounds = [us // pane_us for us in span]
        units = [one for flow in work.spec.flows for one in self._ledger.units[flow.uid]]
        return [one for one in units if any(one[0] < bound < one[1] for bound in bounds)]

    def sums(self, work: CommitWindows) -> Sums:
        """Over panes in the revisions that a coverage names, before later stages."""
        pane_us, flows = work.spec.plan.fragment.pane_us, flows_by_side(work.spec)

        def sums(side: int, span: Span) -> Counts:
            found: Counts = Counter()
            coverage = [part for part in work.coverage if is_of(part.flow, flows[side])]
            for _, pane, word in self._words(coverage, span, pane_us):
                found.update(word.before.get(pane, Counter()) if word is not None else Counter())
            return found

        return sums

    def last_sums(self, spec: JobSpec) -> Sums:
        """Over panes by their last commits."""
        pane_us, flows = spec.plan.fragment.pane_us, flows_by_side(spec)

        def sums(side: int, span: Span) -> Counts:
            found: Counts = Counter()
            for flow in spec.flows:
                there = is_of(flow.uid, flows[side])
                for pane in range(span[0] // pane_us, -(-span[1] // pane_us)) if there else ():
                    word = self._ledger.latest(flow.uid, pane)
                    found.update(word.before.get(pane, Counter()) if word is not None else Counter())
            return found

        return sums

    def _words(
        self, coverage: Sequence[Coverage], span: Span, pane_us: int
    ) -> Iterator[tuple[Coverage, int, PaneWord | None]]:
        """The panes of a window that a coverage has, each with its part of that and the commit that it
        names."""
        for part in coverage:
            first, last = max(part.start, span[0] // pane_us), min(part.end, -(-span[1] // pane_us))
            for pane in range(first, last) if not part.lost else ():
                yield part, pane, self._ledger.latest(part.flow, pane, part.revision)

    def _unreduced(self, coverage: Sequence[Coverage], span: Span, pane_us: int) -> bool:
        """Whether a reduce function has failed on a pane of a window."""
        words = self._words(coverage, span, pane_us)
        return any(word is not None and pane in word.failed for _, pane, word in words)

    def _missing(self, coverage: Sequence[Coverage], span: Span, pane_us: int) -> set[str]:
        """The names of the members that were expected and are not in all panes of a window."""
        found: set[str] = set()
        for part, _, word in self._words(coverage, span, pane_us):
            there = word.members | in_whole(word.parts) if word is not None else 0
            flow = bootstrapped(part.flow)
            found |= {f"a{agent}" for agent in self._ledger.who(flow, part.expected & ~there)}
        return found

    def _gaps(self, coverage: Sequence[Coverage], span: Span, pane_us: int) -> set[Gap]:
        """The gaps that the panes of a window name."""
        found: set[Gap] = set()
        for _, pane, word in self._words(coverage, span, pane_us):
            found |= word.gaps.get(pane, set()) if word is not None else set()
        return found

    def publish(self, result: WindowResult) -> None:
        """A subscriber got windows: they must be durable, and never change."""
        key = name_of_result(result)
        ends = f"({result.first_us}, {result.last_us}]"
        name = f"windows of {result.name} that end in {ends}, revision {result.revision}"
        if result.early:
            return
        row = self.committed.get(key)
        said = self.published.setdefault(key, (result.status, result.payload))
        if said != (result.status, result.payload):
            self._found(DOUBLED, f"{name} were published in two ways")
        if row is None:
            self._found(WRONG, f"{name} were published, and nobody has committed them")
        elif (row.status, row.rows) != said:
            self._found(WRONG, f"{name} were published otherwise than they are committed")
        if self._numbered.setdefault((result.job, result.number), key) != key:
            self._found(DOUBLED, f"{name} have number {result.number}, as others had before")
