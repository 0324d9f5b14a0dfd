"""Options that several commands share, and a command whose options may take several values as typed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import typer
from typer.core import TyperCommand

from elf.errors import UserError

DEFAULT_ADDRESS: Final = "127.0.0.1:7071"


class Output(StrEnum):
    """``--output``"""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    CSV_RAW = "csv-raw"


class Shown(StrEnum):
    """``elf top --output``"""

    TABLE = "table"
    JSON = "json"


Connect = Annotated[
    str,
    typer.Option(
        "--connect",
        envvar="ELF_CONNECT",
        metavar="HOST:PORT[,…]",
        help="Any agent of the fleet; of several the first that answers.",
    ),
]
Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        envvar=["ELF_CLUSTER", "ELF_CLUSTER_NAME"],
        help="The name of the cluster (cluster.name).",
    ),
]
Creator = Annotated[
    str | None,
    typer.Option(
        "--creator",
        envvar="ELF_CREATOR",
        metavar="NAME",
        help="Whose jobs are meant: only their own does one change (default: the user of the operating "
        "system).",
    ),
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        help="How results are written. csv: safe to open in a spreadsheet (no cell begins as a formula does) "
        "and to show in a terminal; csv-raw: as it was logged.",
    ),
]


def _use_keys(folder: str | None) -> str | None:
    """All clients of this process come with these keys."""
    if folder is not None:
        os.environ["ELF_KEYS"] = folder
    return folder


KeysOption = Annotated[
    str | None,
    typer.Option(
        "--keys",
        envvar="ELF_KEYS",
        metavar="DIR",
        callback=_use_keys,
        show_default="~/.config/elf, or this machine's",
        help="The folder of your keys, or a loopback key; none: come without.",
    ),
]
ArchivePaths = Annotated[
    list[str] | None,
    typer.Option("--archive", metavar="PATH", help="The agents' archive.path, or its URI; may be repeated."),
]
FromMoment = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="WHEN",
        help="Archived rows from then on: '-6 hours', 2d, yesterday, 2026-01-31T12:00 (UTC); default: all.",
    ),
]
ToMoment = Annotated[
    str | None, typer.Option("--to", metavar="WHEN", help="Archived rows before then; default: all.")
]
ColumnTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME=TYPE",
        help="A column's type: bigint, double, text, boolean or timestamp; others are told from samples.",
    ),
]
JsonLine = Annotated[bool, typer.Option("--json", help="The last line is one JSON object.")]
GeoipOption = Annotated[
    list[str] | None,
    typer.Option(
        "--geoip",
        metavar="FILE",
        show_default="those of ELF_GEOIP_DATABASES",
        help="A database in MaxMind's format (.mmdb), for geo_country and the like; may be repeated.",
    ),
]


def group(help: str) -> typer.Typer:
    """Commands behind one word, as in ``elf keys new``."""
    return typer.Typer(
        help=help,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def databases(given: list[str] | None) -> tuple[str, ...]:
    """Of ``--geoip``, else of the variable that agents read too."""
    found = given or os.environ.get("ELF_GEOIP_DATABASES", "").split(",")
    return tuple(path.strip() for path in found if path.strip())


SqlText = Annotated[str | None, typer.Option("--execute", "-e", help="The statements.")]
SqlWords = Annotated[
    str | None, typer.Argument(metavar="SQL", help="The statements, as with -e.", show_default=False)
]
SqlFile = Annotated[Path | None, typer.Option("--file", "-f", help="A file with the statements.")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]
TreeName = Annotated[
    str, typer.Argument(metavar="JOB | stream:NAME", help="The name of a job, or of a stream.")
]

_STREAM: Final = re.compile(r"[A-Za-z_]\w*=")


class SeveralValues(TyperCommand):
    """A command whose ``--input`` and ``--stream`` take all words up to the next option: ``--input a b c``.

    ``--stream NAME=PATH PATH…``: words without a name belong to the name before them.
    """

    several: ClassVar[tuple[str, ...]] = ("--input", "--stream")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return list(super().parse_args(ctx, spread(args, self.several)))


def spread(args: list[str], several: tuple[str, ...]) -> list[str]:
    """Repeat these options before each of their values. Raises ``UserError`` for one without any."""
    found: list[str] = []
    option, name, given = "", "", True
    for word in args:
        if word.startswith("-") and word != "-":
            _must_be_given(option, given)
            head, equals, value = word.partition("=")
            if head not in several:
                option, given = "", True
                found.append(word)
                continue
            option, name, given = head, "", bool(equals)
            if not equals:
                continue
        elif not option:
            found.append(word)
            continue
        else:
            value, given = word, True
        if option == "--stream":
            match = _STREAM.match(value)
            name, value = (match.group(), value) if match else (name, name + value)
        found += [option, value]
    _must_be_given(option, given)
    return found


def _must_be_given(option: str, given: bool) -> None:
    if not given:
        raise UserError(f"{option} needs at least one value")


def one_text(text: str | None, file: Path | None, flags: str, words: str | None = None) -> str:
    """The text of the one of these that is given: an option's, a file's, or what stands there without an
    option. Raises ``UserError``."""
    given = [one for one in (text, words) if one is not None]
    if len(given) + (file is not None) != 1:
        raise UserError(f"give exactly one of {flags}")
    if file is None:
        return given[0]
    try:
        return file.read_text(encoding="utf-8-sig")  # editors of Windows begin it with a mark
    except OSError as error:
        raise UserError(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise UserError(f"cannot read {file}: it is not UTF-8 text") from None


@dataclass(frozen=True)
class ArchiveQuery:
    """A query over archives, as it was typed: its ``text`` or its ``file``, the ``archives``, ``begin`` and
    ``end`` of its span, and the ``columns`` whose types are declared (``NAME=TYPE``)."""

    text: str | None
    file: Path | None
    archives: Sequence[str]
    begin: str | None
    end: str | None
    columns: Sequence[str]

    def sql(self, flags: str, instead: str = "") -> str:
        """Its text. Raises ``UserError``, also where no archive is named; ``instead``: of one."""
        text = one_text(self.text, self.file, flags)
        if not self.archives:
            raise UserError(f"give the archive to read: --archive PATH (archive.path of the agents){instead}")
        return text
