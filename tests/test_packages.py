"""What people install, installed: a wheel away from the checkout, and a package for Debian through its life.
They take minutes, and are run by ``make long`` or by their names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from elf.cli.processes import free_ports

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "first-fleet.md"
COMMANDS_MAX = 6
"""From an installed elf to an answer of an encrypted fleet of three."""
TOP = 10


KEPT = {name: value for name, value in os.environ.items() if not name.startswith(("ELF_", "PYTHON", "XDG_"))}
"""Of this environment; nothing of the checkout."""
CLEAN = {**KEPT, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


@dataclass(frozen=True)
class Installed:
    """An environment with a wheel of this checkout and what it depends on, and nothing of the checkout."""

    bin: Path

    def env(self, home: Path) -> dict[str, str]:
        return {**CLEAN, "HOME": str(home), "PATH": f"{self.bin}:{CLEAN['PATH']}"}

    def run(self, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        words, env = ["bash", "-c", command], self.env(folder)
        return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    said = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in said.stdout.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    lock = str(ROOT / "deploy" / "runtime.lock")
    _pip(folder, "wheel", "--no-deps", "--wheel-dir", str(folder), str(source))
    shutil.rmtree(source)
    _pip(folder, "install", "--require-hashes", "-r", lock)
    (wheel,) = folder.glob("elf_stream-*.whl")
    _pip(folder, "install", "--no-deps", str(wheel))
    return Installed(folder / "venv" / "bin")


def _pip(folder: Path, *words: str) -> None:
    command = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "--quiet", *words]
    subprocess.run(command, check=True, cwd=folder, env=KEPT)


@pytest.mark.timeout(1800)
def test_a_wheel_works_in_an_empty_folder(installed: Installed, tmp_path: Path) -> None:
    lines = "".join(json.dumps({"ts": 1_700_000_000 + n, "k": n % 3}) + "\n" for n in range(9))
    (tmp_path / "log").write_text(lines)
    asked = installed.run(
        "elf run --input log --output json -q 'SELECT k, COUNT(*) AS n FROM log GROUP BY k ORDER BY k'",
        tmp_path,
    )
    assert [json.loads(line) for line in asked.stdout.splitlines()] == [{"k": k, "n": 3} for k in range(3)]
    native = installed.run("python -c 'from elf import native; print(native.why_not())'", tmp_path)
    assert native.stdout.strip() in ("", "None"), native.stdout
    without = installed.run(
        "rm -r $(python -c 'import lab; print(lab.__path__[0])') && elf bench cbt", tmp_path
    )
    assert "which is not installed here" in without.stderr
    assert installed.run("elf --help && elf config init --out -", tmp_path).returncode == 0


# -- three machines ------------------------------------------------------------------------------------------


def commands() -> list[str]:
    """The commands of the page's section that makes a fleet on one machine, in its order."""
    (section,) = re.findall(r"^## Six commands\n(.*?)^## ", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (block,) = re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return str(block).replace("\\\n", " ").splitlines()


def nginx(folder: Path, ports: dict[str, int]) -> None:
    """A web server's logs and configuration, as it stands in the page's folder of that name."""
    for number, name in enumerate(ports):
        (folder / name).mkdir()
        log = folder / name / "access.log"
        (folder / name / "nginx.conf").write_text(
            "events {}\nhttp {\n"
            "  log_format main '$remote_addr [$time_iso8601] \"$request\" $status $request_time';\n"
            f"  access_log {log} main;\n  server {{ listen 80; }}\n}}\n"
        )
        log.write_text(_line(number))


def _line(number: int) -> str:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return f'192.0.2.{number} [{now}] "GET /page-{number} HTTP/1.1" 200 0.0{number}\n'


@contextlib.contextmanager
def writing(folder: Path, names: list[str]) -> Iterator[None]:
    """Hits come to all of them."""
    script = """
import datetime, sys, time
while True:
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')
    for number, path in enumerate(sys.argv[1:]):
        with open(path, 'a') as log:
            log.write(f'192.0.2.{number} [{now}] "GET /page-{number} HTTP/1.1" 200 0.0{number}\\n')
    time.sleep(0.05)
"""
    logs = [str(folder / name / "access.log") for name in names]
    process = subprocess.Popen([sys.executable, "-c", script, *logs])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(1800)
def test_six_commands_make_a_fleet_of_three_machines(
    installed: Installed, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Machines are folders, with a web server's configuration each; their agents talk over loopback, with
    keys. The answer has the pages of all three."""
    typed = commands()
    assert len(typed) <= COMMANDS_MAX
    names = ["web-1", "web-2", "web-3"]
    found = free_ports(6)
    ports = {f"127.0.0.1:707{n + 1}": found[n] for n in range(3)}
    ports |= {f"127.0.0.1:708{n + 1}": found[n + 3] for n in range(3)}
    nginx(tmp_path, dict.fromkeys(names, 0))
    script = "\n".join(typed)
    for said, port in ports.items():
        script = script.replace(said, f"127.0.0.1:{port}")
    env = installed.env(tmp_path / "home")
    with writing(tmp_path, names):
        began = time.monotonic()
        process = subprocess.Popen(
            ["bash", "-c", f"{script}\nkill $(jobs -p); wait"],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, errors = process.communicate(timeout=600)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    secs = time.monotonic() - began
    record_property("seconds", round(secs, 1))
    print(f"{len(typed)} commands, {secs:.1f} s")
    assert {f"/page-{n}" for n in range(3)} <= set(re.findall(r"/page-\d", out)), (out, errors)
    assert "3 agents" in out + errors or "missing" not in out + errors
    for name in names:
        assert (tmp_path / name / "elf.yaml").read_text().count("nginx:main@") == 1
        assert (tmp_path / name / "data" / "keys" / "identity.json").exists()


# -- Debian --------------------------------------------------------------------------------------------------


@pytest.mark.timeout(3600)
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("dpkg") is None or not Path("/usr/bin/python3").exists(),
    reason="needs root, dpkg and the system's Python",
)
def test_a_package_is_installed_run_as_its_user_upgraded_and_purged(tmp_path: Path) -> None:
    if Path("/var/lib/elf").exists() or Path("/etc/elf").exists():
        pytest.skip("an elf is installed on this machine")

    def sh(command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, check=False, cwd="/", env=CLEAN
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    first = sh(f"sh {ROOT}/deploy/deb.sh {tmp_path}").strip()
    second = str(tmp_path / Path(first).name.replace("-1_", "-2_"))
    sh(f"dpkg-deb -R {first} {tmp_path}/again && sed -i 's/-1$/-2/' {tmp_path}/again/DEBIAN/control")
    sh(f"dpkg-deb --root-owner-group -Znone --build {tmp_path}/again {second}")
    try:
        sh(f"dpkg -i {first}")
        assert sh("stat -c '%U %a' /var/lib/elf").split() == ["elf", "700"]
        assert sh("stat -c %a /etc/default/elf-agent").strip() == "600", "it may have a token"
        assert "adm" in sh("id -nG elf").split()
        assert sh("elf --version").startswith("elf 0.")
        sh("grep -q '^streams:' /etc/elf/elf.yaml")
        sh("echo '# mine' >> /etc/elf/elf.yaml && echo '# mine' >> /etc/default/elf-agent")
        port, http = free_ports(2)
        started = as_elf(port, http)
        try:
            assert " live " in sh(f"{AS_ELF} elf members --connect 127.0.0.1:{port}")
            assert "nothing has changed" in sh(f"{AS_ELF} elf reload --data-dir /var/lib/elf")
            sh(f"dpkg -i {second}")
            assert "-2" in sh("dpkg-query -W -f '${Version}' elf-stream")
        finally:
            started.terminate()
            assert started.wait(60) == 0
        again = as_elf(port, http)  # the new version goes on with the data of the old one
        again.terminate()
        assert again.wait(60) == 0
        sh("dpkg -r elf-stream")
        sh("test -e /var/lib/elf/elf.sqlite && grep -q mine /etc/elf/elf.yaml && ! test -e /usr/bin/elf")
    finally:
        subprocess.run(["dpkg", "--purge", "elf-stream"], check=False, capture_output=True)
    for path in ("/etc/elf", "/var/lib/elf", "/usr/lib/elf", "/etc/default/elf-agent", "/usr/bin/elf"):
        assert not Path(path).exists()
    sh("! getent passwd elf")


AS_ELF = "setpriv --reuid elf --regid elf --init-groups env HOME=/var/lib/elf"


def as_elf(port: int, http: int) -> subprocess.Popen[str]:
    """The agent, as its service runs it but for systemd; ready."""
    env = {**CLEAN, "ELF_AGENT_LISTEN": f"127.0.0.1:{port}", "ELF_HTTP_LISTEN": f"127.0.0.1:{http}"}
    command = ["sh", "-c", f"exec {AS_ELF} elf-agent --config /etc/elf/elf.yaml"]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, cwd="/")
    assert process.stderr is not None
    for line in process.stderr:
        if '"agent is ready"' in line:
            return process
    raise AssertionError("it has ended")
