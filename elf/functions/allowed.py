"""Whose code an agent runs, as its configuration says (``functions.allow``): nobody's, what has an author's
signature (``signed``), or that of anybody who may send statements.

It is asked before each start of a sandbox, whoever has sent the code on. What an agent refuses it says in one
line, which names the agent and the setting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from elf.functions import confinement

Allow = Literal["nobody", "signed", "anybody"]
Allowed = Callable[[str], str]
"""The text of some code → why it may not run here; empty: it may."""


def anybody(text: str) -> str:
    """All of it may run."""
    return ""


def keyless(text: str) -> str:
    """Where there are no keys there are no signatures."""
    return "this has no signature that could be checked: there are no keys here"


def refusal(allow: Allow, agent: str) -> str:
    """Why an agent runs no users' code at all; empty: it runs some."""
    if allow == "nobody":
        return f"agent {agent} runs no users' code: functions.allow is nobody there"
    if why := confinement.lacking():
        return f"agent {agent} runs no users' code, since it cannot be confined there: {why}"
    return ""


def allowed(allow: Allow, agent: str, unsigned: Allowed = keyless) -> Allowed:
    """What an agent with that setting runs. ``unsigned``: why some code's signature does not count."""
    if never := refusal(allow, agent):
        return lambda _: never
    if allow == "anybody":
        return anybody

    def signed_alone(text: str) -> str:
        why = unsigned(text)
        return f"agent {agent} runs signed code alone (functions.allow is signed there): {why}" if why else ""

    return signed_alone
