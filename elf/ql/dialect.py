"""ELF-QL as a sqlglot dialect: tokens and grammar, nothing about meaning.

What it adds to sqlglot's own SQL: ``FROM *``, ``==``, ``~``, back-quoted names beside double-quoted ones,
``SORT BY`` (it is ``ORDER BY``), ``WINDOWING …, …``, ``LATENESS …``, ``WITHIN …``, ``EMIT …``,
``PRIORITY …``, ``STRAGGLERS …``, ``FROM LATE job``, ``FROM JOB name``, ``JOIN TABLE name``,
``FROM stream ON …``, ``SAMPLE …``, ``WITH GRAPH …``, ``TREES …``, ``APPROXIMATE``, ``SINCE …`` and ksqlDB's
``WINDOW TUMBLING | HOPPING | SESSION (…)``. Every function call except the few with a grammar of their own
(CAST, EXTRACT, …) parses as ``exp.Anonymous``: ``elf.ql.functions`` decides which functions exist, not the
grammar.

It never resolves a name or checks a type. A syntax error is a ``ParseError`` with the offset of its token.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from itertools import pairwise
from typing import ClassVar, Final, TypeVar, overload

from sqlglot import Token, Tokenizer, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError
from sqlglot.parser import Parser

from elf.ql.graphs import ALGORITHMS, listed

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # what it warns about is an error of ours, or nothing

_Tree = TypeVar("_Tree", bound=exp.Expr)

UNITS_US: dict[str, int] = {
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}
"""Units of a duration, singular (a plural S is accepted), in microseconds."""

RESEARCH: Final = "research"
PRIORITIES: Final = (RESEARCH, "production")
"""As of runs in the queue of ``elf offline``: research gives way."""
_ROWS = ("ROW", "ROWS")
_SLIDES = ("EVERY", "SLIDING", "SLIDES", "ADVANCE", "HOP")
"""What other languages use for SLIDE."""
_CLAUSE_WORDS = frozenset(
    {"WINDOWING", "LATENESS", "WITHIN", "PRIORITY", "EMIT", "STRAGGLERS", "TREES", "APPROXIMATE"}
    | {"SINCE", "SAMPLE"}
)


class Duration(exp.Expression):
    """``this``: the number as written; ``unit``: the unit as written."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "unit": True}


class Windowing(exp.Expression):
    """One kind of window: ``kind`` is one of sliding, session, cumulate, landmark, rows. ``size`` and
    ``slide`` are durations: size and slide, gap and MAX, size and STEP, EVERY; ROWS has a number.
    """

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "size": False, "slide": False}


class Windowings(exp.Expression):
    """``WINDOWING kind, kind …``: ``expressions`` are the kinds."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


class Lateness(exp.Expression):
    """``LATENESS <duration>``: ``this`` is the duration."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Within(exp.Expression):
    """``WITHIN duration FOR number PERCENT | ON AVERAGE [BEST EFFORT]``: ``this`` is the duration,
    ``percent`` the number as written (None: on average)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "percent": False, "effort": False}


class Emit(exp.Expression):
    """``EMIT FINAL | FINAL REVISE [bound] | CHANGES [EVERY period]``: ``kind`` is final, revise or changes;
    ``this`` is the duration, if there is one.
    """

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": False}


class Stragglers(exp.Expression):
    """``STRAGGLERS WAIT bound | REVISE | LEAP | MIRROR``: ``kind`` is wait, revise, leap or mirror; ``this``
    is the duration of WAIT.
    """

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": False}


class Priority(exp.Expression):
    """``PRIORITY RESEARCH | PRODUCTION``: ``this`` is the word in lower case."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Trees(exp.Expression):
    """``TREES <number>``: ``this`` is the number as written."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Since(exp.Expression):
    """``SINCE 'moment'``: ``this`` is the text."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Sample(exp.Expression):
    """``SAMPLE [BY key] <number> %``: ``this`` is the number as written, ``by`` the key."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "by": False}


class WithGraph(exp.Expression):
    """``WITH GRAPH algorithm [(argument, …)] [WEIGHT expression] [ITERATIONS number]``: ``this`` is the name
    of the algorithm in lower case. ``having``: the HAVING that stands before it.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expressions": False,
        "weight": False,
        "iterations": False,
        "having": False,
    }


