"""What ``elf-agent validate`` finds on a machine: by real folders, files, ports and locks."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import tempfile
import textwrap
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agents.config import Config
from agents.disk.folder import held
from agents.disk.store import Store
from agents.loading import load
from agents.main import run
from agents.process import STORE_FILE
from agents.validation import Found, fixed_folder, validate, validate_all
from elf.errors import UserError
from tests.support.files import written


def config_with(folder: Path, text: str) -> Config:
    return load(written(folder, text), {})


ACCESS = '1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 94 "-" "x"\n'


def validated(folder: Path, text: str, env: dict[str, str] | None = None) -> Found:
    """With free ports, and a data folder that can be made, unless the text says something else."""
    known: dict[str, object] = yaml.safe_load(textwrap.dedent(text)) or {}
    free = {
        "data_dir": f"{folder}/data",
        "agent": {"name": "a", "listen": "127.0.0.1:0", "advertise": "127.0.0.1:7071"},
        "http": {"listen": "127.0.0.1:0"},
    }
    return validate(load(written(folder, yaml.safe_dump(free | known, sort_keys=False)), env or {}))


def test_validate_finds_what_the_machine_lacks(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = validated(
        tmp_path,
        f"""
        data_dir: {tmp_path}/file/data
        archive: {{path: {tmp_path}/file}}
        streams:
          here: {{include: "{tmp_path}/*/x.log", format: json}}
          gone: {{include: ["{tmp_path}/*.log", "{tmp_path}/gone/a-*.log"], format: json}}
        """,
    )
    assert [line.replace(str(tmp_path), "") for line in found.machine] == [
        "data_dir: /file is not a folder",
        "archive.path: /file is not a folder",
    ]
    assert [line.replace(str(tmp_path), "") for line in found.notes] == [
        "streams.here.include: /*/x.log matches nothing now: no file is there",
        "streams.gone.include: /*.log matches nothing now: no file is there",
        "streams.gone.include: /gone/a-*.log matches nothing now: there is no folder /gone",
    ]


def test_validate_tries_to_listen_and_to_write(tmp_path: Path) -> None:
    found = validated(
        tmp_path,
        """
        agent: {name: a, listen: "192.0.2.1:0", advertise: "web-1:7071"}
        http: {listen: "192.0.2.1:0"}
        archive: {path: "/proc/x"}
        """,
    )
    folder, *addresses = found.machine
    assert folder.startswith("archive.path: nothing can be written to /proc/x: ")
    assert addresses == [
        "agent.listen: cannot listen on 192.0.2.1:0: this machine has no such address",
        "http.listen: cannot serve HTTP on 192.0.2.1:0: this machine has no such address",
    ]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for key, line in (
            ("agent", f"agent.listen: cannot listen on 127.0.0.1:{port}: the port is in use; choose another"),
            (
                "http",
                f"http.listen: cannot serve HTTP on 127.0.0.1:{port}: the port is in use; choose another",
            ),
        ):
            (said,) = validated(tmp_path, f"{key}: {{listen: '127.0.0.1:{port}'}}").machine
            assert said.startswith(line)


def test_validate_tries_to_receive_and_reads_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.log").write_text('{"ts": 1,\n "a": 2}\n' * 9 + "{")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        text = f"""
            streams:
              app: {{include: {tmp_path}/app.log, format: json, multiline: {{start: "^{{"}}}}
              web: {{type: http, format: json, receive: {{listen: "{at}"}}}}
              udp: {{type: syslog, format: syslog, receive: {{listen: "{at}", transport: udp}}}}
              system: {{type: journal, format: json}}
        """
        monkeypatch.setenv("PATH", str(tmp_path))
        web, system = validated(tmp_path, text).machine
        assert web.startswith(f"streams.web.receive.listen: cannot receive lines on {at}: the port is in use")
        assert system.startswith("streams.system.type: streams of type journal need journalctl")


def test_validate_sees_that_a_data_folder_is_in_use(tmp_path: Path) -> None:
    """By whoever holds its lock, as long as it is held; a lock that a dead agent left is none."""
    folder = tmp_path / "data"
    with held(folder):
        (line,) = validated(tmp_path, "").machine
        pid = os.getpid()
        assert line == (
            f"data_dir: {folder} is in use by an agent (process {pid}); stop that one first, "
            "or choose another"
        )
        with (
            pytest.raises(UserError, match=rf"is in use by another agent \(process {pid}\)"),
            held(folder),
        ):
            pass
        assert validated(tmp_path, "").machine == [line], "who was refused has not become its holder"
    assert validated(tmp_path, "").machine == []


def test_validate_opens_a_copy_of_the_state(tmp_path: Path) -> None:
    """What is refused is refused before a start, and nothing of it is touched."""
    folder = tmp_path / "data"
    folder.mkdir()
    state = folder / STORE_FILE
    store = Store(state)
    store.put("a", b"fact")
    store.close()
    assert validated(tmp_path, "").machine == []
    state.write_bytes(b"not a database, whatever it is called" * 99)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (line,) = validated(tmp_path, "").machine
    assert line.startswith(f"data_dir: the agent's state file {state} is damaged (")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """Without the rights of root, whose reach has no end."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_validate_finds_logs_that_may_not_be_read(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as place:  # which nobody can get to
        folder = Path(place)
        folder.chmod(0o777)
        for name in ("open", "closed"):
            (folder / name).mkdir()
            (folder / name / "a.log").write_text(ACCESS)
        (folder / "open" / "b.log").write_text(ACCESS)
        (folder / "open").chmod(0o755)  # whatever the umask says
        (folder / "open" / "a.log").chmod(0o644)
        (folder / "open" / "b.log").chmod(0)
        (folder / "closed").chmod(0)
        text = f"""
            streams:
              web: {{include: ["{folder}/open/*.log", "{folder}/closed/*.log"], format: combined}}
            """
        with nobody():
            found = validated(folder, text)
            user = os.geteuid()
        (folder / "closed").chmod(0o700)
    assert [line.replace(place, "") for line in found.machine] == [
        f"streams.web.include: the folder /closed may not be read as user {user}; give that user r and x "
        "there",
        f"streams.web.include: /open/b.log cannot be read as user {user}: permission denied",
    ]


