"""Every setting of an agent: ``/etc/elf/elf.yaml``, with ``ELF_…`` variables over it.

This file is the one table of settings: the reader (``agents.loading``), its messages,
``deploy/elf.example.yaml`` (written by ``python -m agents.config``) and the tests all come from it. Times are
in seconds and sizes in bytes, as the names say.
"""

# ruff: noqa: RUF009 (the calls declare fields, as dataclasses.field does)
from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from agents.linekinds import expression, log_format, time_zone
from agents.masks import HOWS
from agents.settings.declare import OF_JOBS, example, named, required, section, setting, values_of
from agents.settings.kinds import (
    Kind,
    Unfit,
    address,
    choice,
    counted,
    empty_or,
    flag,
    many,
    matching,
    number,
    optional,
    table,
    whole,
)
from agents.settings.links import between
from elf.fields import Labels
from elf.planning.lent import Budget, Budgets
from elf.schema import COLUMN_TYPES, ZONED
from elf.transport.base import Limits
from overlay.config import OverlayConfig

DEFAULT_PATH: Final = Path("/etc/elf/elf.yaml")
ARCHIVE_SCHEMES: Final = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
"""Where pyarrow and Spark can both get at."""
COPIES: Final = 2
COPIES_MAX: Final = 4
"""Neighbours that have copies of snapshots: by default, and at most."""


def labels() -> Kind[Mapping[str, str]]:
    """Names and texts that an agent may say of itself to others: they take no message with more."""
    kind = table(_WORD)

    def read(value: object) -> Mapping[str, str]:
        found = kind.read(value)
        try:
            msgspec.convert(tuple(found.items()), Labels)
        except msgspec.ValidationError:
            raise Unfit("must be at most 64 names of 255 characters, and texts of 4096") from None
        return found

    return Kind(kind.name, read, kind.split)


_WORD: Final = matching(r"\S(.*\S)?", "a text")
_PATTERN: Final = matching(r"/.+", "an absolute path (wildcards: *, **, ?, [abc])")
_FOLDER: Final = matching(r"/.*", "an absolute path")
_SECS: Final = number(above=True)
_HOST: Final = matching(r"[^\s:/@,]+|[0-9A-Fa-f:.]+", "the name of a host, without a port")
_LIMITS: Final = Limits()
_RING: Final = OverlayConfig()


@dataclass(frozen=True)
class AgentConfig:
    """Who this agent is."""

    name: str = setting("", empty_or(_WORD), "What people call this agent; empty: the host's name.")
    listen: str = setting(
        "127.0.0.1:7071", address(), "Where agents and clients reach it; port 0: any free one."
    )
    advertise: str = setting(
        "", empty_or(address()), "The address that others use to get here; empty: the same as listen."
    )
    labels: Mapping[str, str] = setting(
        {}, labels(), "What kind of machine it is, as role: shop; queries read _labels.role."
    )
    place: str = setting(
        "", empty_or(_WORD), "Where it stands, as region/rack: among agents equally far it prefers its own."
    )
    lends: bool = setting(
        True, flag(), "Whether it has copies of tables with a ring; false: other agents have them, if any do."
    )


@dataclass(frozen=True)
class ClusterConfig:
    """Which fleet it belongs to."""

    name: str = setting("elf", _WORD, "Agents talk only to agents whose cluster has the same name.")
    bootstrap: tuple[str, ...] = setting(
        (),
        many(address()),
        "Agents to join through, any one of which is enough; the founder of a cluster has none.",
    )
    retry_join_secs: float = setting(2.0, _SECS, "Time between two tries to join.")
    detect: str = setting(
        "default",
        choice("default", "fast"),
        "How soon a dead agent is missed: within 3 s (default) or 1 s (fast: three times the heartbeats, and "
        "machines that never stall for half a second). The same on all agents.",
    )
    balance: bool = setting(
        False,
        flag(),
        "Whether jobs go by themselves to agents that have less to do; SHOW DECISIONS says which and why. "
        "The same on all agents: the one that leads the catalog log goes by its own.",
    )
    regions: bool = setting(
        False,
        flag(),
        "Whether what agents of one region (the first part of agent.place) send and hear crosses its border "
        "once, through one of them. The same on all agents: one without it belongs to no region.",
    )
    border_secs: float | None = setting(
        None,
        optional(number()),
        "Where that agent merges panes before they cross, how long it holds them at most. 0: it does not. "
        "null: as long as the windows of all jobs that need them allow, at most ten minutes.",
    )
    links: Mapping[str, str] = setting(
        {},
        between(),
        "What links between regions carry, as eu/us: 20 Mbit/s 40 ms (the delay, of one way, or nothing). "
        "It means both directions, unless us/eu is there too. For EXPLAIN ROUTES, and for routes.",
    )
    routes: str = setting(
        "off",
        choice("off", "propose", "act"),
        "Whether it is planned by itself over which other regions jobs send, and how long panes wait at a "
        "border: not at all; as decisions that people look at (SHOW DECISIONS); or as ones that act. The "
        "same on all agents: the one that leads the catalog log goes by its own.",
    )


