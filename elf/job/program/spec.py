"""A job written in Python, as a value that travels in the catalog log: its text, and its planned
subscriptions.

Column types are fixed when the job is sent and travel in the taps, so that every agent computes alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import msgspec
import pyarrow as pa

from elf.aggregates import State
from elf.cbt import BufferTree, WindowedTree
from elf.fields import Address, Code, Generation, Key, Label, Millis, Name
from elf.job.program.calls import Loaded, TreeNames
from elf.job.program.seats import TREES_MAX
from elf.job.spec import app_id, group_uid, range_topic
from elf.ql.definition import TapDefinition, why_not
from elf.ql.plan import Fragment
from elf.security.authored import Authorship

SETTINGS = "SETTINGS"
"""The name in a job's file whose value, a dict, gives attributes of its class other values."""
TEXT_BYTES_MAX = 64 << 10
"""The longest file that may be sent: every agent keeps it in its copy of the catalog log."""
SUBSCRIPTIONS_MAX = 256
"""Of a job in Python."""


class Tap(msgspec.Struct, frozen=True):
    """What an agent computes of its stream for a job. With ``states``, partial aggregates: ``keys`` and
    ``states`` pair a column of the fragment with its name in the SELECT list; without, the rows themselves.
    ``panes``: how many of the fragment's panes a window has; 0: there is none, and no pane.
    """

    name: str
    fragment: Fragment
    keys: tuple[tuple[str, str], ...] = ()
    states: tuple[tuple[str, str], ...] = ()
    panes: int = 0

    @property
    def pane_us(self) -> int:
        """How long a pane is; 0 without a window."""
        return self.fragment.pane_us if self.panes else 0

    def key_names(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.keys)

    def named_states(self) -> tuple[State, ...]:
        by_name = {state.name: state for state in self.fragment.states}
        return tuple(
            State(name, by_name[inner].merge, by_name[inner].identity_zero) for inner, name in self.states
        )

    def named(self, groups: pa.Table) -> pa.Table:
        """The fragment's groups under their names in the SELECT list."""
        pairs = (*self.keys, *self.states)
        return groups.select([inner for inner, _ in pairs]).rename_columns([name for _, name in pairs])

    def tree(self) -> BufferTree | WindowedTree:
        """Where a job has its groups: empty."""
        if not self.panes:
            return BufferTree.of_partials(self.key_names(), self.named_states())
        return WindowedTree(self.key_names(), self.named_states(), self.pane_us, self.panes)


class Tapped(msgspec.Struct, frozen=True, eq=False):
    """A chunk's result for a subscription of a job: an encoded table, empty without rows, and where in its
    source the chunk ends. ``until_us``, with a name of no subscription: all rows of its stream before that
    event time have come."""

    uid: str
    name: str
    payload: bytes
    source: str = ""
    end: int = 0
    until_us: int = 0


@dataclass(frozen=True)
class ProgramSpec:
    """A job in Python as its creator sent it. ``title``: the name of its class; ``subscription``: that of the
    request, so that a repeat is recognised; ``every_ms``: between two timers, and ``pane_ms``: of a pane of
    event time, 0 for none; ``timer_at_master``: agents have no timer; ``definitions``: what its taps are made
    from; ``apps``: app ids whose multicasts it wants; ``trees``: what people call its trees, of which each
    has a master. It may be ``unusable``, as ``elf.job.spec.JobSpec``."""

    name: Name
    creator: Name
    generation: Generation
    text: Code
    filename: Label
    title: Name = ""
    every_ms: Millis = 0
    definitions: Annotated[tuple[TapDefinition, ...], msgspec.Meta(max_length=SUBSCRIPTIONS_MAX)] = ()
    apps: Annotated[tuple[Key, ...], msgspec.Meta(max_length=SUBSCRIPTIONS_MAX)] = ()
    subscription: Name = ""
    author: Authorship | None = None
    """The signed call that it came of, where the fleet has keys."""
    pane_ms: Millis = 0
    master: Address = ""
    """Where its job group is; in the record of the group, where that was bootstrapped."""
    trees: TreeNames = ("0",)
    roots: Annotated[tuple[Address, ...], msgspec.Meta(max_length=TREES_MAX)] = ()
    """Where the job groups of its trees after the first are bootstrapped."""
    timer_at_master: bool = False

    @cached_property
    def unusable(self) -> str:
        """Why one of its taps cannot be made; empty: all can."""
        return next((f"job {self.name}: {why}" for one in self.definitions if (why := why_not(one))), "")

    def check(self) -> None:
        """Raises ``ValueError``, as a decoder does, where it is unusable."""
        if self.unusable:
            raise ValueError(self.unusable)

    @cached_property
    def taps(self) -> tuple[Tap, ...]:
        """What agents compute for it."""
        return tuple(
            Tap(one.name, groups.fragment, groups.keys, groups.states, groups.panes)
            for one in self.definitions
            for groups in (one.groups,)
        )

    @cached_property
    def grouped(self) -> frozenset[str]:
        """The names of those that are groups."""
        return frozenset(tap.name for tap in self.taps if tap.states)

    @cached_property
    def app(self) -> bytes:
        """App id, and key of its tree: requests for the job go to the node nearest to it."""
        return app_id(self.name, self.creator)

    @cached_property
    def topics(self) -> tuple[bytes, ...]:
        """The keys of its trees."""
        others = (range_topic(self.name, self.creator, place) for place in range(1, len(self.trees)))
        return (self.app, *others)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The uids of the job groups of its trees."""
        return tuple(group_uid(self.uid, place) for place in range(len(self.trees)))

    @cached_property
    def uid(self) -> str:
        return f"{self.app.hex()}.{self.generation}"

    @property
    def leader(self) -> str:
        """Address of its master, as far as the catalog log says."""
        return self.master

    @property
    def hash(self) -> str:
        """A hash of the text, for people."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]


def with_settings(text: str, settings: Mapping[str, object]) -> str:
    """A job's text with other values for attributes of its class: plain Python values. They form a last line
    of the text, so they travel with it and the lines above keep their numbers."""
    if not settings:
        return text
    return f"{text.rstrip()}\n\n\n{SETTINGS} = {dict(settings)!r}\n"


class Question(msgspec.Struct, frozen=True):
    """A client's query of a job, ``name`` or ``creator/name``. ``message``: any JSON value."""

    job: Label
    message: object = None


class Submission(msgspec.Struct, frozen=True):
    """What a client sends to an agent: a file that it has checked, and the result of loading it.
    ``subscription`` is unique, so that a repeat is recognised."""

    name: Name
    text: Code
    filename: Label
    loaded: Loaded
    subscription: Name
    replace: bool = False