def test_validate_tells_of_fields_that_the_format_has_not(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(ACCESS * 7 + ACCESS.replace("\n", " 0.25\n") * 3)
    found = validated(tmp_path, f'streams: {{one: {{include: "{tmp_path}/a.log", format: combined}}}}')
    said = "3 of the first 10 lines of /a.log have more fields than the format: extra_1 … have them"
    assert f"streams.one.format: {said}" in [line.replace(str(tmp_path), "") for line in found.notes]


def test_validate_reads_the_first_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A format that takes hardly any of them is wrong; one that takes less than half of them is doubted;
    files that are compressed, or have no whole line yet, say nothing."""
    (tmp_path / "a.log").write_text(ACCESS * 20)
    (tmp_path / "b.log").write_text('{"v":1}\n' * 20)
    (tmp_path / "c.log").write_text(ACCESS * 3 + "what?\n" * 5)
    (tmp_path / "d.log").write_bytes(gzip.compress(b"x\n"))
    (tmp_path / "e.log").write_text("x")
    text = f"""
        streams:
          one: {{include: "{tmp_path}/a.log", format: json}}
          two: {{include: "{tmp_path}/*.log", exclude: ["{tmp_path}/[ac]*"], format: json}}
          three: {{include: "{tmp_path}/c.log", format: combined}}
          four: {{include: "{tmp_path}/b.log", format: json, timestamp: at}}
        """
    found = validated(tmp_path, text)
    assert [line.replace(str(tmp_path), "") for line in found.machine] == [
        "streams.one.format: json takes 0 of the first 20 lines of /a.log; it looks like combined",
        "streams.four.format: json takes 0 of the first 20 lines of /b.log with a time in at",
    ]
    assert [line.replace(str(tmp_path), "") for line in found.notes] == [
        "streams.three.format: combined takes 3 of the first 8 lines of /c.log"
    ]
    many = "".join(f"  s{n}: {{include: '{tmp_path}/a.log', format: combined}}\n" for n in range(2))
    config = written(
        tmp_path,
        f"data_dir: {tmp_path}/data\nagent: {{name: a, listen: '127.0.0.1:0', advertise: 'h:1'}}\n"
        f"http: {{listen: null}}\nstreams:\n{many}",
    )
    assert run(Namespace(command="validate", config=[config])) == 0
    assert capsys.readouterr() == (f"{config}: ok\n", "")


def test_many_files_are_told_of_in_a_few_lines(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.log").write_text("what?\n")
    found = validated(tmp_path, f"streams: {{s: {{include: '{tmp_path}/*.log', format: combined}}}}")
    assert len(found.machine) == 3
    assert found.machine[-1].endswith("/2.log (and so 6 more)")


def test_validate_asks_the_agents_to_join_through(tmp_path: Path) -> None:
    """One that is there is enough. Who has belonged to a cluster waits for it; who has not gives up."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        other = f"127.0.0.1:{silent.getsockname()[1]}"
        (line,) = validated(tmp_path, f"cluster: {{bootstrap: ['{other}']}}").machine
        assert line == (
            f"cluster.bootstrap: cannot reach an agent at {other}: what listens there says nothing: it is no "
            "elf-agent, or one that is stopped"
        )
    text = "cluster: {bootstrap: ['127.0.0.1:1', 'nohost.invalid:7071']}"
    found = validated(tmp_path, text)
    assert [line.partition(": cannot reach an agent at ")[2] for line in found.machine] == [
        "127.0.0.1:1: connection refused (is elf-agent running there?)",
        "nohost.invalid:7071: no such host: nohost.invalid cannot be resolved",
    ]
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / STORE_FILE).touch()
    again = validated(tmp_path, text)
    assert (again.machine, again.notes) == ([], found.machine)
    itself = validated(tmp_path, "cluster: {bootstrap: ['127.0.0.1:7071']}")
    assert (itself.machine, len(itself.notes)) == ([], 1)
    assert itself.notes[0].startswith("cluster.bootstrap: 127.0.0.1:7071 is this agent itself: with no other")


