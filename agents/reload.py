"""The configuration is read again (SIGHUP, ``elf reload``) by build-then-swap, all or nothing.

First all that can be is built from the files as they are now: settings, keys, formats; folders, ports and
logs are tried (``Reread``). Only then each agent that they concern ends its life with a checkpoint and begins
another one with them, in this process, as after a restart: no row is lost or counted twice. If one of them
cannot begin, all go back to what they had.

What concerns the process alone (``AT_ONCE``) is changed while its agents go on; what cannot be changed in it
(``FIXED``) is refused. Each time there is a ``Report``: in the log, and as ``reload.json`` in the data folder
of each agent, where ``elf reload`` finds it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from agents.config import Config
from agents.keyring import Keyring
from agents.logs import get_logger
from agents.systemd import Systemd
from elf.errors import ElfError
from elf.security.files import write
from elf.security.folder import IDENTITY_FILE, KEY_FILE

REPORT_FILE: Final = "reload.json"
AT_ONCE: Final = ("log.", "geoip.")
"""Settings of the process, which no agent begins anew for."""
FIXED: Final = ("data_dir", "functions.jobs_max", "functions.memory_max_bytes")
FILES: Final = ("tls_cert", "tls_key", "tls_ca", "token_file")
"""Settings that name a file: another content is a change, too."""
SHOWN_CHARS: Final = 120


@dataclass(frozen=True)
class Again:
    """The configurations and keys of all agents, as they are to be; ``wrong``: why they are not used, a line
    each. ``notes``: what is worth a look."""

    configs: tuple[Config, ...] = ()
    keyrings: tuple[Keyring, ...] = ()
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


Reread = Callable[[Sequence[Config]], Again]
"""Takes what is in force, in the order of the agents. Raises nothing."""


@dataclass(frozen=True)
class Report:
    """What became of it; ``lines``: of what has changed, or of why nothing has."""

    ok: bool
    lines: tuple[str, ...]

    def text(self) -> bytes:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        told = {"id": time.time_ns(), "at": at, "ok": self.ok, "lines": self.lines}
        return json.dumps(told, ensure_ascii=False).encode() + b"\n"


Mark = tuple[int, int, int] | None
STUCK: Final = "could not go back"
"""Said of an agent that has the new configuration, though another one of its process has not."""


class Lives:
    """What an agent lives with, one life after the other."""

    def __init__(self, config: Config, keyring: Keyring, folder: Path) -> None:
        self.config = config
        self.keyring = keyring
        self.folder: Final = folder
        self.marks = marks_of(config)
        """Of the files that its settings name, when they were read."""
        self._before: tuple[Config, Keyring] | None = None
        self._end: Callable[[], None] | None = None
        self._swapped: asyncio.Future[str] | None = None
        self._why_not = ""

    @property
    def swaps(self) -> bool:
        """Whether its next life is that of a swap."""
        return self._swapped is not None

    async def swap(self, config: Config, keyring: Keyring) -> str:
        """Live on with these; why that cannot be, where it goes on as before."""
        self._before, self._why_not = (self.config, self.keyring), ""
        self._swapped = asyncio.get_running_loop().create_future()
        self.config, self.keyring, self.marks = config, keyring, marks_of(config)
        if self._end is not None:
            self._end()
        return await self._swapped

    def begins(self, end: Callable[[], None], config: Config) -> bool:
        """A life with this configuration can be reached, and ``end`` ends it. False: it began before a swap
        that was asked for meanwhile, and is to end at once."""
        if self._swapped is not None and config is not self.config:
            return False
        self._end = end
        if self._swapped is not None and not self._swapped.done():
            self._swapped.set_result(self._why_not)
        self._swapped = None
        return True

    def ends(self) -> None:
        self._end = None

    def goes_back(self, why: str) -> bool:
        """A life could not begin: whether there is another one to go back to."""
        if self._before is None or self._swapped is None:
            return False
        (self.config, self.keyring), self._before = self._before, None
        self.marks, self._why_not = marks_of(self.config), why
        return True


class Reloading:
    """``hangup`` may be called at any time; ``run`` answers. ``at_once`` has what is the process's alone
    changed, in two steps: what it returns does it, and it raises ``ElfError`` where that would fail."""

    def __init__(
        self,
        agents: Sequence[Lives],
        reread: Reread,
        at_once: Callable[[Sequence[Config]], Callable[[], None]],
        systemd: Systemd,
    ) -> None:
        self._agents = agents
        self._reread = reread
        self._at_once = at_once
        self._systemd = systemd
        self._wanted = asyncio.Event()

    def hangup(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._systemd.reloading()
            try:
                report = await self.once()
            except Exception as error:  # whatever it is, the agents go on, and can be asked again
                get_logger().error("the configuration could not be read again", exc_info=error)
                report = Report(False, (str(error) or repr(error),))
            await self._tell(report)
            self._systemd.started()

    async def once(self) -> Report:
        before = [agent.config for agent in self._agents]
        again = await asyncio.to_thread(self._reread, before)
        if again.wrong:
            return Report(False, again.wrong)
        changed = [
            sorted(_changes(agent, config)) for agent, config in zip(self._agents, again.configs, strict=True)
        ]
        if fixed := [line for lines in changed for line in lines if line.startswith(FIXED)]:
            return Report(False, tuple(f"{line}: that takes a restart of the process" for line in fixed))
        try:
            do_at_once = self._at_once(again.configs)
        except ElfError as error:
            return Report(False, (str(error),))
        if why := await self._swap(again, changed):
            return Report(False, (why, *(() if STUCK in why else ("all is as it was before",))))
        try:
            do_at_once()
        except ElfError as error:
            return Report(False, (str(error),))
        return Report(True, (*self._said(changed), *(f"note: {note}" for note in again.notes)))

    async def _swap(self, again: Again, changed: Sequence[Sequence[str]]) -> str:
        """Why it could not be done, and nothing is; empty: it is done."""
        done: list[tuple[Lives, Config, Keyring]] = []
        for agent, config, keyring, lines in zip(
            self._agents, again.configs, again.keyrings, changed, strict=True
        ):
            if all(line.startswith(AT_ONCE) for line in lines):
                continue  # below, when all others have theirs
            before = agent.config, agent.keyring
            if why := await agent.swap(config, keyring):
                back = [(other, await other.swap(old, keys)) for other, old, keys in done]
                stuck = [f"{one.config.agent.name} {STUCK}: {text}" for one, text in back if text]
                return "; ".join((f"{config.agent.name}: {why}", *stuck))
            done.append((agent, *before))
        for agent, config in zip(self._agents, again.configs, strict=True):
            agent.config = config
        return ""

    def _said(self, changed: Sequence[Sequence[str]]) -> Iterator[str]:
        if not any(changed):
            yield "nothing has changed"
        for agent, lines in zip(self._agents, changed, strict=True):
            for line in lines:
                how = "at once" if line.startswith(AT_ONCE) else "the agent began anew with it"
                name = f"{agent.config.agent.name}: " if len(self._agents) > 1 else ""
                yield f"{name}{line} ({how})"

    async def _tell(self, report: Report) -> None:
        log = get_logger()
        if report.ok:
            log.info("the configuration was read again", changes=report.lines)
        else:
            log.error("the configuration was read again, and is not used", reason=report.lines)
        for agent in self._agents:
            try:
                await asyncio.to_thread(write, Path(agent.config.data_dir) / REPORT_FILE, report.text())
            except ElfError as error:
                log.warning("the report of a reload cannot be written", reason=str(error))


def _changes(agent: Lives, config: Config) -> Iterator[str]:
    """A line for each setting that is another one, or whose file is."""
    before, after = agent.config.describe(), config.describe()
    for key in {**before, **after}:
        if key not in after:
            yield f"{key}: {_shown(before[key])} → none"
        elif key not in before:
            yield f"{key}: none → {_shown(after[key])}"
        elif before[key] != after[key]:
            yield f"{key}: {_shown(before[key])} → {_shown(after[key])}"
    marks = marks_of(config)
    for key in marks.keys() & agent.marks.keys():
        if marks[key] != agent.marks[key] and before.get(key, "") == after.get(key, ""):
            yield f"{key}: the file has changed"


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return (text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…") or "empty"


def marks_of(config: Config) -> dict[str, Mark]:
    """Of the files that settings name, by setting; None: there is none."""
    found = {f"keys/{name}": _mark(Path(config.keys) / name) for name in (IDENTITY_FILE, KEY_FILE)}
    for key, value in config.describe().items():
        if key.rpartition(".")[2] in FILES and value:
            found[key] = _mark(Path(str(value)))
    return found


def _mark(path: Path) -> Mark:
    try:
        said = path.stat()
    except OSError:
        return None
    return said.st_ino, said.st_mtime_ns, said.st_size
