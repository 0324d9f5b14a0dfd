"""Statements that change a job while it runs, or where it does: ALTER, PAUSE, RESUME, EMPTY and ROLLBACK; and
ALTER … PREVIEW, which changes nothing and is a statement of its own: what is signed for one is not signed for
the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct, field
from sqlglot import TokenType

from elf.fields import TREES_MAX
from elf.ql.plan import TABLE_OF

if TYPE_CHECKING:  # they are read by its parser
    from elf.ql.statements import Query, Words

PREVIEW_MAX: Final = 100
"""Windows of a preview."""


class AlterJob(Struct, frozen=True):
    """``ALTER JOB name AS SELECT …``, ``… SET parameter = constant, …``, ``… SET FUNCTION map FROM 'a.py'``
    (or ``reduce``, ``final``), ``… DROP FUNCTION map``, ``… SET TABLE products FROM 'products.csv'`` (or
    ``FROM TABLE product``) or ``… TREES 4``, each with ``[RESET] [IMMEDIATELY]``. What it names is there, the
    rest empty.
    """

    sql: str
    name: str
    query: Query | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Parameters, and their values as written."""
    function: tuple[str, str] | None = None
    """Its kind, and the file that it is in: none to drop it."""
    table: tuple[str, str] | None = None
    """Its name in the query, and the file with its new contents, or the table of a job
    (``elf.ql.rules_joins.file_of``)."""
    trees: int | None = None
    reset: bool = False
    immediately: bool = False


class PreviewJob(Struct, frozen=True):
    """``ALTER JOB name … PREVIEW n WINDOWS``: the version that the ``change`` would make, beside the job, for
    so many windows."""

    sql: str
    change: AlterJob
    windows: int

    @property
    def name(self) -> str:
        return self.change.name


class MoveJob(Struct, frozen=True):
    """``ALTER JOB name MOVE TO 'agent'``: another agent leads the job's group. ``agent``: its name, or its
    address."""

    sql: str
    name: str
    agent: str


class OffloadJob(Struct, frozen=True):
    """``ALTER JOB name OFFLOAD 'agent' TO 'helper'``: the helper maps the rows of the job on that agent;
    ``… OFFLOAD 'agent' BACK``: the agent maps them itself again (``helper`` is empty). Both by name or
    address."""

    sql: str
    name: str
    agent: str
    helper: str = ""


class ScaleJob(Struct, frozen=True):
    """``ALTER JOB name SCALE OUT n``: so many trees more (``by``), ``… SCALE IN n``: fewer; ``… SCALE AUTO
    (least, most)``: as many as it needs, by itself, between these ``bounds``. One of both is there."""

    sql: str
    name: str
    by: int = 0
    bounds: tuple[int, int] | None = None


class ReconfigureJob(Struct, frozen=True):
    """``PAUSE JOB name``, ``RESUME JOB name``, ``EMPTY JOB name``, ``ROLLBACK JOB name TO VERSION n
    [RESET] [IMMEDIATELY]``"""

    sql: str
    name: str
    verb: Literal["pause", "resume", "empty", "rollback"]
    version: int = 0
    reset: bool = False
    immediately: bool = False


def read_alter(words: Words) -> AlterJob | MoveJob | OffloadJob | ScaleJob | PreviewJob:
    whole, previewed = words.text, _previewed(words)
    change = _read_alter(words)
    if not previewed:
        return change
    if isinstance(change, MoveJob | OffloadJob | ScaleJob):
        what = {MoveJob: "MOVE TO", OffloadJob: "OFFLOAD", ScaleJob: "SCALE"}[type(change)]
        raise words.source.error(
            f"{what} changes no window: there is nothing to PREVIEW", words.tokens[0].start
        )
    return PreviewJob(whole, change, previewed)


def _previewed(words: Words) -> int:
    """The windows of a PREVIEW at the end, which is taken off; 0: there is none."""
    end = words.tokens[-3:]
    texts = [token.text.upper() for token in end]
    if len(end) < 3 or texts[0] != "PREVIEW" or texts[2] not in ("WINDOWS", "WINDOW"):
        return 0
    if not texts[1].isdecimal() or not 1 <= int(texts[1]) <= PREVIEW_MAX:
        raise words.source.error(f"PREVIEW wants 1 to {PREVIEW_MAX} WINDOWS", end[1].start)
    del words.tokens[-3:]
    return int(texts[1])


