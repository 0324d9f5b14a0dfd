"""An output of a job: where its windows go, outside of the fleet, and how far they have got there.

The catalog log says which outputs there are. The job's master delivers its results in the order of their
numbers, those by which readers know what they miss (protocol 7.3); the record in its job group says up to
which number they are delivered. What is delivered again is the same, so it replaces itself: a window is known
by its output, its bounds and its rank (``agents.outputs.parcels``), of which the highest counts.

What kinds of targets there are, and what can be said of each, is in ``KINDS``. A target is a URL without a
password: that is in a file of the host, and the statement names it (``WITH (secret = 'NAME')``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from elf.fields import TREES_MAX, Count, Generation, JobUid, Name, Serial, Value
from elf.job.spec import app_id
from elf.ql.alert import Alert
from elf.ql.fuel import RING_COPIES, RING_PARTS
from elf.security.authored import Authorship

OUTPUTS_MAX: Final = 16
"""Of one job."""
FORMATS: Final = ("json", "csv", "parquet")
_HTTP: Final = frozenset({"secret"})
_SERIES: Final = frozenset({"labels", "series"})
SERIES_MAX: Final = 10_000
_POSTGRES: Final = frozenset({"secret", "table"})
_TABLE: Final = re.compile(r"\A[^\W\d]\w{0,62}(\.[^\W\d]\w{0,62})?\Z")
_TOPIC: Final = re.compile(r"\A/[\w.-]{1,249}\Z", re.ASCII)
_TLS: Final = re.compile(r"\A(sslmode=[a-z-]+)?\Z")
_DATABASE: Final = re.compile(r"\A/[\w.$ -]{1,63}\Z")
_HOST: Final = re.compile(r"\A([\w.-]+|[0-9a-f:.]+)\Z", re.ASCII)
_UNFIT: Final = re.compile(r"[\s#\\]")
"""What no target has: programs do not agree on what it means in a URL."""
RETAIN_DIGITS: Final = 18
"""More has no length of time."""
TABLE: Final = "table"
"""The kind of a table: rows that stay in the fleet (``elf.job.tables``). Its option ``of``: the table whose
place it takes, with all its rows, by another key. Where that has shards ``was`` is its key, and ``homes``
says of each shard whether it is in the group of its own key range. ``ring``: how many copies there are of
each of its shards, which are at agents then (``elf.job.ring``)."""
ALERTED: Final = frozenset({"http", "https"})
"""The schemes of targets that take what an alert says."""
KINDS: Final[Mapping[str, frozenset[str]]] = {
    "delta": frozenset(),
    "delta+s3": frozenset({"secret"}),
    "file": frozenset({"format"}),
    "http": _HTTP,
    "https": _HTTP,
    "postgres": _POSTGRES,
    "postgresql": _POSTGRES,
    "kafka": frozenset({"secret"}),
    "prometheus": _SERIES,
    "otlp+http": _SERIES | {"secret"},
    "otlp+https": _SERIES | {"secret"},
    TABLE: frozenset({"key", "retain", "shards", "ring", "of", "was", "homes"}),
}
"""The schemes of targets, each with the options that it takes."""

Option = tuple[Name, Annotated[str, msgspec.Meta(max_length=1_024)]]


class OutputSpec(msgspec.Struct, frozen=True, array_like=True):
    """An output, as its creator said. ``job``: the uid of the job; ``options``: in the order of their names;
    ``from_beginning``: of all results that are kept, not of those to come alone."""

    name: Name
    creator: Name
    generation: Generation
    job: JobUid
    target: Annotated[str, msgspec.Meta(max_length=4_096)]
    options: Annotated[tuple[Option, ...], msgspec.Meta(max_length=32)] = ()
    from_beginning: bool = False
    author: Authorship | None = None
    """The signed statement that it came of, where the fleet has keys."""
    alert: Alert | None = None
    """What goes out is not the windows, but what changes with them for the alert."""

    @property
    def app(self) -> bytes:
        return output_app(self.name, self.creator)

    @property
    def uid(self) -> str:
        """DROP and CREATE under one name are different outputs."""
        return f"{self.app.hex()}.{self.generation}"

    @property
    def kind(self) -> str:
        """The scheme of its target."""
        return kind_of(self.target)

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)


class OutputKept(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """How far an output has got, as a record of its job group: all results up to ``number`` are delivered, or
    were no longer kept when their turn came. ``windows`` were delivered; ``lost`` results were not, the last
    of them from ``gap[0]`` to ``gap[1]``. ``state``: what it remembers of the results, if it has to.
    ``over``: there is no such output any more."""

    job: JobUid
    output: JobUid
    number: Serial
    windows: Count = 0
    lost: Count = 0
    gap: tuple[Serial, Serial] = (0, 0)
    state: Value = b""
    over: bool = False


def output_app(name: str, creator: str) -> bytes:
    """What the uids of a creator's outputs of one name begin with. No job has that name."""
    return app_id(f"output {name}", creator)


