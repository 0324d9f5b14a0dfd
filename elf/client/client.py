"""The client of a fleet: statements and calls to an agent, results and windows back.

What a statement does not need (sandboxes, the protocol of jobs) is imported by the calls that do, so that a
client is there at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from elf.batch import decode
from elf.client.asking import ANSWER_SECS, Asking, object_of
from elf.client.connection import CLUSTER, CONNECT_SECS, Connection
from elf.client.files import files_of, names_none, tables_of
from elf.client.results import Archives, CompareFacts, Result, Tapped
from elf.client.windows import Changes, Window, split
from elf.errors import ElfError, UserError
from elf.security.principals import Security
from elf.security.roles import ROLES
from elf.wire.clients import (
    CompareOptions,
    Execute,
    FillOptions,
    FleetStats,
    PastOptions,
    Reply,
    TapOptions,
    TapReply,
)

if TYPE_CHECKING:
    from elf.client.previews import Costs, Previewed
    from elf.functions.sandbox import Sandboxes
    from elf.job import Message
    from elf.wire.clients import Filled, WindowResult

LEAVE_SECS: Final = 180.0
"""An agent leaves when its snapshots are committed or copied: that takes a window or two."""
COMPARE_SECS: Final = 120.0
"""Every member closes and ships its open archive roll first."""
FILL_SECS: Final = 60.0
"""Each of the results is a commit."""
REMEMBERED_MAX: Final = 65_536
"""Windows that a subscription remembers, to give each revision once; a repeat comes soon after or never."""


def connect(
    address: str,
    *,
    timeout: float = CONNECT_SECS,
    creator: str | None = None,
    cluster: str = CLUSTER,
    keys: str | Path | Security | None = None,
    reads_files: bool = True,
) -> Client:
    """A client of the agent at an address. ``async with`` opens it, or ``await client.open()``.

    Args:
        address (str): ``"host:port"``. Of several, with commas between them, the first one that answers is
            taken; what reads windows of a job goes on at another one when that is lost.
        timeout (float): seconds for the opening.
        creator (str | None): who owns the jobs that are created; None: the user of the operating system.
            Where there are keys it is the name of the key, whatever is given.
        cluster (str): the name of the cluster, as the agent's ``cluster.name`` says.
        keys (str | Path | Security | None): the folder of the keys that the client shows, or the file of the
            key of a user's agents on this machine; ``"none"``: it shows none. None: what the variable
            ``ELF_KEYS`` names, else those in ``~/.config/elf``, else, to an agent on this machine, the key of
            the user's agents there.
        reads_files (bool): whether statements may name files of this machine, which the client then reads and
            sends: tables that are joined, and functions. False where the text comes from somebody else.

    Returns:
        Client: not open yet.

    Raises:
        Nothing. The opening raises ``ElfError`` when nobody answers there or the agent does not admit the
        keys, and ``UserError`` when it is no address or there are no keys in the folder.

    Example:
        >>> async with connect(address, creator="ada") as mine:
        ...     print(mine.creator, (await mine.status())["agent"])
        ada web-0
        >>> try:
        ...     await connect("127.0.0.1:1").open()
        ... except ElfError as error:
        ...     print(str(error).partition(" (")[0])
        cannot reach an agent at 127.0.0.1:1: connection refused
    """
    creator = creator or user_name()
    connection = Connection(address, timeout=timeout, creator=creator, cluster=cluster, keys=keys)
    return Client(connection, creator, reads_files=reads_files)


def user_name() -> str:
    """The name of the user of the operating system; in a container without one, the number.

    Returns:
        str: who owns what a client without a ``creator`` creates.

    Raises:
        Nothing.

    Example:
        >>> user_name() == connect(address).creator
        True
    """
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


class Client:
    """A client of a fleet, connected to one agent. Made by ``connect``; it belongs to one event loop.

    Its calls raise ``UserError`` where the agent refuses what was asked, in one clear text, and ``ElfError``
    where the client is not open, the agent is lost, or no answer comes within a minute.

    Attributes:
        creator (str): who owns the jobs that are created.

    Example:
        As in ``python -m asyncio``; ``address`` is that of an agent:

        >>> async with connect(address) as client:
        ...     made = await client.sql(
        ...         "CREATE JOB most AS SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS"
        ...     )
        ...     async for window in client.subscribe("most", windows=1):
        ...         print(window.status["expected"], window.table.column_names)
        ...     gone = await client.sql("DROP JOB most")
        1 ['window_start', 'window_end', 'n']
    """

    def __init__(self, connection: Asking, creator: str, *, reads_files: bool = True) -> None:
        """Made by ``connect``."""
        self.creator = creator
        self._connection = connection
        self._reads_files = reads_files
        self._sandboxes: Sandboxes | None = None

    @property
    def address(self) -> str:
        """The address of the agent that this client talks to, ``"host:port"``.

        Example:
            >>> client.address == address
            True
        """
        return self._connection.address

    @property
    def roles(self) -> tuple[str, ...]:
        """What the keys with which this client came may do (``elf.security.roles``); all of it where there is
        nobody to tell apart.

        Example:
            >>> client.roles
            ('read', 'tap', 'write', 'code', 'admin')
        """
        keys = self._connection.keys
        return ROLES if keys is None else keys.certificate.roles

    async def __aenter__(self) -> Client:
        return await self.open()

    async def open(self) -> Client:
        """Reach an agent. It does nothing where the client is open.

        Returns:
            Client: itself.

        Raises:
            ElfError: when nobody answers there within the timeout.
            UserError: when the address is none.

        Example:
            >>> other = await connect(address).open()
            >>> await other.close()
        """
        await self._connection.open()
        if (keys := self._connection.keys) is not None:
            self.creator = keys.certificate.name
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel what is open and let go of the connection. It does nothing where the client is closed.

        Raises:
            Nothing.

        Example:
            >>> other = await connect(address).open()
            >>> await other.close()
            >>> await other.close()
        """
        await self._connection.close()
        if self._sandboxes is not None:
            self._sandboxes.close()
            self._sandboxes = None

    # -- statements ------------------------------------------------------------------------------------------

    async def sql(self, text: str) -> Result:
        """Perform one statement that ends: CREATE, SHOW, DESCRIBE, ALTER, DROP, EXPLAIN …, and a SELECT of
        some rows (``SELECT * FROM clicks LIMIT 10``).

        Args:
            text (str): one statement of ELF-QL. Files that it names are read on this machine.

        Returns:
            Result: a text, rows, or both.

        Raises:
            UserError: for a statement that is wrong or refused, a file that cannot be read, and a SELECT
                of windows or SUBSCRIBE, which does not end.
            ElfError: when the agent is lost or does not answer.

        Example:
            >>> result = await client.sql("SHOW JOBS")
            >>> "busy" in result.table["job"].to_pylist()
            True
            >>> try:
            ...     await client.sql("DROP JOB nobody")
            ... except UserError as error:
            ...     print(str(error).partition(";")[0])
            there is no job nobody
        """
        result, tables = Result("", None), list[pa.Table]()
        async with contextlib.aclosing(self.execute(text)) as answers:
            async for answer in answers:
                if isinstance(answer, Window):
                    raise UserError("a SELECT or SUBSCRIBE gives windows until it is ended: use subscribe()")
                if not answer.waiting:
                    result = answer
                    tables += [] if answer.table is None else [answer.table]
        return replace(result, table=pa.concat_tables(tables)) if tables[1:] else result

    async def subscribe(self, job_or_select: str, windows: int | None = None) -> AsyncGenerator[Window]:
        """Windows of a job, or of a SELECT that runs as long as it is read. Each revision comes once.

        Args:
            job_or_select (str): the name of a job, a SUBSCRIBE, or a SELECT.
            windows (int | None): end after so many different windows; revisions of them do not count. None:
                never.

        Yields:
            Window: a committed window, or an early one where the query emits early results.

        Raises:
            UserError: for a job that there is not, or a query that is wrong.
            ElfError: when the agent is lost and no other one is known, or when 1,024 results wait for a
                reader that is too slow.

        Example:
            >>> async for window in client.subscribe("busy", windows=1):
            ...     print(window.name, window.table.column_names)
            busy ['window_start', 'window_end', 'product', 'clicks']
        """
        text = job_or_select.strip()
        statement = f"SUBSCRIBE {text}" if text.isidentifier() else text
        async with contextlib.aclosing(self.execute(statement, windows)) as answers:
            async for answer in answers:
                if isinstance(answer, Window):
                    yield answer

    async def execute(self, text: str, windows: int | None = None) -> AsyncGenerator[Result | Window]:
        """Perform any statement, and give whatever the agent says to it.

        ``windows`` is counted here, after repeats are gone: the agent would count what it sends. A SUBSCRIBE
        goes on at another agent, where several are known, after the last result that is told here.

        Args:
            text (str): one statement of ELF-QL. Files that it names are read on this machine.
            windows (int | None): end after so many different windows; None: never.

        Yields:
            Result | Window: one ``Result``, or windows for as long as they come. Before them a ``Result``
            that is ``waiting`` may say why none comes.

        Raises:
            UserError: as ``sql`` and ``subscribe``.
            ElfError: as ``sql`` and ``subscribe``.

        Example:
            >>> select = "SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS"
            >>> async for answer in client.execute(select, windows=1):
            ...     if isinstance(answer, Window):
            ...         print(answer.table.column_names)
            ['window_start', 'window_end', 'n']
        """
        spans: set[tuple[object, object]] = set()
        seen: OrderedDict[tuple[object, ...], None] = OrderedDict()
        changes = Changes()
        files: dict[str, str] = {}
        tables: dict[str, bytes] = {}
        if self._reads_files and not names_none(text):
            files, tables = await asyncio.to_thread(lambda: (files_of(text), tables_of(text)))
        message = Execute(
            request=0,
            sql=text,
            creator=self.creator,
            files=tuple(files.items()),
            tables=tuple(tables.items()),
        )
        async with contextlib.aclosing(self._connection.anywhere(message)) as replies:
            async for reply in replies:
                if isinstance(reply, Reply):
                    if reply.done or reply.payload or reply.text:
                        table = decode(reply.payload) if reply.payload else None
                        data = object_of(reply) if reply.body else None
                        yield Result(reply.text, table, not reply.done and table is None, data)
                    continue
                for window in split(reply.result):
                    if window.key in seen:
                        continue
                    seen[window.key] = None
                    if len(seen) > REMEMBERED_MAX:
                        seen.popitem(last=False)
                    if window.emits_changes:
                        window = replace(window, changes=changes.of(window))
                    yield window
                    if windows is not None and not window.early:
                        spans.add((window.start, window.end))
                        if len(spans) >= windows:
                            return

    async def preview(self, statement: str) -> AsyncGenerator[Previewed | Costs]:
        """The version that an ALTER would make, beside the job that it would change, which stays as it is.

        Args:
            statement (str): ``ALTER JOB … PREVIEW n WINDOWS``.

        Yields:
            Previewed | Costs: each window of the new version beside the job's, and at the end what both have
            cost.

        Raises:
            UserError: for a statement that is wrong or refused, or no preview.
            ElfError: when the agent is lost.

        Example:
            >>> wanted = "SELECT product, COUNT(*) AS clicks FROM clicks GROUP BY product WINDOWING 1 SECONDS"
            >>> async for one in client.preview(f"ALTER JOB busy AS {wanted} PREVIEW 1 WINDOWS"):
            ...     print(type(one).__name__)
            Previewed
            Costs
        """
        from elf.client.previews import previewed

        async with contextlib.aclosing(previewed(self, statement)) as told:
            async for one in told:
                yield one

    # -- calls -----------------------------------------------------------------------------------------------

    async def call(
        self, verb: str, argument: str = "", *, limit_secs: float = ANSWER_SECS
    ) -> dict[str, object]:
        """Make one of the calls that are no statements, by its name on the wire.

        Args:
            verb (str): the call, such as ``status`` or ``tree``. The methods below make them all.
            argument (str): what the call takes; empty for none.
            limit_secs (float): seconds to wait for the answer.

        Returns:
            dict[str, object]: the JSON object of the answer; its text under ``text`` when there is none.

        Raises:
            UserError: where the agent refuses.
            ElfError: without an answer in time.

        Example:
            >>> (await client.call("status"))["agent"]
            'web-0'
        """
        return object_of(await self._connection.ask(verb, argument, limit_secs))

    async def tree(self, job: str) -> dict[str, object]:
        """The reduction trees of a job, one a flow, as their roots see them.

        Args:
            job (str): the job's name.

        Returns:
            dict[str, object]: ``job``, ``master`` (address) and ``flows``. Each flow has ``flow``,
            ``stream``, ``root`` (address), ``readers`` (job names) and ``edges``: ``name``, ``address``,
            ``parent`` (address) and ``sealed_us`` (event time, µs since the epoch) of each agent.

        Raises:
            UserError: for a job that there is not.
            ElfError: without an answer.

        Example:
            >>> tree = await client.tree("busy")
            >>> [edge["name"] for edge in tree["flows"][0]["edges"]]
            ['web-0']
        """
        return await self.call("tree", job)

    async def status(self) -> dict[str, object]:
        """The agent's own state.

        Returns:
            dict[str, object]: among others ``agent`` (its name), ``agent_id``, ``address``, ``incarnation``,
            ``peers`` (count), ``jobs`` and ``master_of`` (lists), ``streams``, and counts of copies.

        Raises:
            ElfError: without an answer.

        Example:
            >>> status = await client.status()
            >>> status["agent"], status["address"] == address
            ('web-0', True)
        """
        return await self.call("status")

    async def fleet(self) -> FleetStats:
        """How all agents of the fleet are.

        Returns:
            FleetStats: of ``elf.wire.clients``: ``jobs`` (count) and ``agents``, each with ``agent``,
            ``address``, ``streams`` and ``stats``; ``stats`` is None of an agent that does not answer within
            two seconds.

        Raises:
            ElfError: without an answer.

        Example:
            >>> fleet = await client.fleet()
            >>> [(one.agent, one.streams) for one in fleet.agents]
            [('web-0', ('clicks',))]
        """
        reply = await self._connection.ask("fleet", "", ANSWER_SECS)
        with _reading("fleet"):
            return msgspec.json.decode(reply.body, type=FleetStats)

    async def tap(self, stream: str, where: str = "", columns: Sequence[str] = ()) -> AsyncGenerator[Tapped]:
        """Rows of a stream as its agents read them, for as long as they are read here.

        An agent shows at most 1,000 rows a second, and looks at 10,000 lines. What is beyond that is counted.

        Args:
            stream (str): the stream.
            where (str): a condition in ELF-QL; empty: all rows.
            columns (Sequence[str]): those wanted beside time and agent; none: all.

        Yields:
            Tapped: the rows since the last ones, some times a second; also when there are none.

        Raises:
            UserError: for a stream or column that there is not, or a condition that is wrong.
            ElfError: without an answer.

        Example:
            >>> async for tapped in client.tap("clicks", where="clicks_count > 1"):
            ...     if tapped.rows is not None:
            ...         break
            >>> min(tapped.rows["clicks_count"].to_pylist()) > 1
            True
        """
        options = msgspec.json.encode(TapOptions(str(uuid.uuid4()), stream, where, tuple(columns))).decode()
        while True:
            reply = await self._connection.ask("tap", options, ANSWER_SECS)
            with _reading("tap"):
                told = msgspec.json.decode(reply.body, type=TapReply)
            yield Tapped(decode(reply.payload) if reply.payload else None, told)
            await asyncio.sleep(told.retry_ms / 1000)

    async def compare_facts(self, job: str, *, versions: bool = False) -> CompareFacts:
        """What an offline run of a job needs. The members ship their archives, with all rows of its windows.

        Args:
            job (str): the job's name.
            versions (bool): whether windows of versions before the current one are wanted too.

        Returns:
            CompareFacts: the archives, and the job with its committed windows.

        Raises:
            UserError: for a job that there is not, whose streams have no archive, or that cannot be compared
                (it reads late rows, has windows of rows or a function).
            ElfError: without an answer within two minutes.

        Example:
            >>> facts = await client.compare_facts("busy")
            >>> len([window for result in facts.job.windows for window in split(result)]) > 0
            True
        """
        from elf.job.messages.groups import JobStatus

        asked = msgspec.json.encode(CompareOptions(job, versions)).decode() if versions else job
        reply = await self._connection.ask("compare", asked, COMPARE_SECS)
        with _reading(f"compare {job}"):
            facts = msgspec.msgpack.decode(reply.payload, type=JobStatus)
            archives = msgspec.json.decode(reply.body, type=Archives)
        return CompareFacts(archives.streams, facts)

    async def fill(self, job: str, version: int, results: Sequence[Filled]) -> None:
        """Give a job windows of before it began, which were made offline. Those that it has stay as they are.

        Args:
            job (str): the job's name; it is the caller's own.
            version (int): the job's version, whose query they are of.
            results (Sequence[elf.wire.clients.Filled]): such as ``spark_backend.history.filled`` makes; at
                most 200.

        Returns:
            None: all are committed.

        Raises:
            UserError: for a job that there is not, or another one's; for windows that the job makes itself.
            ElfError: without an answer.

        Example:
            >>> await client.fill("busy", 1, [])  # doctest: +ELLIPSIS
            Traceback (most recent call last):
            elf.errors.UserError: results that fill a history cannot be read: ...
        """
        options = msgspec.json.encode(FillOptions(job, version, tuple(results))).decode()
        await self._connection.ask("fill", options, FILL_SECS)

    async def past(
        self, job: str, since: str = "", until: str = "", *, all_revisions: bool = False
    ) -> AsyncGenerator[pa.Table]:
        """All windows of a job that its group keeps, as a table, a portion at a time.

        Args:
            job (str): the job's name.
            since (str): windows start then or later: ``-1 day``, ``2026-01-31T12:00``; empty: all.
            until (str): windows start before; empty: all.
            all_revisions (bool): every revision of a window; else the last one that there is by now.

        Yields:
            pyarrow.Table: rows with ``window_start``, ``window_end`` and ``revision``, the columns of the
            SELECT list, and what each window says about itself, in the order in which results were committed.

        Raises:
            UserError: for a job that there is not, or a time that is none.
            ElfError: without an answer.

        Example:
            >>> async for rows in client.past("busy", since="-1 hour"):
            ...     print(rows.column_names[:5])
            ...     break
            ['window_start', 'window_end', 'revision', 'product', 'clicks']
        """
        from elf.client.past import last_of, past_of

        last: dict[tuple[int, int], int] = {}
        number = 0
        async for results, _ in self._past(job, since, until, rows=False):
            last |= last_of(results)
            number = results[-1].number
        async for results, bounds in self._past(job, since, until, rows=True):
            known = [one for one in results if one.number <= number]
            found = past_of(known, bounds, all_revisions=all_revisions, last=None if all_revisions else last)
            if found.table.num_rows:
                yield found.table

    async def results(self, job: str, since: str = "", until: str = "") -> AsyncGenerator[WindowResult]:
        """All results of a job that its group keeps, as they were committed.

        Args:
            job (str): the job's name.
            since (str): their windows start then or later: ``-1 day``, ``2026-01-31T12:00``; empty: all. A
                result may have some more.
            until (str): windows start before; empty: all.

        Yields:
            elf.wire.clients.WindowResult: in the order of their numbers; ``split`` reads them.

        Raises:
            UserError: for a job that there is not, or a time that is none.
            ElfError: without an answer.

        Example:
            >>> numbers = [one.number async for one in client.results("busy", since="-1 hour")]
            >>> numbers == sorted(numbers)
            True
        """
        async for some, _ in self._past(job, since, until, rows=True):
            for one in some:
                yield one

    async def _past(
        self, job: str, since: str, until: str, *, rows: bool
    ) -> AsyncGenerator[tuple[list[WindowResult], tuple[int, int]]]:
        """Results that the job group keeps, and between which moments (µs) windows are to start."""
        from elf.job.messages.groups import PastWindows

        after, more = 0, True
        while more:
            options = msgspec.json.encode(PastOptions(job, since, until, after, rows)).decode()
            reply = await self._connection.ask("past", options, ANSWER_SECS)
            with _reading(f"past {job}"):
                past = msgspec.msgpack.decode(reply.payload, type=PastWindows)
                bounds = msgspec.json.decode(reply.body, type=tuple[int, int])
            results = [one.result for one in past.windows]
            if not results:
                return
            yield results, bounds
            more, after = past.more, results[-1].number

    async def submit(
        self,
        text: str,
        filename: str,
        name: str,
        *,
        replace: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> dict[str, object]:
        """Send a job written in Python (``elf.job.Job``) to all agents.

        The text is checked first, in a process of its own on this machine.

        Args:
            text (str): the text of the file, at most 64 KiB, with one subclass of ``Job``.
            filename (str): the file's name, for errors.
            name (str): the job's name.
            replace (bool): whether it takes the place of a job of that name.
            settings (Mapping[str, object] | None): other values for attributes of the job's class, such as
                ``{"every": 1.0}``: plain Python values.

        Returns:
            dict[str, object]: ``job``, its name, and ``uid``.

        Raises:
            UserError: for a file that is no job (with file, line and exception), a name that is taken, or a
                query that cannot be planned.
            ElfError: without an answer.

        Example:
            >>> text = '''
            ... from elf.job import Job
            ...
            ... class Hello(Job):
            ...     greeting = "hello"
            ...
            ...     def deliver(self, app, message):
            ...         return f"{self.greeting}, {message}"
            ... '''
            >>> made = await client.submit(text, "hello.py", "greeter", settings={"greeting": "welcome"})
            >>> made["job"]
            'greeter'
            >>> try:
            ...     await client.submit("x = 1", "wrong.py", "wrong")
            ... except UserError as error:
            ...     print(error)
            wrong.py: wrong.py must define one subclass of elf.job.Job; it has none; mend it and send it again
        """
        from elf.functions.checks import check_job
        from elf.functions.confinement import lacking
        from elf.functions.sandbox import Sandboxes
        from elf.job.program.spec import Submission, with_settings

        self._sandboxes = self._sandboxes or Sandboxes(confined=not lacking())
        text = with_settings(text, settings or {})
        loaded = await asyncio.to_thread(check_job, self._sandboxes, text, filename, name, self.creator)
        asked = Submission(name, text, filename, loaded, str(uuid.uuid4()), replace)
        return await self.call("submit", msgspec.json.encode(asked).decode())

    async def query(self, job: str, message: object = None) -> Message:
        """Ask the master of a job, as ``Job.query`` does.

        Args:
            job (str): ``name`` or ``creator/name``.
            message (object): the question: anything that JSON has.

        Returns:
            Message: what the ``deliver`` of a job in Python returns, or the last window of an SQL job: a
            dict with ``job``, ``window_start`` and ``window_end`` (ISO 8601 texts in UTC), ``rows`` (a list
            of dicts) and ``status``.

        Raises:
            UserError: for a job that there is not, one that gives no answer, or a message that JSON does not
                have.
            ElfError: when the agent is lost or does not answer.

        Example:
            >>> answer = await client.query("busy")
            >>> answer["job"], sorted(answer)
            ('busy', ['job', 'rows', 'status', 'window_end', 'window_start'])
        """
        from elf.job.program.spec import Question
        from elf.job.program.values import unpack_value

        try:
            argument = msgspec.json.encode(Question(job, message)).decode()
        except (TypeError, ValueError) as error:
            raise UserError(f"a query's message is what JSON has: {error}") from None
        return unpack_value((await self._connection.ask("query", argument, ANSWER_SECS)).payload)

    async def leave(self, *, force: bool = False) -> dict[str, object]:
        """Have the agent seal what it has, hand it over and go for good.

        Args:
            force (bool): whether it leaves after 15 s even where something has too few voters without it.

        Returns:
            dict[str, object]: ``text``: what was done, and which jobs wait for another agent now.

        Raises:
            UserError: where some data would have no majority without it.
            ElfError: without an answer within three minutes.

        Example:
            >>> await client.leave()
            {'text': 'web-0 has left'}
        """
        return await self.call("leave", "force" if force else "", limit_secs=LEAVE_SECS)

    async def take_off(self, agent: str) -> str:
        """Take an agent that is gone for good off the fleet: it is expected no more.

        Args:
            agent (str): its name, or the address where it was.

        Returns:
            str: what was done.

        Raises:
            UserError: for an agent that lives, or that nobody expects.
            ElfError: without an answer.

        Example:
            >>> try:
            ...     await client.take_off("web-9")
            ... except UserError as error:
            ...     print(error)
            no agent web-9 is expected; elf members names those that are
        """
        return (await self._connection.ask("take off", agent, ANSWER_SECS)).text


@contextlib.contextmanager
def _reading(what: str) -> Iterator[None]:
    """Whatever is wrong with the agent's answer to a call is said in one line."""
    try:
        yield
    except msgspec.MsgspecError as error:
        raise ElfError(f"the agent's answer to {what} cannot be read: {error}") from None
