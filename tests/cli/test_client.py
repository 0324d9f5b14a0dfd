"""The client against a stand-in agent over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable

import msgspec
import pyarrow as pa
import pytest

from agents import codec
from elf import client as elf_client
from elf.batch import encode
from elf.client import connection as module
from elf.client.connection import WAITING_MAX, Request
from elf.errors import ElfError, UserError
from elf.transport.zeromq import ZeroMqTransport
from elf.wire.base import Message
from elf.wire.clients import Call, Cancel, Execute, Failed, KeepAlive, Published, Reply
from elf.wire.frames import WIRE_VERSION
from tests.support.fleet_of_one import JOB, at, fake_agent, window_result
from tests.support.waiting import eventually


async def test_a_statement_gives_its_text_and_its_table() -> None:
    table = pa.table({"job": ["busy"], "creator": ["ada"]})

    def answers(message: Message) -> Iterable[Message]:
        assert isinstance(message, Execute)
        yield Reply(request=message.request, text="one job", payload=encode(table))

    async with fake_agent(answers) as agent, elf_client.connect(agent.address, creator="ada") as client:
        result = await client.sql("SHOW JOBS")
    assert result.text == "one job"
    assert result.table is not None
    assert result.table.equals(table)
    asked = agent.got(Execute)
    assert [(m.sql, m.creator) for m in asked if isinstance(m, Execute)] == [("SHOW JOBS", "ada")]


async def test_a_refusal_is_a_user_error_with_the_agents_words() -> None:
    def answers(message: Message) -> Iterable[Message]:
        if isinstance(message, Execute):
            yield Failed(
                request=message.request, text="unknown column `produkt`\n  SELECT produkt\n         ^"
            )

    async with fake_agent(answers) as agent, elf_client.connect(agent.address) as client:
        with pytest.raises(UserError, match="unknown column"):
            await client.sql("SELECT produkt FROM clicks")


OF_TWO_VERSIONS = "it was damaged on its way, or agent and client are of two versions of elf"


def of_another_version(frames: list[bytes]) -> list[bytes]:
    return [
        frames[0].replace(b"elf" + bytes([WIRE_VERSION]), b"elf" + bytes([WIRE_VERSION + 1])),
        *frames[1:],
    ]


def damaged(frames: list[bytes]) -> list[bytes]:
    return [frames[0].replace(b"one job", b"two job"), *frames[1:]]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (of_another_version, f"version: wire version {WIRE_VERSION + 1}, this is {WIRE_VERSION}"),
        (damaged, "checksum: the envelope is damaged"),
        (lambda _: [b"no envelope"], "malformed: not an envelope"),
    ],
)
async def test_an_answer_that_cannot_be_read_ends_the_call_at_once(
    spoil: Callable[[list[bytes]], list[bytes]], why: str
) -> None:
    def answers(message: Message) -> Iterable[Message]:
        if isinstance(message, Execute):
            yield Reply(request=message.request, text="one job")

    async with asyncio.timeout(10), fake_agent(answers) as agent, elf_client.connect(agent.address) as client:
        agent.spoil = spoil
        with pytest.raises(ElfError) as failed:
            await client.sql("SHOW JOBS")
        said = f"no answer from the agent at {agent.address}: what it says cannot be read ({why}): "
        assert str(failed.value) == said + OF_TWO_VERSIONS
        agent.spoil = lambda frames: frames
        assert (await client.sql("SHOW JOBS")).text == "one job"


async def test_an_agent_of_another_version_is_told_when_the_client_opens() -> None:
    async with fake_agent(lambda _: ()) as agent:
        agent.spoil = of_another_version
        with pytest.raises(ElfError, match=rf"cannot reach an agent .* wire version .* {OF_TWO_VERSIONS}"):
            await elf_client.connect(agent.address).open()


async def test_windows_come_split_in_order_and_once_a_revision() -> None:
    def answers(message: Message) -> Iterable[Message]:
        if isinstance(message, Execute):
            yield Published(request=message.request, result=window_result(5, 0))
            yield Published(request=message.request, result=window_result(0, 5))
            yield Published(request=message.request, result=window_result(5, revision=1))
            yield Published(request=message.request, result=window_result(10))

    async with fake_agent(answers) as agent, elf_client.connect(agent.address) as client:
        found = [window async for window in client.subscribe("busy", windows=3)]
        await eventually(lambda: agent.got(Cancel), "a subscription that ended is cancelled", 5)
    assert [(w.start, w.end, w.revision) for w in found] == [
        (at(0), at(5), 0),
        (at(5), at(10), 0),
        (at(5), at(10), 1),
        (at(10), at(15), 0),
    ]
    assert found[0].table["clicks"].to_pylist() == [0, 1]
    assert found[0].status["missing"] == ["shop-3"]
    assert "window_start" not in found[0].status
    assert [m.sql for m in agent.got(Execute) if isinstance(m, Execute)] == ["SUBSCRIBE busy"]


async def test_windows_without_rows_still_have_their_status() -> None:
    (window,) = elf_client.split(window_result(0, rows=0))
    assert window.table.num_rows == 0
    assert window.status["rows_in"] == 100


async def test_rows_that_do_not_come_window_by_window_are_sorted_into_them() -> None:
    mixed = window_result(5, 0, 10, rows=3)
    found = list(elf_client.split(mixed))
    assert [window.start for window in found] == [at(0), at(5), at(10)]
    assert [window.table["clicks"].to_pylist() for window in found] == [
        [0, 1, 2],
        [50, 51, 52],
        [100, 101, 102],
    ]


async def test_a_select_is_not_for_sql() -> None:
    def answers(message: Message) -> Iterable[Message]:
        if isinstance(message, Execute):
            yield Published(request=message.request, result=window_result(0))

    async with fake_agent(answers) as agent, elf_client.connect(agent.address) as client:
        with pytest.raises(UserError, match="subscribe"):
            await client.sql("SELECT 1")


async def test_calls_give_json_objects() -> None:
    def answers(message: Message) -> Iterable[Message]:
        if isinstance(message, Call):
            yield Reply(request=message.request, body=json.dumps({message.verb: message.argument}).encode())

    async with fake_agent(answers) as agent, elf_client.connect(agent.address) as client:
        assert await client.tree("busy") == {"tree": "busy"}
        assert (await client.status())["agent"] == "fake"
        assert await client.leave() == {"leave": ""}
        assert await client.leave(force=True) == {"leave": "force"}


async def test_nobody_there_is_one_clear_line() -> None:
    with pytest.raises(ElfError) as caught:
        await elf_client.connect("127.0.0.1:1").open()
    assert str(caught.value).startswith("cannot reach an agent at 127.0.0.1:1: connection refused")
    assert "\n" not in str(caught.value)


async def test_an_agent_of_another_cluster_does_not_answer() -> None:
    async with fake_agent(lambda _: [], cluster="elf") as agent:
        agent.silent = True
        with pytest.raises(ElfError, match="no agent of cluster 'elf' answers there"):
            await elf_client.connect(agent.address, timeout=0.2).open()


async def test_an_agent_of_another_cluster_says_which() -> None:
    """As real agents do: a word of theirs in their own cluster's name, at once."""
    transport = await ZeroMqTransport.listen("127.0.0.1:0")

    async def refuse() -> None:
        client, _, _ = await transport.receive()
        word = Failed(request=0, text="")
        transport.send(client, codec.encode(word, cluster="east", sender=transport.address))

    refusing = asyncio.create_task(refuse())
    try:
        with pytest.raises(ElfError) as caught:
            await elf_client.connect(transport.address, cluster="west", keys="none").open()
        assert str(caught.value) == (
            f"cannot reach an agent at {transport.address}: it is an agent of cluster 'east', and 'west' was "
            "asked for (--cluster; cluster.name)"
        )
    finally:
        await refusing
        await transport.close()


