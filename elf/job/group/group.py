"""One job at its job group: its master, how it is changed and who waits for that, who reads its windows, and
where they go."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from elf.batch import decode
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.commits import WindowCommit
from elf.job.effects import Effect, Judged, KeepFilled, PruneWindows, Send
from elf.job.events import Failure, WindowsCommitted
from elf.job.gaps import estimate_of
from elf.job.group.master import Master
from elf.job.group.outputs import Outputs
from elf.job.group.reconfiguration import Reconfiguration
from elf.job.group.records import RECORD_BYTES_MAX
from elf.job.group.subscribers import Subscribers
from elf.job.messages.groups import CreateJob, FillHistory, FunctionFailed, JobStatus, ReconfigureJob
from elf.job.messages.log import PauseDecided
from elf.job.output import OutputKept
from elf.job.promised import Kept, is_kept, is_promised, promised_ends
from elf.job.rollup.panes import PRUNE_MS
from elf.job.rollup.rooted import event_time
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.job.tables import StoredTable, joins_tables
from elf.job.work import EstimateWork, JobWork
from elf.planning.costs import JobCosts
from elf.wire.base import Answer
from elf.wire.clients import WindowResult

ROOT_SILENT_MS = 6_000
"""The creator of a job that shares a flow is told after so long that the root does not answer."""
WINDOWS_KEPT = 20_000
"""The last windows of a job that its job group keeps, and up to a twentieth of that."""
NO_PANES = msgspec.msgpack.encode(())
"""What windows that were made offline are made of."""
FILLED_BYTES_MAX = RECORD_BYTES_MAX - (1 << 16)
"""Of a result that was made offline: its commit is one record."""
LEARN_FIRST_MS = 60_000
"""After which, from its beginning here, it is asked what a job costs that was not learned yet; again after
twice as long each time, where nobody knows."""
LEARN_MS = 1_800_000
"""Between two such questions later on."""
PRUNED_AT_ONCE = 20
"""Old windows are forgotten this many times while ``WINDOWS_KEPT`` windows are made."""


class JobGroup:
    """The group of a job at ``address``. ``durable``: its record is durable; before that no other agent hears
    of it. ``founder``: the address of the node that bootstrapped it, until it has begun."""

    def __init__(
        self,
        address: str,
        log: CatalogLog,
        master: Master,
        now_ms: int,
        *,
        durable: bool = True,
        creator: CreateJob | None = None,
        published: int = 0,
        outputs: Iterable[OutputKept] = (),
        tables: Iterable[StoredTable] = (),
        costs: JobCosts | None = None,
    ) -> None:
        self.costs = costs
        """What was learned of it, as far as that is committed (protocol 5.16)."""
        self._learn_after_ms = LEARN_FIRST_MS if costs is None else LEARN_MS
        self._learn_ms = now_ms + self._learn_after_ms
        self._renew_ms = None if creator is not None else 0
        """When to see whether rows that it joins are others: they have just been read, if it is new."""
        self.master = master
        self.founder = master.spec.master
        self.durable = durable
        self.reconfiguration = Reconfiguration(address, log, master, creator)
        self.subscribers = Subscribers(master, now_ms, published)
        self.outputs = Outputs(
            master.spec.uid, published, outputs, tables, lambda: (one.spec for one in master.versions)
        )
        self._address = address
        self._created_ms = now_ms
        self._pruned_ms = 0
        self._pruned_us = START_OF_TIME
        self._failure = self._waiting = ""
        self.commits = self._rows = self.final_us = 0
        self._last_status = b""
        """Of the last result, until somebody asks what it says of budgets."""
        self._estimate: EstimateWork | None = None
        self._begin_keeping()

    # -- changes ---------------------------------------------------------------------------------------------

    @property
    def is_saved(self) -> bool:
        """Whether the catalog log may be told of what the job's record says."""
        return self.durable and self.reconfiguration.durable

    def reconfigure(self, request: ReconfigureJob, now_ms: int) -> list[Effect]:
        """Change the job, as a statement says. Raises ``UserError``."""
        return [*self.reconfiguration.reconfigure(request, now_ms), *self.answers()]

    def function_failed(self, word: FunctionFailed, now_ms: int) -> list[Effect]:
        """A user's function has failed at a member; or a later stage of the query, with which it goes on."""
        if word.stage:
            self._failure = f"{word.text}, on agent {word.agent}"
            return []
        return [*self.reconfiguration.function_failed(word, now_ms), *self.answers()]

    def refused(self) -> list[Effect]:
        """The catalog log may have refused the version that is being prepared."""
        found = self.reconfiguration.refused()
        return [*found, *self.answers()] if found else []

    def advance(self, now_ms: int) -> list[Effect]:
        """The next effects of the master."""
        found = self.reconfiguration.advance(now_ms)
        if not found:
            return []
        if self.master.current.number != self._kept_of:
            self._begin_keeping()
        change = self.master.change
        if change is not None and change.outcome == "" and not self.master.current.failed:
            self._failure = ""
        return [*found, *self.answers()]

    def answers(self) -> list[Effect]:
        """The answers for those who wait and can be told by now."""
        found: list[Effect] = []
        for request, error in self.reconfiguration.take_answers():
            body = b"" if error else msgspec.msgpack.encode(self.facts())
            found.append(Send(request.origin, Answer(id=request.id, error=error, body=body)))
        return found

    def tell_of_silence(self, unbegun: str, now_ms: int) -> list[Effect]:
        """The job stays, and begins when the root is back, or another one has begun (``unbegun``: why none
        has)."""
        silent = [f.flow for f in self.master.flows if f.first_pane is None]
        away = [flow.leader for flow in silent if flow.leader != self._address]
        self._waiting = ""
        if not (away or unbegun) or now_ms - self._created_ms < ROOT_SILENT_MS:
            return []
        name = self.master.spec.name
        self._waiting = unbegun or f"the root of a running flow that it shares, {away[0]}, does not answer"
        begins = "then" if unbegun else "when that agent is back"
        return self.reconfiguration.not_created(
            f"job {name} is created, but {self._waiting}: it begins {begins} (or DROP JOB {name})"
        )

    # -- windows ---------------------------------------------------------------------------------------------

    def windows_committed(self, event: WindowsCommitted, now_ms: int) -> list[Effect]:
        self.commits, self._rows = self.commits + 1, self._rows + event.rows
        self.final_us += event.cpu_us
        self._failure = event.aggregate_failure or self._failure
        self._last_status = event.result.status if event.result is not None else self._last_status
        return [*self._judged(event, now_ms), *self.master.windows_committed(event.done)]

    def _judged(self, event: WindowsCommitted, now_ms: int) -> list[Effect]:
        """Whether windows came as early as it is promised."""
        spec, promise = event.done.spec, event.done.spec.plan.promise
        if event.result is None or promise is None or not is_promised(event.done):
            return []
        ends = promised_ends(decode(event.result.status))
        kept = self._kept if spec.version == self._kept_of else Kept()  # what an old version owes yet
        late = kept.committed(spec.plan, promise, ends, now_ms)
        return [Judged(spec.name, promise.text, len(ends) - late, late)] if ends else []

    def reached(self) -> tuple[int, bool] | None:
        """What the windows of its promise have come to (ms), and whether they were in time; None: it has
        none, or they are too few."""
        promise = self.master.spec.plan.promise
        if promise is None:
            return None
        work = self._kept.work(promise)
        reached_ms = work.mean_ms if promise.percent is None else work.quantile_ms
        return None if (kept := is_kept(promise, work)) is None else (reached_ms, kept)

    def work_out(self, entry: PauseDecided, now_ms: int) -> list[Effect]:
        """The settings of its promise anew, as the catalog log wants them (protocol 5.17)."""
        definition, promise = self.master.spec.definition, self.master.spec.plan.promise
        chosen = definition.chosen
        if promise is None or chosen is None or chosen.poll_ms != entry.before_ms:
            return []
        anew = replace(
            chosen,
            poll_ms=entry.pause_ms,
            reached_ms=entry.reached_ms,
            keeps=1_000 * entry.reached_ms <= promise.within_us,
            why=(entry.why,),
        )
        return self.reconfiguration.worked_out(
            replace(definition, chosen=anew), f"{promise.text} {entry.why}", now_ms
        )

    def _begin_keeping(self) -> None:
        """A promise is judged by windows of one version: another one has other settings, or promises another
        thing."""
        self._kept, self._kept_of = Kept(), self.master.current.number

    def fill(self, request: FillHistory) -> list[Effect]:
        """Windows of before the job began, which were made offline."""
        if why := self._why_not_filled(request):
            text = f"job {self.master.spec.name}: {why}"
            return [Send(request.origin, Answer(id=request.id, error=text))]
        rest = range(len(request.results) - 1, -1, -1)
        return [
            KeepFilled(
                request,
                WindowCommit(
                    request.uid,
                    one.first_us,
                    one.last_us,
                    self.subscribers.published,  # of its own: members need not know the same old windows
                    request.version,
                    provisional=False,
                    status=one.status,
                    rows=one.rows,
                    panes_used=NO_PANES,
                ),
                left,
            )
            for one, left in zip(request.results, rest, strict=True)
        ]

    def _why_not_filled(self, request: FillHistory) -> str:
        """A window is from one side: the live one makes all that start where the job has begun, or later.
        None that ends later than the last live one may be filled: the next leader would take those in between
        for committed."""
        spec, assembled_us = self.master.spec, self.master.assembled_us()
        if not spec.replicated:
            return "a SELECT keeps no windows"
        if request.version != spec.version:
            return f"it has version {spec.version} by now, and the windows are of another: run it again"
        begins_us = self.master.begins_us()
        if self.master.versions[0].number > 1:
            return "its first version is not known any more, and so not where it began"
        if begins_us is None or assembled_us is None:
            return "it has not committed any window yet; try again later"
        if any(len(one.status) + len(one.rows) > FILLED_BYTES_MAX for one in request.results):
            return f"a result of more than {FILLED_BYTES_MAX:,} bytes is too large to be committed"
        if any(one.first_us >= begins_us for one in request.results):
            return "it makes some of these windows itself: run it again"
        step_us = min(kind.step_us for kind in spec.plan.windows)
        if any(one.last_us <= assembled_us - WINDOWS_KEPT * step_us for one in request.results):
            return f"some of these windows are older than the last {WINDOWS_KEPT:,}, which it keeps"
        if any(one.last_us > assembled_us for one in request.results):
            return "some of these windows end after the last one that it has committed: run it again"
        return ""

    def filled(self, done: KeepFilled, number: int) -> list[Effect]:
        """They are committed; the number is an old one where they were so before."""
        row, found = done.row, list[Effect]()
        if number > self.subscribers.published:
            result = WindowResult(
                job=row.job,
                name=self.master.spec.name,
                version=row.version,
                provisional=False,
                master=self._address,
                first_us=row.first_start,
                last_us=row.last_end,
                revision=row.revision,
                status=row.status,
                payload=row.rows,
                number=number,
                before=number - 1,
            )
            found += self.subscribers.publish(result)
        if not done.rest:
            found.append(Send(done.request.origin, Answer(id=done.request.id)))
        return found

    def failed(self, event: Failure) -> list[Effect]:
        """A window cannot be finished: tell its readers. The version stays as it is, so that people can look
        at it, until another one replaces it."""
        self.master.window_failed(event.version)
        self._failure = event.text
        return self.subscribers.failed(event.text)

    def prune(self, now_ms: int) -> list[Effect]:
        """Forget windows of long ago."""
        windows, assembled = self.master.spec.plan.windows, self.master.assembled_us()
        if now_ms - self._pruned_ms < PRUNE_MS or not windows or assembled is None:
            return []
        self._pruned_ms = now_ms
        if not START_OF_TIME < assembled < END_OF_TIME:
            return []
        kept_us = WINDOWS_KEPT * min(kind.step_us for kind in windows)
        below_us = assembled - kept_us
        if below_us - self._pruned_us < kept_us // PRUNED_AT_ONCE:
            return []  # not a record of its Raft group for each minute
        self._pruned_us = below_us
        return [PruneWindows(self.master.spec.uid, below_us)]

    # -- what it costs ---------------------------------------------------------------------------------------

    def is_to_learn(self, now_ms: int) -> bool:
        """Whether it is time to ask agents what the job costs them; said once each time."""
        if now_ms < self._learn_ms or not self.is_saved or not self.master.spec.replicated:
            return False
        self._learn_after_ms = min(2 * self._learn_after_ms, LEARN_MS) if self.costs is None else LEARN_MS
        self._learn_ms = now_ms + self._learn_after_ms
        return True

    def is_to_renew(self, now_ms: int, every_ms: int) -> bool:
        """Whether it is time to see whether tables that the job joins have other rows; said once each time.
        Not while two versions make windows, so that there are never more."""
        master = self.master
        if not joins_tables(master.spec) or not master.spec.replicated:
            return False
        if self._renew_ms is None:
            self._renew_ms = now_ms + every_ms
        if now_ms < self._renew_ms:
            return False
        if master.state != "active" or len(master.live()) > 1 or not self.is_saved:
            return False
        self._renew_ms = now_ms + every_ms
        return True

    def learned(self, costs: JobCosts) -> None:
        """That is committed."""
        self.costs = costs

    # -- what it shows ---------------------------------------------------------------------------------------

    def facts(self, results: tuple[WindowResult, ...] = ()) -> JobStatus:
        master = self.master
        pane_us = master.spec.plan.fragment.pane_us
        return JobStatus(
            master.spec,
            master.state,
            self._address,
            event_time(master.first_pane, pane_us),
            event_time(master.committed_to(), pane_us),
            results,
            self._failure,
            tuple(version.record for version in master.versions),
            waiting=self._waiting,
            costs=self.costs,
        )

    def _estimated(self) -> EstimateWork | None:
        """How the last window is over budgets."""
        if self._last_status:
            self._estimate, self._last_status = estimate_of(decode(self._last_status)), b""
        return self._estimate

    def work(self) -> JobWork:
        promise = self.master.spec.plan.promise
        return JobWork(
            self.master.spec.uid,
            self.commits,
            self._rows,
            self.final_us,
            self.outputs.work(),
            None if promise is None else self._kept.work(promise),
            estimate=self._estimated(),
        )
