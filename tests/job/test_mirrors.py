"""Copies of flows at readers: what a job finds in one that others had before it; what comes out of turn."""

from __future__ import annotations

from typing import Any

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.contributions import to_bytes
from elf.job.effects import CommitWindows, Effect, PrunePanes, Send, StorePanes
from elf.job.events import PanesStored, WindowsCommitted
from elf.job.group.groups import JobGroups
from elf.job.group.port import StoredJob
from elf.job.group.router import Router
from elf.job.messages.groups import DropJob
from elf.job.messages.log import JobAdded, MemberJoined
from elf.job.messages.rollup import PaneRow, ReadPanes
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.panes import Segment
from elf.job.rollup.root import Root
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow, VersionRecord, flow_topic, flow_uid
from elf.ql.plan import Plan, Top
from elf.wire.base import Answer
from lab.chaos.engine import SECOND, STREAM, plan, spec_of

HERE, ROOT = "10.0.0.1:7100", "10.0.0.2:7100"
TOP = Top("s0", True, False, 1)


class Reader:
    """The job groups of one agent, that reads a flow of another one and stores at once what it is to
    store."""

    def __init__(self, *plans: Plan) -> None:
        fragment = plan(2).fragment
        uid = flow_uid(fragment, "1")
        self.flow = Flow(uid, fragment, flow_topic(bytes(16), uid), ROOT)
        self.specs = [
            spec_of(f"job{n}", "me", 1, query, (self.flow,), master=HERE) for n, query in enumerate(plans)
        ]
        founder = spec_of("founder", "me", 1, plan(2), (self.flow,), master=ROOT)
        joined = MemberJoined(
            seq=1, stream=STREAM, number=0, agent_id="a", name="a0", incarnation=1, address=ROOT, since_us=-1
        )
        added = [JobAdded(seq=n, spec=spec) for n, spec in enumerate([founder, *self.specs], 2)]
        log = CatalogLog([joined, *added])
        self.job_groups = JobGroups(HERE, log, RootSettings())
        self.router = Router(log, self.job_groups)
        self.windows: list[CommitWindows] = []
        self.proposals: list[tuple[int, int | None]] = []
        self.names: list[str] = []
        self.late: list[StorePanes] | None = None
        """When it is a list, what is to be stored waits here."""

    def take_up(self, n: int, first: int, assembled_us: int | None = None) -> None:
        record = VersionRecord(self.specs[n], "committed", first)
        job = StoredJob(self.specs[n], "active", (record,), {1: assembled_us} if assembled_us else {})
        self.perform(self.job_groups.take_up(job, {}, 1, 0))

    def tell(self, seq: int, after: int, pane: int, revision: int = 0, **fields: Any) -> None:
        """A commit comes from the root."""
        row = PaneRow(
            flow=self.flow.uid,
            after=after,
            seq=seq,
            start=pane,
            end=pane + 1,
            revision=revision,
            members=to_bytes(1),
            roster_version=1,
            **fields,
        )
        self.perform(self.job_groups.mirrors.take(row))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case StorePanes() if self.late is not None:
                    self.late.append(effect)
                case StorePanes():
                    self.names.append(effect.stored_as)
                    self.perform(
                        self.router.handle(PanesStored(effect.flow, effect.stored_as, effect.rows), 0)
                    )
                case CommitWindows():
                    self.windows.append(effect)
                    self.perform(self.router.handle(WindowsCommitted(effect, None, 0, 0), 0))
                case Send(message=ReadPanes(requests=(proposal,))):
                    self.proposals.append((proposal.after, proposal.start))

    def held(self) -> list[tuple[int, int, int]]:
        mirror = self.job_groups.mirrors.get(self.flow.uid)
        assert mirror is not None
        return [(s.start, s.end, s.revision) for s in mirror.segments()]


def test_commits_that_come_before_their_turn_wait_for_it() -> None:
    reader = Reader(plan(2))
    reader.take_up(0, 501)
    for seq in (4, 3, 2):
        reader.tell(seq, seq - 1, 500 + seq)
    assert reader.held() == []
    assert reader.proposals[-1] == (0, 501), "it asks for what it lacks"
    reader.tell(1, 0, 501)
    assert [end for _, end, _ in reader.held()][-1] == 505
    assert [(one.first_us, one.last_us) for one in reader.windows][-1][1] == 505 * 2 * SECOND