class Places(exp.Expression):
    """``FROM stream ON condition``: ``this`` is the condition."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Approximate(exp.Expression):
    """``LIMIT n APPROXIMATE``"""

    arg_types: ClassVar[dict[str, bool]] = {}


_KEYS: Final = {"ON": "places", "SAMPLE": "sampling"}
"""Where they are in the tree of a query, if not under their own names."""
_ORDER: Final = (
    ("where", "WHERE"),
    ("group", "GROUP BY"),
    ("having", "HAVING"),
    ("order", "ORDER BY"),
    ("limit", "LIMIT"),
)
"""Clauses of a query in their order, by sqlglot's names."""

_ClauseParser = Callable[..., tuple[str, object]]


def _placed(parse: _ClauseParser) -> _ClauseParser:
    """The parser of a clause, which notes in the tree where the clause starts."""

    def run(parser: ElfParser) -> tuple[str, object]:
        start = parser._curr
        key, tree = parse(parser)
        for node in tree if isinstance(tree, list) else [tree]:
            if isinstance(node, exp.Expr):
                node.meta["start"] = start.start
        return key, tree

    return run


class ElfTokenizer(Tokenizer):
    QUOTES: ClassVar[list[str | tuple[str, str]]] = ["'"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'"]
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        **{word: kind for word, kind in Tokenizer.KEYWORDS.items() if not word.startswith(("{", "/*+"))},
        "SORT BY": TokenType.ORDER_BY,
        "STRING": TokenType.TEXT,
        "//": TokenType.DIV,
        "~": TokenType.RLIKE,
    }
    COMMANDS: ClassVar[set[TokenType]] = set()