async def test_open_requests_are_kept_alive_and_a_restart_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE_SECS", 0.05)

    async with fake_agent(lambda _: []) as agent, elf_client.connect(agent.address) as client:
        reading = asyncio.ensure_future(anext(client.subscribe("busy")))
        await eventually(lambda: agent.got(KeepAlive), "it is kept alive", 5)
        (asked,) = agent.got(Execute)
        assert isinstance(asked, Execute)
        assert {m.request for m in agent.got(KeepAlive) if isinstance(m, KeepAlive)} == {asked.request}
        agent.status["incarnation"] = 2
        with pytest.raises(ElfError, match=r"lost the agent at .*: it was restarted"):
            await reading


async def test_an_agent_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE_SECS", 0.05)
    monkeypatch.setattr(module, "SILENCE_SECS", 0.2)
    async with fake_agent(lambda _: []) as agent, elf_client.connect(agent.address) as client:
        agent.silent = True
        with pytest.raises(ElfError, match=r"lost the agent at .*: it has said nothing"):
            await anext(client.subscribe("busy"))


async def test_a_reader_that_falls_behind_is_told() -> None:
    request = Request(1)
    for _ in range(WAITING_MAX + 1):
        request.put(Reply(request=1))
    with pytest.raises(ElfError, match="too slow"):
        await request.get(None)