def test_a_job_that_began_earlier_comes_to_a_copy_that_begins_later() -> None:
    """Two job groups move to one agent: the copy began for the job that came first, two panes after the
    other."""
    reader = Reader(plan(2), plan(4, 2))
    reader.take_up(0, 503)
    reader.tell(3, 0, 503, wanted=503)
    assert reader.held() == [(503, 504, 0)]
    reader.take_up(1, 501)
    assert reader.proposals[-1] == (0, 501)
    reader.tell(4, 0, 504, wanted=503)
    assert reader.held() == [], "what was sent to the old copy tells nothing of panes before it"
    reader.windows.clear()
    for seq in (1, 2, 3, 4):
        reader.tell(seq, seq - 1, 500 + seq, wanted=501)
    whole = [one for one in reader.windows if one.spec.name == "job1"]
    assert {(pane, c.lost) for c in whole[1].coverage for pane in range(c.start, c.end)} == {
        (501, False),
        (502, False),
    }
    assert len(set(reader.names)) == 2, "under one name there is one copy"


def test_what_was_being_stored_when_a_copy_began_again_is_not_in_it() -> None:
    reader = Reader(plan(2), plan(4, 2))
    reader.take_up(0, 503)
    reader.late = []
    reader.tell(3, 0, 503, wanted=503)
    (stored,) = reader.late
    reader.take_up(1, 501)
    late = reader.job_groups.reading.panes_stored(PanesStored(stored.flow, stored.stored_as, stored.rows), 0)
    assert late == [], "windows may yet be made of it"
    reader.late = None
    for seq in (1, 2, 3):
        reader.tell(seq, seq - 1, 500 + seq, wanted=501)
    assert reader.held() == [(501, 502, 0), (502, 503, 0), (503, 504, 0)] or reader.held() == [(501, 504, 0)]
    pruned = [e.flow for e in reader.job_groups.mirrors.tick(120_000) if isinstance(e, PrunePanes)]
    assert stored.stored_as in pruned


def test_a_job_that_needs_every_row_comes_to_a_copy_of_the_first_rows() -> None:
    short = replace(plan(2), top=TOP, limit=1)
    reader = Reader(short, plan(2))
    reader.take_up(0, 501)
    reader.tell(1, 0, 501, cut=TOP)
    reader.take_up(1, 501)
    assert reader.proposals[-1] == (0, 501)
    assert reader.held() == []
    reader.tell(1, 0, 501, cut=TOP)
    assert reader.held() == [], "cut as before"
    reader.tell(1, 0, 501)
    assert reader.held() == [(501, 502, 0)]


def test_a_job_that_finds_all_it_needs_takes_the_copy_as_it_is() -> None:
    reader = Reader(plan(2), plan(4, 2))
    reader.take_up(0, 501)
    reader.tell(1, 0, 501)
    reader.take_up(1, 502)
    assert reader.held() == [(501, 502, 0)]
    assert len(set(reader.names)) == 1


def test_a_revised_window_waits_for_all_its_panes() -> None:
    """Its new master knows that it is made, and has only one of its two panes when that is revised."""
    reader = Reader(plan(4, 2))
    reader.take_up(0, 501, assembled_us=505 * 2 * SECOND)
    reader.tell(1, 0, 501)
    reader.tell(2, 1, 502)
    reader.tell(3, 2, 502, revision=1)
    made = [(one.first_us // SECOND, one.last_us // SECOND) for one in reader.windows]
    assert made == []
    reader.tell(4, 3, 503)
    (revised,) = reader.windows
    assert revised.revised == (502, 503)
    covered = {pane for c in revised.coverage for pane in range(c.start, c.end)}
    assert covered == {501, 502, 503}
    assert revised.last_us == 504 * 2 * SECOND


def test_a_job_whose_flow_has_lost_its_first_panes_says_so() -> None:
    reader = Reader(plan(4, 2))
    reader.take_up(0, 501)
    reader.tell(7, 0, 503)
    reader.tell(8, 7, 504)
    lost = [(c.start, c.end) for one in reader.windows for c in one.coverage if c.lost]
    assert lost[0] == (501, 503)


def test_a_root_that_begins_after_a_job_did_has_lost_what_the_job_lacks() -> None:
    """Its first leader told a reader where it begins, and died before that was durable."""
    flow = Reader().flow
    root = Root(flow, RootSettings(), [Segment(503, 505, 0, 1, 0)])
    root.begin(503, 0)
    assert [(c.start, c.end, c.lost) for c in root.coverage(501, 505)] == [
        (501, 503, True),
        (503, 505, False),
    ]
    assert [(c.start, c.lost) for c in root.coverage(START_OF_TIME, END_OF_TIME)] == [(503, False)]


def test_a_job_that_is_not_up_yet_is_not_said_to_be_over() -> None:
    job_groups = Reader(plan(2)).job_groups
    told = []
    for uid in (Reader(plan(2)).specs[0].uid, "another"):
        (answer,) = job_groups.asked_to_drop(DropJob(id=1, origin="me", uid=uid), 0)
        assert isinstance(answer, Send)
        assert isinstance(answer.message, Answer)
        told.append(answer.message.error)
    assert told == [
        "it is not up here yet, has just moved, or most of the agents that keep it are away; try again",
        "no such job here any more",
    ]
