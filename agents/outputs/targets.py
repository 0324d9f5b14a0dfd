"""What every target does, and what can go wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Final, Protocol

from agents.outputs.parcels import Parcel
from elf.job.output import OutputSpec


class Target(Protocol):
    """Where one output goes. One thread at a time calls it, but for ``close``."""

    def put(self, parcels: Sequence[Parcel]) -> None:
        """The windows of one result. They replace what is there of them and is not newer. When this returns
        they are there for good. What it raises is why they are not: they come again, unless it is
        ``Refused``."""

    def close(self) -> None:
        """From any thread: what is under way fails soon."""


Opener = Callable[[OutputSpec, str], Target]


def _opener(module: str, name: str) -> Opener:
    """An agent without outputs does not load what they need."""

    def opened(output: OutputSpec, secret: str) -> Target:
        target: Target = getattr(import_module(f"agents.outputs.{module}"), name)(output, secret)
        return target

    return opened


OPENERS: Final[Mapping[str, Opener]] = {
    scheme: _opener(*where)
    for schemes, where in {
        ("delta", "delta+s3"): ("delta", "Delta"),
        ("file",): ("files", "Files"),
        ("http", "https"): ("webhook", "Webhook"),
        ("kafka",): ("kafka", "Kafka"),
        ("otlp+http", "otlp+https"): ("otlp", "Otlp"),
        ("postgres", "postgresql"): ("postgres", "Postgres"),
        ("prometheus",): ("prometheus", "Gauges"),
    }.items()
    for scheme in schemes
}
"""By the scheme of a target: what opens it, with the text of its secret, which may be empty."""
