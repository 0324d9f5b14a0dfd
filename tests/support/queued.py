"""A queue with the Spark of tests, whose daemons come and go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from elf.cli.results import write_result
from elf.client import CompareFacts
from elf.client.files import files_of
from elf.errors import UserError
from spark_backend.queries import question
from spark_backend.queue.checks import AskFleet
from spark_backend.queue.policies import Policies
from spark_backend.queue.rights import Rights
from spark_backend.queue.serve import Daemon
from spark_backend.queue.store import Check, Run, Spec, Store


def nobody(check: Check) -> CompareFacts:
    raise UserError(f"there is no fleet that has {check.job}")


@dataclass
class Queue:
    """A queue in a folder. ``now_ms`` goes on by a heartbeat with each tick."""

    folder: Path
    spark: SparkSession
    slots: int = 2
    policies: Policies = field(default_factory=Policies)
    now_ms: int = 1_000_000
    said: list[str] = field(default_factory=list)
    ask_fleet: AskFleet = nobody
    rights: Rights | None = None

    def __post_init__(self) -> None:
        self.store = Store(self.folder, create=True)
        self.begin()

    def begin(self) -> None:
        self.daemon = Daemon(
            self.store,
            self.spark,
            self.slots,
            self.policies,
            Random(1).randrange,
            lambda: self.now_ms,
            write_result,
            self.said.append,
            self.ask_fleet,
            self.rights,
        )

    def again(self) -> None:
        """What is in hand is lost, and another daemon goes on."""
        self.daemon.close()
        self.store.close()
        self.store = Store(self.folder)
        self.begin()

    def submit(
        self, name: str, text: str, archive: Path, *, production: bool = False, deadline_ms: int | None = None
    ) -> Path:
        out = self.folder / f"{name}.parquet"
        texts = files_of(text)
        asked = question(text, [str(archive)], texts=texts)
        schemas = {one.stream: one.schema for one in asked.streams}
        spec = Spec(text, (str(archive),), None, schemas, texts=texts)
        self.store.submit(
            name, spec, out, owner="me", production=production, deadline_ms=deadline_ms, now_ms=self.now_ms
        )
        return out

    def tick(self) -> None:
        self.daemon.tick()
        self.daemon.news.wait(0.02)
        self.daemon.news.clear()
        self.now_ms += 1_000

    def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.tick()

    def run(self, name: str) -> Run:
        return self.store.run(name)
