"""What the master does in a graph computation: it says who has which vertices and when an iteration begins,
and an iteration is over when all parts have said so.

    idle ─begin─▶ loading ─all ready─▶ running ─enough─▶ ending ─all answers─▶ idle
                     ▲                    │
                     └── an agent is lost ┘   a new run, without it

Who has what is a *layout*, numbered within a run. While ``parts`` is another number than the layout has, the
next one is planned (``elf.planning.stretches``) and made in the background; when all of its parts are ready,
the next iteration is *held* between gather and scatter, and the one after it begins in the new layout. So
every iteration is of one layout, and a plan whose agents are lost is given up while the old one goes on.

All of this is the master's state, which up to five agents keep (protocol 14.9): a master that is gone takes
the computation back to the last iteration that was over, or that it had begun.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from elf.job.graphs.algorithm import Algorithm
from elf.job.graphs.part import SLOTS
from elf.job.graphs.worker import Sends, Word
from elf.job.program.host import JobError
from elf.planning.rings import joined, left, who_leaves
from elf.planning.stretches import equal, greedy, leavers, moved

PARTS_MAX: Final = 32
ANSWERS_BYTES_MAX: Final = 7 << 20
"""Of the rows that parts answer: with those of the last result they are in the master's state."""
TIMES_KEPT: Final = 100
"""Iterations of which it is told how long they took."""


