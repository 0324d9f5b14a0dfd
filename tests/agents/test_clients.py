"""What an agent does for the clients that read windows at it."""

from __future__ import annotations

from types import SimpleNamespace

from agents.clients import Clients, _Reader
from elf.chaos.engine import plan
from elf.job.effects import Send
from elf.job.messages import Published, SubscribeJob, WindowResult
from elf.job.spec import JobSpec

HOME, ME, CLIENT = "10.0.0.9:7100", "10.0.0.1:7100", "client:1"
SPEC = JobSpec("job", "me", 1, plan(2), ())


def result(first_us: int, last_us: int, revision: int = 0) -> WindowResult:
    return WindowResult(
        job=SPEC.uid,
        name="job",
        version=1,
        master=HOME,
        first_us=first_us,
        last_us=last_us,
        revision=revision,
        status=b"",
        payload=b"",
    )


def test_windows_that_got_lost_on_their_way_are_asked_for_when_the_next_ones_come() -> None:
    clients = Clients(ME, SimpleNamespace(home=lambda spec: HOME))  # type: ignore[arg-type]
    clients._readers[CLIENT, 3] = _Reader(CLIENT, 3, SPEC, None, False, 0, 0, None)

    def asked(published: WindowResult) -> list[int | None]:
        steps = [step for step in clients.published(published, 0) if isinstance(step, Send)]
        told = [step.message for step in steps if isinstance(step.message, Published)]
        assert [one.result for one in told] == [published]
        return [step.message.after_us for step in steps if isinstance(step.message, SubscribeJob)]

    assert asked(result(8, 10)) == []
    assert asked(result(10, 12)) == []
    assert asked(result(14, 16)) == [12], "those that end in (12, 14] did not come"
    assert asked(result(12, 14)) == []
    assert asked(result(10, 12, revision=1)) == []
    assert asked(result(16, 18)) == []
