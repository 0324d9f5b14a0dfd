"""Statements about tables of jobs: CREATE TABLE and DROP TABLE, and SELECT over a table.

CREATE TABLE is an output that stays in the fleet (``elf.job.tables``), so it is read as one. What is a SELECT
over a table, and what over a stream, the names in the catalog log decide (``over_table``).
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from sqlglot import exp

from elf.fields import TREES_MAX
from elf.ql.fuel import KEYS_MAX, RING_COPIES, RING_PARTS
from elf.ql.kinds import INT64_MAX
from elf.ql.outputs import TABLE, CreateOutput, DropOutput
from elf.ql.source import start_of

if TYPE_CHECKING:  # they are read by its parser
    from elf.ql.statements import Query, Words

_UNITS: Final = {"MINUTE": 60, "HOUR": 3_600, "DAY": 86_400}
RETAIN_SECS_MAX: Final = 3_660 * 86_400
_PLAIN: Final = frozenset({"expressions", "from_", "where"})
"""Parts of a SELECT with which its rows are those of the table."""
_KNOWN: Final[dict[type[exp.Expr], frozenset[str]]] = {
    exp.Select: _PLAIN
    | {"joins", "with_", "group", "having", "qualify", "order", "limit", "offset", "distinct"},
    exp.SetOperation: frozenset(
        {"this", "expression", "distinct", "by_name", "with_", "order", "limit", "offset"}
    ),
    exp.Table: frozenset({"this", "alias"}),
}
"""What may be said of a table: all else is of streams, or of databases."""

Value = bool | int | float | str


class AlterTable(Struct, frozen=True):
    """``ALTER TABLE name SET KEY (column, …)``."""

    sql: str
    name: str
    key: tuple[str, ...]


class PauseTable(Struct, frozen=True):
    """``ALTER TABLE name PAUSE``, or ``RESUME``: no more rows get the new key, or they do again."""

    sql: str
    name: str
    paused: bool


class ExplainAlterTable(Struct, frozen=True):
    """``EXPLAIN ALTER TABLE name SET KEY (column, …)``: what that would take."""

    sql: str
    alter: AlterTable


class TableSelect(Struct, frozen=True):
    """``SELECT … FROM name [AS OF ANY] …``, over a table. ``select``: the same for DuckDB. ``equals``:
    columns that have one of some values in every row of the answer. ``columns``: what it wants of the rows
    that have these, where nothing else is asked of them (none: all); None: DuckDB evaluates it.
    ``anywhere``: of any member of the job's group, which may be behind."""

    sql: str
    name: str
    select: str
    equals: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    columns: tuple[tuple[str, str], ...] | None = None
    anywhere: bool = False


def read_create_table(words: Words) -> CreateOutput:
    """The rest of a statement, after CREATE TABLE."""
    sql = words.text
    name = words.name("the table's name")
    words.expect("FROM", "JOB")
    job = words.name("the job's name")
    options = {"key": ",".join(_key(words))}
    if words.next_is("SHARDS"):
        options["shards"] = str(_shards(words))
    elif words.next_is("RING"):
        options |= {"ring": str(RING_COPIES), "shards": str(RING_PARTS)}
    if words.next_is("RETAIN"):
        options["retain"] = str(_retained_us(words))
    words.end()
    return CreateOutput(sql, name, job, TABLE, tuple(sorted(options.items())))


def read_alter_table(words: Words) -> AlterTable | PauseTable:
    """The rest of a statement, after ALTER TABLE."""
    name = words.name("the table's name")
    for word in ("PAUSE", "RESUME"):
        if words.next_is(word):
            words.end()
            return PauseTable(words.text, name, word == "PAUSE")
    return _set_key(words, name, ", PAUSE or RESUME")


def read_explained_alter(words: Words) -> ExplainAlterTable:
    """The rest of a statement, after EXPLAIN ALTER TABLE."""
    return ExplainAlterTable(words.text, _set_key(words, words.name("the table's name")))


def _set_key(words: Words, name: str, more: str = "") -> AlterTable:
    if not words.next_is("SET"):
        words.fail(f"expected SET KEY (column, …){more}")
    key = _key(words)
    words.end()
    return AlterTable(words.text, name, key)


def _key(words: Words) -> tuple[str, ...]:
    words.expect("KEY", "(")
    key: dict[str, str] = {}
    while not key or words.next_is(","):
        name = words.name("a column that the job groups by")
        if name.lower() in key:
            words.index -= 1
            words.fail("expected a column that is not in the key yet")
        key[name.lower()] = name
    words.expect(")")
    return tuple(key.values())


def _shards(words: Words) -> int:
    shards = words.whole("how many shards")
    if not 2 <= shards <= TREES_MAX:
        words.index -= 1
        words.fail(f"expected 2 to {TREES_MAX} shards")
    return shards


def _retained_us(words: Words) -> int:
    count = words.whole("how long, such as 7 DAYS")
    for unit, secs in _UNITS.items():
        if words.next_is(unit) or words.next_is(f"{unit}S"):
            if not 0 < count * secs <= RETAIN_SECS_MAX:
                words.index -= 2
                words.fail("expected ten years at most, and a minute at least")
            return count * secs * 1_000_000
    return words.fail("expected MINUTES, HOURS or DAYS")