async def test_changes_and_why_nothing_comes_are_told_apart_from_windows() -> None:
    def answers(message: Message) -> Iterable[Message]:
        if isinstance(message, Execute):
            yield Reply(request=message.request, text="no row has come; …", done=False)
            for early, rows in ((1, 1), (2, 2), (0, 2)):
                result = window_result(0, rows=rows)
                result = msgspec.structs.replace(result, early=early, changes=True)
                yield Published(request=message.request, result=result)

    async with fake_agent(answers) as agent, elf_client.connect(agent.address) as client:
        found = [one async for one in client.execute("SUBSCRIBE busy", windows=1)]
    why = found[0]
    assert isinstance(why, elf_client.Result)
    assert (why.text, why.waiting) == ("no row has come; …", True)
    windows = [one for one in found if isinstance(one, elf_client.Window)]
    assert [window.early for window in windows] == [1, 2, 0]
    signs = [None if w.changes is None else w.changes["_op"].to_pylist() for w in windows]
    assert signs == [["+"], ["+"], []]


async def test_of_several_agents_the_first_that_answers() -> None:
    async with fake_agent(lambda _: []) as agent, fake_agent(lambda _: [], cluster="other") as strange:
        addresses = f"127.0.0.1:1, {strange.address},{agent.address}"
        async with elf_client.connect(addresses, timeout=0.5) as client:
            assert client.address == agent.address
        with pytest.raises(ElfError) as refused:
            await elf_client.connect(f"127.0.0.1:1,{strange.address}", timeout=0.5).open()
    assert str(refused.value) == (
        "cannot reach an agent at 127.0.0.1:1: connection refused (is elf-agent running there?); "
        f"cannot reach an agent at {strange.address}: no agent of cluster 'elf' answers there "
        "(--cluster NAME, as the agent's cluster.name says), or it is stopped"
    )


async def test_a_subscription_goes_on_at_another_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last result up to which all were told, and with none of them again."""
    monkeypatch.setattr(module, "KEEP_ALIVE_SECS", 0.05)

    def telling(*numbers: int) -> Callable[[Message], Iterable[Message]]:
        def answers(message: Message) -> Iterable[Message]:
            if isinstance(message, Execute):
                for n in numbers:
                    result = msgspec.structs.replace(window_result(5 * n), number=n, before=n - 1)
                    yield Published(request=message.request, result=result)

        return answers

    async with (
        fake_agent(telling(3, 4, 6)) as first,
        fake_agent(telling(5, 6, 7)) as second,
        elf_client.connect(f"{first.address},{second.address}") as client,
    ):
        found = []
        async for window in client.subscribe("busy", windows=5):
            found.append(window.start)
            first.status["incarnation"] = 2  # it was started anew, and knows of nothing
        assert client.address == second.address
        second.status["incarnation"] = 3
        with pytest.raises(ElfError, match="lost the agent"):  # what is no subscription does not go on
            await client.call("tree")
    assert found == [at(5 * n) for n in (3, 4, 6, 5, 7)]
    asked = [m.after for m in (*first.got(Execute), *second.got(Execute)) if isinstance(m, Execute)]
    assert asked == [None, (JOB, 4)]