class Barrier:
    """``parts``: how many agents are to have one. ``patience``: after so many seconds nobody is waited for
    any longer. ``ring``: who comes splits stretches of others, and who leaves gives its own to a neighbour;
    else all are equal after a change."""

    def __init__(
        self,
        algorithm: Algorithm,
        parts: int,
        patience: float,
        *,
        ring: bool = False,
        kept: Word | None = None,
    ) -> None:
        self._algorithm, self._patience, self._ring = algorithm, patience, ring
        self.me = ""
        """The agent where the master is. It has a part only if others do not suffice: what it is sent goes
        through the master."""
        self.state: Word = kept or {
            "run": 0, "phase": "idle", "agents": [], "parts": parts, "members": [], "missing": [], "of": {},
            "layout": 0, "layouts": 0, "number": -1, "total": 0.0, "count": 0, "edges": 0, "hold": False,
            "leaving": [], "loaded": [], "got": {}, "plan": None, "since": 0.0, "began": 0.0,
            "ended": 0.0, "times": [], "result": None, "error": "", "note": "",
        }  # fmt: skip

    # -- what comes ------------------------------------------------------------------------------------------

    def recv(self, word: Word, now: float) -> Sends:
        """A message for the master."""
        state, who = self.state, word["agent"]
        match word["graph"]:
            case "hello" | "back" if who not in state["agents"]:  # one that had left may come back
                state["agents"] = sorted([*state["agents"], who])
            case "back":
                pass
            case "hello" | "gone":
                return self._lost(who, now, gone=word["graph"] == "gone")
            case _ if word["run"] != state["run"] or state["phase"] == "idle":
                pass
            case "refused":
                return self._refused(word, now)
            case "ready" if state["plan"] and word["layout"] == state["plan"]["layout"]:
                state["plan"]["ready"] = sorted({*state["plan"]["ready"], who})
            case "loaded" if who not in state["loaded"]:
                state.update(loaded=[*state["loaded"], who], since=now)
            case "ready" if state["phase"] == "loading":
                return self._got(who, [word["vertices"], word["edges"]], now)
            case "done" if (state["phase"], state["number"]) == ("running", word["number"]):
                return self._got(who, [word["low"], word["sums"], word["report"]], now)
            case "answer" if state["phase"] == "ending":
                return self._got(who, word["rows"], now)
        return []

    def _got(self, who: str, what: Any, now: float) -> Sends:
        """One of the parts has said what all are waited for."""
        state = self.state
        if who not in state["of"]:
            return []
        state["got"][who] = what
        if state["phase"] == "ending":
            size = sum(rows.nbytes for rows in state["got"].values())
            if size > ANSWERS_BYTES_MAX:
                why = f"the parts answer with more than {ANSWERS_BYTES_MAX} bytes"
                state.update(phase="idle", ended=now, got={}, error=why)
                return []
        if state["got"].keys() < state["of"].keys():
            return []
        got, state["got"] = state["got"], {}
        match state["phase"]:
            case "loading":
                state["count"], state["edges"] = (sum(one[place] for one in got.values()) for place in (0, 1))
                if not state["count"]:
                    state.update(phase="idle", ended=now, error="no agent has read an edge or a point yet")
                    return []
                state["phase"] = "running"
                return self._go(now)
            case "running":
                found = sorted(got.values(), key=lambda one: one[0])
                total = fsum(np.concatenate([np.frombuffer(sums) for _, sums, _ in found]).tolist())
                reports = [report for _, _, report in found]
                state["total"] = self._algorithm.agreed(state["total"], total, reports)
                took = [state["number"], round(now - state["since"], 3), len(got)]
                state["times"] = [*state["times"], took][-TIMES_KEPT:]
                state["leaving"] = []
                more = self._algorithm.goes_on(state["number"], state["total"])
                return self._go(now) if more else self._end(now)
        return self._ended([got[who] for who in sorted(got)], now)

    # -- runs ------------------------------------------------------------------------------------------------

    def begin(self, now: float, without: Iterable[str] = ()) -> Sends:
        """A new run, over all agents but these. Raises ``JobError``."""
        state, away = self.state, set(without)
        members = [one for one in state["agents"] if one not in away]
        if not members:
            raise JobError("no agent takes part yet: wait until they have begun the job")
        wanted = min(state["parts"], len(members))
        having = sorted(members, key=lambda one: (one == self.me, one))[:wanted]
        of = dict(zip(sorted(having), equal(SLOTS, wanted), strict=True))
        state.update(run=state["run"] + 1, phase="loading", members=members, missing=sorted(away), of=of)
        state.update(layout=0, layouts=0, number=-1, total=0.0, hold=False, got={}, plan=None)
        state.update(leaving=[], loaded=[])
        state.update(since=now, began=now, times=[], error="")
        return [(one, self._word("load", of=of, agents=members)) for one in members]

    def _go(self, now: float) -> Sends:
        """The next iteration begins; and the next layout is planned, or turned to."""
        state, plan = self.state, self.state["plan"]
        to, settled = set(state["of"]), state["number"] >= 0
        if state["hold"] and plan:
            settled = False
            state["leaving"] = sorted(to - plan["of"].keys())
            to |= set(plan["of"])
            state.update(of=plan["of"], layout=plan["layout"], plan=None, note="")
        plan = state["plan"]
        ready = plan is not None and set(plan["ready"]) >= set(plan["of"])
        state.update(number=state["number"] + 1, hold=ready, since=now)
        word = self._word("go", layout=state["layout"], number=state["number"], hold=state["hold"])
        word |= {"count": state["count"], "total": state["total"]}
        plans = self._plan(now) if settled else []  # else parts may not have turned to this layout yet
        return [*((one, word) for one in sorted(to)), *plans]

    def _end(self, now: float) -> Sends:
        self.state.update(phase="ending", since=now, hold=False, plan=None)
        return [(one, self._word("end")) for one in self.state["of"]]

    def _ended(self, tables: list[pa.Table], now: float) -> Sends:
        state = self.state
        facts = {name: state[name] for name in ("run", "count", "edges", "members", "missing", "times")}
        facts |= {"iterations": state["number"], "secs": round(now - state["began"], 3)}
        state["result"] = facts | {"parts": len(tables), "rows": self._algorithm.result(tables)}
        state.update(phase="idle", ended=now)
        return []

    # -- layouts ---------------------------------------------------------------------------------------------

    def scale(self, by: int) -> str:
        """ALTER JOB … SCALE: so many agents more have a part, or fewer; what is told. Raises ``JobError``."""
        state = self.state
        most = min(PARTS_MAX, len(self._may() if state["phase"] != "idle" else state["agents"]))
        now = min(state["parts"], most)
        if not 1 <= now + by <= most:
            raise JobError(f"{_have(now)}; there are {most} that can, and 1 must")
        if state["plan"]:
            raise JobError("it is being changed already: ask again when that is over")
        state["parts"] = now + by
        is_over = state["phase"] in ("idle", "ending")
        when = "from the next computation on" if is_over else "within some iterations"
        return f"{_have(now + by)}, {when}; there were {now}"

    def _may(self) -> list[str]:
        """Who can have a part in this run."""
        return [one for one in self.state["agents"] if one not in self.state["missing"]]

    def _plan(self, now: float) -> Sends:
        """Another number of parts is wanted than there are."""
        state, of = self.state, {one: tuple(slots) for one, slots in self.state["of"].items()}
        may = self._may()
        by = min(state["parts"], len(may)) - len(of)
        if by == 0 or state["plan"]:
            return []
        free = sorted(set(may) - of.keys(), key=lambda one: (one == self.me, one))
        if self._ring:
            next_ = joined(of, free[:by]) if by > 0 else left(of, who_leaves(of, -by))
        else:
            next_ = greedy(of, free[:by]) if by > 0 else greedy(of, (), leavers(of, -by))
        state["layouts"] += 1
        state["plan"] = {"layout": state["layouts"], "of": next_, "ready": [], "since": now}
        state["note"] = f"{moved(of, next_)} of {SLOTS} ranges of vertices move"
        word = self._word("plan", layout=state["layouts"], of=next_, before=of)
        return [(one, word) for one in sorted({*of, *next_})]

    def _give_up(self, why: str) -> Sends:
        """The layout that is being made; the one that counts goes on, and no other is wanted."""
        state, plan = self.state, self.state["plan"]
        state.update(plan=None, parts=len(state["of"]), note=f"not scaled: {why}")
        word = self._word("given up", layout=plan["layout"])
        return [(one, word) for one in sorted({*state["of"], *plan["of"]})]

    # -- what goes wrong -------------------------------------------------------------------------------------

    def _lost(self, who: str, now: float, *, gone: bool) -> Sends:
        """An agent has left for good, or come back without its disk: what it had is nowhere."""
        state, plan = self.state, self.state["plan"]
        if gone:
            state["agents"] = [one for one in state["agents"] if one != who]
        if plan and who in plan["of"] and who not in state["of"] and not state["hold"]:
            return self._give_up(f"agent {who} is lost")
        needed = {*state["of"], *state["leaving"], *(plan["of"] if plan else ())}
        if state["phase"] == "loading":
            needed |= set(state["members"])
        if state["phase"] == "idle" or who not in needed:
            return []
        return self._again(now, state["missing"], f"agent {who} is lost")

    def _again(self, now: float, without: Iterable[str], why: str) -> Sends:
        self.state["note"] = f"begun again: {why}"
        try:
            return self.begin(now, without)
        except JobError as error:
            self.state.update(phase="idle", ended=now, error=f"{why}: {error}")
            return []

    def _refused(self, word: Word, now: float) -> Sends:
        """A part is too large, or a message."""
        state = self.state
        if state["plan"] and word["layout"] == state["plan"]["layout"] and not state["hold"]:
            return self._give_up(word["why"])
        if word["layout"] > state["layout"] and not state["hold"]:
            return []  # it was given up already: another one has refused it too
        state.update(phase="idle", ended=now, plan=None, error=word["why"])
        return []

    def tick(self, now: float) -> Sends:
        """Who has not said a word for so long is not waited for."""
        state, plan = self.state, self.state["plan"]
        if state["phase"] != "idle" and now - state["since"] > self._patience:
            late = set[str]()
            if state["phase"] == "loading":
                late = set(state["members"]) - set(state["loaded"]) or set(state["of"]) - state["got"].keys()
            why = f"nothing came for {self._patience:g} s, while {state['phase']}"
            return self._again(now, {*state["missing"], *late}, why)
        if plan and not state["hold"] and now - plan["since"] > self._patience:
            unready = ", ".join(sorted(set(plan["of"]) - {*plan["ready"]}))
            return self._give_up(f"{unready} not ready within {self._patience:g} s")
        return []

    def _word(self, kind: str, **more: Any) -> Word:
        return {"graph": kind, "run": self.state["run"], **more}


def _have(parts: int) -> str:
    return "1 agent has a part" if parts == 1 else f"{parts} agents have a part each"
