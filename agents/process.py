"""An agent process: from a configuration to a running driver, and to its end.

SIGTERM and SIGINT take a checkpoint and stop; the next start goes on from it. SIGHUP has the configuration
read again (``agents.reload``); of a terminal that is closed, it finds that nothing has changed.
Everything that can be wrong on this machine (a port in use, a damaged store, an unreachable bootstrap) is one
line and exit status 1; on a full disk the agent waits for room (``agents.disk.room``).

For experiments several *logical* agents may share a process, its loop and the template of its sandboxes: each
has its own configuration, data folder, sockets and threads, and they talk to each other over these like any
others. What is warm for one is warm for all, so that a few cores carry many more of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import random
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import overlay as ring
from agents import codec, logs
from agents.answering.keys import NodeKeys
from agents.answering.quotas import Quotas
from agents.audit import Audit
from agents.bearers import Tls
from agents.config import Config, FunctionsConfig, OutputsConfig, TracesConfig
from agents.connections import Bounds, names_of
from agents.disk import modes
from agents.disk.folder import held, open_folders
from agents.disk.programstore import checkpoints, given
from agents.disk.room import is_refusal, lacking, wait_for_room
from agents.disk.store import Store
from agents.driver import Driver, End
from agents.http import AgentStatus, HttpServer
from agents.keyring import OPEN, Keyring, named_by, open_keyring
from agents.logs import get_logger
from agents.lookups import LOOKUPS
from agents.metrics import Metrics
from agents.node.beginning import (
    Detect,
    NodeSettings,
    Restored,
    overlay_config,
    raft_config,
)
from agents.node.node import Node
from agents.outputs.delivering import Deliveries
from agents.ports import Receiver
from agents.rekeying import Rekeying
from agents.reload import Lives, Reloading, Reread
from agents.restore import contacts, restore
from agents.settings.links import stated_links
from agents.status import Aside, Status
from agents.strangers import Strangers
from agents.streams import ms_of, since_us, task_of
from agents.systemd import Systemd
from agents.tasks.allowance import Allowance, Bound, Ceiling, DayAllowance, FolderSize
from agents.tasks.helping import Helping
from agents.tasks.housekeeping import housekeeping_of
from agents.tasks.memory import LIMIT
from agents.tasks.streams import FunctionsAt
from agents.watchdog import watched
from elf import native
from elf.addresses import is_loopback, split_address
from elf.client.values import for_terminal
from elf.errors import ElfError, UserError
from elf.functions import cgroup, confinement
from elf.functions.allowed import Allow, Allowed, allowed, keyless, refusal
from elf.functions.hosts import Settings
from elf.functions.sandbox import IMPORTS_BYTES, Limits, Sandboxes, Template
from elf.job.catalog.membership import Identity, StreamSince
from elf.job.rollup.decide import RootSettings
from elf.planning.days import Day
from elf.planning.pacing import Pace
from elf.ql.fuel import FRAMES_MAX
from elf.security.authored import digest
from elf.security.keys import seal
from elf.security.roster import Trust
from elf.transport.reach import reached
from elf.transport.zeromq import ZeroMqTransport
from overlay import raft

if TYPE_CHECKING:
    from agents.traces.sending import Sender
    from elf.page.visitors import Host

STORE_FILE = "elf.sqlite"
FUNCTIONS_AT_ONCE = 16
"""Processes of functions, beside those of jobs in Python, that an agent's code is given memory for."""

RETRY_S = 1.0
"""From a write that failed to the next start."""

_Told = Callable[[str, str | None], None]
Listening = Callable[[int, str, str | None], None]
"""Which of a process's agents can be reached, where, and its HTTP address."""


