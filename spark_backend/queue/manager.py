"""The resource manager of the queue: containers, who is granted them, and the preemptor.

Rules (section 6.6, "Preemptor"):

- A reclaim request is made when the cluster is full and a run waits for more containers than its *reclaim
  list* has entries. A container that is granted to the run takes an entry off its list.
- A victim learns of its reclaims with its next heartbeat (its *release list*); one whose entry has gone in
  the meantime is not told.
- An entry older than ``kill_ms`` is no longer waited for: a container of the victim is killed, past its
  master. The entry stays on the *expired list* for ``expire_ms`` more, as if it were still on the first.
- By priority: production is served before research, and research that resumes before research that is new;
  production alone reclaims, from research alone. By deadline: runs are served in that order, and the first
  one that waits reclaims from the last ones, as many as it waits for (the text can be read as one a second).

What waits is asked for again with each heartbeat, so nothing that is lost here is lost for good.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from elf.errors import ElfBug
from spark_backend.queue.policies import Draw, Policies, Selection, victim_run

HEARTBEAT_MS: Final = 1_000
"""Of masters, tasks and hosts; and the preemptor's period."""
KILL_MS: Final = 12_000
EXPIRE_MS: Final = 2_000


@dataclass(frozen=True)
class Request:
    """A container that a run waits for.

    Attributes:
        attempt (str): what it is for.
        resuming (bool): whether it goes on from a checkpoint.
        host (str): where it would best be; empty: anywhere.
        preemptible (bool): whether it may be reclaimed.

    Example:
        >>> Request("t1.1", resuming=True, host="web-1").preemptible
        True
    """

    attempt: str
    resuming: bool = False
    host: str = ""
    preemptible: bool = True


@dataclass(frozen=True)
class Container:
    """A part of a host that runs one attempt.

    Attributes:
        name (str): unique.
        host (str): where it is.
        request (Request): what it was granted for.
        since_ms (int): when.

    Example:
        >>> Container("c7", "web-1", Request("t1.0"), 0).host
        'web-1'
    """

    name: str
    host: str
    request: Request
    since_ms: int


@dataclass(frozen=True)
class Reply:
    """What a heartbeat is answered.

    Attributes:
        granted (tuple[Container, ...]): containers for requests of before.
        release (int): so many containers the run has to give back.

    Example:
        >>> Reply().release
        0
    """

    granted: tuple[Container, ...] = ()
    release: int = 0


@dataclass
class Reclaim:
    """An entry of a reclaim list.

    Attributes:
        since_ms (int): when the reclaim was decided.
        victim (str): the run that is to give a container back.
        told (bool): whether it knows.
        struck (bool): whether it is off the list.

    Example:
        >>> Reclaim(0, "research").told
        False
    """

    since_ms: int
    victim: str
    told: bool = False
    struck: bool = False


@dataclass
class App:
    """A run, as the manager sees it.

    Attributes:
        name (str): the run.
        production (bool): its queue.
        deadline_ms (int | None): when it has to be done; None sorts behind all deadlines.
        number (int): its place in the order of submission.
        laxity_ms (float): its deadline less its projected completion, by its last heartbeat.
        wanted (list[Request]): what it waits for.
        granted (list[Container]): what its next heartbeat brings it; held already.
        held (dict[str, Container]): by name.
        reclaims (list[Reclaim]): its reclaim list, oldest first.
        expired (list[Reclaim]): its expired list; ``since_ms`` is when the kill was ordered.
        suspending (frozenset[str]): its attempts that are about to give way, by its last heartbeat.
        killing (set[str]): its containers that were ordered to be killed.

    Example:
        >>> App("nightly", True, None, 0).held
        {}
    """

    name: str
    production: bool
    deadline_ms: int | None
    number: int
    laxity_ms: float = math.inf
    wanted: list[Request] = field(default_factory=list)
    granted: list[Container] = field(default_factory=list)
    held: dict[str, Container] = field(default_factory=dict)
    reclaims: list[Reclaim] = field(default_factory=list)
    expired: list[Reclaim] = field(default_factory=list)
    suspending: frozenset[str] = frozenset()
    killing: set[str] = field(default_factory=set)


