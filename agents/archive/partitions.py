"""Where archived rows lie: Parquet files by stream, event hour and agent, wherever pyarrow can write.

    TARGET/stream=clicks/date=2026-03-01/hour=14/agent=web-3/5f0c…-00000000000000001200.parquet

Rules: names follow Hive (``key=value``, percent-encoded), so that Spark discovers the partitions; rows
without an event time, or with one outside the years 1 to 9999, lie under Hive's name for NULL. A file appears
whole or not at all: it is written under a hidden name, synced and renamed, or, where the place is an object
store, it is one object. Writing the same name again replaces it.

It must never decide what may be shipped: that is the archive's business.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agents.disk.durable import sync_path
from agents.disk.modes import Access
from elf.errors import UserError

if TYPE_CHECKING:  # an agent without input needs neither file systems nor Parquet: 5 MB less
    import pyarrow.fs as pafs

HOUR_US: Final = 3_600_000_000
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_KEYS: Final = re.compile(r"://[^/?#@:]*:(?!\d+(?:[/?#]|$)).*@")
_SHIPPED: Final = re.compile(r"[^._].*\.parquet")
_OBJECT_STORES: Final = frozenset({"s3", "gcs", "abfs"})
"""An object there is whole when it appears, and to rename it is to copy it."""
_FIRST_HOUR: Final = -17_259_888
"""Hours from the epoch to 0001-01-01."""
_END_HOUR: Final = 70_389_528
"""Hours from the epoch to 10000-01-01."""
_NO_HOUR: Final = _END_HOUR


class ArchiveError(UserError):
    """The archive cannot be written or read: the text says which path, and what the file system said."""


def hour_folder(hour: int | None) -> str:
    """``date=…/hour=…`` of an hour since the epoch; None: rows without event time."""
    if hour is None:
        return f"date={NULL_PARTITION}/hour={NULL_PARTITION}"
    at = _EPOCH + datetime.timedelta(hours=hour)
    return f"date={at.date().isoformat()}/hour={at.hour:02d}"


def unit_folder(hour: int | None, agent: str) -> str:
    """``date=…/hour=…/agent=…``: where the files of an hour and an agent are, below the stream's folder."""
    return f"{hour_folder(hour)}/agent={quote(agent, safe='')}"


def hour_of(path: str) -> int | None:
    """The hour of the folder that a path below the stream's folder begins with."""
    date, hour = (part.partition("=")[2] for part in path.split("/", 2)[:2])
    if NULL_PARTITION in (date, hour):
        return None
    day = datetime.date.fromisoformat(date) - _EPOCH.date()
    return day.days * 24 + int(hour)


def agent_of(path: str) -> str:
    """The agent whose folder a path below the stream's folder leads through."""
    return unquote(path.split("/", 3)[2].removeprefix("agent="))


def by_hour(table: pa.Table) -> list[tuple[int | None, pa.Table]]:
    """(hour since the epoch or None, its rows in their order) for each hour that ``table`` has rows of.

    ``ts`` is a timestamp[us] with nulls. Batches within an hour, nearly all, are passed on as they are.
    """
    parts: dict[int, list[pa.RecordBatch]] = {}
    for batch in table.to_batches():
        hours = _hours(batch.column("ts"))
        if len(hours) and hours.min() == hours.max():
            parts.setdefault(int(hours[0]), []).append(batch)
            continue
        for hour in np.unique(hours):
            parts.setdefault(int(hour), []).append(batch.filter(pa.array(hours == hour)))
    return [
        (None if hour == _NO_HOUR else hour, pa.Table.from_batches(parts[hour], table.schema))
        for hour in sorted(parts)
    ]


def _hours(ts: pa.Array) -> npt.NDArray[np.int64]:
    """Hours since the epoch, floored; ``_NO_HOUR`` for NULL and for times that no folder is named for."""
    us = ts.cast(pa.int64()).fill_null(_END_HOUR * HOUR_US).to_numpy()
    hours: npt.NDArray[np.int64] = np.floor_divide(us, HOUR_US)
    hours[(hours < _FIRST_HOUR) | (hours > _END_HOUR)] = _NO_HOUR
    return hours


def for_people(uri: str) -> str:
    """A place without the keys that may be in it."""
    return _KEYS.sub("://…@", uri, count=1)


def without_keys(uri: str) -> str:
    """A place as who has keys of their own gets at it."""
    return _KEYS.sub("://", uri, count=1)