@dataclass(frozen=True)
class ReceiveConfig:
    """How lines come that are in no file."""

    listen: str = setting("", empty_or(address()), "Where they are received; port 0: any free one.")
    transport: tuple[str, ...] = setting(
        ("udp", "tcp"), many(choice("udp", "tcp"), 1), "Of type syslog: over what; TLS is over tcp."
    )
    line: str = setting(
        "auto",
        choice("auto", "whole", "message"),
        "What of a message is the line: the whole (a syslog message with its header, a record as JSON), or "
        "its text alone; auto: whole for the formats json, syslog and syslog5424, else the text.",
    )
    token_file: str = setting(
        "", empty_or(_FOLDER), "The file of a secret that senders must show (http, otlp, forward); mode 0600."
    )
    tls_cert: str = setting("", empty_or(_FOLDER), "The file of a certificate (PEM): senders use TLS.")
    tls_key: str = setting("", empty_or(_FOLDER), "The file of its secret key (PEM).")
    tls_ca: str = setting(
        "", empty_or(_FOLDER), "Senders must have a certificate that one in this file (PEM) has signed."
    )
    open: bool = setting(
        False, flag(), "Off loopback: whoever reaches it may send, without a token or a certificate."
    )
    connections_max: int = setting(200, whole(1), "Open connections.")
    address_connections_max: int = setting(64, whole(1), "Open connections from one address.")
    body_bytes_max: int = setting(
        16 << 20, whole(1 << 10), "The largest request over HTTP, or chunk of forward, unpacked too."
    )
    spool_bytes_max: int = setting(
        256 << 20,
        whole(1 << 20),
        "What is received and not in a checkpoint yet may take up so much of data_dir; then senders wait.",
    )
    matches: tuple[str, ...] = setting(
        (), many(_WORD), "Of type journal: what journalctl is to show, as _SYSTEMD_UNIT=nginx.service."
    )


FILES: Final = "file"
JOURNAL: Final = "journal"
LISTENING: Final = ("syslog", "http", "forward", "otlp")
"""Types of streams to which lines are sent."""


@dataclass(frozen=True)
class MultilineConfig:
    """Records of several lines, in files."""

    start: str = setting(
        "",
        empty_or(expression()),
        "What is found in the first line of each record, as '^\\d{4}-'; empty: each line is a record.",
    )
    wait_secs: float = setting(
        2.0, _SECS, "A record that no other follows is read when nothing has come for so long."
    )


