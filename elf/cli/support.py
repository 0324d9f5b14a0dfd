"""``elf support-bundle``: what elf's makers need to know of an agent, and nothing that is of persons.

Rules: numbers of its own are kept, and words that the source of elf has, since then it is elf that says them.
Every other word (of a name, a path, a statement, a line), every address and every long number becomes
``‹n›``, the same one each time. Statements, rows, keys and the audit are left out as a whole.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import json
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from agents.config import Config
from agents.disk.folder import pid_of
from agents.exposition import exposition
from agents.loading import load
from agents.metrics import Metrics
from agents.process import STORE_FILE
from elf import __version__
from elf.errors import ConfigError
from elf.security.files import write
from elf.transport.base import Counters

LOG_BYTES: Final = 1 << 20
"""Of the end of the log."""
JOURNAL: Final = ("journalctl", "--unit", "elf-agent", "--lines", "2000", "--output", "cat", "--no-pager")
SECS: Final = 10.0
SOURCES: Final = ("agents", "elf", "overlay")
_HIDDEN: Final = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # mail
    r"|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?"  # IPv4
    r"|\b(?:[0-9A-Fa-f]{0,4}:){2,}[0-9A-Fa-f]{0,4}"  # IPv6
    r"|\d{5,}"
    r"|\d+(?:-\d+)+"
    r"|[^\W\d_][\w-]*"
)
_MOMENT: Final = re.compile(r"[\dT:.+Z -]+")


class Words:
    """Lets through what elf says itself."""

    def __init__(self) -> None:
        self._known = {word.lower() for text in _sources() for word in re.findall(r"[^\W\d_]+", text)}
        self._hidden: dict[str, str] = {}

    def shown(self, text: str) -> str:
        return _HIDDEN.sub(lambda found: self._word(found[0]), text)

    def _word(self, word: str) -> str:
        parts = re.findall(r"[^\W\d_]+", word)
        plain = "@" not in word and ":" not in word and not re.search(r"\d{3,}|\d[.-]\d", word)
        if plain and all(part.lower() in self._known for part in parts):
            return word
        return self._hidden.setdefault(word, f"‹{len(self._hidden) + 1}›")

    def value(self, value: object, key: str = "") -> object:
        """The same in what JSON has; keys of objects are elf's own, or hidden, too."""
        if isinstance(value, str):
            return value if key == "timestamp" and _MOMENT.fullmatch(value) else self.shown(value)
        if isinstance(value, Mapping):
            return {self.shown(str(name)): self.value(one, str(name)) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        return value if value is None or isinstance(value, bool | int | float) else self.shown(str(value))


def _sources() -> Iterator[str]:
    for name in SOURCES:
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            for path in Path(place).rglob("*.py"):
                if "examples" not in path.parts and "demo" not in path.parts:
                    yield path.read_text(encoding="utf-8")


def collect(path: Path, out: Path) -> int:
    """``elf support-bundle``. Raises ``UserError``."""
    words = Words()
    config: Config | None = None
    try:
        config = load(path)
    except ConfigError as error:
        parts = {"config.txt": f"it cannot be used:\n{words.shown(str(error))}\n"}
    else:
        parts = {"config.txt": "".join(_settings(config, words))}
    parts["versions.json"] = _json(_versions())
    if config is not None:
        folder = Path(config.data_dir)
        parts["state.json"] = _json(_state(folder))
        parts["log.txt"] = "".join(f"{line}\n" for line in _log(config, words))
        parts |= _asked(config, words)
    write(out, _packed(parts))
    for name, text in parts.items():
        print(f"{name}: {len(text.encode()):,} bytes")
    print(f"wrote {out}: look at it before you send it (tar -xzOf {out} | less)")
    return 0


def _settings(config: Config, words: Words) -> Iterator[str]:
    """Those that are another than by default, or of which there is no default."""
    usual = load(None, {}).describe()
    for key, value in config.describe().items():
        if key not in usual or usual[key] != value:
            yield f"{words.shown(key)}: {json.dumps(words.value(value), ensure_ascii=False)}\n"


def _versions() -> dict[str, object]:
    import psutil

    packages = {}
    for line in importlib.metadata.requires("elf-stream") or ():
        name = re.split(r"[^\w-]", line)[0]
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "elf": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "packages": packages,
    }


