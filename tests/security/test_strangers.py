"""Keys that are not admitted are in the audit, and whoever brings them cannot fill it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from agents.audit import REPEATS_SECS, Audit
from agents.disk.chain import files_of
from agents.disk.store import Store
from agents.strangers import ADDRESSES_MAX, KEYS_MAX, OTHERS, Strangers
from elf.client import connect
from elf.errors import ElfError
from tests.support.fleet import Fleet
from tests.support.keys import Authority
from tests.support.waiting import eventually

COMES = 60


def refusals(folder: Path) -> list[dict[str, object]]:
    found = [json.loads(line) for path in files_of(folder) for line in path.read_bytes().splitlines()]
    return [one for one in found if one["what"] == "key refused"]


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[tuple[Fleet, Authority]]:
    authority = Authority(tmp_path / "keys")
    authority.enrol("agent", "web-0")
    authority.enrol("person", "ada", "admin")
    authority.enrol("person", "mallory", "admin")
    authority.enrol("person", "eve", "admin", lasts=-5)
    authority.enrol("person", "stranger", "admin", known=False)
    authority.revoke("mallory")
    fleet = Fleet(tmp_path / "fleet", 1)
    (agent,) = fleet.agents
    agent.more = {"security": "keys", "keys": str(authority.written(agent.name))}
    fleet.start()
    yield fleet, authority
    fleet.stop()


async def test_who_comes_with_a_key_that_is_not_admitted_is_in_the_audit(
    closed: tuple[Fleet, Authority],
) -> None:
    fleet, authority = closed
    (agent,) = fleet.agents

    async def is_up() -> bool:
        async with connect(agent.address, cluster="test", timeout=5, keys=authority.written("ada")) as ada:
            return bool(await ada.status())

    await eventually(is_up, "the agent is there", 30, despite=(ElfError,))
    for name in ("mallory", "eve", "stranger"):
        with pytest.raises(ElfError, match="it does not admit the key"):
            await connect(agent.address, cluster="test", timeout=5, keys=authority.written(name)).open()
    with zmq.Context() as context:
        for _ in range(COMES):
            with context.socket(zmq.DEALER) as socket:
                socket.setsockopt(zmq.LINGER, 0)
                socket.curve_serverkey = zmq.utils.z85.encode(authority.fleet.public)
                socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
                monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
                socket.connect(f"tcp://{agent.address}")
                assert monitor.poll(10_000)
                socket.disable_monitor()
    folder = agent.folder / "data" / "audit"
    await eventually(lambda: len(refusals(folder)) > KEYS_MAX, "they are in the audit", 20)
    assert agent.terminate() == 0
    found = refusals(folder)
    assert {one["from"] for one in found} == {"127.0.0.1"}
    assert {one.get("was") for one in found} == {"mallory", "eve", None}
    assert len({one["key"] for one in found}) == KEYS_MAX + 1
    assert len(found) <= 2 * (KEYS_MAX + 1)
    assert sum(int(str(one.get("times", 1))) for one in found) >= COMES


def test_so_many_addresses_and_keys_a_minute_are_named(tmp_path: Path) -> None:
    now = [0.0]
    strangers = Strangers(lambda key: "", lambda: now[0])
    strangers.refused("too.early", b"")
    with contextlib.closing(Store(tmp_path / "agent.sqlite")) as store:
        strangers.audit = Audit(tmp_path / "audit", store, file_bytes_max=1 << 20, files_max=2)
        for host in range(200):
            for key in range(50):
                strangers.refused(f"10.0.0.{host}", bytes([host, key]))
        now[0] += REPEATS_SECS
        strangers.refused("10.0.0.200", b"key")
        strangers.audit.close()
    found = refusals(tmp_path / "audit")
    named = {(one["from"], one["key"]) for one in found}
    assert len(found) <= 2 * (ADDRESSES_MAX + 1) * (KEYS_MAX + 1)
    assert (OTHERS, OTHERS) in named
    assert ("10.0.0.0", "0000") in named
    assert ("10.0.0.200", b"key".hex()) in named
    assert "too.early" not in {address for address, _ in named}
