"""What an agent has done for whom, kept so that nobody changes it unseen (``agents.disk.chain``).

Recorded are: statements and calls of clients (who, from where, what, how it ended; of functions their
SHA-256), jobs and members as the catalog log tells of them, code, messages and keys that this agent refuses,
its own starts and ends. Never what is in a table or a row. A statement may have names and numbers of
people in its literals; so the files are for the agent's user alone.

``record`` may be called from any thread, and never waits for a disk: a thread of its own writes what has
gathered every second, with one fsync. What repeats within a minute is one more record, with ``times``. What
finds no room is counted, and the next record says so (``lost``).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from agents.disk.chain import HEAD, Chain, decode_head, encode_head
from agents.disk.store import Store
from agents.logs import get_logger

GATHER_SECS: Final = 1.0
REPEATS_SECS: Final = 60.0
WAITING_BYTES_MAX: Final = 4 << 20
"""Of records that are not written yet."""
RECORD_BYTES_MAX: Final = 32 << 10
REPEATING_MAX: Final = 1_024
"""Different records of the last minute that are remembered, to count their repeats."""

Facts = Mapping[str, object]


@dataclass
class _Seen:
    """A record that was written at ``at``, and came so many ``times`` since."""

    facts: Facts
    at: float
    times: int = 0


class Audit:
    """The audit of one agent, until ``close``. The head of its chain is in the agent's store."""

    def __init__(
        self, folder: Path, store: Store, *, file_bytes_max: int, files_max: int, agent: str = ""
    ) -> None:
        self._chain = Chain(folder, file_bytes_max=file_bytes_max, files_max=files_max)
        self._store = store
        self._log = get_logger().bind(agent=agent, audit=str(folder))
        self._some = threading.Condition()
        self._waiting: deque[dict[str, object]] = deque()
        self._bytes = 0
        self._seen: dict[bytes, _Seen] = {}
        self._unsaid = 0
        self._closing = False
        self._closed = threading.Event()
        self._failing = False
        self.lost = 0
        """Records that are in no file."""
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def record(self, what: str, facts: Facts) -> None:
        """Have it written, soon."""
        try:
            key = msgspec.json.encode((what, facts))
        except (TypeError, ValueError, RecursionError):
            key = b""
        if not 0 < len(key) <= RECORD_BYTES_MAX:
            facts = {"left_out": "it was too large, or could not be written"}
            key = msgspec.json.encode((what, facts))
        now = time.monotonic()
        with self._some:
            if self._closing:
                return
            if key in self._seen and now - self._seen[key].at < REPEATS_SECS:
                self._seen[key].times += 1
                return
            self._tell_repeats(now)
            self._seen[key] = _Seen({"what": what, **facts}, now)
            self._put({"what": what, **facts}, len(key))

    def refused(self, reason: str, sender: str) -> None:
        """A message that this agent did not take. ``sender``: whose key it is, whatever connection that has
        come over, so that nobody fills the audit by connecting anew; an address where there are no keys."""
        self.record("message refused", {"from": sender, "reason": reason})

    def close(self) -> None:
        """Returns when all is written."""
        with self._some:
            self._tell_repeats(float("inf"))
            self._closing = True
            self._closed.set()
            self._some.notify()
        self._thread.join()

    def _tell_repeats(self, now: float) -> None:
        """What has come again, once a minute is over, or room is needed; holds the lock."""
        while self._seen:
            key, seen = next(iter(self._seen.items()))
            if now - seen.at < REPEATS_SECS and len(self._seen) < REPEATING_MAX:
                return
            del self._seen[key]
            if seen.times:
                self._put({**seen.facts, "times": seen.times}, len(key))

    def _put(self, record: dict[str, object], size: int) -> None:
        if self._bytes + size > WAITING_BYTES_MAX:
            self.lost += 1
            self._unsaid += 1
            return
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        lost = {"lost": self._unsaid} if self._unsaid else {}
        self._unsaid = 0
        self._bytes += size
        self._waiting.append({"at": at, **record, **lost})
        if len(self._waiting) == 1:  # else the thread knows, and gathers
            self._some.notify()

    # -- on its thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        opened = self._try(self._open)
        while True:
            with self._some:
                while not self._waiting and not self._closing:
                    self._some.wait(self._until_repeats())
                    self._tell_repeats(time.monotonic())
            self._closed.wait(GATHER_SECS)
            with self._some:
                records, self._waiting, self._bytes = list(self._waiting), deque(), 0
                closing = self._closing
            opened = opened or self._try(self._open)
            if records and opened and self._try(partial(self._chain.append, records)):
                self._try(self._keep_head)
            elif records:
                with self._some:
                    self.lost += len(records)
                    self._unsaid += len(records)
            if closing:
                self._chain.close()
                return

    def _until_repeats(self) -> float | None:
        """Seconds until a repeat is to be told; None: none is. Holds the lock."""
        first = min((seen.at for seen in self._seen.values() if seen.times), default=None)
        return None if first is None else max(0.0, first + REPEATS_SECS - time.monotonic())

    def _open(self) -> None:
        head = self._store.get(HEAD)
        verdict = self._chain.open(None if head is None else decode_head(head))
        if not verdict.goes_on:
            self._log.error(
                "the audit was changed: its chain is broken, and a new one begins; see elf audit --verify",
                where=[str(one) for one in verdict.breaks[-3:]],
            )

    def _keep_head(self) -> None:
        with self._store.unsynced():  # after a crash it may be an earlier one, which the chain goes beyond
            self._store.put(HEAD, encode_head(self._chain.head))
        self._chain.prune()

    def _try(self, action: Callable[[], None]) -> bool:
        """Do it; what fails is said once, until something goes well again."""
        try:
            action()
        except Exception as error:  # the agent does its work without an audit, and says so
            if not self._failing:
                self._log.error("nothing can be added to the audit", reason=str(error) or repr(error))
            self._failing = True
            return False
        self._failing = False
        return True