def _read_alter(words: Words) -> AlterJob | MoveJob | OffloadJob | ScaleJob:
    sql = words.text
    words.expect("ALTER", "JOB")
    name = words.name("the job's name")
    if words.next_is("MOVE", "TO"):
        agent = words.string("an agent in quotes ('web-3')")
        words.end()
        return MoveJob(sql, name, agent)
    if words.next_is("OFFLOAD"):
        agent = words.string("the agent that reads the lines, in quotes ('web-1')")
        helper = ""
        if words.next_is("TO"):
            helper = words.string("the agent that is to map its rows, in quotes ('helper-1')")
        elif not words.next_is("BACK"):
            words.fail("expected TO 'helper' or BACK")
        words.end()
        return OffloadJob(sql, name, agent, helper)
    if words.next_is("SCALE"):
        by, bounds = _scale(words)
        words.end()
        return ScaleJob(sql, name, by, bounds)
    how = words.at_the_end("RESET", "IMMEDIATELY")
    query, settings, function, table, trees = None, {}, None, None, None
    if words.next_is("AS"):
        query = words.query()
    elif words.next_is("DROP"):
        function = _function(words), ""
    elif words.next_is("TREES"):
        trees = words.whole("over how many trees, from 1")
    elif not words.next_is("SET"):
        words.fail("expected AS SELECT, SET, DROP FUNCTION, TREES, SCALE, MOVE TO or OFFLOAD")
    elif words.index + 1 >= len(words.tokens) or words.tokens[words.index + 1].token_type == TokenType.EQ:
        settings = _settings(words)
    elif words.next_is("TABLE"):
        called = words.name("what the query calls the table")
        words.expect("FROM")
        table = called, _contents(words)
    else:
        kind = _function(words)
        words.expect("FROM")
        function = kind, words.string("a file in quotes ('map.py')")
    if query is None:
        words.end()
    return AlterJob(sql, name, query, settings, function, table, trees, "RESET" in how, "IMMEDIATELY" in how)


def _contents(words: Words) -> str:
    """What stands after SET TABLE … FROM."""
    if words.next_is("TABLE"):
        return TABLE_OF + words.name("the table's name")
    place = words.index
    file = words.string("a file in quotes ('products.csv'), or TABLE and the name of one")
    if file.startswith(TABLE_OF):
        words.index = place
        words.fail(f"expected './{file}' for a file of this name")
    return file


def _scale(words: Words) -> tuple[int, tuple[int, int] | None]:
    """What stands after SCALE."""
    first = words.index
    if words.next_is("AUTO"):
        words.expect("(")
        least = words.whole("the least trees, from 1")
        words.expect(",")
        most = words.whole("the most trees")
        words.expect(")")
        if not 1 <= least <= most <= TREES_MAX:
            text = f"SCALE AUTO takes two whole numbers from 1 to {TREES_MAX}, the smaller first"
            raise words.source.error(text, words.tokens[first].start)
        return 0, (least, most)
    sign = 1 if words.next_is("OUT") else -1
    if sign < 0 and not words.next_is("IN"):
        words.fail("expected OUT n, IN n or AUTO (least, most)")
    by = words.whole("by how many trees, from 1")
    if not 1 <= by <= TREES_MAX:
        raise words.source.error(
            f"SCALE takes a whole number from 1 to {TREES_MAX}", words.tokens[first].start
        )
    return sign * by, None


def _function(words: Words) -> str:
    words.expect("FUNCTION")
    kind = words.name("map, reduce or final")
    if kind.lower() not in ("map", "reduce", "final"):
        words.index -= 1
        words.fail("expected map, reduce or final")
    return kind.lower()


def _settings(words: Words) -> dict[str, str]:
    found: dict[str, str] = {}
    while True:
        name = words.name("a parameter's name")
        words.expect("=")
        first = words.index
        words.next_is("-")
        if words.index >= len(words.tokens):
            words.fail("expected a constant")
        words.index += 1
        tokens = words.tokens[first : words.index]
        found[name] = words.source.text[tokens[0].start : tokens[-1].end + 1]
        if not words.next_is(","):
            return found


def read_reconfiguration(words: Words) -> ReconfigureJob:
    sql = words.text
    first = words.tokens[0].text.upper()
    words.expect(first, "JOB")
    name = words.name("the job's name")
    if first != "ROLLBACK":
        words.end()
        verbs: dict[str, Literal["pause", "resume", "empty"]] = {"PAUSE": "pause", "RESUME": "resume"}
        return ReconfigureJob(sql, name, verbs.get(first, "empty"))
    words.expect("TO", "VERSION")
    number = words.whole("the number of a version")
    how = words.at_the_end("RESET", "IMMEDIATELY")
    words.end()
    return ReconfigureJob(sql, name, "rollback", number, "RESET" in how, "IMMEDIATELY" in how)