class Target:
    """The place that ``archive.path`` names."""

    def __init__(self, uri: str, access: Access = Access()) -> None:  # noqa: B008 (it is a value)
        """``uri``: a local path, or a URI that ``pyarrow.fs`` knows. Raises ``ArchiveError``."""
        self.uri = for_people(uri)
        self._access = access
        self.local = True
        if "://" not in uri and not uri.startswith("file:"):
            self.root = str(Path(uri).absolute())
            return
        import pyarrow.fs as pafs

        try:
            self.fs, self.root = pafs.FileSystem.from_uri(uri)
        except (pa.ArrowInvalid, OSError) as error:
            raise ArchiveError(
                f"{self.uri!r} is no place that can be reached: " + str(error).replace(uri, self.uri)
            ) from error
        self.local = isinstance(self.fs, pafs.LocalFileSystem)

    @cached_property
    def fs(self) -> pafs.FileSystem:
        """The file system that ``root`` is a path of."""
        import pyarrow.fs as pafs

        return pafs.LocalFileSystem()

    @cached_property
    def _is_object_store(self) -> bool:
        return self.fs.type_name in _OBJECT_STORES

    def stream_folder(self, stream: str) -> str:
        return f"{self.root}/stream={quote(stream, safe='')}"

    def place(self, path: str, parts: Iterable[bytes | pa.Buffer]) -> None:
        """A file of any kind, whole or not at all."""
        try:
            self._replace(path.rpartition("/")[0], path, parts)
        except (OSError, pa.ArrowException) as error:
            raise ArchiveError(f"cannot write {path} to the archive {self.uri}: {error}") from error

    def hours(self, stream: str, from_us: int, to_us: int) -> list[str]:
        """The existing folders of hours that may hold rows with ``from_us`` ≤ ts < ``to_us``, in order."""
        first, last = (max(_FIRST_HOUR, min(us // HOUR_US, _END_HOUR - 1)) for us in (from_us, to_us - 1))
        low, high = hour_folder(first), hour_folder(last)
        dates = (low.split("/")[0], high.split("/")[0])
        found = []
        for date in self._folders(self.stream_folder(stream)):
            if not dates[0] <= date <= dates[1] or NULL_PARTITION in date:
                continue
            found += [f"{date}/{hour}" for hour in self._folders(f"{self.stream_folder(stream)}/{date}")]
        return [f"{self.stream_folder(stream)}/{hour}" for hour in sorted(found) if low <= hour <= high]

    def everything(self, stream: str) -> list[str]:
        """The stream's folder, in a list; no folder when nothing was ever shipped."""
        folder = self.stream_folder(stream)
        return [folder] if self._folders(folder) else []

    def sizes(self, folders: Sequence[str]) -> dict[str, int]:
        """The shipped files in these folders, or below them, and their bytes."""
        import pyarrow.fs as pafs

        found = {}
        for folder in folders:
            try:
                infos = self.fs.get_file_info(pafs.FileSelector(folder, allow_not_found=True, recursive=True))
            except OSError as error:
                raise ArchiveError(f"cannot list {folder} in the archive {self.uri}: {error}") from error
            for info in infos:
                if info.type == pafs.FileType.File and _SHIPPED.fullmatch(info.base_name):
                    found[info.path] = info.size
        return found

    def names(self, folder: str) -> list[str]:
        """Of the files and folders in a folder; none where it is not there."""
        import pyarrow.fs as pafs

        try:
            infos = self.fs.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        except OSError as error:
            raise ArchiveError(f"cannot list {folder} in the archive {self.uri}: {error}") from error
        return sorted(info.base_name for info in infos)

    def read(self, path: str) -> bytes | None:
        """A file; None: it is not there."""
        try:
            with self.fs.open_input_stream(path) as file:
                data: bytes = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ArchiveError(f"cannot read {path} in the archive {self.uri}: {error}") from error
        return data

    def opened(self, path: str) -> pa.NativeFile:
        """A file, to be read from where one likes. Raises ``ArchiveError``."""
        try:
            return self.fs.open_input_file(path)
        except OSError as error:
            raise ArchiveError(f"cannot read {path} in the archive {self.uri}: {error}") from error

    def size(self, path: str) -> int:
        """Of a file that is there, in bytes."""
        with self.opened(path) as file:
            return int(file.size())

    def exists(self, path: str) -> bool:
        import pyarrow.fs as pafs

        return bool(self.fs.get_file_info(path).type == pafs.FileType.File)

    def remove(self, path: str) -> None:
        """A file, if it is there."""
        try:
            if self.exists(path):
                self.fs.delete_file(path)
        except OSError as error:
            raise ArchiveError(f"cannot delete {path} from the archive {self.uri}: {error}") from error

    def files(self, folders: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """The files in these folders that can be read to their end, by their checksums; and why the others
        cannot."""
        reasons = {path: self.damage(path) for path in sorted(self.sizes(folders))}
        whole = [path for path, why in reasons.items() if not why]
        return whole, {path: why for path, why in reasons.items() if why}

    def facts(self, path: str) -> dict[str, str]:
        """What the agent has written about a file."""
        import pyarrow.parquet as pq

        with self.fs.open_input_file(path) as file:
            found = pq.read_schema(file).metadata or {}
        prefix = b"elf."
        return {k.removeprefix(prefix).decode(): v.decode() for k, v in found.items() if k.startswith(prefix)}

    def damage(self, path: str) -> str:
        """Why a file cannot be read to its end, by its checksums; empty: it can."""
        import pyarrow.parquet as pq

        try:
            with self.fs.open_input_file(path) as file:
                read = pq.ParquetFile(file, page_checksum_verification=True)
                for group in range(read.num_row_groups):
                    read.read_row_group(group, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            return str(error).splitlines()[0]
        return ""

    def _folders(self, path: str) -> list[str]:
        import pyarrow.fs as pafs

        try:
            infos = self.fs.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        except OSError as error:
            raise ArchiveError(f"cannot list {path} in the archive {self.uri}: {error}") from error
        return [info.base_name for info in infos if info.type == pafs.FileType.Directory]

    def _replace(self, folder: str, path: str, parts: Iterable[bytes | pa.Buffer]) -> None:
        if self._is_object_store:
            with self.fs.open_output_stream(path) as file:
                for part in parts:
                    file.write(part)
            return
        if self.local:
            self._access.make_folder(Path(folder))
        else:
            self.fs.create_dir(folder, recursive=True)
        hidden = f"{folder}/.{path.rsplit('/', 1)[1]}.part"
        with self.fs.open_output_stream(hidden) as file:
            for part in parts:
                file.write(part)
        if self.local:
            self._access.give(Path(hidden))
            sync_path(Path(hidden))
        self.fs.move(hidden, path)
        if self.local:
            for parent in (Path(folder), *Path(folder).parents):
                sync_path(parent)
                if str(parent) == self.root:
                    break
