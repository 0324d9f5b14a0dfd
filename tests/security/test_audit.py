"""What an agent keeps of what it did: nobody changes it unseen, it has no rows, and it holds nothing up."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from agents.audit import RECORD_BYTES_MAX, WAITING_BYTES_MAX, Audit
from agents.disk.chain import HEAD, Chain, Head, Verdict, decode_head, files_of, head_in, verify
from agents.disk.store import Store
from elf.errors import UserError
from tests.support.fleet import Fleet
from tests.support.rawsockets import with_this_machines_key
from tests.support.waiting import eventually
from tests.support.watching import connected, create

COUNT = 30


def written(folder: Path, count: int = COUNT, *, file_bytes_max: int = 1_000, files_max: int = 100) -> Head:
    """So many records in several files, and the head."""
    chain = Chain(folder, file_bytes_max=file_bytes_max, files_max=files_max)
    assert chain.open(None).goes_on
    for number in range(count):
        chain.append([{"at": "2026-01-01T00:00:00Z", "what": "statement", "statement": f"SELECT {number}"}])
        chain.prune()
    chain.close()
    return chain.head


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def changed(folder: Path) -> None:
    path = files_of(folder)[1]
    path.write_bytes(path.read_bytes().replace(b"SELECT", b"DELETE", 1))


def removed(folder: Path) -> None:
    path = files_of(folder)[1]
    path.write_bytes(b"".join(lines(path)[:1] + lines(path)[2:]))


def removed_at_the_seam(folder: Path) -> None:
    path = files_of(folder)[1]
    path.write_bytes(b"".join(lines(path)[1:]))


def swapped(folder: Path) -> None:
    path = files_of(folder)[1]
    one, other, *rest = lines(path)
    path.write_bytes(b"".join([other, one, *rest]))


def added(folder: Path) -> None:
    path = files_of(folder)[1]
    path.write_bytes(b"".join([*lines(path)[:1], *lines(path)]))


def torn_in_the_middle(folder: Path) -> None:
    path = files_of(folder)[1]
    path.write_bytes(path.read_bytes()[:-10])


def cut_off(folder: Path) -> None:
    path = files_of(folder)[-1]
    path.write_bytes(b"".join(lines(path)[:-1]))


def last_line_cut(folder: Path) -> None:
    path = files_of(folder)[-1]
    path.write_bytes(path.read_bytes()[:-10])


def last_file_gone(folder: Path) -> None:
    files_of(folder)[-1].unlink()


def first_file_gone(folder: Path) -> None:
    files_of(folder)[0].unlink()


def middle_file_gone(folder: Path) -> None:
    files_of(folder)[1].unlink()


def all_gone(folder: Path) -> None:
    shutil.rmtree(folder)


def all_made_anew(folder: Path) -> None:
    """A chain that holds, of other records."""
    shutil.rmtree(folder)
    chain = Chain(folder, file_bytes_max=1_000, files_max=100)
    chain.open(None)
    chain.append({"at": "2026-01-01T00:00:00Z", "what": "nothing"} for _ in range(COUNT + 5))
    chain.close()


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (changed, "one of them was changed"),
        (removed, "records were removed"),
        (removed_at_the_seam, "records were removed"),
        (swapped, "records were removed, added or moved"),
        (added, "records were removed, added or moved"),
        (torn_in_the_middle, "records were removed"),
        (cut_off, "records 30 to 30 are gone from the end"),
        (last_line_cut, "records 30 to 30 are gone from the end"),
        (last_file_gone, "are gone from the end"),
        (first_file_gone, "the files from audit-000001.jsonl to here are gone"),
        (middle_file_gone, "records were removed"),
        (all_gone, "it is gone, with 30 records"),
        (all_made_anew, "record 30 is another than the one that the agent wrote"),
    ],
)
def test_what_is_done_to_a_chain_is_seen(tmp_path: Path, tamper: Callable[[Path], None], says: str) -> None:
    folder = tmp_path / "audit"
    head = written(folder)
    assert len(files_of(folder)) > 3
    assert verify(files_of(folder), head).breaks == []
    tamper(folder)
    found = verify(files_of(folder), head)
    assert not found.goes_on
    assert any(says in str(one) for one in found.breaks), found.breaks


def test_old_files_go_and_the_chain_holds(tmp_path: Path) -> None:
    head = written(tmp_path, 100, files_max=3)
    files = files_of(tmp_path)
    assert len(files) == 3
    found = verify(files, head)
    assert found.breaks == []
    assert found.last == 100
    assert found.first > 1
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_half_a_line_of_a_crash_is_no_break(tmp_path: Path) -> None:
    """It stands after the head, so nothing was told of it; the records go on in the next file."""
    head = written(tmp_path, file_bytes_max=1 << 20)
    with files_of(tmp_path)[0].open("ab") as file:
        file.write(b'{"n":31,"at":"2026-')
    chain = Chain(tmp_path, file_bytes_max=1 << 20, files_max=3)
    assert chain.open(head).goes_on
    chain.append([{"at": "2026-01-01T00:00:00Z", "what": "statement"}])
    chain.close()
    found = verify(files_of(tmp_path), chain.head)
    assert (found.breaks, found.last, len(files_of(tmp_path))) == ([], COUNT + 1, 2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "elf.sqlite")
    yield made
    made.close()


def audit(tmp_path: Path, store: Store, folder: str = "audit") -> Audit:
    return Audit(tmp_path / folder, store, file_bytes_max=1 << 20, files_max=3)


def records(folder: Path) -> list[dict[str, object]]:
    """Those that are written whole."""
    return [json.loads(line) for path in files_of(folder) for line in lines(path) if line.endswith(b"\n")]


def checked(tmp_path: Path, store: Store) -> Verdict:
    head = store.get(HEAD)
    assert head is not None
    return verify(files_of(tmp_path / "audit"), decode_head(head))


def test_a_start_goes_on_where_the_last_one_ended(tmp_path: Path, store: Store) -> None:
    for number in range(3):
        kept = audit(tmp_path, store)
        kept.record("statement", {"who": "me", "statement": f"SELECT {number}"})
        kept.close()
    assert [one["n"] for one in records(tmp_path / "audit")] == [1, 2, 3]
    assert checked(tmp_path, store).breaks == []
    head = store.get(HEAD)
    assert head is not None
    assert head_in(tmp_path / "elf.sqlite") == decode_head(head)


def test_after_a_break_a_new_chain_begins_once_and_says_why(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "audit"
    for number in range(2):
        kept = audit(tmp_path, store)
        kept.record("statement", {"statement": f"SELECT {number}"})
        kept.close()
    (path,) = files_of(folder)
    path.write_bytes(path.read_bytes().replace(b"SELECT 0", b"SELECT 9"))
    for number in range(2):
        kept = audit(tmp_path, store)
        kept.record("statement", {"statement": f"SHOW {number}"})
        kept.close()
    assert len(files_of(folder)) == 2
    begun, next_ = records(folder)[2:]
    assert (begun["n"], begun["previous"]) == (3, "")
    assert "one of them was changed" in str(begun["why"])
    assert (next_["n"], "why" in next_) == (4, False)
    found = checked(tmp_path, store)
    assert found.goes_on
    assert [one.begins for one in found.breaks] == [False, True]


def test_what_repeats_is_counted_and_no_flood(tmp_path: Path, store: Store) -> None:
    kept = audit(tmp_path, store)
    for number in range(1_000):
        kept.refused("malformed", "10.0.0.9:7071")
        if number % 10 == 0:
            kept.refused("version", "10.0.0.8:7071")
    kept.close()
    told = [(one["from"], one["reason"], one.get("times")) for one in records(tmp_path / "audit")]
    assert told == [
        ("10.0.0.9:7071", "malformed", None),
        ("10.0.0.8:7071", "version", None),
        ("10.0.0.9:7071", "malformed", 999),
        ("10.0.0.8:7071", "version", 99),
    ]
    assert kept.lost == 0


def test_what_finds_no_room_is_counted_and_said(tmp_path: Path, store: Store) -> None:
    kept = audit(tmp_path, store)
    began = time.monotonic()
    count = 2 * WAITING_BYTES_MAX // RECORD_BYTES_MAX
    for number in range(count):
        kept.record("statement", {"statement": f"{number}" + "x" * (RECORD_BYTES_MAX - 100)})
    assert time.monotonic() - began < 1  # nobody has waited for a disk
    assert kept.lost > count // 3
    in_files = count - kept.lost
    deadline = time.monotonic() + 20
    while len(records(tmp_path / "audit")) < in_files and time.monotonic() < deadline:
        time.sleep(0.05)
    kept.record("statement", {"statement": "the next", "much": "y" * RECORD_BYTES_MAX})
    kept.close()
    assert records(tmp_path / "audit")[-1]["lost"] == kept.lost
    assert "left_out" in records(tmp_path / "audit")[-1]
    assert checked(tmp_path, store).breaks == []


def test_a_folder_that_cannot_be_written_stops_nobody(tmp_path: Path, store: Store) -> None:
    (tmp_path / "audit").write_text("no folder")
    kept = audit(tmp_path, store)
    kept.record("statement", {"statement": "SHOW JOBS"})
    deadline = time.monotonic() + 10
    while not kept.lost and time.monotonic() < deadline:
        time.sleep(0.02)
    (tmp_path / "audit").unlink()
    kept.record("statement", {"statement": "SHOW MEMBERS"})
    kept.close()
    (one,) = records(tmp_path / "audit")
    assert (one["statement"], one["lost"], kept.lost) == ("SHOW MEMBERS", 1, 1)


# -- a real agent --------------------------------------------------------------------------------------------

MAP = "def map(batch):\n    return batch\n"
JOB = "from elf.job import Job\nclass Quiet(Job):\n    def start(self): pass\n"


def elf_audit(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "elf.cli.main", "audit", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def test_a_real_agent_tells_who_did_what_and_no_row(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 1)
    (agent,) = fleet.agents
    function = tmp_path / "twice.py"
    function.write_text(MAP)
    fleet.start()
    data = agent.folder / "data"
    try:
        client = await connected(fleet, 0)
        agent.append([(time.time_ns() // 1000, "a-secret-of-a-row", 1)])
        await create(client)
        with pytest.raises(UserError):
            await client.sql("SELECT nothing FROM nowhere")
        await client.sql(f"ALTER JOB popular SET FUNCTION map FROM '{function}'")
        await client.submit(JOB, "quiet.py", "quiet")
        await client.sql("DROP JOB quiet")
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        with context.socket(zmq.DEALER) as stranger:
            stranger.setsockopt(zmq.LINGER, 0)
            with_this_machines_key(stranger)
            stranger.connect(f"tcp://{agent.address}")
            for _ in range(20):
                stranger.send(b"\xc1 no message")

            def told(what: str) -> list[dict[str, object]]:
                return [one for one in records(data / "audit") if one["what"] == what]

            await eventually(lambda: told("message refused"), "the refusal is in the audit", 20)
        await client.close()
        assert agent.terminate() == 0
    finally:
        fleet.stop()
    text = b"".join(path.read_bytes() for path in files_of(data / "audit")).decode()
    assert "a-secret-of-a-row" not in text
    assert MAP not in text
    (altered,) = [one for one in told("statement") if "ALTER" in str(one["statement"])]
    hashed = hashlib.sha256(MAP.encode()).hexdigest()
    assert (altered["who"], altered["outcome"]) == ("tests", "ok")
    assert str(altered["from"]).startswith("client:")
    assert altered["files"] == {str(function): hashed}
    (refused,) = [one for one in told("statement") if "nowhere" in str(one["statement"])]
    assert refused["outcome"] == "refused"
    assert "nowhere" in str(refused["reason"])
    (version,) = told("version of a job")
    assert (version["creator"], version["functions"]) == ("tests", {"map of twice.py": hashed})
    (program,) = told("job in Python")
    assert program["files"] == {"quiet.py": hashlib.sha256(JOB.encode()).hexdigest()}
    assert [one["agent"] for one in told("member joined")] == ["web-0"]
    assert sum(int(str(one.get("times", 1))) for one in told("message refused")) == 20
    assert told("job dropped")
    assert told("agent starts")
    assert told("agent stops")

    fine = elf_audit("--data-dir", str(data), "--verify")
    assert (fine.returncode, fine.stderr) == (0, "")
    assert "the chain holds, up to what the agent wrote last" in fine.stdout
    shown = elf_audit("--data-dir", str(data), "--since", "1h", "--output", "json")
    assert [json.loads(line) for line in shown.stdout.splitlines()] == records(data / "audit")
    (path,) = files_of(data / "audit")
    kept = lines(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"".join(kept[:-1]))
    cut = elf_audit("--data-dir", str(data), "--verify")
    assert cut.returncode == 1
    assert f"records {len(kept)} to {len(kept)} are gone from the end" in cut.stderr
    path.write_bytes(b"".join(kept).replace(b'"tests"', b'"other"', 1))
    forged = elf_audit("--file", str(path), "--verify")
    assert forged.returncode == 1
    assert f"{path.name}:" in forged.stderr
