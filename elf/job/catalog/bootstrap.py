"""Who bootstraps the job group of a key range (``TREES m``), so that two never do and somebody does in the
end.

A job's own group is bootstrapped before the catalog log has the job. The groups of its other key ranges are
named by that entry, so an agent may be named that has just died. In the log, of one range:

    named F ─── F's group is durable there, and silent ─▶ "begun by F" ─▶ its leader is root, as of any group
      └─ not begun for ``grace_ms``, or F has left ─▶ "G instead of F" ─▶ named G ─▶ … (nobody twice)

- **Whichever of the two stands first in the log counts**, the other is nothing: so a range that has begun has
  no other founder ever, and the group of a founder that was replaced never begins.
- **A group says nothing before the log has it as begun**: no root, no first pane, no commit, no
  ``MoveJobGroup``. So it takes nothing along if it is replaced, whatever is the matter with its founder:
  dead, slow, parted. Who leads it (its founder, or another member when that has died) wishes for the entry;
  its state says whose group it is (``RangeKept.founder``).
- **Who comes back**, in whatever life, with whatever prefix of the log, bootstraps what it was named for and
  has not bootstrapped; if the log has gone on meanwhile it hears so instead of "begun", and each member of
  the group ends it. Groups of two founders have different keys (``FlowGroups.group``), so their words never
  mix.
- **Who names another one** is the leader of the job group: itself, or a member of its group if it was named
  before. It need not be right about F: it costs F nothing but that. Only a root of an earlier elf begins
  without asking; who hears it says "begun" for it.

Both are tombstones (``JobDropped``) of names that no job has: a word that may stand twice.
"""

from __future__ import annotations

from typing import NamedTuple

_BETWEEN = "!"


class Bootstrap(NamedTuple):
    """An entry about the job group of a key range: ``founder``'s group has begun, or ``instead``, if that is
    somebody, is to found it. Both are agents, by their ids."""

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