@dataclass(frozen=True)
class StreamConfig:
    """One named flow of log records."""

    format: str = required(log_format(), "How a line is parsed (docs/formats.md).", "json")
    include: tuple[str, ...] = setting(
        (),
        many(_PATTERN),
        "The files to follow (type file), or journal files and folders (type journal; none: the system's).",
        ("/var/log/shop/clicks*.log",),
    )
    type: str = setting(FILES, choice(FILES, *LISTENING, JOURNAL), "Where lines come from (docs/inputs.md).")
    exclude: tuple[str, ...] = setting((), many(_PATTERN), "Files not to follow, though they are included.")
    timestamp: str | None = setting(
        None,
        optional(_WORD),
        "The column with the event time; null: the first of ts, timestamp, @timestamp, time, created_at.",
    )
    timezone: str = setting(
        "",
        empty_or(time_zone()),
        "Of the clocks whose times the lines have, where they name none, as Europe/Berlin; empty: UTC.",
    )
    columns: Mapping[str, str] = setting(
        {}, table(choice(*COLUMN_TYPES)), "Declared types of columns; others are inferred from samples."
    )
    lateness_secs: float = setting(2.0, number(), "A row may come so much later than others and still count.")
    initial_read_offset: str = setting(
        "beginning", choice("beginning", "end"), "Where to start in a file that is seen for the first time."
    )
    rotate_wait_secs: float = setting(5.0, number(), "How long a rotated file is still read for more.")
    max_line_bytes: int = setting(1 << 20, whole(1), "A longer line is rejected.")
    mask: Mapping[str, str] = setting(
        {},
        table(choice(*HOWS)),
        "Columns of which nobody sees more, however they ask: truncate (addresses, to /24 and /48), hash "
        "(with a key of this host's) or drop; in _line, the archive and the reject file too.",
    )
    idle_timeout_secs: float = setting(10.0, _SECS, "A file silent for so long holds up no window.")
    shared: tuple[str, ...] = setting(
        (),
        many(_PATTERN),
        "Files of other agents that are seen here too, under the same paths (NFS), and that this agent may "
        "read in their place: with STRAGGLERS MIRROR one agent reads what another one that is behind has "
        "not. Links are followed first. Empty: it shares no files of the stream.",
    )
    multiline: MultilineConfig = section(MultilineConfig, "Records of several lines, in files.")
    receive: ReceiveConfig = section(
        ReceiveConfig, "How lines come that are in no file (all types but file)."
    )

    @property
    def zoned_format(self) -> str:
        """The text of the format, with the zone of its times."""
        return f"{ZONED}{self.timezone} {self.format}" if self.timezone else self.format


@dataclass(frozen=True)
class ArchiveConfig:
    """The raw streams on their way to Parquet."""

    enabled: bool = setting(True, flag(), "Whether lines are archived; archive: off says the same as false.")
    path: str = setting(
        "", empty_or(_WORD), "A folder or URI that Spark reaches too; empty: the folder archive in data_dir."
    )
    readers: str = setting(
        "user",
        choice("user", "group", "all"),
        "Who may read it on a file system of this host: the agent's user, a group as well, or all.",
    )
    group: str = setting("", empty_or(_WORD), "That group (readers: group); empty: that of the agent's user.")
    roll_secs: float = setting(60.0, _SECS, "An open roll is closed and shipped after so long at most.")
    roll_bytes: int = setting(64 << 20, whole(1), "An open roll is closed and shipped at this size.")
    past_share: float = setting(
        0.5,
        number(0.01),
        "Of one core: what reading archived lines again may take (SINCE); new lines go first.",
    )
    days: float | None = setting(
        None, optional(number(above=True)), "Hours of event time that are older are deleted; null: none is."
    )
    bytes: int | None = setting(
        None, optional(whole(1)), "The oldest hours are deleted beyond that, of all streams; null: never."
    )
    free_bytes: int | None = setting(
        None,
        optional(whole(0)),
        "The oldest hours are deleted so that this much of the disk of path stays free; null: 5 % of the "
        "disk, at least 1 GiB.",
    )
    grace_secs: float = setting(
        3600.0,
        number(),
        "A file that was replaced, or is too old, is deleted after so long: readers may have it.",
    )
    index: tuple[str, ...] = setting(
        (),
        many(_WORD),
        "Columns whose values are remembered for each hour, so that offline queries for some of them pass "
        "over files.",
    )


