"""What every target does, and what can go wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from agents.outputs.files import Files
from agents.outputs.kafka import Kafka
from agents.outputs.otlp import Otlp
from agents.outputs.parcels import Parcel
from agents.outputs.postgres import Postgres
from agents.outputs.prometheus import Gauges
from agents.outputs.webhook import Webhook
from elf.job.output import OutputSpec


class Target(Protocol):
    """Where one output goes. One thread at a time calls it, but for ``close``."""

    def put(self, parcels: Sequence[Parcel]) -> None:
        """The windows of one result. They replace what is there of them and is not newer. When this returns
        they are there for good; what it raises is why they are not, and they come again."""

    def close(self) -> None:
        """From any thread: what is under way fails soon."""


Opener = Callable[[OutputSpec, str], Target]

OPENERS: Final[Mapping[str, Opener]] = {
    "file": Files,
    "http": Webhook,
    "https": Webhook,
    "kafka": Kafka,
    "otlp+http": Otlp,
    "otlp+https": Otlp,
    "postgres": Postgres,
    "postgresql": Postgres,
    "prometheus": Gauges,
}
"""By the scheme of a target: what opens it, with the text of its secret, which may be empty."""