def kind_of(target: str) -> str:
    return target.partition(":")[0].lower()


def why_not(target: str, options: Mapping[str, str]) -> str:
    """Why nothing can be delivered there; empty: it can, where a host allows it. What a target is for
    ``is_allowed`` it is for everybody: nothing in it, decoded or not, leads elsewhere."""
    kind, known = kind_of(target), ", ".join(f"{name}:" for name in KINDS if name != TABLE)
    if kind not in KINDS:
        return f"no target begins like {target[:40]!r}; there are {known}"
    try:
        url = urlsplit(target)
        _ = url.port
    except ValueError as error:
        return f"the target is no URL: {error}"
    if url.password:
        return (
            "a password does not belong in a statement: put it in a file of the hosts, WITH (secret = 'NAME')"
        )
    path = _plain(url.path)
    if _UNFIT.search(target) or not target.isprintable() or not path.isprintable():
        return f"a target has no spaces, no # and no \\: {target[:80]!r}"
    if any(part.partition(";")[0] in (".", "..") for part in re.split(r"[/\\]", path)):
        return f"a target has no . and no .. in its path: {target[:80]!r}"
    return _why_not_kind(kind, url, path) or _why_not_options(kind, options)


def _plain(path: str) -> str:
    """As whoever decodes it sees it, however often."""
    while (plain := unquote(path)) != path:
        path = plain
    return path


def _why_not_kind(kind: str, url: SplitResult, path: str) -> str:
    if kind == TABLE:
        return "" if not url.path and not url.query and not url.netloc else "a table has no place of its own"
    if kind == "prometheus":
        return "" if not url.path and not url.query else "the target of gauges is 'prometheus:' alone"
    if kind in ("file", "delta"):
        fit = path.startswith("/") and not url.netloc and not url.query
        what, like = ("files", "elf/out") if kind == "file" else ("a table of Delta Lake", "lake/pages")
        return "" if fit else f"the target of {what} is an absolute folder, such as '{kind}:/var/lib/{like}'"
    if ("http" in kind or kind in ("kafka", "delta+s3")) and url.username is not None:
        return f"a target of {kind}: has no user: the hosts have a secret, WITH (secret = 'NAME')"
    if not _HOST.match(url.hostname or "") or url.port == 0 or not url.geturl().isascii():
        return f"the target names no host: {url.geturl()[:80]!r}"
    if kind in ("postgres", "postgresql") and not (_TLS.match(url.query) and _DATABASE.match(path)):
        return "the target of PostgreSQL is 'postgres://user@host:5432/database', at most with ?sslmode=…"
    if kind == "delta+s3" and not (len(path) > 1 and not url.query and url.port is None):
        return "the target of a table in S3 is 'delta+s3://bucket/folder'"
    if kind == "kafka" and not (_TOPIC.match(url.path) and not url.query):
        return "the target of Kafka is 'kafka://host:9092/topic'"
    return ""


def _why_not_options(kind: str, options: Mapping[str, str]) -> str:
    retain = options.get("retain", "1")
    if kind == TABLE and not (options.get("key") and retain.isdecimal() and len(retain) < RETAIN_DIGITS):
        return "a table has a key, and RETAIN a number of µs"
    shards = options.get("shards", "1")
    if kind == TABLE and not (shards.isdecimal() and len(shards) < 3 and 1 <= int(shards) <= TREES_MAX):
        return f"a table has {TREES_MAX} shards at most"
    if options.get("ring", str(RING_COPIES)) != str(RING_COPIES) or (
        "ring" in options and shards != str(RING_PARTS)
    ):
        return f"a ring has {RING_PARTS} parts of {RING_COPIES} copies each"
    series = options.get("series", "1")
    if not series.isdecimal() or not 0 < int(series) <= SERIES_MAX:
        return f"series is a number up to {SERIES_MAX:,}, not {series!r}"
    if not _TABLE.match(options.get("table", "t")):
        return f"a table is called like windows or stats.windows, not {options['table']!r}"
    if unknown := sorted(options.keys() - KINDS[kind]):
        takes = ", ".join(sorted(KINDS[kind])) or "none"
        return f"{kind}: has no option {unknown[0]}; options: {takes}"
    if kind == "file" and options.get("format", "json") not in FORMATS:
        return f"files have the format {', '.join(FORMATS)}, not {options['format']!r}"
    return ""


def is_allowed(target: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a host that allows these prefixes lets data out to a target. A prefix ends where a part of a
    URL ends, so that ``https://hooks.example.com`` is no prefix of ``https://hooks.example.com.evil.org``."""
    for prefix in prefixes:
        rest = target.removeprefix(prefix)
        if prefix and (not rest or (target.startswith(prefix) and (_ends(prefix) or rest[0] in "/?#"))):
            return True
    return False


def _ends(prefix: str) -> bool:
    """Whether it is a scheme, or ends with a slash."""
    return prefix.endswith("/") or (prefix.endswith(":") and "/" not in prefix)
