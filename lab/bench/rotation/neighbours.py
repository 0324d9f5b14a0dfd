"""Readers of other makers in the place of the agent: what follows the log writes its lines to a file.

Each is told of the log alone, and to keep its place as often as it can.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import Final

from elf.cli.processes import Processes
from lab.bench.rotation.beside import Reader
from lab.bench.rotation.writers import found

BEGUN_SECS: Final = 1.0
_STEM: Final = re.compile(rb'"GET (/r/[0-9]+) ')
_RSYSLOG: Final = """\
global(workDirectory="{folder}" maxMessageSize="64k")
module(load="imfile" mode="inotify")
template(name="line" type="string" string="%msg%\\n")
ruleset(name="lines") {{ action(type="omfile" file="{out}" template="line") }}
input(type="imfile" file="{log}" tag="t" ruleset="lines" persistStateInterval="1" reopenOnTruncate="on")
"""
_SYSLOG_NG: Final = """\
@version: 3.38
source s {{ file("{log}" follow-freq(0.1) flags(no-parse)); }};
destination d {{ file("{out}" template("${{MESSAGE}}\\n")); }};
log {{ source(s); destination(d); flags(flow-control); }};
"""


def program(name: str) -> str:
    """Where it is. Raises ``UserError`` with the package's name."""
    tool, package = ("rsyslogd", name) if name == "rsyslog" else (name, "syslog-ng-core")
    return found(tool, package, "")


class Neighbour(Reader):
    """``rsyslog`` (imfile) or ``syslog-ng``, started and killed as the script says; its folder stays."""

    def __init__(self, name: str, processes: Processes, folder: Path, log: Path) -> None:
        super().__init__(processes)
        self._name = name
        self._log = folder / "neighbour.log"
        self._out = folder / "out.log"
        state = folder / "state"
        state.mkdir()
        config = state / "neighbour.conf"
        text = _RSYSLOG if name == "rsyslog" else _SYSLOG_NG
        config.write_text(text.format(folder=state, out=self._out, log=log), encoding="utf-8")
        if name == "rsyslog":
            self._command = [program(name), "-n", "-f", str(config), "-i", str(state / "pid")]
        else:
            self._command = [program(name), "-F", "--no-caps", "-f", str(config)]
            self._command += [f"--persist-file={state}/persist", f"--pidfile={state}/pid"]
            self._command += [f"--control={state}/control"]

    def start(self) -> None:
        if self._child is None:
            (self._out.parent / "state" / "pid").unlink(missing_ok=True)  # which the killed one has left
            self._child = self._processes.run(self._name, self._command, self._log)

    def ready(self) -> None:
        """Nobody says so: it is given a second. Raises ``ElfError`` when it has ended."""
        time.sleep(BEGUN_SECS)
        self.check()

    def counts(self) -> Counter[str]:
        """How often each row is in what it has written."""
        data = self._out.read_bytes() if self._out.exists() else b""
        return Counter(stem.decode() for stem in _STEM.findall(data))