SENT_TODAY_FACT: Final = "sent_today"
"""Durable: what the agent has sent today (``elf.planning.days.Day``)."""
STARTING_SECS: Final = 0.1
"""Between two looks at whether all agents of a process can be reached, for systemd."""
LOOK_SECS: Final = 10.0
"""Between two looks at the files of ``geoip.databases``; a new one is taken at the second."""
SWITCH_SECS: Final = 0.001
"""So long a thread that computes in Python (a plan) may keep the loop waiting at each of its steps."""


def run_agents(
    configs: Sequence[Config], listening: Listening | None = None, reread: Reread | None = None
) -> int:
    """Run an agent, or several beside each other, until the last of them ends; the highest exit status. Who
    cannot start ends them all. ``listening`` is told where they can be reached, again after each time at
    which a disk was full or the configuration was read again (``reread``, at SIGHUP).
    """
    if why := in_one_process(configs):
        raise UserError(why)
    LOOKUPS.open(configs[0].geoip.databases)
    keyrings = [open_keyring(config) for config in configs]
    configs = [named_by(keyring, config) for keyring, config in zip(keyrings, configs, strict=True)]
    modes.close()
    _log_as(configs[0], len(configs))()
    for config in configs:
        for note in (*config.notes, *open_folders(config)):
            get_logger().warning(note, agent=config.agent.name)
        if config.security == "open":
            get_logger().warning(OPEN, agent=config.agent.name)
    codec.CODEC.prepare()
    sys.setrecursionlimit(FRAMES_MAX)
    sys.setswitchinterval(SWITCH_SECS)
    faulthandler.enable(file=2)  # a fault, or systemd's SIGABRT, says where each thread was
    LIMIT.set(sum(config.memory_max_bytes for config in configs) // 2)
    with contextlib.ExitStack() as opened:
        folders = [opened.enter_context(held(Path(config.data_dir))) for config in configs]
        memory_bytes = sum(_code_bytes(config.functions) for config in configs)
        template = opened.enter_context(contextlib.closing(Template(memory_bytes=memory_bytes)))
        agents = [Lives(*one) for one in zip(configs, keyrings, folders, strict=True)]
        return asyncio.run(_live_all(agents, template, listening, reread))


def in_one_process(configs: Sequence[Config]) -> str:
    """Why these agents cannot share a process; empty: they can."""
    if any(config.log != configs[0].log for config in configs):
        return "agents of one process share its log: give them equal log.level and log.format"
    if any(config.geoip != configs[0].geoip for config in configs):
        return "agents of one process share its databases: give them equal geoip.databases"
    return ""


def _log_as(config: Config, agents: int) -> Callable[[], None]:
    """What has the log of this process be as its configuration says; with one agent each line names it.
    Raises ``UserError``."""
    log = config.log
    bound: dict[str, Any] = {"agent": config.agent.name} if agents == 1 else {}
    file = logs.LogFile(log.path, log.file_bytes_max, log.files_max) if log.path else None
    return functools.partial(logs.configure, log.level, log.format, file=file, **bound)


def _at_once(configs: Sequence[Config]) -> Callable[[], None]:
    """See ``Reloading``."""
    log_as_said = _log_as(configs[0], len(configs))

    def do() -> None:
        LOOKUPS.open(configs[0].geoip.databases)  # tried when they were read
        LIMIT.set(sum(config.memory_max_bytes for config in configs) // 2)
        log_as_said()

    return do


TookUs = Callable[[], int]


def took_us_of(agents: int) -> TookUs | None:
    """The CPU time of this process so far; None where it is not known what of it each of its agents took:
    what goes from one of them would not seem to leave the others less to do."""
    return None if agents > 1 else lambda: time.process_time_ns() // 1_000


@dataclass(frozen=True)
class _Process:
    """What its agents share. ``asked``: to stop, and why; ``took_us``: its CPU time, if it is one agent's;
    ``shown``: those that can be reached, by name."""

    template: Template
    systemd: Systemd
    asked: asyncio.Future[str]
    took_us: TookUs | None
    shown: dict[str, AgentStatus] = field(default_factory=dict)

    def status(self) -> str:
        """For whoever looks at the service."""
        words = [(name, facts.trouble() or facts.unready() or "ready") for name, facts in self.shown.items()]
        return "; ".join(f"{name}: {word}" for name, word in words)


async def _live_all(
    agents: Sequence[Lives], template: Template, listening: Listening | None, reread: Reread | None
) -> int:
    loop = asyncio.get_running_loop()
    process = _Process(template, Systemd(), loop.create_future(), took_us_of(len(agents)))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _ask, process.asked, f"stopped by {number.name}")
    process.asked.add_done_callback(lambda _: process.systemd.stopping())
    beside = [_look_at_databases(), _tell(process, len(agents))]
    if reread is None:
        loop.add_signal_handler(signal.SIGHUP, functools.cache(_answer_hangup))  # it is said once
    else:
        reloading = Reloading(agents, reread, _at_once, process.systemd)
        loop.add_signal_handler(signal.SIGHUP, reloading.hangup)
        beside.append(reloading.run())

    async def live(number: int, agent: Lives) -> int:
        told = functools.partial(listening, number) if listening is not None else None
        try:
            end = await _live(agent, process, told)
        except BaseException:
            _ask(process.asked, "another agent of this process has failed")
            raise
        if end.status:
            print(for_terminal(f"elf-agent: {end.text}"), file=sys.stderr, flush=True)
        return end.status

    tasks = [asyncio.create_task(one) for one in beside]
    with watched(loop, get_logger()):
        ends = await asyncio.gather(
            *(live(number, agent) for number, agent in enumerate(agents)), return_exceptions=True
        )
    for task in tasks:
        task.cancel()
    process.systemd.close()
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return max(end for end in ends if isinstance(end, int))


async def _tell(process: _Process, agents: int) -> None:
    """Have systemd know of this process, where it has started it."""
    systemd, started = process.systemd, False
    while systemd.listens:
        if not started and len(process.shown) == agents:
            started = True
            systemd.started()
        systemd.beat(process.status())
        await asyncio.sleep(systemd.beat_secs if started else STARTING_SECS)


async def _look_at_databases() -> None:
    """A database that is replaced, or written over, is taken without a restart."""
    while True:
        await asyncio.sleep(LOOK_SECS)
        if not LOOKUPS.databases:
            continue
        try:
            if await asyncio.to_thread(LOOKUPS.renewed):
                get_logger().info("databases of addresses are new", geoip=", ".join(LOOKUPS.told()["geoip"]))
        except UserError as error:
            get_logger().warning("values are looked up in the databases from before", reason=str(error))


def _answer_hangup() -> None:
    get_logger().warning(
        "SIGHUP: the configuration is not read again while the agent runs; restart it to apply changes"
    )


async def _live(agent: Lives, process: _Process, listening: _Told | None) -> End:
    """Run one, again after each time at which its disk was full or it was given another configuration, until
    something else ends it."""
    asked, folder = process.asked, agent.folder
    while True:
        config, keyring = agent.config, agent.keyring
        why = lacking(folder)
        if why:
            aside = Aside(f"it stands aside until there is room on its data_dir {folder}: {why}")
            async with _shown(config, keyring, aside, process):
                await wait_for_room(folder, why, config.agent.name, asked)
        if asked.done():
            return End(asked.result(), 0)
        try:
            end = await _run(agent, process, listening)
        except (ElfError, OSError) as error:
            if not agent.goes_back(str(error)):
                raise
            continue
        if not end.again:
            return end
        if not agent.swaps:
            await asyncio.wait([asked], timeout=RETRY_S)


def _ask(asked: asyncio.Future[str], text: str) -> None:
    if not asked.done():
        asked.set_result(text)


async def _run(lives: Lives, process: _Process, listening: _Told | None) -> End:
    """One life of an agent."""
    config, keyring, folder = lives.config, lives.keyring, lives.folder
    agent = config.agent
    async with contextlib.AsyncExitStack() as opened:
        strangers = Strangers(keyring.owner_of)
        transport = await ZeroMqTransport.listen(
            agent.listen,
            advertise=_advertised(config),
            limits=config.transport.limits(),
            security=keyring.security,
            refused=strangers.refused,
        )
        opened.push_async_callback(transport.close)
        try:
            store = Store(folder / STORE_FILE)
            opened.callback(store.close)
            audit = _audit(config, store)
            strangers.audit = audit
            if audit is not None:
                opened.callback(audit.close)
            rekeying = Rekeying(keyring, transport, agent.name)
            opened.callback(rekeying.close)
            driver, contacts = _driver(config, keyring, folder, transport, store, rekeying, process, audit)
        except (ElfError, OSError) as error:
            if not is_refusal(error):
                raise
            return End(str(error), 1, again=True)
        host = _page(config, keyring, driver)
        shown = _shown(config, keyring, Status(driver), process, driver.metrics.http_refused, host)
        shown_at = await opened.enter_async_context(shown)
        if listening is not None:
            listening(transport.address, shown_at)

        def stop(done: asyncio.Future[str]) -> None:
            driver.stop(done.result())

        process.asked.add_done_callback(stop)
        opened.callback(process.asked.remove_done_callback, stop)
        opened.callback(lives.ends)
        end = functools.partial(driver.stop, "its configuration was read again", again=True)
        if not lives.begins(end, config):
            asyncio.get_running_loop().call_soon(end)  # ``run`` can be stopped by then
        return await driver.run(contacts)


def _page(config: Config, keyring: Keyring, driver: Driver) -> Host | None:
    """Whom the page lets in; None: there is none."""
    if not config.http.page:
        return None
    from agents.pagehost import PageHost  # it asks through a client, which most agents do without

    return PageHost(driver, keyring)


@contextlib.asynccontextmanager
async def _shown(
    config: Config,
    keyring: Keyring,
    facts: AgentStatus,
    process: _Process,
    refused: Callable[[str], None] = lambda _: None,
    host: Host | None = None,
) -> AsyncIterator[str | None]:
    """An agent's facts over HTTP, and where; None: nowhere. ``refused``, ``host``: see ``HttpServer``."""
    http = config.http
    if not http.listen:
        process.shown[config.agent.name] = facts
        yield None
        return
    names = names_of(config.agent.listen, config.agent.advertise, also=http.hosts)
    bounds = Bounds(http.connections_max, http.address_connections_max, answers=http.answers_max)
    alone = is_loopback(split_address(http.listen)[0]) or keyring.mode == "open"
    look = None if alone else keyring.refused_reader
    tls = Tls(http.tls_cert, http.tls_key) if http.tls_cert else None
    server = HttpServer(
        http.listen, facts, names=names, bounds=bounds, refused=refused, look=look, tls=tls, host=host
    )
    await server.start()
    process.shown[config.agent.name] = facts
    try:
        yield server.address
    finally:
        await server.stop()


def _driver(
    config: Config,
    keyring: Keyring,
    folder: Path,
    transport: ZeroMqTransport,
    store: Store,
    rekeying: Rekeying,
    process: _Process,
    audit: Audit | None,
) -> tuple[Driver, list[str]]:
    """What the store says, come to life, and whom to join through."""
    started = store.begin_incarnation(int(time.time()))
    labels = tuple(config.agent.labels.items())
    place = config.agent.place if config.cluster.regions else ""
    own = store.agent_id(), config.agent.name, started, transport.address
    me = Identity(*own, labels, place, config.agent.lends)
    unsigned: Allowed = keyless if keyring.keys is None else lambda text: node.log.authors.unsigned(text)
    metrics, settings = Metrics(), _functions(config.functions, me.name, unsigned, audit)
    sandboxes = Sandboxes(process.template)
    log = get_logger().bind(agent=me.name)
    functions = FunctionsAt(sandboxes, log.info, folder / "failed", settings.limits, settings.allowed)
    log.info(
        "users' code", allow=config.functions.allow, walls=confinement.walls(), control_group=cgroup.told()
    )
    if told := LOOKUPS.told():
        tables = {str(table): ", ".join(those) for table, those in told.items()}
        log.info("tables that queries look up in", **tables)
    if why := native.why_not():
        log.info(
            "lines are read by DuckDB alone, which is slower: elf's native part is not there", reason=why
        )
    receivers: dict[str, Receiver] = {}
    programs = checkpoints(store)
    streams = [
        task_of(config, name, stream, store, folder, me, metrics, functions, receivers, given(programs))
        for name, stream in config.streams.items()
    ]
    restored = restore(store, {task.facts.stream: task.worker for task, _ in streams}, programs)
    node = _node(config, keyring, me, restored, store, process.took_us)
    driver = Driver(
        node,
        transport,
        store,
        streams,
        cluster=config.cluster.name,
        metrics=metrics,
        memory_max_bytes=config.memory_max_bytes,
        allowances=_allowances(config, store, folder, lambda: transport.counters.sent_bytes),
        functions=settings,
        sandboxes=sandboxes,
        finals=functions,
        run_bytes_max=config.protocol.run_bytes_max,
        probe=lambda address: reached(address, security=keyring.security),
        know=rekeying.known,
        audit=audit,
        outputs=_outputs(config.outputs, me.address),
        receivers=receivers,
        housekeeping=housekeeping_of(config.archive, [task for task, _ in streams], metrics),
        helping=Helping(config.archive.path if config.archive.enabled else None, functions),
        traces=_traces(config.traces, me.name, metrics),
        traced_one_in=config.traces.one_in,
    )
    return driver, _contacts(config, keyring, restored, store, me)


def _audit(config: Config, store: Store) -> Audit | None:
    """None: nothing is kept."""
    audit, agent = config.audit, config.agent.name
    if not audit.enabled:
        return None
    folder, size = Path(audit.path), audit.file_bytes_max
    return Audit(folder, store, file_bytes_max=size, files_max=audit.files_max, agent=agent)


def _traces(config: TracesConfig, agent: str, metrics: Metrics) -> Sender | None:
    """None: there is no collector."""
    if not config.target:
        return None
    from agents.traces.sending import Sender  # HTTP, which most agents do without

    return Sender(config.target, agent, metrics.spans_dropped)


def _allowances(config: Config, store: Store, folder: Path, sent: Callable[[], int]) -> Mapping[str, Bound]:
    """What holds the inputs back, by setting."""
    budgets, day = config.budgets, Day.restored(store.get(SENT_TODAY_FACT))
    keep = functools.partial(store.put, SENT_TODAY_FACT)
    without = map(Path, (config.archive.path, config.audit.path, config.keys))
    size = FolderSize(folder, without, free=store.free_bytes)
    return {
        "cpu_max_share": Allowance(config.cpu_max_share),
        "budgets.up_bytes_per_sec": Allowance(budgets.up_bytes_per_sec, spent=sent),
        "budgets.up_bytes_per_day": DayAllowance(
            budgets.up_bytes_per_day, sent, day, keep, lambda: int(1000 * time.time())
        ),
        "budgets.disk_bytes": Ceiling(budgets.disk_bytes, size),
    }


def _outputs(config: OutputsConfig, address: str) -> Deliveries:
    return Deliveries(address, config.allow, Path(config.secrets) if config.secrets else None)


def _functions(config: FunctionsConfig, agent: str, unsigned: Allowed, audit: Audit | None) -> Settings:
    allow: Allow = config.allow  # type: ignore[assignment]  # one of its words, once the configuration is read
    limits = Limits(
        call_secs=config.call_secs,
        memory_bytes=config.memory_max_bytes,
        bytes_max=config.result_bytes_max,
        log_bytes_max=config.log_bytes_max,
    )
    ask = allowed(allow, agent, unsigned)

    def told(text: str) -> str:
        why = ask(text)
        if why and audit is not None:
            audit.record("code refused", {"code": digest(text).hex(), "reason": why})
        return why

    return Settings(limits, config.jobs_max, told, refusal(allow, agent))


def _code_bytes(config: FunctionsConfig) -> int:
    """Memory of all users' code of an agent, if each piece takes all that it may."""
    return (config.jobs_max + FUNCTIONS_AT_ONCE) * (config.memory_max_bytes + IMPORTS_BYTES)


def _advertised(config: Config) -> str | None:
    """None: the address that was bound, whose port may have been chosen by the system."""
    agent = config.agent
    return None if agent.advertise == agent.listen else agent.advertise


def _contacts(config: Config, keyring: Keyring, restored: Restored, store: Store, me: Identity) -> list[str]:
    """Whom to join through: the bootstrap, whom this agent knew before, and whom it was told of with its
    keys."""
    told = keyring.keys.identity.contacts if keyring.keys is not None else ()
    known = dict.fromkeys([*config.cluster.bootstrap, *contacts(store, restored), *told])
    return [address for address in known if address != me.address]


def _node(
    config: Config,
    keyring: Keyring,
    me: Identity,
    restored: Restored,
    store: Store,
    took_us: TookUs | None,
) -> Node:
    protocol = config.protocol
    root = RootSettings(
        limit_ms_min=ms_of(protocol.straggler_min_secs),
        limit_ms_max=ms_of(protocol.straggler_max_secs),
        grace_ms=ms_of(protocol.restart_grace_secs),
        revise_ms=ms_of(protocol.revise_secs),
    )
    since = [StreamSince(name, since_us(name, stream, store)) for name, stream in config.streams.items()]
    settings = NodeSettings(
        root=root,
        retained_bytes_max=protocol.retained_bytes_max,
        combine_ms=None if protocol.combine_secs is None else ms_of(protocol.combine_secs),
        border_us=None if config.cluster.border_secs is None else round(1e6 * config.cluster.border_secs),
        links=stated_links(config.cluster.links),
        routes=config.cluster.routes,  # type: ignore[arg-type]  # one of its words
        replicas=protocol.replicas,
        eager=protocol.eager,
        copy_after_ms=ms_of(protocol.copy_after_secs),
        copies_bytes_max=protocol.copies_bytes_max,
        renew_ms=ms_of(protocol.join_secs),
        pace=Pace() if config.cluster.balance else None,
        open=keyring.mode == "open",
        quotas=Quotas(**asdict(config.quotas)),
        budgets=config.budgets.budgets(),
    )
    peer, rng = ring.Peer(me.address, me.incarnation), random.Random()
    detect: Detect = config.cluster.detect  # type: ignore[assignment]  # one of its words
    shape = config.ring.overlay(config.cluster.retry_join_secs)
    overlay = ring.Overlay(peer, overlay_config(restored, me, shape, detect), rng, config.agent.place)
    groups = raft.Groups(peer, raft_config(detect), rng, restored.groups)
    uid, keys = str(uuid.uuid4()), _node_keys(keyring)
    return Node(
        me,
        since,
        overlay,
        groups,
        settings,
        restored,
        new_cluster_uid=uid,
        keys=keys,
        process_us=took_us,
    )


def _node_keys(keyring: Keyring) -> NodeKeys | None:
    """What a node needs of the keys of its agent; None: there are none."""
    if keyring.keys is None:
        return None

    def seal_pairs(key: bytes) -> bytes:
        return seal(key, b"".join(pair.secret for pair in keyring.pairs().values()))

    identity = keyring.keys.identity
    trust, signed = Trust(identity.cluster, identity.authority), (*identity.roster, identity.certificate)
    return NodeKeys(trust, signed, identity.fleet, seal_pairs, keyring.keys.pair.sign)
