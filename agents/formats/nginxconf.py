"""What nginx's configuration, and what it includes, says of its logs; crossplane reads it.

``nginx:NAME`` is the ``log_format`` of that name; ``nginx:NAME@FILE`` names the file, which is
``/etc/nginx/nginx.conf`` otherwise."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from elf.errors import ConfigError

PREFIX: Final = "nginx:"
FILE: Final = "/etc/nginx/nginx.conf"


def written_out(text: str) -> str:
    """The text of a format, in place of where it is to be found. Raises ``ConfigError``."""
    if not text.startswith(PREFIX):
        return text
    name, _, path = text.removeprefix(PREFIX).partition("@")
    path = path or FILE
    formats = dict(_formats(path))
    if name in formats:
        return formats[name]
    near = difflib.get_close_matches(name, formats, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(formats) or 'none'}"
    raise ConfigError(f"{text}: {path} has no log_format {name}; {hint}")


@dataclass(frozen=True)
class LogFile:
    """An ``access_log`` or ``error_log``: where it goes, as it is written there, and the name of its
    ``log_format`` (empty: an error log). ``packed``: nginx compresses it."""

    path: str
    format: str
    packed: bool = False


def log_files(path: str) -> list[LogFile]:
    """The logs that a configuration names, in its order, each once; those that are ``off`` are left out.
    Raises ``ConfigError``."""
    found = []
    for name, args in _directives(path, "access_log", "error_log"):
        if not args or args[0] == "off":
            continue
        words = [arg for arg in args[1:] if "=" not in arg and arg != "gzip"]
        packed = any(arg.partition("=")[0] == "gzip" for arg in args[1:])
        format_ = (words[0] if words else "combined") if name == "access_log" else ""
        found.append(LogFile(args[0], format_, packed))
    return list(dict.fromkeys(found))


def _formats(path: str) -> Iterator[tuple[str, str]]:
    """Each ``log_format``, with how it escapes in front, as ``agents.formats.nginx`` reads it."""
    for _, (name, *texts) in _directives(path, "log_format"):
        escape = [one for one in texts if one.startswith("escape=")]
        yield name, " ".join([*escape, "".join(texts[len(escape) :])])


def _directives(path: str, *names: str) -> Iterator[tuple[str, list[str]]]:
    """The directives of these names, wherever they stand, with their arguments. Raises ``ConfigError``."""
    import crossplane

    if not Path(path).is_file():
        raise ConfigError(f"{PREFIX}NAME: there is no file {path}; {PREFIX}NAME@FILE names another")
    read = crossplane.parse(path, check_ctx=False, check_args=False)
    for file in read["config"]:
        for error in file["errors"]:
            raise ConfigError(f"{file['file']}: {str(error['error']).splitlines()[0]}")
        yield from _inside(file["parsed"], names)


def _inside(block: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    for directive in block:
        if directive["directive"] in names:
            yield directive["directive"], list(directive["args"])
        yield from _inside(directive.get("block", ()), names)