def _state(folder: Path) -> dict[str, object]:
    """Of the data folder: how much is in it, and how many rows the tables of the state have."""
    found: dict[str, object] = {}
    try:
        found["runs"] = pid_of(folder) is not None
        found["free_bytes"] = shutil.disk_usage(folder).free
        for one in sorted(folder.iterdir()):
            files = [one] if one.is_file() else [path for path in one.rglob("*") if path.is_file()]
            if one.name in ("archive", "audit", "failed", "rejects", "rolls", "spill", "spool", STORE_FILE):
                found[one.name] = {"files": len(files), "bytes": sum(path.stat().st_size for path in files)}
        found["tables"] = _tables(folder / STORE_FILE)
    except OSError as error:
        found["problem"] = (error.strerror or str(error)).lower()
    return found


def _tables(path: Path) -> dict[str, int] | str:
    if not path.exists():
        return "there is no state"
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            names = [
                name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            ]
            return {
                name: connection.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0] for name in names
            }
        finally:
            connection.close()
    except sqlite3.Error as error:
        return f"it cannot be read: {type(error).__name__}"


def _log(config: Config, words: Words) -> Iterator[str]:
    """The end of the agent's log; lines that are no JSON are hidden word for word, too."""
    for line in _log_lines(config):
        try:
            yield json.dumps(words.value(json.loads(line)), ensure_ascii=False)
        except ValueError:
            yield words.shown(line)


def _log_lines(config: Config) -> list[str]:
    if config.log.path:
        try:
            with Path(config.log.path).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
                return file.read().decode("utf-8", "replace").splitlines()
        except OSError as error:
            return [f"the log cannot be read: {(error.strerror or str(error)).lower()}"]
    try:
        done = subprocess.run(JOURNAL, capture_output=True, timeout=SECS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ["no log: there is no journal, and log.path is not set"]
    return done.stdout[-LOG_BYTES:].decode("utf-8", "replace").splitlines()


def _asked(config: Config, words: Words) -> dict[str, str]:
    """What a running agent says over HTTP. Of the metrics those of its own alone: those of outputs have
    values of rows in their labels."""
    if not config.http.listen or config.http.tls_cert:
        return {"http.txt": "it serves none, or over TLS\n"}
    found = {}
    for path in ("/ready", "/health", "/api/v1/members", "/api/v1/streams"):
        said = _fetched(config.http.listen, path)
        name = f"{path.rpartition('/')[2]}.json"
        try:
            found[name] = _json(words.value(json.loads(said)))
        except ValueError:
            found[name] = f"{words.shown(said)}\n"
    own = Metrics()
    own.watch(Counters())
    names = set(re.findall(r"^# TYPE (\w+)", exposition(own).decode(), re.MULTILINE))
    lines = _fetched(config.http.listen, "/metrics").splitlines()
    kept = [line for line in lines if _family(line) in names]
    found["metrics.txt"] = "".join(f"{line}\n" for line in kept)
    found["times.json"] = _json({"unix_seconds": round(time.time())})
    return found


def _family(line: str) -> str:
    name = (re.match(r"(?:# \w+ )?(\w+)", line) or ["", ""])[1]
    return re.sub(r"_(bucket|sum|count)$", "", name) if "cut_seconds" in name else name


def _fetched(listen: str, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{listen}{path}", timeout=SECS) as answer:
            return str(answer.read().decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        return error.read().decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        return f"the agent does not answer: {error}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def _packed(parts: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in parts.items():
            data = text.encode()
            entry = tarfile.TarInfo(f"elf-support/{name}")
            entry.size, entry.mtime = len(data), int(time.time())
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
