"""Which agent bootstraps the job group of a key range (``TREES m``): never two, and in the end one.

A job's own group is bootstrapped before the catalog log has the job. The groups of its other key ranges are
named by that entry, so the named agent may just have died. In the log, for one range:

    named F ─── F's group is durable there, and silent ─▶ "begun by F" ─▶ its leader is root, as of any group
      └─ not begun for ``grace_ms``, or F has left ─▶ "G instead of F" ─▶ named G ─▶ … (nobody twice)

- **Whichever of the two stands first in the log counts**, the other is nothing. So a range that has begun
  never has another founder, and the group of a founder that was replaced never begins.
- **A group is silent before the log says that it has begun**: no root, no first pane, no commit, no
  ``MoveJobGroup``. So nothing is lost if it is replaced, whatever is wrong with its founder: dead, slow,
  partitioned. Its leader (the founder, or another member when that has died) proposes the entry; its state
  names the founder (``RangeKept.founder``).
- **An agent that comes back**, in any incarnation and with any prefix of the log, bootstraps what it was
  named for and has not bootstrapped. If the log has gone on meanwhile the agent hears that instead of
  "begun", and each member of the group ends it. Groups of two founders have different keys
  (``FlowGroups.group``), so their messages never mix.
- **The leader of the job group names another founder**: itself or, if it was named before, a member of its
  group. It need not be right about F: F loses nothing else by it.

Both are tombstones (``JobDropped``) of names that no job has: such an entry may stand twice.
"""

from __future__ import annotations

from typing import NamedTuple

_BETWEEN = "!"


class Bootstrap(NamedTuple):
    """An entry about the job group of a key range: the group of ``founder`` has begun or, if ``instead`` is
    not empty, that agent is to bootstrap it. Both are agent ids."""

    leader: str
    founder: str
    instead: str = ""

    @property
    def uid(self) -> str:
        """Its name as a tombstone."""
        return _BETWEEN.join(self if self.instead else self[:2])


def bootstrap_of(uid: str) -> Bootstrap | None:
    """What a tombstone says of a key range; None for that of a job."""
    parts = uid.split(_BETWEEN)
    return Bootstrap(*parts) if len(parts) in (2, 3) else None