def test_what_is_odd_around_an_agent_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for zone in ("Europe/Berlin", ":UTC", "CET-1CEST,M3.5.0,M10.5.0/3"):
        monkeypatch.setenv("TZ", zone)
        assert validated(tmp_path, "").notes == []
    monkeypatch.setenv("TZ", "Mars/Olympus")
    found = validated(
        tmp_path, "memory_max_bytes: 1125899906842624", {"ELF_MEMORY_MAX_BYTES": "2251799813685248"}
    )
    assert [note.partition(":")[0] for note in found.notes] == [
        "ELF_MEMORY_MAX_BYTES=2251799813685248 of the environment is used instead of memory_max_bytes",
        "memory_max_bytes",
        "TZ=Mars/Olympus is no time zone that this machine knows; elf computes in UTC anyway",
    ]
    assert found.machine == []


def test_validate_ends_as_a_start_would(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """78: the configuration is wrong, and it is said with what is wrong on the machine; 1: it is not."""
    good = tmp_path / "good.yaml"
    agent = {"name": "a", "listen": "127.0.0.1:0", "advertise": "h:1"}
    known = {"data_dir": "/proc/x", "archive": {"path": str(tmp_path)}, "http": {"listen": None}}
    good.write_text(yaml.safe_dump(known | {"agent": agent}))
    bad = tmp_path / "bad.yaml"
    bad.write_text("data_dri: /x\n")
    assert run(Namespace(command="validate", config=[good])) == 1
    assert run(Namespace(command="validate", config=[bad])) == 78
    capsys.readouterr()
    assert run(Namespace(command="validate", config=[good, bad])) == 78
    out, told = capsys.readouterr()
    assert out == ""
    assert [line.split(": ")[1] for line in told.splitlines()] == [str(good), f"{bad}:1"]


def test_agents_of_one_process_are_not_in_each_others_way(tmp_path: Path) -> None:
    def config(name: str, listen: int, http: int, folder: str) -> Config:
        agent = f"agent: {{name: {name}, listen: 127.0.0.1:{listen}}}\nhttp: {{listen: 127.0.0.1:{http}}}\n"
        return config_with(tmp_path, f"{agent}data_dir: {tmp_path}/{folder}")

    a, b, c = Path("a.yaml"), Path("b.yaml"), Path("c.yaml")
    configs = {a: config("x", 7101, 7102, "x"), b: config("x", 7102, 7103, "y"), c: config("z", 0, 0, "x")}
    assert {file: found.wrong for file, found in validate_all(configs).items()} == {
        a: [],
        b: [
            "agent.name: x is also the name in a.yaml",
            "agent.listen: 127.0.0.1:7102 is http.listen in a.yaml",
        ],
        c: [f"data_dir: {tmp_path}/x is also the folder in a.yaml"],
    }


def test_validate_is_content_with_what_can_be_made(tmp_path: Path) -> None:
    found = validated(tmp_path, f"data_dir: {tmp_path}/a/b/c\narchive: {{path: 's3://bucket/x'}}")
    assert found == Found()
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [
        ("/var/log/a.log", "/var/log"),
        ("/var/*/a.log", "/var"),
        ("/var/log/**/a-[0-9].log", "/var/log"),
        ("/a?c/x", "/"),
        ("/x", "/"),
    ],
)
def test_the_fixed_part_of_a_pattern(pattern: str, folder: str) -> None:
    assert fixed_folder(pattern) == Path(folder)


# -- code and example together -------------------------------------------------------------------------------
