"""The settings of an agent as they are in force: the file, the variables over it, and what contradicts what.

``load`` looks at the configuration alone; ``agents.validation`` also looks at the machine.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from agents.config import (
    ARCHIVE_SCHEMES,
    FILES,
    JOURNAL,
    LISTENING,
    AgentConfig,
    Config,
    ReceiveConfig,
    StreamConfig,
)
from agents.masks import unmaskable
from agents.settings.tree import Branch, ConfigProblems, build, overlay_variables, read_yaml
from elf.addresses import clash, is_loopback, is_wildcard, split_address
from elf.fields import replace


def load(path: Path | None, env: Mapping[str, str] | None = None) -> Config:
    """Reads a file (None: variables only) and the environment over it. Raises ``ConfigProblems``."""
    problems: list[str] = []
    tree = Branch({}, "environment") if path is None else read_yaml(path, problems)
    notes = overlay_variables(tree, Config, os.environ if env is None else env)
    config = _complete(build(Config, tree, problems))
    problems += _contradictions(config)
    if problems:
        raise ConfigProblems(problems)
    return replace(config, notes=tuple(notes))


def _complete(config: Config) -> Config:
    agent, functions = config.agent, config.functions
    if not functions.allow:
        functions = replace(functions, allow="anybody" if _on_loopback(agent) else "nobody")
    return replace(
        config,
        functions=functions,
        agent=replace(
            agent, name=agent.name or socket.gethostname(), advertise=agent.advertise or agent.listen
        ),
        keys=config.keys or str(Path(config.data_dir) / "keys"),
        audit=replace(config.audit, path=config.audit.path or str(Path(config.data_dir) / "audit")),
        archive=replace(config.archive, path=config.archive.path or str(Path(config.data_dir) / "archive")),
    )


def _on_loopback(agent: AgentConfig) -> bool:
    """Whether nobody on another machine reaches it."""
    places = (agent.listen, agent.advertise or agent.listen)
    return all(is_loopback(split_address(place)[0]) for place in places)


def listeners(config: Config) -> list[tuple[str, str | None]]:
    """Where an agent listens over TCP, by key; None: nowhere."""
    found = [("agent.listen", config.agent.listen), ("http.listen", config.http.listen)]
    for name, stream in config.streams.items():
        transports = stream.receive.transport if stream.type == "syslog" else ("tcp",)
        if stream.type in LISTENING and "tcp" in transports:
            found.append((f"streams.{name}.receive.listen", stream.receive.listen))
    return found


def _contradictions(config: Config) -> list[str]:
    """What is wrong though each key alone is right."""
    found = []
    advertise = config.agent.advertise
    if is_wildcard(split_address(advertise)[0]):
        found.append(f"agent.advertise must say how to reach this host: nobody can connect to {advertise}")
    found += [
        f"cluster.bootstrap: nobody can connect to port 0 of {peer}"
        for peer in config.cluster.bootstrap
        if split_address(peer)[1] == 0
    ]
    for (first, one), (second, other) in itertools.combinations(listeners(config), 2):
        if clash(one, other):
            found.append(f"{second}: {other} is where {first} is; choose another port")
    found += [
        f"agent.labels: {label} must be a word of letters, digits and _, as _labels.{label} is a column"
        for label in config.agent.labels
        if not re.fullmatch(r"[A-Za-z_]\w*", label, re.ASCII)
    ]
    try:
        config.ring.overlay(config.cluster.retry_join_secs)
    except ValueError as error:
        found.append(f"ring: {error}")
    if config.protocol.straggler_min_secs > config.protocol.straggler_max_secs:
        found.append("protocol.straggler_min_secs must not be above protocol.straggler_max_secs")
    path = config.archive.path
    for name, stream in config.streams.items():
        of = stream.format, stream.mask, stream.timestamp, stream.columns
        if stream.mask:
            from agents.formats import get_format  # with Arrow, as in agents.config
            from agents.formats.maskable import maskable

            known = maskable(get_format(stream.format))
            found += [f"streams.{name}.mask: {why}" for why in unmaskable(*of, known)]
        found += [f"streams.{name}.{why}" for why in _wrong_input(stream)]
    masked = [name for name, stream in config.streams.items() if stream.mask]
    found += [
        f"streams.{name}.shared: another agent's work is run again on files as they are, and "
        f"streams.{masked[0]} is masked here; an agent masks or shares"
        for name, stream in config.streams.items()
        if stream.shared and masked
    ]
    if config.archive.group and config.archive.readers != "group":
        found.append("archive.group is for archive.readers: group")
    if config.archive.readers != "user" and Path(path).is_relative_to(config.data_dir):
        found.append(
            f"archive.readers: nobody else can look into data_dir {config.data_dir}; set archive.path to a "
            "folder beside it"
        )
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", path)
    if scheme and scheme[1] not in ARCHIVE_SCHEMES:
        found.append(f"archive.path: unknown scheme {scheme[1]} (known: {', '.join(ARCHIVE_SCHEMES)})")
    elif not scheme and not path.startswith("/"):
        found.append(f"archive.path must be an absolute path or a URI, not {path}")
    return found


def _wrong_input(stream: StreamConfig) -> list[str]:
    """What contradicts the type of a stream, each without its name."""
    receive, found = stream.receive, []
    if stream.type == FILES:
        if not stream.include:
            found.append("include is missing: the files to follow (type file)")
        if receive != ReceiveConfig():
            found.append("receive is for streams of another type than file; set type")
        if stream.multiline.start and stream.shared:
            found.append(
                "shared: the work of another agent is run again line by line, and not with multiline"
            )
        return found
    if stream.multiline.start:
        found.append("multiline is for files (type file): a message that is sent is a record")
    if stream.shared:
        found.append("shared: only files can be read by other agents (type file)")
    if stream.type == JOURNAL:
        return found
    if not receive.listen:
        found.append(f"receive.listen is missing: where lines are received (type {stream.type})")
    if stream.include:
        found.append(f"include: no files are followed by a stream of type {stream.type}")
    if receive.token_file and stream.type == "syslog":
        found.append("receive.token_file: syslog knows no tokens; receive.tls_ca tells senders apart")
    if receive.tls_cert and stream.type == "syslog" and receive.transport != ("tcp",):
        found.append("receive.transport must be tcp with receive.tls_cert: UDP has no TLS")
    if receive.tls_ca and not receive.tls_cert:
        found.append("receive.tls_ca is for TLS: set receive.tls_cert and receive.tls_key")
    if 3 * receive.body_bytes_max > receive.spool_bytes_max:
        found.append("receive.spool_bytes_max must be three times receive.body_bytes_max at least")
    return found