class ElfParser(Parser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expression]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[[Parser], exp.Expression]]] = {
        name: Parser.FUNCTION_PARSERS[name]
        for name in ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM")
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[[Parser], exp.Expression]]] = {
        "CASE": Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]
    }
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, _ClauseParser]] = {
        **{token: _placed(parse) for token, parse in Parser.QUERY_MODIFIER_PARSERS.items()},
        TokenType.WINDOW: lambda self: ("windowing", self._parse_ksql_window()),
    }

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """A syntax error: ``errors[0]`` holds its ``description`` and the ``offset`` of its token."""
        place = token or self._curr or self._prev
        at_end = not (token or self._curr)
        offset = (place.end + 1 if at_end else place.start) if place else 0
        raise ParseError(
            message, errors=[{"description": message, "offset": offset, "token": place.text if place else ""}]
        )

    def _check_order(self, query: exp.Query) -> None:
        """sqlglot itself accepts the clauses of a query in any order."""
        clauses = [(clause, query.args.get(key)) for key, clause in _ORDER]
        places = [(node.meta["start"], clause) for clause, node in clauses if node and "start" in node.meta]
        for (start, clause), (after, later) in pairwise(places):
            if after < start:
                token = next((token for token in self._tokens if token.start == start), None)
                self.raise_error(f"the clause {clause} stands before {later}", token)

    def _parse_expression(self) -> exp.Expr | None:
        """An expression that knows the extent of its text, for names of columns without an alias."""
        start = self._curr
        node = super()._parse_expression()
        if node is not None and start:
            node.meta["from"], node.meta["to"] = start.start, self._prev.end
        return node

    def _parse_unary(self) -> exp.Expr | None:
        """An operand that knows where it starts (sqlglot tells only names, texts, numbers and calls)."""
        start = self._curr
        node = super()._parse_unary()
        if node is not None and start and node.meta.get("start") is None:
            node.meta["start"] = start.start
        return node

    @overload
    def _parse_query_modifiers(self, this: _Tree) -> _Tree: ...

    @overload
    def _parse_query_modifiers(self, this: None) -> None: ...

    def _parse_query_modifiers(self, this: _Tree | None) -> _Tree | None:
        """sqlglot's modifiers in SQL's order, and ours anywhere, each at most once."""
        while True:
            this = super()._parse_query_modifiers(this)
            if not isinstance(this, exp.Query):
                return this
            word = self._curr.text.upper() if self._curr else ""
            if word == "WITH" and self._next and self._next.text.upper() == "GRAPH":
                word = "GRAPH"
            elif word not in _CLAUSE_WORDS and not (word == "ON" and isinstance(this, exp.Select)):
                self._check_order(this)
                return this
            if this.args.get(_KEYS.get(word, word.lower())):
                self.raise_error(f"two {'WITH ' if word == 'GRAPH' else ''}{word} clauses")
            start = self._curr
            self._advance()
            if word == "WINDOWING":
                this.set("windowing", self._parse_windowing(start))
            elif word == "EMIT":
                this.set("emit", self._parse_emit(start))
            elif word == "WITHIN":
                this.set("within", self._parse_within(start))
            elif word == "PRIORITY":
                this.set("priority", self._parse_priority(start))
            elif word == "STRAGGLERS":
                this.set("stragglers", self._parse_stragglers(start))
            elif word == "APPROXIMATE":
                this.set("approximate", self.expression(Approximate(), start))
            elif word == "SINCE":
                if not self._match(TokenType.STRING):
                    self.raise_error("expected a text after SINCE, such as '-6 hours' or '2026-03-01 08:00'")
                this.set("since", self.expression(Since(this=self._prev.text), start))
            elif word == "ON":
                this.set("places", self.expression(Places(this=self._parse_disjunction()), start))
            elif word == "GRAPH":
                this.set("graph", self._parse_graph(start, this.args.get("having")))
                this.set("having", None)
            elif word == "SAMPLE":
                this.set("sampling", self._parse_sample(start))
            elif word == "TREES":
                if not self._match(TokenType.NUMBER):
                    self.raise_error("expected a number of trees, such as TREES 4")
                this.set("trees", self.expression(Trees(this=self._prev.text), start))
            else:
                this.set("lateness", self.expression(Lateness(this=self._parse_duration()), start))

    def _parse_within(self, start: Token) -> exp.Expression:
        bound, percent = self._parse_duration(), None
        if self._match_text_seq("FOR"):
            if not self._match(TokenType.NUMBER):
                self.raise_error("expected a number and PERCENT after FOR, such as FOR 99 PERCENT")
            percent = self._prev.text
            if not self._match(TokenType.MOD) and not self._match_text_seq("PERCENT"):
                self.raise_error(f"expected PERCENT after {percent}")
        elif not self._match_text_seq("ON", "AVERAGE"):
            self.raise_error("expected FOR 99 PERCENT (of the windows) or ON AVERAGE after WITHIN")
        effort = bool(self._match_text_seq("BEST", "EFFORT"))
        return self.expression(Within(this=bound, percent=percent, effort=effort), start)

    def _parse_priority(self, start: Token) -> exp.Expression:
        word = self._curr.text.lower() if self._curr else ""
        if word not in PRIORITIES:
            self.raise_error("expected RESEARCH or PRODUCTION after PRIORITY")
        self._advance()
        return self.expression(Priority(this=word), start)

    def _parse_graph(self, start: Token, having: exp.Expr | None) -> exp.Expression:
        self._advance()
        name = self._curr.text.lower() if self._curr else ""
        if name not in ALGORITHMS:
            self.raise_error(f"expected {listed(ALGORITHMS)} after WITH GRAPH")
        self._advance()
        args: list[exp.Expr] = []
        if self._match(TokenType.L_PAREN):
            args = self._parse_csv(self._parse_disjunction)
            self._match_r_paren()
        weight, iterations = None, None
        if self._match_text_seq("WEIGHT"):
            weight = self._parse_disjunction()
            if weight is None:
                self.raise_error("expected an aggregate after WEIGHT, such as WEIGHT COUNT(*)")
        if self._match_text_seq("ITERATIONS"):
            if not self._match(TokenType.NUMBER):
                self.raise_error("expected a number of iterations, such as ITERATIONS 20")
            iterations = self._prev.text
        return self.expression(
            WithGraph(this=name, expressions=args, weight=weight, iterations=iterations, having=having), start
        )

    def _parse_sample(self, start: Token) -> exp.Expression:
        key = self._parse_unary() if self._match_text_seq("BY") else None
        if not self._match(TokenType.NUMBER):
            self.raise_error("expected a number and %, such as SAMPLE 1 % or SAMPLE BY c_ip 1 %")
        number = self._prev.text
        if not self._match(TokenType.MOD) and not self._match_text_seq("PERCENT"):
            self.raise_error(f"expected % after {number}")
        return self.expression(Sample(this=number, by=key), start)

    def _parse_windowing(self, start: Token) -> exp.Expression:
        kinds = [self._parse_window_kind()]
        while self._match(TokenType.COMMA):
            kinds.append(self._parse_window_kind())
        return self.expression(Windowings(expressions=kinds), start)

    def _parse_emit(self, start: Token) -> exp.Expression:
        kind, bound = "final", None
        if self._match_text_seq("CHANGES"):
            kind = "changes"
            bound = self._parse_duration() if self._match_text_seq("EVERY") else None
        elif not self._match_text_seq("FINAL"):
            self.raise_error("expected FINAL, FINAL REVISE or CHANGES after EMIT")
        elif self._match_text_seq("REVISE"):
            kind = "revise"
            numbered = self._curr and self._curr.token_type == TokenType.NUMBER
            bound = self._parse_duration() if numbered else None
        return self.expression(Emit(kind=kind, this=bound), start)

    def _parse_stragglers(self, start: Token) -> exp.Expression:
        words = ("WAIT", "REVISE", "LEAP", "MIRROR")
        kind = next((word for word in words if self._match_text_seq(word)), None)
        if kind is None:
            self.raise_error("expected WAIT (with a duration), REVISE, LEAP or MIRROR after STRAGGLERS")
        bound = self._parse_duration() if kind == "WAIT" else None
        return self.expression(Stragglers(kind=str(kind).lower(), this=bound), start)

    def _parse_window_kind(self) -> exp.Expression:
        start = self._curr
        kind, slide = "sliding", None
        if self._match_text_seq("SESSION"):
            kind, size = "session", self._parse_duration()
            slide = self._parse_duration() if self._match_text_seq("MAX") else None
        elif self._match_text_seq("CUMULATE"):
            kind, size = "cumulate", self._parse_duration()
            self._match(TokenType.COMMA)
            self._expect("STEP")
            slide = self._parse_duration()
        elif self._match_text_seq("LANDMARK"):
            self._expect("EVERY")
            kind, size = "landmark", self._parse_duration()
        elif self._next and self._next.text.upper() in _ROWS:
            kind, size = "rows", self._parse_rows()
        else:
            size = self._parse_duration()
            slide = self._parse_duration() if self._match_text_seq("SLIDE") else None
            if slide is None and self._curr and self._curr.text.upper() in _SLIDES:
                self.raise_error("sliding windows are written SLIDE, as in 5 MINUTES SLIDE 30 SECONDS")
        return self.expression(Windowing(kind=kind, size=size, slide=slide), start)

    def _parse_rows(self) -> exp.Expression:
        number = self._curr
        if number.token_type != TokenType.NUMBER or not number.text.isdigit():
            self.raise_error("expected a whole number of rows, such as 1000 ROWS")
        self._advance(2)
        if self._curr and self._curr.text.upper() in ("SLIDE", "ADVANCE"):
            self.raise_error("windows of rows do not slide: each row is in one of them")
        return exp.Literal.number(number.text)

    def _parse_ksql_window(self) -> exp.Expression:
        self._match(TokenType.WINDOW)
        start = self._prev
        kind = self._curr.text.upper() if self._curr else ""
        if kind not in ("TUMBLING", "HOPPING", "SESSION"):
            self.raise_error("expected TUMBLING (SIZE …) or HOPPING (SIZE …, ADVANCE BY …) after WINDOW")
        self._advance()
        self._match_l_paren()
        if kind != "SESSION":
            self._expect("SIZE")
        if kind == "TUMBLING" and self._next and self._next.text.upper() in _ROWS:
            rows = self.expression(Windowing(kind="rows", size=self._parse_rows()), start)
            self._match_r_paren()
            return self.expression(Windowings(expressions=[rows]), start)
        size, slide = self._parse_duration(), None
        if kind == "HOPPING":
            self._match(TokenType.COMMA)
            self._expect("ADVANCE", "BY")
            slide = self._parse_duration()
        self._match_r_paren()
        name = "session" if kind == "SESSION" else "sliding"
        only = self.expression(Windowing(kind=name, size=size, slide=slide), start)
        return self.expression(Windowings(expressions=[only]), start)

    def _expect(self, *words: str) -> None:
        if not self._match_text_seq(*words):
            self.raise_error(f"expected {' '.join(words)}")

    def _parse_duration(self) -> exp.Expression:
        number = self._curr
        if not number or number.token_type != TokenType.NUMBER:
            self.raise_error("expected a number and a unit, such as 30 SECONDS")
        self._advance()
        unit = self._curr
        if not unit or unit.text.upper().removesuffix("S") not in UNITS_US:
            self.raise_error("expected a unit: MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS")
        self._advance()
        return self.expression(Duration(this=number.text, unit=unit.text.upper()), number)

    def _parse_table(
        self,
        schema: bool = False,
        joins: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
        parse_bracket: bool = False,
        is_db_reference: bool = False,
        parse_partition: bool = False,
        consume_pipe: bool = False,
    ) -> exp.Expr | None:
        """``*`` stands where a table may: every stream. ``LATE job``, ``LATE(job)``: its late rows. ``JOB
        name``: the rows of its windows. ``TABLE name``: those of a table. A text is the name of a file. The
        places of both are kept."""
        if self._match(TokenType.STAR):
            return self.expression(exp.Table(this=exp.Star()), self._prev)
        start = self._curr
        if self._before_name("LATE"):
            return self._parse_late(start)
        if self._before_name("JOB"):
            self._advance()
            job = self.expression(exp.Table(this=self._parse_id_var()), start)
            job.meta["job"] = True
            job.set("alias", self._parse_table_alias())
            return job.update_positions(start)
        if self._before_name("TABLE"):
            self._advance()
            keyed = self.expression(exp.Table(this=self._parse_id_var()), start)
            keyed.meta.update({"table": True, "file": (start.start, self._prev.end + 1)})
            keyed.set("alias", self._parse_table_alias())
            return keyed.update_positions(start)
        table = super()._parse_table(
            schema, joins, alias_tokens, parse_bracket, is_db_reference, parse_partition, consume_pipe
        )
        if table is None or not start:
            return table
        if start.token_type == TokenType.STRING:
            table.meta["file"] = (start.start, start.end + 1)
        return table.update_positions(start)

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        """Tells a comma between tables from JOIN without ON."""
        comma = self._curr is not None and self._curr.token_type == TokenType.COMMA
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if join is not None and comma:
            join.meta["comma"] = True
        return join

    def _before_name(self, word: str) -> bool:
        """Whether ``LATE``, ``JOB`` or ``TABLE`` stands before a name; a stream may have any of them too."""
        if not self._curr or not self._next or self._curr.text.upper() != word:
            return False
        named = self._next.token_type in {TokenType.VAR, TokenType.IDENTIFIER, *self.TABLE_ALIAS_TOKENS}
        return (word == "LATE" and self._next.token_type == TokenType.L_PAREN) or (
            named and self._next.text.upper() not in _CLAUSE_WORDS
        )

    def _parse_late(self, start: Token) -> exp.Expr:
        self._advance()
        bracket = self._match(TokenType.L_PAREN)
        name = self._parse_id_var()
        if name is None:
            self.raise_error("expected the name of a job after LATE")
        if bracket:
            self._match_r_paren()
        table = self.expression(exp.Table(this=name), start)
        table.meta["late"] = True
        return table.update_positions(start)

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        """A clause of ours after FROM is not the stream's alias."""
        if self._curr and self._curr.text.upper() in _CLAUSE_WORDS:
            return None
        return super()._parse_table_alias(alias_tokens)


class Elf(Dialect):
    """The dialect's name for sqlglot is ``elf``."""

    NULL_ORDERING = "nulls_are_last"

    Tokenizer = ElfTokenizer
    Parser = ElfParser