@dataclass(frozen=True)
class HttpConfig:
    """Health, metrics and facts over HTTP."""

    listen: str | None = setting(
        "127.0.0.1:7072", optional(address()), "Where HTTP is served; port 0: any free one; null: nowhere."
    )
    hosts: tuple[str, ...] = setting(
        (),
        many(_HOST),
        "Names, beside those of listen and advertise, under which it is asked (the Host of a request): with "
        "any other it does not answer.",
    )
    connections_max: int = setting(
        200, whole(8), "Open connections; a quarter is kept for /health and /ready."
    )
    address_connections_max: int = setting(
        64, whole(4), "Open connections from one address (that of a proxy, too)."
    )
    answers_max: int = setting(
        50,
        whole(1),
        "Answers a second to one address, beside those of /health and /ready: more for web servers that ask "
        "tables by key; each is made where the agent hears its fleet.",
    )
    page: bool = setting(
        False,
        flag(),
        "Whether the page is served there too, for browsers: to people who show a token (elf keys bearer).",
    )
    tls_cert: str = setting(
        "",
        empty_or(_FOLDER),
        "The file of a certificate (PEM): HTTP is served over TLS. Off loopback it must be.",
    )
    tls_key: str = setting("", empty_or(_FOLDER), "The file of its secret key (PEM).")


@dataclass(frozen=True)
class AuditConfig:
    """What was done for whom, kept so that nobody changes it unseen."""

    enabled: bool = setting(True, flag(), "Whether it is kept.")
    path: str = setting("", empty_or(_FOLDER), "The folder; empty: audit in data_dir.")
    file_bytes_max: int = setting(16 << 20, whole(1 << 16), "A file is closed at this size.")
    files_max: int = setting(16, whole(2), "So many files are kept; the oldest go.")


@dataclass(frozen=True)
class LogConfig:
    """What the agent says about itself."""

    level: str = setting(
        "info", choice("debug", "info", "warning", "error"), "The least important level that is logged."
    )
    format: str = setting("json", choice("json", "console"), "One JSON object a line, or lines for people.")
    path: str = setting("", empty_or(_FOLDER), "A file that it goes to; empty: standard error.")
    file_bytes_max: int = setting(
        16 << 20,
        whole(0),
        "The file is closed at this size, as path.1; 0: it is left to logrotate, whose renaming is seen.",
    )
    files_max: int = setting(5, whole(2), "So many files are kept; the oldest go.")


@dataclass(frozen=True)
class TracesConfig:
    """What becomes of panes in the tree, for OpenTelemetry."""

    target: str = setting(
        "",
        empty_or(matching(r"https?://[^\s/]+(/\S*)?", "a URL (http:// or https://)")),
        "The collector that takes traces by OTLP over HTTP, as http://127.0.0.1:4318/v1/traces; empty: none.",
    )
    one_in: int = setting(16, whole(1), "Of so many panes one is traced; all agents need the same number.")


@dataclass(frozen=True)
class ProtocolConfig:
    """Time limits of rolling up (protocol 3.4, protocol 4.4, protocol 8.1, protocol 10.1)."""

    restart_grace_secs: float = setting(
        300.0,
        number(),
        "An agent silent for longer is still expected in results, but no longer waited for; "
        "another keeps the catalog log in its place.",
    )
    future_bound_secs: float = setting(60.0, _SECS, "Rows further ahead of the clock are set aside, counted.")
    revise_secs: float = setting(600.0, number(), "How long after its commit a pane takes corrections.")
    straggler_min_secs: float = setting(
        3.0, _SECS, "Agents that are behind are waited for at least so long (two panes, within the limits)."
    )
    straggler_max_secs: float = setting(30.0, _SECS, "Agents that are behind are waited for at most so long.")
    combine_secs: float | None = setting(
        None,
        optional(number()),
        "How long agents below the root of a job's tree wait for what their children have of a window, so "
        "that it goes up together; each level below waits half as long. null: a pane, at most a second.",
    )
    retained_bytes_max: int = setting(
        256 << 20,
        whole(1 << 16),
        "Snapshots of one job that are kept while its root does not take them; beyond it rows are shed.",
    )
    copies: str = setting(
        "lazy",
        counted(("lazy", "eager"), COPIES_MAX),
        "Neighbours, in other racks if possible, have copies of snapshots: so an agent that is gone for "
        "good does not take them along. lazy: of those that wait for their commit (with STRAGGLERS MIRROR of "
        "each, at once). eager: of each at once, and of what comes to open panes each second. How many "
        f"neighbours, if not {COPIES}; 0: nobody answers for this agent.",
    )
    copy_after_secs: float = setting(
        3.0, number(), "How long a snapshot may wait for its commit before it is copied."
    )
    copies_bytes_max: int = setting(
        256 << 20, whole(0), "Copies of others' snapshots that are kept here; beyond it the oldest go."
    )
    run_bytes_max: int = setting(
        64 << 20,
        whole(0),
        "What is read at most to run the work of another agent again (streams.NAME.shared); 0: nothing is.",
    )
    join_secs: float = setting(
        300.0,
        _SECS,
        "How often a job that joins a table (JOIN TABLE) looks whether the rows of it are others by now.",
    )
    cut_interval_secs: float = setting(
        5.0,
        _SECS,
        "A cut (where a restart goes on) is taken that often; with copies: eager each second at least.",
    )

    @property
    def replicas(self) -> int:
        """How many neighbours have copies."""
        last = self.copies.split()[-1]
        return int(last) if last.isdigit() else COPIES

    @property
    def eager(self) -> bool:
        """Whether they have them at once, and of open panes too."""
        return self.copies.startswith("eager")


