"""The reject file: what it says of each reject, its quota, and how it follows the checkpoint."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from agents.inputs.values import Reject
from agents.tasks.sinks import RejectFile


def reject(data: bytes, offset: int = 7) -> Reject:
    return Reject("id", "/var/log/a.log", offset, "because", data, len(data))


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_record_says_where_why_when_and_what(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rejects.jsonl"
    file = RejectFile(path, clock=lambda: 1441930018.771)
    file.add(reject('é\0\n"'.encode()))
    file.add(reject(b"\xff\xfe", 9))
    assert file.sync() == path.stat().st_size
    first, second = records(path)
    assert first == {
        "source": "/var/log/a.log",
        "id": "id",
        "offset": 7,
        "reason": "because",
        "length": 5,
        "when": "2015-09-11T00:06:58.771Z",
        "text": 'é\0\n"',
    }
    assert base64.b64decode(str(second["base64"])) == b"\xff\xfe"
    assert "text" not in second
    file.close()


def test_what_was_written_after_the_cut_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "r"
    file = RejectFile(path)
    file.add(reject(b"one"))
    checkpoint = file.sync()
    file.add(reject(b"two"))
    file.sync()
    file.close()
    again = RejectFile(path)
    again.truncate_to(checkpoint)
    assert again.sync() == checkpoint
    again.add(reject(b"three"))
    again.sync()
    assert [record["text"] for record in records(path)] == ["one", "three"]
    again.truncate_to(10**9)
    assert len(records(path)) == 2
    again.close()


def test_unsynced_records_are_dropped_too(tmp_path: Path) -> None:
    file = RejectFile(tmp_path / "r")
    file.add(reject(b"one"))
    file.truncate_to(0)
    file.sync()
    assert (tmp_path / "r").read_bytes() == b""
    file.close()


def test_beyond_the_quota_rejects_are_counted_and_a_moved_file_makes_room(tmp_path: Path) -> None:
    path = tmp_path / "r"
    file = RejectFile(path, bytes_max=1000)
    kept = [file.add(reject(b"x" * 100)) for _ in range(10)]
    assert True in kept
    assert kept == sorted(kept, reverse=True)
    assert file.not_kept == 10 - sum(kept)
    file.sync()
    assert path.stat().st_size <= 1000
    path.rename(tmp_path / "old")
    assert file.sync() == 0
    assert file.add(reject(b"again"))
    file.sync()
    assert [record["text"] for record in records(path)] == ["again"]
    file.close()
