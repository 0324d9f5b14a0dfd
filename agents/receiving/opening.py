"""The receiver of a stream, as the configuration of its agent wants it."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from agents.config import JOURNAL, Config, StreamConfig
from agents.connections import Bounds as HttpBounds
from agents.connections import names_of
from agents.inputs.spool import KEYS_MAX, Spool
from agents.inputs.spooled import Spooled, begins_at
from agents.inputs.values import Position
from agents.keyring import token_of
from agents.logs import get_logger
from agents.metrics import Metrics
from agents.ports import Receiver
from agents.receiving import journal, otlp
from agents.receiving.forward import Forward
from agents.receiving.http import HttpReceiver, Lines, Take
from agents.receiving.intake import Intake
from agents.receiving.journal import Journal
from agents.receiving.listening import Bounds
from agents.receiving.otlp import PATH, OtlpLogs
from agents.receiving.syslog import Syslog
from agents.serving import bound
from elf.errors import ElfBug, UserError

WHOLE: frozenset[str] = frozenset({"json", "syslog", "syslog5424"})
"""Formats whose lines are whole messages."""


def open_input(
    config: Config,
    name: str,
    stream: StreamConfig,
    folder: Path,
    positions: tuple[Position, ...],
    metrics: Metrics,
) -> tuple[Spooled, Receiver]:
    """What a stream is read from that is in no file, and what receives it. ``folder``: of the agent's data;
    ``positions``: of the last checkpoint. Raises ``ElfError``."""
    receive = stream.receive
    spool = Spool(
        folder / "spool" / name,
        bytes_max=receive.spool_bytes_max,
        begin=begins_at(name, positions),
        keys_max=1 if stream.type == JOURNAL else KEYS_MAX,
    )
    read = Spooled(name, spool, max_line_bytes=stream.max_line_bytes, positions=positions)
    log = get_logger().bind(agent=config.agent.name)
    intake = Intake(name, stream.type, spool, metrics, log)
    return read, _receiver(config, stream, intake)


def _receiver(config: Config, stream: StreamConfig, intake: Intake) -> Receiver:
    receive = stream.receive
    bounds = Bounds(receive.connections_max, receive.address_connections_max)
    whole = receive.line == "whole" or (receive.line == "auto" and stream.format in WHOLE)
    tls = _tls(receive.tls_cert, receive.tls_key, receive.tls_ca)
    if stream.type == "syslog":
        return Syslog(
            receive.listen,
            intake,
            transports=receive.transport,
            whole=whole,
            max_line_bytes=stream.max_line_bytes,
            bounds=bounds,
            tls=tls,
        )
    if stream.type == JOURNAL:
        return Journal(
            intake,
            stream.include,
            receive.matches,
            from_end=stream.initial_read_offset == "end",
            whole=whole,
            entry_bytes_max=receive.body_bytes_max,
        )
    if stream.type in ("http", "otlp"):
        paths: dict[str, Take] = {"/": Lines(intake).take}
        if stream.type == "otlp":
            paths = {PATH: OtlpLogs(intake, whole=whole, body_bytes_max=receive.body_bytes_max).take}
        return HttpReceiver(
            receive.listen,
            intake,
            paths,
            token=token_of(receive.token_file),
            names=names_of(config.agent.listen, config.agent.advertise, also=config.http.hosts),
            bounds=HttpBounds(
                bounds.connections, bounds.an_address, answers=1 << 20, has_body=lambda path: True
            ),
            body_bytes_max=receive.body_bytes_max,
            tls=tls,
        )
    if stream.type == "forward":
        return Forward(
            receive.listen,
            intake,
            whole=whole,
            shared_key=token_of(receive.token_file),
            bounds=bounds,
            message_bytes_max=receive.body_bytes_max,
            tls=tls,
        )
    raise ElfBug(f"a stream of type {stream.type} is received by nobody")


def cannot_receive(key: str, stream: StreamConfig) -> list[str]:
    """Why lines cannot be received here and now; ``key``: of the stream."""
    try:
        if stream.type == JOURNAL:
            journal.check()
            return []
        if stream.type == "otlp":
            otlp.check()
    except UserError as error:
        return [f"{key}.type: {error}"]
    kinds = [socket.SOCK_STREAM]
    if stream.type == "syslog":
        kinds = [
            socket.SOCK_DGRAM if one == "udp" else socket.SOCK_STREAM for one in stream.receive.transport
        ]
    found = []
    for kind in kinds:
        try:
            bound(stream.receive.listen, f"{key}.receive.listen", kind).close()
        except UserError as error:
            found.append(f"{key}.receive.listen: {error}")
    return found


def _tls(cert: str, key: str, ca: str) -> ssl.SSLContext | None:
    """For the server's side; ``ca``: who must have signed the certificates of senders (empty: they need
    none)."""
    if not cert:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(cert, key)
    if ca:
        made.load_verify_locations(ca)
        made.verify_mode = ssl.CERT_REQUIRED
    return made
