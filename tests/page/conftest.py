"""A fleet of one with keys, whose agent has the page, and ``elf ui`` beside it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from elf.security.bearer import bearer
from elf.security.folder import load
from tests.support.asking import Asking
from tests.support.enrolled import CLUSTER, Enrolled, answers, until

BAD = '/<script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">'
"""A product as somebody may have it logged."""


ACCESS = {
    "ts": "timestamp", "c_ip": "text", "cs_uri_stem": "text", "sc_status": "bigint", "sc_bytes": "bigint",
    "cs_referer": "text", "cs_user_agent": "text",
}  # fmt: skip
"""Columns of the stream ``access``, of JSON lines, which has none before a test writes some."""


@dataclass(frozen=True)
class Pages:
    """Where the page is served: by the agent, with the tokens of one who may read and of one who may tap;
    and by ``elf ui``, for somebody who may do all."""

    fleet: Enrolled
    agent: Asking
    tapping: Asking
    own: Asking

    def link(self, asking: Asking) -> str:
        return f"http://127.0.0.1:{asking.port}/#key={asking.token}"


def _token(folder: Path, lasts: int = 600) -> str:
    return bearer(load(folder).pair, CLUSTER, int(time.time()), lasts)


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("pages")
    fleet = Enrolled(folder, 1)
    (agent,) = fleet.fleet.agents
    agent.quiet = {"access": ACCESS}
    agent.more = {"http": {"listen": f"127.0.0.1:{agent.http_port}", "page": True}}
    fleet.start()
    ui = None
    try:
        agent.append([(time.time_ns() // 1000, BAD, 7)])
        command = [sys.executable, "-m", "elf.cli.main", "ui", "--connect", fleet.address]
        command += ["--listen", "127.0.0.1:0", "--keys", str(fleet.own)]
        ui = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        rita, tom = _token(fleet.person("rita")), _token(fleet.person("tom", "read,tap"))
        assert ui.stdout is not None
        ui.stdout.readline()
        at, _, key = ui.stdout.readline().strip().partition("/#key=")
        own = Asking(int(at.rpartition(":")[2]), key)
        until(lambda: answers(f"http://127.0.0.1:{agent.http_port}/ready"), 40)
        until(lambda: Asking(agent.http_port, tom).get("session").status == 200, 20)
        own.sql("CREATE JOB most AS SELECT product, SUM(clicks_count) AS clicks FROM clicks GROUP BY product "
                "ORDER BY clicks DESC WINDOWING 1 SECONDS")  # fmt: skip
        yield Pages(fleet, Asking(agent.http_port, rita), Asking(agent.http_port, tom), own)
    finally:
        if ui is not None:
            ui.kill()
            ui.wait()
        fleet.fleet.stop()