@dataclass(frozen=True)
class RingConfig:
    """The ring and its trees."""

    base_bits: int = setting(
        _RING.base_bits,
        whole(1, 8),
        "Bits of a digit (Pastry's b): 1, 2, 4 or 8. Routes take log N hops to base 2^b.",
    )
    leaf_set_size: int = setting(_RING.leaf_set_size, whole(2), "Members of a leaf set, half on each side.")
    fanout_max: int = setting(_RING.fanout_max, whole(2), "Most children of an agent in a tree.")

    def overlay(self, join_retry_secs: float) -> OverlayConfig:
        """The same, as the overlay takes it. Raises ``ValueError`` for what makes no ring."""
        return OverlayConfig(
            base_bits=self.base_bits,
            leaf_set_size=self.leaf_set_size,
            fanout_max=self.fanout_max,
            join_retry_ms=round(join_retry_secs * 1000),
        )


@dataclass(frozen=True)
class FunctionsConfig:
    """Whose code runs here, and what it may take, each piece in a process of its own."""

    allow: str = setting(
        "",
        empty_or(choice("nobody", "signed", "anybody")),
        "Whose functions and jobs in Python run: nobody's, what an author has signed, or those of anybody "
        "who may send statements; empty: anybody's on an agent that is on loopback alone, else nobody's.",
    )
    call_secs: float = setting(1.0, _SECS, "A function or callback that takes longer is ended.")
    memory_max_bytes: int = setting(256 << 20, whole(1 << 20), "What it may take beside what it imports.")
    result_bytes_max: int = setting(64 << 20, whole(1 << 10), "The largest batch that a function may return.")
    log_bytes_max: int = setting(64 << 10, whole(0), "What it prints is logged, up to so much a minute.")
    jobs_max: int = setting(32, whole(0), "Jobs in Python that run here; more of them fail on this agent.")


@dataclass(frozen=True)
class OutputsConfig:
    """Where results of jobs may go from here (CREATE OUTPUT)."""

    allow: tuple[str, ...] = setting(
        (),
        many(_WORD),
        "The beginnings of targets that are allowed, up to a / or a whole part, such as "
        "https://hooks.example.com; with none nothing leaves.",
    )
    secrets: str = setting(
        "",
        empty_or(_FOLDER),
        "The folder with a file for each secret that outputs name: 'for:' and the beginnings of targets in "
        "its first line, the secret in the second; empty: none.",
    )


@dataclass(frozen=True)
class GeoipConfig:
    """Where addresses are (geo_country, geo_city and the like)."""

    databases: tuple[str, ...] = setting(
        (),
        many(_FOLDER),
        "Files in MaxMind's format (.mmdb), as of GeoLite2-City and GeoLite2-ASN; the first that knows a "
        "value gives it. They are copied, and again when they have changed.",
    )


