"""A message a window, in a topic of Kafka: ``kafka://host:9092/topic``.

The key is the window (output, start, end): a compacted topic keeps the newest of each, and all results of a
window are in one partition, in their order. The value is the JSON object that a web server gets too, with the
version and the revision in it. What comes again has the same ``elf-id`` among its headers. With a secret
(``user:password``) it goes by SASL (SCRAM-SHA-256) over TLS.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from agents.outputs.parcels import Parcel
from elf.errors import UserError
from elf.job.output import OutputSpec

if TYPE_CHECKING:  # it is an extra
    from confluent_kafka import KafkaError, Message

TIMEOUT_SECS: Final = 30


class Kafka:
    """Of one output."""

    def __init__(self, output: OutputSpec, secret: str) -> None:
        try:
            from confluent_kafka import Producer
        except ImportError:
            raise UserError("Kafka needs a package here: pip install 'elf-stream[kafka]'") from None
        url = urlsplit(output.target)
        self._topic = url.path.strip("/")
        self._against: str = ""
        settings: dict[str, Any] = {
            "bootstrap.servers": url.netloc,
            "client.id": f"elf output {output.name}",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "message.max.bytes": 64 << 20,
            "message.timeout.ms": TIMEOUT_SECS * 1_000,
            "linger.ms": 0,
            "error_cb": self._failed,
            "logger": logging.getLogger("elf.kafka"),
        }
        if secret:
            user, _, password = secret.partition(":")
            settings |= {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": user,
                "sasl.password": password,
            }
        self._producer = Producer(settings)

    def put(self, parcels: Sequence[Parcel]) -> None:
        refused: list[str] = []

        def told(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                refused.append(str(error))

        for parcel in parcels:
            headers: dict[str, str | bytes | None] = {"elf-id": parcel.key.encode()}
            self._producer.produce(
                self._topic, parcel.json, parcel.place.encode(), headers=headers, on_delivery=told
            )
        if self._producer.flush(TIMEOUT_SECS) or refused:
            why = refused[0] if refused else "no answer"
            raise UserError(f"{why}{f' ({self._against})' if self._against else ''}")

    def close(self) -> None:
        self._producer.purge()

    def _failed(self, error: KafkaError) -> None:
        """The library goes on by itself; this is for people, if it comes to nothing."""
        self._against = str(error)