class Manager:
    """Grants containers, and reclaims them.

    Args:
        slots (Mapping[str, int]): how many containers each host has.
        policies (Policies): who gives way.
        draw (Draw): chance.

    Example:
        >>> manager = Manager({"web-1": 1}, Policies(), lambda n: 0)
        >>> manager.submit("nightly", production=True)
        >>> manager.heartbeat("nightly", [Request("t1.0")])
        Reply(granted=(), release=0)
        >>> manager.assign(now_ms=0)
        >>> manager.heartbeat("nightly", []).granted[0].host
        'web-1'
    """

    def __init__(self, slots: Mapping[str, int], policies: Policies, draw: Draw) -> None:
        self.slots = dict(slots)
        """Containers of each host."""
        self._free = dict(slots)
        self._policies = policies
        self._draw = draw
        self._apps: dict[str, App] = {}
        self._submitted = 0
        self._containers = 0
        self._untold: dict[str, list[Reclaim]] = {}  # of each victim: its release list

    # -- runs ------------------------------------------------------------------------------------------------

    def submit(self, run: str, *, production: bool = False, deadline_ms: int | None = None) -> None:
        """A run joins the queue. Raises ``ElfBug`` for one that is there."""
        if run in self._apps:
            raise ElfBug(f"run {run} is in the queue")
        self._apps[run] = App(run, production, deadline_ms, self._submitted)
        self._submitted += 1

    def leave(self, run: str) -> None:
        """A run is done, and its containers are free. What it was to give back others give."""
        app = self._apps.pop(run)
        for container in app.held.values():
            self._free[container.host] += 1
        self._untold.pop(run, None)
        for entry in app.reclaims:
            entry.struck = True
        for other in self._apps.values():
            other.reclaims = [one for one in other.reclaims if one.victim != run]

    def app(self, run: str) -> App:
        """A run as it stands here."""
        return self._apps[run]

    # -- messages --------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        run: str,
        wanted: Sequence[Request],
        *,
        laxity_ms: float = math.inf,
        suspending: Collection[str] = (),
    ) -> Reply:
        """A master's heartbeat (steps 1, 4 and 11).

        Args:
            run (str): whose.
            wanted (Sequence[Request]): all that it waits for, in its order.
            laxity_ms (float): deadline less projected completion.
            suspending (Collection[str]): its attempts that were asked to suspend.

        Returns:
            Reply: what it was granted since its last one, and what it has to release.

        Raises:
            KeyError: for a run that is not in the queue.
        """
        app = self._apps[run]
        app.laxity_ms, app.suspending = laxity_ms, frozenset(suspending)
        had = {container.request.attempt for container in app.granted}
        app.wanted = [one for one in wanted if one.attempt not in had]
        granted, app.granted = tuple(app.granted), []
        for entry in reversed(app.reclaims[:]):  # it waits for less than it did
            if len(app.reclaims) > len(app.wanted):
                self._strike(app, entry)
        told = [entry for entry in self._untold.pop(run, ()) if not entry.struck]
        for entry in told:
            entry.told = True
        return Reply(granted, len(told))

    def freed(self, run: str, containers: Collection[str], now_ms: int) -> None:
        """A host says that containers of a run have ended (step 10); one that is gone is no matter."""
        app = self._apps.get(run)
        if app is None:
            return
        for name in containers:
            if (container := app.held.pop(name, None)) is not None:
                self._free[container.host] += 1
                app.killing.discard(name)
                app.granted = [one for one in app.granted if one.name != name]
        self.assign(now_ms)

    def preempt(self, now_ms: int) -> list[Container]:
        """The preemptor, once a second (steps 2 and 3).

        Returns:
            list[Container]: those that are to be killed at once.
        """
        killed = self._expire(now_ms)
        if self.full:
            for app in self._reclaiming():
                lacking = len(app.wanted) - len(app.reclaims) - len(app.expired)
                for _ in range(lacking):
                    if (victim := self._victim_of(app)) is None:
                        break
                    entry = Reclaim(now_ms, victim)
                    app.reclaims.append(entry)
                    self._untold.setdefault(victim, []).append(entry)
        return killed

    @property
    def full(self) -> bool:
        """Whether no container is free."""
        return not any(self._free.values())

    def check(self) -> None:
        """Raises ``ElfBug`` where containers are lost or given twice."""
        used = Counter(one.host for app in self._apps.values() for one in app.held.values())
        for host, slots in self.slots.items():
            if used[host] + self._free[host] != slots or self._free[host] < 0:
                raise ElfBug(f"{host}: {used[host]} containers held, {self._free[host]} free, of {slots}")
        for app in self._apps.values():
            if not {one.name for one in app.granted} <= app.held.keys():
                raise ElfBug(f"{app.name} was granted what it does not hold")

    # -- who is served ---------------------------------------------------------------------------------------

    def assign(self, now_ms: int) -> None:
        """Give free containers to who comes first; whenever a host has told how it is."""
        while not self.full and (first := next(self.waiting(), None)) is not None:
            app, request = first
            self._grant(app, request, now_ms)

    def waiting(self) -> Iterator[tuple[App, Request]]:
        """All requests, who is served first, first."""
        if self._policies.by_deadline:
            for app in self._by_urgency():
                yield from ((app, request) for request in _resuming_first(app.wanted))
            return
        apps = self.in_order()
        yield from ((app, request) for app in apps if app.production for request in app.wanted)
        for resuming in (True, False):
            for app in apps:
                if not app.production:
                    yield from ((app, one) for one in app.wanted if one.resuming is resuming)

    def in_order(self) -> list[App]:
        """Runs by submission."""
        return sorted(self._apps.values(), key=lambda app: app.number)

    def _by_urgency(self) -> list[App]:
        return sorted(self._apps.values(), key=lambda app: (self._urgency(app), app.number))

    def _urgency(self, app: App) -> float:
        """The least is the most urgent."""
        if self._policies.serving is Selection.LLF:
            return app.laxity_ms
        return math.inf if app.deadline_ms is None else app.deadline_ms

    def _grant(self, app: App, request: Request, now_ms: int) -> None:
        host = request.host if self._free.get(request.host) else max(self._free, key=self._free.__getitem__)
        self._free[host] -= 1
        self._containers += 1
        container = Container(f"c{self._containers}", host, request, now_ms)
        app.held[container.name] = container
        app.granted.append(container)
        app.wanted.remove(request)
        if app.reclaims:
            self._strike(app, next((one for one in app.reclaims if not one.told), app.reclaims[0]))

    def _strike(self, app: App, entry: Reclaim) -> None:
        entry.struck = True
        app.reclaims = [one for one in app.reclaims if one is not entry]

    # -- the preemptor ---------------------------------------------------------------------------------------

    def _reclaiming(self) -> list[App]:
        """The runs that may reclaim now."""
        if self._policies.by_deadline:
            return [app for app in self._by_urgency() if app.wanted][:1]
        return [app for app in self.in_order() if app.production]

    def _victim_of(self, app: App) -> str | None:
        """The run that gives way to another; None: none can."""
        asked = Counter(one.victim for other in self._apps.values() for one in other.reclaims)
        if self._policies.by_deadline:
            for other in reversed(self._by_urgency()):
                if self._urgency(other) <= self._urgency(app):
                    return None
                if _releasable(other) > asked[other.name]:
                    return other.name
            return None
        held = {
            other.name: len(other.held) - asked[other.name]
            for other in self._apps.values()
            if not other.production and _releasable(other) > asked[other.name]
        }
        return victim_run(self._policies.runs, held, self._draw) if held else None

    def _expire(self, now_ms: int) -> list[Container]:
        killed = []
        for app in self.in_order():
            app.expired = [one for one in app.expired if now_ms - one.since_ms < EXPIRE_MS]
            for entry in [one for one in app.reclaims if now_ms - one.since_ms > KILL_MS]:
                self._strike(app, entry)
                container = self._to_kill(self._apps[entry.victim])
                if container is not None:
                    app.expired.append(Reclaim(now_ms, entry.victim, True))
                    killed.append(container)
        return killed

    def _to_kill(self, app: App) -> Container | None:
        """One that was asked to suspend and does not, else the one that has run shortest."""
        left = [one for one in app.held.values() if one.request.preemptible and one.name not in app.killing]
        if not left:
            return None
        chosen = max(left, key=lambda one: (one.request.attempt in app.suspending, one.since_ms, one.name))
        app.killing.add(chosen.name)
        return chosen


def _releasable(app: App) -> int:
    return sum(one.request.preemptible for one in app.held.values()) - len(app.killing)


def _resuming_first(wanted: Sequence[Request]) -> list[Request]:
    return sorted(wanted, key=lambda one: not one.resuming)