@dataclass(frozen=True)
class QuotasConfig:
    """How much one creator may have and ask for; 0: as much as they like."""

    jobs: int = setting(2_000, whole(0), "Jobs of one creator; 0: no limit.")
    selects: int = setting(200, whole(0), "SELECTs of one creator that run at a time; 0: no limit.")
    bytes: int = setting(
        64 << 20, whole(0), "Of the tables and functions of all jobs of one creator; 0: no limit."
    )
    statements_per_sec: float = setting(
        100.0, number(), "Statements of one creator that this agent takes, for ten seconds at once; 0: all."
    )
    cpu_share: float = setting(
        1.0,
        number(),
        "Of one core: when the jobs of one creator have taken more of this agent in the last minute, it "
        "takes no new ones of theirs; 0: no limit.",
    )


@dataclass(frozen=True)
class BudgetConfig:
    """What one holder of a budget may take of this agent."""

    cpu_share: float = setting(0.0, number(0), "Of one core, over ten seconds; 0: no bound.")
    up_bytes_per_sec: int = setting(
        0, whole(0), "Partial aggregates that it sends up its trees, over ten seconds; 0: no bound."
    )
    up_bytes_per_day: int = setting(0, whole(0), "The same from midnight to midnight (UTC); 0: no bound.")
    memory_bytes: int = setting(
        0, whole(0), "Of its open panes, in memory: what is more goes to disk; 0: no bound."
    )
    disk_bytes: int = setting(
        0,
        whole(0),
        "Of its open panes and their checkpoint, and of what waits for its commit, on disk; 0: no bound.",
    )

    def budget(self) -> Budget:
        return Budget(**asdict(self))


@dataclass(frozen=True)
class BudgetsConfig:
    """What the owner of this machine lends. Who is over it has rows left out, and windows say so."""

    up_bytes_per_sec: int = setting(
        0, whole(0), "What the agent may send in all, before it holds its inputs back; 0: no bound."
    )
    up_bytes_per_day: int = setting(0, whole(0), "The same from midnight to midnight (UTC); 0: no bound.")
    disk_bytes: int = setting(
        0,
        whole(0),
        "What it may have in data_dir, without archive, keys and audit, before it holds its inputs back; "
        "0: no bound.",
    )
    lag_secs: float = setting(
        60.0,
        number(0),
        "Inputs that are held back (cpu_max_share, memory_max_bytes, and what is above) for so long, and do "
        "not catch up, are sampled; 0: never.",
    )
    job: BudgetConfig = section(BudgetConfig, "Of each job.")
    creator: BudgetConfig = section(BudgetConfig, "Of all jobs of each creator.")
    jobs: Mapping[str, BudgetConfig] = named(
        BudgetConfig, "Of some jobs, each with its creator, in the place of that.", "ada/top_pages", OF_JOBS
    )
    creators: Mapping[str, BudgetConfig] = named(BudgetConfig, "Of some creators.", "ada")

    def budgets(self) -> Budgets:
        """The same, as ``elf.planning`` takes it."""
        return Budgets(
            self.job.budget(),
            self.creator.budget(),
            {name: one.budget() for name, one in self.jobs.items()},
            {name: one.budget() for name, one in self.creators.items()},
            round(self.lag_secs * 1000),
        )


@dataclass(frozen=True)
class TransportConfig:
    """What messages may take up."""

    message_bytes_max: int = setting(_LIMITS.message_bytes_max, whole(1 << 16), "The largest message.")
    inbox_messages_max: int = setting(_LIMITS.inbox_messages_max, whole(1), "Messages waiting to be handled.")
    inbox_bytes_max: int = setting(_LIMITS.inbox_bytes_max, whole(1), "Bytes waiting to be handled.")
    peer_messages_max: int = setting(_LIMITS.peer_messages_max, whole(1), "Messages waiting for one peer.")
    peer_bytes_max: int = setting(_LIMITS.peer_bytes_max, whole(1), "Bytes of big messages waiting for one.")
    peers_max: int = setting(_LIMITS.peers_max, whole(1), "Open connections to peers.")
    idle_secs: float = setting(_LIMITS.idle_secs, _SECS, "A connection unused for so long is closed.")

    def limits(self) -> Limits:
        """The same, as ``elf.transport`` takes it."""
        return Limits(
            message_bytes_max=self.message_bytes_max,
            inbox_messages_max=self.inbox_messages_max,
            inbox_bytes_max=self.inbox_bytes_max,
            peer_messages_max=self.peer_messages_max,
            peer_bytes_max=self.peer_bytes_max,
            peers_max=self.peers_max,
            idle_secs=self.idle_secs,
        )


