"""Who may do what: the role that each statement and each call of a person needs. One table.

Rules: what is not in it needs ``admin``, so what is new is closed until somebody opens it. An agent asks how
another one is, and nothing else, as clients do; a token brings what makes its bearer an agent.
"""

from __future__ import annotations

from typing import Final, Literal

Kind = Literal["agent", "person", "token"]
Role = Literal["read", "tap", "write", "code", "admin"]
ROLES: Final[tuple[Role, ...]] = ("read", "tap", "write", "code", "admin")
"""read: results, jobs, members. tap: raw rows. write: own jobs. code: functions and jobs in Python. admin:
everybody's jobs, who belongs to the fleet; has all other roles."""

STATEMENTS: Final[dict[str, Role]] = {
    "Select": "read",
    "Subscribe": "read",
    "Show": "read",
    "Describe": "read",
    "Explain": "read",
    "ExplainRoutes": "read",
    "PastSelect": "read",
    "TableSelect": "read",
    "RowsOf": "tap",
    "CreateJob": "write",
    "DropJob": "write",
    "CreateOutput": "write",
    "DropOutput": "write",
    "CreateAggregate": "code",
    "DropAggregate": "code",
    "NotifyJob": "write",
    "AlterJob": "write",
    "AlterTable": "write",
    "PauseTable": "write",
    "ExplainAlterTable": "read",
    "PreviewJob": "write",
    "MoveJob": "write",
    "OffloadJob": "write",
    "ScaleJob": "write",
    "ReconfigureJob": "write",
}
"""By the class of a statement (``elf.ql.statements``). One that brings a function needs ``code`` too, and a
query over raw lines ``tap``, also where a job in Python asks it."""

CALLS: Final[dict[str, Role]] = {
    "status": "read",
    "fleet": "read",
    "tree": "read",
    "compare": "read",
    "query": "read",
    "past": "read",
    "keys": "read",
    "tap": "tap",
    "fill": "write",
    "submit": "code",
    "take off": "admin",
    "leave": "admin",
}
"""By the verb of a call."""

RAW_COLUMN: Final = "_line"
"""Has the whole line that a row was read from."""
OPEN_CALLS: Final[dict[Kind, frozenset[str]]] = {
    "agent": frozenset({"status"}),
    "person": frozenset({"status", "enrol", "keys"}),
    "token": frozenset({"status", "enrol"}),
}
"""Calls that need no role: a client that opens asks for the status, and, when agents listen with another key,
for what was signed; what is enrolled carries the signature of who wants it, whoever brings it."""


def gives(kind: Kind | Literal["local"], roles: tuple[Role, ...], has: Role) -> bool:
    """Whether these roles are that one too: persons alone have any, and this machine's key has all."""
    return kind == "local" or (kind == "person" and (has in roles or "admin" in roles))


def is_change(role: Role) -> bool:
    """Whether what needs the role changes something: then its author signs it."""
    return role not in ("read", "tap")


def role_of_statement(name: str) -> Role:
    """``name``: of its class."""
    return STATEMENTS.get(name, "admin")


def role_of_call(verb: str) -> Role:
    return CALLS.get(verb, "admin")
