"""A first configuration of an agent, out of what its machine has: the logs that nginx's configuration names,
with their formats, else logs where servers write them by default.

Rules: nothing is guessed silently. What was found, and what was left out and why, stands in the file as a
comment; the file loads as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from agents.formats import get_format
from agents.formats.nginxconf import FILE, PREFIX, LogFile, log_files, written_out
from agents.tasks.samples import guess_format, sample_lines
from elf.errors import ConfigError, ElfError

NGINX: Final = FILE
USUAL: Final = (
    ("access", "/var/log/nginx/access.log", "combined"),
    ("access", "/var/log/apache2/access.log", "combined"),
    ("access", "/var/log/httpd/access_log", "combined"),
    ("access", "/var/log/caddy/access.log", "caddy"),
    ("access", "/var/log/haproxy.log", "haproxy"),
    ("errors", "/var/log/nginx/error.log", "nginx_error"),
    ("errors", "/var/log/apache2/error.log", "apache_error"),
    ("errors", "/var/log/httpd/error_log", "apache_error"),
)
"""Where servers write by default: the stream, the file, and its format where no line is there to tell it. The
first of a stream that is there counts."""
SAMPLE_LINES: Final = 200
_VARIABLE: Final = re.compile(r"\$\{?\w+\}?")


@dataclass(frozen=True)
class Told:
    """What whoever starts says themselves; empty: the default of the setting."""

    name: str = ""
    listen: str = ""
    advertise: str = ""
    http: str = ""
    cluster: str = ""
    bootstrap: tuple[str, ...] = ()
    data_dir: str = ""


@dataclass(frozen=True)
class Stream:
    """A stream of a new configuration. ``source``: where that is from, for people; ``exclude``: what its
    patterns match, and other streams have."""

    name: str
    include: tuple[str, ...]
    format: str
    source: str
    exclude: tuple[str, ...] = ()


@dataclass
class Discovered:
    """``notes``: what was left out, and why; a line each."""

    streams: list[Stream] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def discover(nginx: Path | None = None) -> Discovered:
    """The logs of this machine. ``nginx``: its configuration, if it is not where it is by default. Raises
    ``ConfigError`` where a file that was named cannot be read."""
    path = Path(NGINX) if nginx is None else nginx.absolute()
    found = Discovered()
    if nginx is not None and not path.is_file():
        raise ConfigError(f"--nginx {nginx}: there is no such file")
    if path.is_file():
        try:
            _of_nginx(path, log_files(str(path)), found)
        except ConfigError as error:
            if nginx is not None:
                raise
            found.notes.append(f"{path} cannot be used: {error}")
    if not found.streams:
        found.streams += _usual()
    return found


def _of_nginx(path: Path, logs: Sequence[LogFile], found: Discovered) -> None:
    """A stream for each format: the lines of a stream are of one."""
    formats: dict[str, list[str]] = {}
    seen: set[str] = set()
    for log in logs:
        if why := _unread(log):
            found.notes.append(f"{log.path} is left out: {why}")
        elif log.path not in seen:
            seen.add(log.path)
            formats.setdefault(log.format, []).append(_pattern(log.path, path))
        else:
            found.notes.append(f"{log.path} has lines of several formats: those of {log.format} are rejected")
    access = [name for name in formats if name]
    for name, paths in formats.items():
        text, called = _text(name, path), _called(name, access)
        try:
            get_format(written_out(text))
        except ConfigError as error:
            found.notes.append(f"log_format {name} ({', '.join(paths)}) is left out: {error}")
            continue
        said = f"log_format {name} of {path}" if name else f"error_log of {path}"
        include = tuple(dict.fromkeys(paths))
        others = [path for other, theirs in formats.items() if other != name for path in theirs]
        exclude = tuple(path for path in others if any(fnmatch(path, pattern) for pattern in include))
        found.streams.append(Stream(called, include, text, said, exclude))


def _unread(log: LogFile) -> str:
    """Why a log is no file that can be followed; empty: it is."""
    if log.path.startswith("syslog:"):
        return "it is sent by syslog; a stream of type syslog receives it (docs/inputs.md)"
    if log.path.startswith(("/dev/", "stderr", "memory:")):
        return "it is no file"
    return "nginx compresses it while it writes" if log.packed else ""


def _pattern(path: str, config: Path) -> str:
    """Variables stand for anything; what is not absolute is beside the configuration."""
    pattern = _VARIABLE.sub("*", path)
    return pattern if pattern.startswith("/") else str(config.parent / pattern)


def _text(name: str, path: Path) -> str:
    """The format of a log_format, under the name that the setting takes."""
    if name in ("", "combined"):
        return name or "nginx_error"
    return f"{PREFIX}{name}" if str(path) == NGINX else f"{PREFIX}{name}@{path}"


def _called(name: str, access: Sequence[str]) -> str:
    """``access`` is the only format, or the first of several."""
    if not name:
        return "errors"
    return "access" if name == access[0] else "access_" + re.sub(r"\W", "_", name)


def _usual() -> Iterator[Stream]:
    """Logs at their usual places, whose lines say what they are."""
    named: set[str] = set()
    for name, path, usual in USUAL:
        if name in named or not Path(path).is_file():
            continue
        try:
            lines = sample_lines([path], SAMPLE_LINES)
            format_ = guess_format(lines).name if lines else usual
        except (ElfError, OSError):
            format_ = usual
        named.add(name)
        yield Stream(name, (path,), format_, f"{path}, at its usual place")


def written(told: Told, found: Discovered) -> str:
    """The text of the file."""
    return "\n".join(_lines(told, found)) + "\n"


_HEAD: Final = """\
# An agent of elf, from what `elf config init` found on this machine. elf.example.yaml has all settings with
# their defaults; `elf-agent validate --config FILE` says what a start with this file would trip over.
"""


def _lines(told: Told, found: Discovered) -> Iterator[str]:
    yield _HEAD
    yield "agent:"
    yield from _setting("name", told.name, "web-1", "the host's name, where it is not said")
    about = "where agents and clients reach it; off loopback it needs keys (elf keys enrol)"
    yield from _setting("listen", told.listen, "10.0.0.4:7071", about)
    yield from _setting(
        "advertise", told.advertise, "web-1:7071", "where others reach it, if that is another"
    )
    yield ""
    yield "cluster:"
    yield from _setting("name", told.cluster, "elf", "with keys it is that of their authority")
    yield "  # agents to join through; the first agent of a fleet has none"
    yield f"  bootstrap: {json.dumps(list(told.bootstrap))}"
    yield ""
    yield f"data_dir: {json.dumps(told.data_dir or '/var/lib/elf')}"
    if told.http:
        yield ""
        yield "http:"
        yield f"  listen: {json.dumps(told.http)}"
    yield ""
    yield from _streams(found)


def _setting(name: str, value: str, example: str, about: str) -> Iterator[str]:
    yield f"  # {about}"
    yield f"  {name}: {json.dumps(value)}" if value else f"  # {name}: {example}"


def _streams(found: Discovered) -> Iterator[str]:
    yield from (f"# note: {' '.join(note.split())}" for note in found.notes)
    yield "streams:"
    for stream in found.streams:
        yield f"  # {stream.source}"
        yield f"  {stream.name}:"
        yield f"    include: {json.dumps(list(stream.include))}"
        if stream.exclude:
            yield f"    exclude: {json.dumps(list(stream.exclude))}"
        yield f"    format: {json.dumps(stream.format)}"
        yield "    # who must not be seen (docs/privacy.md): mask: {c_ip: truncate, cs_username: hash}"
    if not found.streams:
        yield "  # no log was found; one would be:"
        yield "  # access:"
        yield '  #   include: ["/var/log/nginx/access.log"]'
        yield "  #   format: combined"