@dataclass(frozen=True)
class Config:
    """All settings of an agent. ``load`` makes it complete: no name, address or path is empty."""

    agent: AgentConfig = section(AgentConfig, "Who this agent is.")
    cluster: ClusterConfig = section(ClusterConfig, "Which fleet it belongs to.")
    data_dir: str = setting("/var/lib/elf", _FOLDER, "The folder of everything that the agent keeps.")
    security: str = setting(
        "auto",
        choice("auto", "keys", "open"),
        "Who is let in. auto: with keys whoever the fleet knows; without, on loopback, whoever can read "
        "loopback_key. keys: never without keys. open: anybody, as anybody.",
    )
    keys: str = setting(
        "", empty_or(_FOLDER), "The folder of this host's keys (elf keys enrol); empty: keys in data_dir."
    )
    loopback_key: str = setting(
        "",
        empty_or(_FOLDER),
        "Without keys: the file of the key of this user's agents and clients on this machine, made when it "
        "is needed; empty: ~/.config/elf/loopback.key.",
    )
    memory_max_bytes: int = setting(
        1 << 30, whole(64 << 20), "What the agent may use before it holds its inputs back."
    )
    cpu_max_share: float = setting(
        0.0,
        number(0),
        "Of one core: what the agent may use, a few seconds at once, before it holds its inputs back; "
        "0: all there is.",
    )
    streams: Mapping[str, StreamConfig] = named(StreamConfig, "The logs of this host, by name.", "clicks")
    archive: ArchiveConfig = section(ArchiveConfig, "The raw streams on their way to Parquet.")
    http: HttpConfig = section(HttpConfig, "Health, metrics and facts over HTTP.")
    audit: AuditConfig = section(
        AuditConfig, "What was done for whom, kept so that nobody changes it unseen (elf audit)."
    )
    log: LogConfig = section(LogConfig, "What the agent says about itself.")
    traces: TracesConfig = section(TracesConfig, "What becomes of panes in the tree, for OpenTelemetry.")
    protocol: ProtocolConfig = section(
        ProtocolConfig, "Time limits of rolling up; the defaults suit a fleet in one place."
    )
    ring: RingConfig = section(RingConfig, "The ring and its trees: the same in all agents of a cluster.")
    functions: FunctionsConfig = section(
        FunctionsConfig, "Whose code runs here, and what it may take, each piece in a process of its own."
    )
    outputs: OutputsConfig = section(OutputsConfig, "Where results of jobs may go from here (CREATE OUTPUT).")
    geoip: GeoipConfig = section(GeoipConfig, "Where addresses are (geo_country, geo_city and the like).")
    quotas: QuotasConfig = section(
        QuotasConfig, "How much one creator may have in the fleet, and ask of this agent."
    )
    budgets: BudgetsConfig = section(
        BudgetsConfig,
        "What jobs and their creators may take of this agent. Who takes more has rows left out, evenly: "
        "others stand for them, and each window says so.",
    )
    transport: TransportConfig = section(
        TransportConfig,
        "What messages may take up. Beyond it they are refused and counted, or their sender waits.",
    )

    notes: tuple[str, ...] = field(default=(), compare=False)
    """What looked like a mistake but is none for sure: variables that are nearly settings. A line each."""

    def describe(self) -> dict[str, object]:
        """Every key (such as ``streams.clicks.format``) with the value in force."""
        return dict(values_of(self))


_HEAD: Final = """\
The settings of elf-agent (/etc/elf/elf.yaml): all of them, with their defaults.

Each may be given as an environment variable too, which wins (the log says so, where the file has another
value); a list then has commas between its items. `elf-agent validate --config FILE` says what is wrong with
a file, and what a start with it would trip over on this machine."""

if __name__ == "__main__":
    sys.stdout.write(example(Config, _HEAD))
