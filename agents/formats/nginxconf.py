"""``nginx:NAME``: the ``log_format`` of that name in nginx's configuration, and in what it includes;
``nginx:NAME@FILE`` names the file, which is ``/etc/nginx/nginx.conf`` otherwise. crossplane reads it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

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


def _formats(path: str) -> Iterator[tuple[str, str]]:
    """Each ``log_format``, with how it escapes in front, as ``agents.formats.nginx`` reads it."""
    import crossplane

    if not Path(path).is_file():
        raise ConfigError(f"{PREFIX}NAME: there is no file {path}; {PREFIX}NAME@FILE names another")
    read = crossplane.parse(path, check_ctx=False, check_args=False)
    for file in read["config"]:
        for error in file["errors"]:
            raise ConfigError(f"{file['file']}: {str(error['error']).splitlines()[0]}")
        for name, *texts in _directives(file["parsed"]):
            escape = [one for one in texts if one.startswith("escape=")]
            yield name, " ".join([*escape, "".join(texts[len(escape) :])])


def _directives(block: Sequence[Mapping[str, object]]) -> Iterator[list[str]]:
    for directive in block:
        if directive["directive"] == "log_format":
            yield list(directive["args"])  # type: ignore[call-overload]
        yield from _directives(directive.get("block", ()))  # type: ignore[arg-type]
