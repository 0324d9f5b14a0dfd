"""Statements: what a person may say to an agent, read from text.

``parse`` gives one value for each statement, with the text that it came from. It reads no schema:
``elf.ql.planner.plan`` resolves the names in queries. Errors carry their place in the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Final, Literal, NoReturn

from msgspec import Struct
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, TokenError

from elf.errors import QueryError
from elf.fields import replace
from elf.ql import parameters
from elf.ql.aggregates import (
    CreateAggregate,
    DropAggregate,
    read_create_aggregate,
    read_drop_aggregate,
)
from elf.ql.changes import (
    AlterJob,
    MoveJob,
    OffloadJob,
    PreviewJob,
    ReconfigureJob,
    ScaleJob,
    read_alter,
    read_reconfiguration,
)
from elf.ql.dialect import Elf, Lateness, Windowing
from elf.ql.fuel import CHARS_MAX, DEPTH_MAX, DIGITS_MAX, LEVELS_MAX, STATEMENTS_MAX, TOKENS_MAX
from elf.ql.keyed import (
    AlterTable,
    ExplainAlterTable,
    PauseTable,
    TableSelect,
    read_alter_table,
    read_as_of,
    read_create_table,
    read_drop_table,
    read_explained_alter,
)
from elf.ql.outputs import (
    CreateOutput,
    DropOutput,
    read_create_alert,
    read_create_output,
    read_drop_output,
)
from elf.ql.parameters import Parameter
from elf.ql.past import PastSelect, RowsOf, read_past_select, read_rows_of
from elf.ql.source import Source, did_you_mean
from elf.security.roles import RAW_COLUMN


@dataclass(frozen=True)
class Query:
    """A SELECT: its own text, its tree, and the whole text around it, which errors point into.
    ``parameters``: those of its WITH (…), by name in lower case, with their places in its own text.
    """

    sql: str
    tree: exp.Expr = field(compare=False, repr=False)
    source: Source = field(compare=False, repr=False)
    parameters: Mapping[str, Parameter] = field(default_factory=dict, compare=False, repr=False)

    @property
    def goes_by_source(self) -> bool:
        """Whether the answer depends on which rows are of one source: LATENESS, WINDOWING … ROWS."""
        kinds = (kind.args["kind"] for kind in self.tree.find_all(Windowing))
        return self.tree.find(Lateness) is not None or "rows" in kinds

    @property
    def reads_raw_lines(self) -> bool:
        """Whether the whole lines that rows were read from are named in it."""
        using = (name for join in self.tree.find_all(exp.Join) for name in join.args.get("using") or ())
        named = chain(self.tree.find_all(exp.Column, exp.Dot), using)
        return any(column.name.lower() == RAW_COLUMN for column in named)

    def with_values(self, changes: Mapping[str, str]) -> Query:
        """The query with other values of its parameters, each as written in SQL. Raises ``QueryError``."""
        found = parse_query(parameters.with_values(self.sql, self.parameters, changes))
        if found is None:
            raise QueryError("a parameter is one constant")
        return found

    def with_trees(self, trees: int) -> Query:
        """The query over so many trees, whatever it said of them before. Raises ``QueryError``."""
        source, sql = Source(self.sql), self.sql
        tokens, _ = parameters.split(source, _tokens(source))
        said = [
            (word.start, number.end + 1)
            for word, number in pairwise(tokens)
            if word.text.upper() == "TREES" and number.token_type == TokenType.NUMBER
        ]
        end = tokens[-1].end + 1
        for first, last in reversed(said or [(end, end)]):
            sql = f"{sql[:first]}{'' if said else ' '}TREES {trees}{sql[last:]}"
        found = parse_query(sql)
        if found is None:
            raise QueryError("TREES goes with a SELECT")
        return found


class Select(Struct, frozen=True):
    """A one-shot query."""

    sql: str
    query: Query


class CreateJob(Struct, frozen=True):
    """``CREATE [OR REPLACE] JOB name AS SELECT …``"""

    sql: str
    name: str
    replace: bool
    query: Query


class DropJob(Struct, frozen=True):
    """``DROP JOB name``"""

    sql: str
    name: str


class NotifyJob(Struct, frozen=True):
    """``NOTIFY JOB name 'text'``: a broadcast to every worker of a job, at once."""

    sql: str
    name: str
    text: str


Shown = Literal[
    "jobs",
    "outputs",
    "alerts",
    "tables",
    "aggregates",
    "streams",
    "members",
    "archives",
    "decisions",
    "scale in",
]


class Show(Struct, frozen=True):
    """``SHOW JOBS | OUTPUTS | ALERTS | TABLES | AGGREGATES | STREAMS | MEMBERS | ARCHIVES | DECISIONS``, or
    ``SHOW SCALE IN n``: the ``count`` agents that can go."""

    sql: str
    what: Shown
    count: int = 0


class Describe(Struct, frozen=True):
    """``DESCRIBE [JOB | STREAM | TABLE] name``. ``kind``: empty, whatever has the name."""

    sql: str
    name: str
    kind: Literal["", "job", "stream", "table"] = ""


class Subscribe(Struct, frozen=True):
    """``SUBSCRIBE name``: the results of a running job."""

    sql: str
    name: str


class Explain(Struct, frozen=True):
    """``EXPLAIN [ANALYZE | OFFLINE] SELECT …`` or ``EXPLAIN [ANALYZE | OFFLINE | JOB] name``, a job's; or
    ``EXPLAIN LATENCY [JOB] name``."""

    sql: str
    target: Query | str
    analyze: bool
    offline: bool = False
    latency: bool = False


class ExplainRoutes(Struct, frozen=True):
    """``EXPLAIN ROUTES``: over which regions all jobs would send, and how often."""

    sql: str


Statement = (
    Select
    | CreateJob
    | AlterJob
    | AlterTable
    | PauseTable
    | PreviewJob
    | MoveJob
    | OffloadJob
    | ScaleJob
    | ReconfigureJob
    | DropJob
    | CreateOutput
    | DropOutput
    | CreateAggregate
    | DropAggregate
    | NotifyJob
    | Show
    | Describe
    | Subscribe
    | Explain
    | ExplainAlterTable
    | ExplainRoutes
    | PastSelect
    | RowsOf
    | TableSelect
)

_SHOWN: Final[Mapping[str, Shown]] = {
    "JOBS": "jobs",
    "OUTPUTS": "outputs",
    "ALERTS": "alerts",
    "TABLES": "tables",
    "AGGREGATES": "aggregates",
    "STREAMS": "streams",
    "MEMBERS": "members",
    "ARCHIVES": "archives",
    "DECISIONS": "decisions",
}
_NOT_YET: Final = frozenset(
    {
        "INSERT", "UPDATE", "DELETE", "MERGE", "SET", "USE", "FLUSH", "REPLACE", "TRUNCATE", "COPY",
        "BEGIN", "COMMIT", "VALUES", "UNSUBSCRIBE", "CALL",
    }
)  # fmt: skip
_CLOSED_OR_NOT = re.compile(
    r"'(?:[^']|'')*(?:'|(?P<text>\Z))"
    r'|["`][^"`]*(?:["`]|(?P<name>\Z))'
    r"|--[^\n]*"
    r"|/\*.*?(?:\*/|(?P<comment>\Z))",
    re.DOTALL,
)
_OPENS: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSES: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})
_LISTED: Final = frozenset({TokenType.NUMBER, TokenType.STRING, TokenType.COMMA})
_SIGNS: Final = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
JOB_NAME_MAX = 128
"""Characters of the name of a job that is created."""


def too_long(name: str) -> str:
    """The refusal of a job name that is too long."""
    return f"a job's name of {len(name)} characters is too long: {JOB_NAME_MAX} at most"


class Words:
    """The tokens of one statement, read from left to right."""

    def __init__(self, source: Source, tokens: list[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.index = 0

    @property
    def text(self) -> str:
        return self.source.text[self.tokens[0].start : self.tokens[-1].end + 1]

    def next_is(self, *words: str) -> bool:
        """Whether the next tokens are these words; if so, they are read."""
        found = [token.text.upper() for token in self.tokens[self.index : self.index + len(words)]]
        if found != list(words):
            return False
        self.index += len(words)
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.next_is(word):
                self.fail(f"expected {word}")

    def fail(self, message: str) -> NoReturn:
        if self.index < len(self.tokens):
            token = self.tokens[self.index]
            raise self.source.error(f'{message}, not "{_shown(self.source, token)}"', token.start)
        raise self.source.error(f"{message}, but the statement ends here", self.tokens[-1].end + 1)

    def name(self, what: str) -> str:
        """An identifier."""
        if self.index >= len(self.tokens) or not _NAME.fullmatch(self.tokens[self.index].text):
            self.fail(f"expected {what}")
        self.index += 1
        return self.tokens[self.index - 1].text

    def string(self, what: str) -> str:
        """A text in single quotes, without them."""
        if self.index >= len(self.tokens) or self.tokens[self.index].token_type != TokenType.STRING:
            self.fail(f"expected {what}")
        self.index += 1
        return self.tokens[self.index - 1].text

    def whole(self, what: str) -> int:
        """A whole number."""
        if self.index >= len(self.tokens) or not self.tokens[self.index].text.isdecimal():
            self.fail(f"expected {what}")
        self.index += 1
        return int(self.tokens[self.index - 1].text)

    def at_the_end(self, *words: str) -> frozenset[str]:
        """The words among these with which the statement ends, in any order; they are removed."""
        found: set[str] = set()
        while len(self.tokens) > self.index and self.tokens[-1].text.upper() in words:
            found.add(self.tokens.pop().text.upper())
        return frozenset(found)

    def end(self) -> None:
        if self.index < len(self.tokens):
            token = self.tokens[self.index]
            raise self.source.error(f'unexpected "{_shown(self.source, token)}"', token.start)

    def query(self) -> Query:
        """The rest of the statement as a query."""
        rest = self.tokens[self.index :]
        if not rest or rest[0].text.upper() not in ("SELECT", "WITH", "("):
            self.fail("expected SELECT")
        rest_of_query, values = parameters.split(self.source, rest)
        tree = parameters.substitute(self.source, _parse_query(self.source, rest_of_query), values)
        start, end = rest[0].start, rest[-1].end + 1
        own = {name: replace(one, at=one.at - start, end=one.end - start) for name, one in values.items()}
        return Query(self.source.text[start:end], tree, self.source, own)


def _shown(source: Source, token: Token) -> str:
    return source.text[token.start : token.end + 1]


def parse(text: str) -> list[Statement]:
    """The statements of a text, separated by semicolons. Raises ``QueryError``."""
    source = Source(text)
    statements: list[Statement] = []
    current: list[Token] = []
    for token in [*_tokens(source), Token(TokenType.SEMICOLON, ";")]:
        if token.token_type != TokenType.SEMICOLON:
            current.append(token)
        elif current:
            statements.append(_statement(Words(source, current)))
            current = []
    return statements


def parse_query(text: str) -> Query | None:
    """The query of a text that is one SELECT; None where it is anything else. Raises ``QueryError``."""
    match parse(text):
        case [Select(query=query)]:
            return query
    return None


def joined_files(text: str) -> tuple[str, ...]:
    """The files whose tables a text of statements wants: after JOIN, in IN (SELECT … FROM, and after ALTER
    JOB … SET TABLE name FROM. None where it cannot be read."""
    try:
        tokens = _tokens(Source(text))
    except QueryError:
        return ()
    words = [token.text.upper() for token in tokens]
    found = {
        token.text: None
        for place, token in enumerate(tokens)
        if token.token_type == TokenType.STRING and _is_file(words[:place])
    }
    return tuple(found)


def _is_file(before: list[str]) -> bool:
    """Whether a text behind these words is the name of a file with a table."""
    if before[-1:] == ["JOIN"] or before[-4:-2] == ["SET", "TABLE"]:
        return True
    last = len(before) - before[::-1].index("SELECT") if before[-1:] == ["FROM"] and "SELECT" in before else 0
    return before[max(0, last - 3) : last] == ["IN", "(", "SELECT"]


def _tokens(source: Source) -> list[Token]:
    """All of them, if they are not too many to be parsed at once (``elf.ql.fuel``)."""
    if len(source.text) > CHARS_MAX:
        raise QueryError(f"a text of {len(source.text):,} characters is too long: {CHARS_MAX:,} at most")
    try:
        tokens: list[Token] = Elf().tokenize(source.text)
    except TokenError as error:
        raise source.error(*_unclosed(source.text, error)) from error
    _bound(source, tokens)
    for number, after in pairwise(tokens):
        if (
            number.token_type == TokenType.NUMBER
            and after.token_type == TokenType.VAR
            and number.end + 1 == after.start
        ):
            raise source.error(f"{source.text[number.start : after.end + 1]} is not a number", number.start)
    return tokens


def _bound(source: Source, tokens: list[Token]) -> None:
    """Raises ``QueryError`` for more of anything than there may be. A CASE is a bracket."""
    size, depth, signs, statements = 0.0, 0, 0, 1
    for token in tokens:
        kind = token.token_type
        size += len(token.comments) + (0.5 if kind in _LISTED else 1)
        signs = signs + 1 if kind in _SIGNS else 0
        depth += 1 if kind in _OPENS else -1 if kind in _CLOSES else 0
        statements += kind == TokenType.SEMICOLON
        said = (
            (size, TOKENS_MAX, "words and signs"),
            (depth, DEPTH_MAX, "brackets in one another"),
            (signs, DEPTH_MAX, "signs in a row"),
            (statements, STATEMENTS_MAX, "statements"),
            (len(token.text) if kind == TokenType.NUMBER else 0, DIGITS_MAX, "digits of a number"),
        )
        for found, most, what in said:
            if found > most:
                place = source.error(f"a text has at most {most:,} {what}, and this has more", token.start)
                raise QueryError(place.text, line=place.line, column=place.column)  # its line may be long


def _unclosed(text: str, error: TokenError) -> tuple[str, int]:
    """What is wrong with a text that has no tokens: almost always a quote or comment that is never closed."""
    for match in _CLOSED_OR_NOT.finditer(text):
        for what, value in match.groupdict().items():
            if value is not None:
                return f"this {what} is never closed", match.start()
    return f"cannot read this text: {error}", 0


def _parse_query(source: Source, tokens: list[Token]) -> exp.Expr:
    try:
        trees = Elf().parser().parse(tokens, source.text)
    except ParseError as error:
        raise _syntax_error(source, tokens, error) from error
    except RecursionError as error:
        raise source.error("the query is nested too deeply", tokens[0].start) from error
    tree = trees[0] if trees else None
    if tree is None:
        raise source.error("expected a query", tokens[0].start)
    _check_levels(source, tree)
    while isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    return tree


def _check_levels(source: Source, tree: exp.Expr) -> None:
    """Raises ``QueryError`` for a tree that is too deep to be walked by calls in calls."""
    todo = [(tree, 1)]
    while todo:
        node, level = todo.pop()
        if level > LEVELS_MAX:
            raise source.at(node, f"operators nested more than {LEVELS_MAX} deep are too much")
        for part in node.iter_expressions():
            flat = isinstance(node, exp.Connector) and type(part) is type(node)
            todo.append((part, level if flat else level + 1))


def _syntax_error(source: Source, tokens: list[Token], error: ParseError) -> Exception:
    details = error.errors[0] if error.errors else {}
    offset = int(details.get("offset", tokens[0].start))
    message = str(details.get("description", error))
    found = next((_shown(source, token) for token in tokens if token.start == offset), None)
    if message.startswith("Required keyword"):
        message = "something is missing here"
        offset = tokens[-1].end + 1 if found is None or offset == tokens[-1].start else offset
    elif message.startswith(("Invalid expression", "Expected table")):
        message = f'unexpected "{found}"' if found else "the query ends too early"
    elif message.startswith("Expecting "):
        message = f"expected {message.removeprefix('Expecting ')}"
    return source.error(message[:1].lower() + message[1:], offset)


def _statement(words: Words) -> Statement:
    first = words.tokens[0].text.upper()
    reader = _READERS.get(first)
    if reader is not None:
        return reader(words)
    if first in _NOT_YET:
        raise words.source.error(f"{first} is not supported yet", words.tokens[0].start)
    known = [name for name in (*_READERS, *_NOT_YET) if name != "("]
    shown = _shown(words.source, words.tokens[0])
    raise words.source.error(
        f'unknown statement "{shown}"{did_you_mean(shown, known)}', words.tokens[0].start
    )


def _read_select(words: Words) -> Statement:
    past = read_past_select(words)
    if past is not None:
        return past
    of_table = read_as_of(words)
    return Select(words.text, words.query()) if of_table is None else of_table


def _read_create(words: Words) -> Statement:
    words.expect("CREATE")
    if words.next_is("OUTPUT"):
        return read_create_output(words)
    if words.next_is("ALERT"):
        return read_create_alert(words)
    if words.next_is("TABLE"):
        return read_create_table(words)
    replacing = words.next_is("OR")
    if replacing:
        words.expect("REPLACE")
    if words.next_is("AGGREGATE"):
        return read_create_aggregate(words, replacing=replacing)
    words.expect("JOB")
    name = words.name("the job's name")
    if len(name) > JOB_NAME_MAX:
        raise words.source.error(too_long(name), words.tokens[words.index - 1].start)
    words.expect("AS")
    return CreateJob(words.text, name, replacing, words.query())


def _read_alter(words: Words) -> Statement:
    if words.next_is("ALTER", "TABLE"):
        return read_alter_table(words)
    return read_alter(words)


def _read_drop(words: Words) -> Statement:
    words.expect("DROP")
    if words.next_is("OUTPUT"):
        return read_drop_output(words)
    if words.next_is("ALERT"):
        return read_drop_output(words, alert=True)
    if words.next_is("TABLE"):
        return read_drop_table(words)
    if words.next_is("AGGREGATE"):
        return read_drop_aggregate(words)
    words.expect("JOB")
    name = words.name("the job's name")
    words.end()
    return DropJob(words.text, name)


def _read_notify(words: Words) -> Statement:
    words.expect("NOTIFY", "JOB")
    name = words.name("the job's name")
    text = words.string("the notice in quotes ('…')")
    words.end()
    return NotifyJob(words.text, name, text)


def _read_show(words: Words) -> Statement:
    words.expect("SHOW")
    for word, what in _SHOWN.items():
        if words.next_is(word):
            words.end()
            return Show(words.text, what)
    if words.next_is("SCALE", "IN"):
        count = words.whole("how many agents are to go, from 1")
        words.end()
        return Show(words.text, "scale in", count)
    kinds = "JOBS, OUTPUTS, ALERTS, TABLES, AGGREGATES, STREAMS, MEMBERS, ARCHIVES, DECISIONS or SCALE IN n"
    return words.fail(f"expected {kinds}")


def _read_describe(words: Words) -> Statement:
    words.expect("DESCRIBE")
    kind: Literal["", "job", "stream", "table"] = ""
    if len(words.tokens) > 2:  # of two words the second is the name
        kind = next((one for one in ("job", "stream", "table") if words.next_is(one.upper())), "")
    name = words.name("the name of a stream, a job or a table")
    words.end()
    return Describe(words.text, name, kind)


def _read_subscribe(words: Words) -> Statement:
    words.expect("SUBSCRIBE")
    name = words.name("the job's name")
    words.end()
    return Subscribe(words.text, name)


def _read_explain(words: Words) -> Statement:
    words.expect("EXPLAIN")
    if len(words.tokens) == words.index + 1 and words.next_is("ROUTES"):
        return ExplainRoutes(words.text)
    if len(words.tokens) == words.index + 2 and words.next_is("JOB"):
        return Explain(words.text, words.name("the job's name"), analyze=False)
    if len(words.tokens) > words.index + 2 and words.next_is("ALTER"):
        words.expect("TABLE")
        return read_explained_alter(words)
    analyze = words.next_is("ANALYZE")
    named_so = len(words.tokens) == words.index + 1  # of one word it is the name
    offline = not analyze and not named_so and words.next_is("OFFLINE")
    if not analyze and not offline and not named_so and words.next_is("LATENCY"):
        if len(words.tokens) > words.index + 1:
            words.next_is("JOB")
        name = words.name("the name of a job that runs")
        words.end()
        return Explain(words.text, name, analyze=False, latency=True)
    if words.index < len(words.tokens) and words.tokens[words.index].text.upper() not in (
        "SELECT",
        "WITH",
        "(",
    ):
        name = words.name("SELECT or the job's name")
        words.end()
        return Explain(words.text, name, analyze, offline)
    return Explain(words.text, words.query(), analyze, offline)


_READERS: Final[Mapping[str, Callable[[Words], Statement]]] = {
    "SELECT": _read_select,
    "WITH": _read_select,
    "(": _read_select,
    "CREATE": _read_create,
    "ALTER": _read_alter,
    "PAUSE": read_reconfiguration,
    "RESUME": read_reconfiguration,
    "EMPTY": read_reconfiguration,
    "ROLLBACK": read_reconfiguration,
    "DROP": _read_drop,
    "NOTIFY": _read_notify,
    "SHOW": _read_show,
    "DESCRIBE": _read_describe,
    "SUBSCRIBE": _read_subscribe,
    "EXPLAIN": _read_explain,
    "ROWS": read_rows_of,
}
