"""The agents that work for a job, and how all of them are asked: some at a time, and who is silent is
known."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from agents.answering.asks import Ask, ToAddress
from agents.answering.fleet import Fleet
from elf.job.spec import JobSpec
from elf.wire.base import Answer, Request

T = TypeVar("T")
ASKED_MAX: Final = 128
"""Agents that are asked at a time."""


def members_of(fleet: Fleet, spec: JobSpec) -> list[str]:
    """Addresses: the master, the roots, and the members of the streams that may have rows."""
    members = [m.address for flow in spec.flows for m in fleet.asked(flow.fragment)]
    return list(dict.fromkeys([spec.leader, *(flow.leader for flow in spec.flows), *members]))


def ask_all(
    addresses: Sequence[str], request: Request, answer: type[T]
) -> Generator[list[Ask], list[Answer], dict[str, T | None]]:
    """Their answers; None of one that does not answer."""
    found: dict[str, T | None] = {}
    for begin in range(0, len(addresses), ASKED_MAX):
        some = addresses[begin : begin + ASKED_MAX]
        answers = yield [ToAddress(address, request) for address in some]
        for address, one in zip(some, answers, strict=True):
            found[address] = None if one.error else msgspec.msgpack.decode(one.body, type=answer)
    return found


def depth_of(address: str, parents: Mapping[str, str], root: str) -> int:
    """Edges to the root; where the way is not known, the root is taken for the next on it."""
    depth, at = 0, address
    while at != root and depth <= len(parents):
        depth, at = depth + 1, parents.get(at) or root
    return depth