def read_drop_table(words: Words) -> DropOutput:
    """The rest of a statement, after DROP TABLE."""
    sql = words.text
    name = words.name("the table's name")
    words.end()
    return DropOutput(sql, name, table=True)


def read_as_of(words: Words) -> TableSelect | None:
    """A SELECT that says AS OF ANY; None: it says nothing of that kind."""
    texts = [token.text.upper() for token in words.tokens]
    at = next((place for place in range(2, len(texts) - 2) if texts[place : place + 2] == ["AS", "OF"]), None)
    if at is None or texts[at - 2] != "FROM":
        return None
    sql, source, said = words.text, words.source.text, words.tokens[at : at + 3]
    words.index = at + 2
    words.expect("ANY")
    del words.tokens[at : at + 3]
    words.index = 0
    query = words.query()
    begin, end = words.tokens[0].start, words.tokens[-1].end + 1
    text = f"{source[begin : said[0].start]}{source[min(said[-1].end + 1, end) : end]}"
    name = words.tokens[at - 1].text
    return _of_table(sql, name, text, query, anywhere=True)


def over_table(sql: str, query: Query, tables: Container[str]) -> TableSelect | None:
    """A SELECT as one over a table, if it is one over a table of these names; JOB and LATE say that a name is
    a job's, quotes that it is a file's."""
    source = query.tree.find(exp.From)
    table = None if source is None else source.this
    if not isinstance(table, exp.Table) or table.name not in tables or table.meta.keys() & _NO_TABLES:
        return None
    if table.name in {one.alias for one in query.tree.find_all(exp.CTE)}:
        return None
    return _of_table(sql, table.name, query.sql, query, anywhere=False)


_NO_TABLES: Final = frozenset({"job", "late", "file"})


def _check(query: Query) -> None:
    """Raises ``QueryError`` for a clause that would not be heeded."""
    for node in query.tree.find_all(*_KNOWN):
        known = next(known for kind, known in _KNOWN.items() if isinstance(node, kind))
        for name, value in node.args.items():
            part = value[0] if isinstance(value, list) and value else value
            if part and name not in known:
                at = part if isinstance(part, exp.Expr) and start_of(part) is not None else node
                raise query.source.at(at, "this does not go with a table, which has rows and no stream")
        if isinstance(node, exp.Table) and node.meta.keys() & _NO_TABLES:
            raise query.source.at(node, "a SELECT over a table reads that table alone")


def _of_table(sql: str, name: str, text: str, query: Query, *, anywhere: bool) -> TableSelect:
    _check(query)
    tree = query.tree
    where = tree.args.get("where")
    plain = not any(tree.args.get(part) for part in tree.args.keys() - _PLAIN)
    alone = _is_alone(tree)
    parts = _conjuncts(where.this) if where is not None and alone else []
    said = [_equal(part) for part in parts]
    equals: dict[str, tuple[Value, ...]] = {}
    for one in said:
        if one is not None:
            equals.setdefault(one[0].lower(), one[1])
    whole = plain and alone and None not in said and len(equals) == len(said)
    columns = _columns(tree) if whole and isinstance(tree, exp.Select) else None
    return TableSelect(sql, name, text, tuple(equals.items()), columns, anywhere)


def _is_alone(tree: exp.Expr) -> bool:
    """Whether it is one SELECT over one table, whose columns have their own names."""
    tables = list(tree.find_all(exp.Table))
    if not isinstance(tree, exp.Select) or len(tables) != 1 or len(list(tree.find_all(exp.Select))) != 1:
        return False
    own = ("", tables[0].alias_or_name.lower())
    return not tables[0].alias_column_names and all(
        one.table.lower() in own for one in tree.find_all(exp.Column)
    )


def _conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.And):
        return [*_conjuncts(condition.left), *_conjuncts(condition.right)]
    return [condition]


def _equal(part: exp.Expr) -> tuple[str, tuple[Value, ...]] | None:
    """Column and values, where a condition says that it has one of these."""
    if isinstance(part, exp.EQ):
        for column, value in ((part.left, part.right), (part.right, part.left)):
            if isinstance(column, exp.Column) and (found := _value(value)) is not None:
                return column.name, (found,)
    if isinstance(part, exp.In) and isinstance(part.this, exp.Column) and part.args.get("query") is None:
        values = [_value(one) for one in part.expressions]
        if 0 < len(values) <= KEYS_MAX and None not in values:
            return part.this.name, tuple(one for one in values if one is not None)
    return None


def _value(node: exp.Expr) -> Value | None:
    """That of a constant, if a column of a stream could have it."""
    if isinstance(node, exp.Neg) and isinstance(found := _value(node.this), int | float):
        return -found
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if not isinstance(node, exp.Literal):
        return None
    text = str(node.this)
    if node.is_string:
        return text
    if not text.isdecimal():
        return float(text)
    return whole if (whole := int(text)) <= INT64_MAX else None


def _columns(tree: exp.Select) -> tuple[tuple[str, str], ...] | None:
    """Columns and their names in the answer, where that is all that is selected; none: all of them."""
    found: list[tuple[str, str]] = []
    for one in tree.expressions:
        if isinstance(one, exp.Star) and len(tree.expressions) == 1 and not any(one.args.values()):
            return ()
        column = one.this if isinstance(one, exp.Alias) else one
        if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
            return None
        found.append((column.name, one.alias_or_name))
    return tuple(found)
