"""What an agent does for the clients that read windows at it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace

from agents.answering.asks import OFFLOAD_MS, Procedure, Tell, Until, offload
from agents.answering.clients import LOG_MS, RENEW_MS, Clients, _Reader
from agents.answering.quotas import BURST_SECS, Creators, Quotas
from agents.answering.statements import SHORT_CHARS
from elf.job.catalog.log import CatalogLog
from elf.job.effects import Audited, Offload, Refused, Send
from elf.job.events import Arrived, Offloaded
from elf.job.messages.groups import SubscribeJob
from elf.planning.budgets import BudgetKeeper
from elf.planning.lent import Budgets
from elf.wire.clients import Call, Execute, Failed, Published, Reply, WindowResult
from elf.wire.heard import Heard
from lab.chaos.engine import plan, spec_of
from lab.chaos.world import World

HOME, ME, CLIENT = "10.0.0.9:7100", "10.0.0.1:7100", "client:1"
SPEC = spec_of("job", "me", 1, plan(2), ())


def result(number: int, *, before: int | None = None, final: bool = False) -> WindowResult:
    return WindowResult(
        job=SPEC.uid,
        name="job",
        version=1,
        master=HOME,
        first_us=2 * number,
        last_us=2 * number + 2,
        revision=0,
        final=final,
        status=b"",
        payload=b"",
        number=number,
        before=number - 1 if before is None else before,
    )


class Reading:
    """One client that reads. ``hear``: what it is sent, and what is asked of the job group."""

    def __init__(self, heard: Heard) -> None:
        self.clients = Clients(ME, SimpleNamespace(masters=SimpleNamespace(leader=lambda spec: HOME)))  # type: ignore[arg-type]
        self.clients._readers[CLIENT, 3] = _Reader(CLIENT, 3, SPEC, None, False, 0, 0, heard)

    def hear(self, published: WindowResult, now_ms: int = 0) -> tuple[list[int], list[int | None]]:
        return self._said(self.clients.published(published, now_ms))

    def tick(self, now_ms: int) -> list[int | None]:
        return self._said(self.clients.tick(now_ms))[1]

    def _said(self, steps: Sequence[object]) -> tuple[list[int], list[int | None]]:
        messages = [step.message for step in steps if isinstance(step, Send)]
        self.ended = any(isinstance(one, Reply) for one in messages)
        told = [one.result.number for one in messages if isinstance(one, Published)]
        return told, [one.after for one in messages if isinstance(one, SubscribeJob)]


def test_windows_that_got_lost_on_their_way_are_asked_for_until_they_come() -> None:
    reader = Reading(Heard(None))
    assert reader.hear(result(5)) == ([5], [])
    assert reader.hear(result(6)) == ([6], [])
    assert reader.hear(result(8)) == ([8], [6]), "7 did not come"
    assert reader.hear(result(9), RENEW_MS - 1) == ([9], []), "it has been asked for"
    assert reader.tick(RENEW_MS) == [6], "neither question nor answer came"
    assert reader.hear(result(8)) == ([], []), "it was there already"
    assert reader.hear(result(7)) == ([7], [])
    assert reader.hear(result(10), RENEW_MS) == ([10], [])
    assert reader.hear(result(4)) == ([], []), "that was before its time"


def test_a_reader_does_not_end_before_what_got_lost_has_come() -> None:
    reader = Reading(Heard(0))
    assert reader.hear(result(2, final=True)) == ([2], [0])
    assert not reader.ended
    assert reader.hear(result(1)) == ([1], [])
    assert reader.ended


def test_all_calls_but_those_of_who_looks_on_count_for_the_quota() -> None:
    """Each is a record of the audit too, which has so much room."""
    creators = Creators(CatalogLog(), Quotas(statements_per_sec=1), BudgetKeeper(Budgets()))

    def made(call: Call, now_ms: int, who: object) -> Procedure:
        yield []
        return Reply(request=call.request, text="done")

    clients = Clients(ME, SimpleNamespace(call=made, creators=creators))  # type: ignore[arg-type]

    def refused(verb: str, numbers: Iterable[int]) -> int:
        found = [clients.heard(CLIENT, Call(request=n, verb=verb, argument=f"{n}"), 0) for n in numbers]
        return sum(isinstance(step, Refused) for steps in found for step in steps)

    assert refused("tap", range(1, 50)) == refused("status", range(50, 99)) == 0
    assert refused("enrol", range(100, 100 + BURST_SECS)) == 0
    assert refused("enrol", range(200, 220)) == refused("anything", range(300, 320)) == 20


def test_a_request_waits_until_the_log_here_says_what_was_done_or_for_a_while() -> None:
    log: list[str] = []

    def made() -> Procedure:
        yield [Until(lambda: "made" in log)]
        return Reply(request=1, text="done")

    creators = Creators(CatalogLog(), Quotas(), BudgetKeeper(Budgets()))
    clients = Clients(ME, SimpleNamespace(execute=lambda asked, now_ms, who: made(), creators=creators))  # type: ignore[arg-type]
    asked = Execute(request=1, sql="CREATE …", creator="me")
    facts = {"who": "me", "from": CLIENT, "statement": "CREATE …", "outcome": "ok"}
    done = [Audited("statement", facts), Send(CLIENT, Reply(request=1, text="done"))]
    (until,) = clients.heard(CLIENT, asked, 0)
    assert isinstance(until, Until), "the node asks a keeper"
    assert clients.log_grew(5) == []
    log.append("made")
    assert clients.log_grew(9) == done
    assert clients.heard(CLIENT, asked, 10) == done, "it is there"
    log.clear()
    clients.heard(CLIENT, asked, 20)
    assert clients.tick(20 + LOG_MS - 1) == []
    assert clients.tick(20 + LOG_MS) == done, "no keeper answers"
    assert clients.deadline() is None


def test_a_statement_that_is_not_planned_in_time_is_refused_and_what_comes_later_is_nobody_s() -> None:
    def made() -> Procedure:
        said = yield from offload(lambda: "made")
        return Reply(request=1, text=said)

    creators = Creators(CatalogLog(), Quotas(), BudgetKeeper(Budgets()))
    clients = Clients(ME, SimpleNamespace(execute=lambda asked, now_ms, who: made(), creators=creators))  # type: ignore[arg-type]
    asked = Execute(request=1, sql="CREATE …", creator="me")
    (work,) = clients.heard(CLIENT, asked, 0)
    assert isinstance(work, Offload)
    *_, reply = clients.offloaded(Offloaded(work.id, work.work(), None), 1)
    assert reply == Send(CLIENT, Reply(request=1, text="made"))
    (work,) = clients.heard(CLIENT, asked, 2)
    assert isinstance(work, Offload)
    assert clients.tick(1 + OFFLOAD_MS) == []
    refused, _, failed = clients.tick(2 + OFFLOAD_MS)
    assert refused == Refused("planning")
    assert isinstance(failed, Send)
    assert isinstance(failed.message, Failed)
    assert failed.message.text.startswith("the statement is not planned within 5 s")
    assert clients.offloaded(Offloaded(work.id, work.work(), None), 9_000) == []


def test_a_short_text_does_not_wait_for_the_plans_of_others() -> None:
    world = World(1, 1)
    world.start_all()
    world.run(5_000)
    (agent,) = world.agents

    def handed_over(text: str) -> list[str]:
        effects = agent.node.handle(Arrived(CLIENT, Execute(request=1, sql=text, creator="me")), world.now)
        return [type(one).__name__ for one in effects if isinstance(one, Offload)]

    assert handed_over("SHOW TABLES") == ["Offload"], "the first one loads the parser"
    agent.handle(Arrived(CLIENT, Execute(request=2, sql="SHOW TABLES", creator="me")))
    world.run_until(lambda: bool(world.client_inbox), 30_000)
    assert handed_over("SHOW TABLES") == []
    assert handed_over(f"SHOW TABLES -- {SHORT_CHARS * '-'}") == ["Offload"]


def test_a_reply_in_portions_comes_in_its_order_and_ends_once() -> None:
    portions = [Reply(request=1, payload=bytes([n]), done=False) for n in range(3)]

    def told() -> Procedure:
        for portion in portions:
            yield [Tell(portion)]
        return Reply(request=1, text="that is all")

    creators = Creators(CatalogLog(), Quotas(), BudgetKeeper(Budgets()))
    clients = Clients(ME, SimpleNamespace(execute=lambda asked, now_ms, who: told(), creators=creators))  # type: ignore[arg-type]
    steps = clients.heard(CLIENT, Execute(request=1, sql="SELECT …", creator="me"), 0)
    replies = [step.message for step in steps if isinstance(step, Send)]
    assert replies == [*portions, Reply(request=1, text="that is all")]
    assert clients.deadline() is None
