"""What an agent waits for until it is ready, and whom it tells of from then on."""

from __future__ import annotations

import overlay as ring
from agents.node.witness import GONE_MAX, Waits, Witness
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.membership import Cluster, Identity, Membership, StreamSince
from elf.job.effects import Seen
from elf.job.messages.log import LogVoters, MemberJoined, MemberLeft

ME = Identity("id-1", "web-1", 7, "h1:7071")


def joined(seq: int, number: int, incarnation: int = 7) -> MemberJoined:
    """Agent ``web-<number>`` becomes that member."""
    return MemberJoined(
        seq=seq, stream="s", number=number, agent_id=f"id-{number}", name=f"web-{number}",
        incarnation=incarnation, address=f"h{number}:7071", since_us=0,
    )  # fmt: skip


class Agent:
    """A log, a membership, and the witness of both, as a node has them."""

    def __init__(self) -> None:
        self.log = CatalogLog()
        self.membership = Membership(ME, [StreamSince("s", 0)], self.log, cluster=None)
        self.witness = Witness(self.log, self.membership)
        self.witness.start(("h2:7071", "h3:7071", ME.address))

    def hear(self, *entries: MemberJoined | MemberLeft) -> list[Seen]:
        """As ``Node._follow`` does it."""
        self.membership.take(self.log.last, entries)
        found = [seen for entry in entries for seen in self.witness.logged(entry)]
        self.witness.look(self.witness.waits(True) is None)
        return found


def up(number: int) -> ring.PeerUp:
    return ring.PeerUp(ring.Peer(f"h{number}:7071", 1))


def down(number: int, *, left: bool = False) -> ring.PeerDown:
    return ring.PeerDown(ring.Peer(f"h{number}:7071", 1), "left" if left else "crashed")


def test_what_it_waits_for_changes_on_its_way() -> None:
    agent = Agent()
    contacts = ("h2:7071", "h3:7071")
    assert agent.witness.waits(False) == Waits("it looks for its fleet through h2:7071, h3:7071", contacts)
    told = agent.witness.waits(True)
    assert told is not None
    assert told.text == "it waits for a neighbour that knows who keeps the catalog log"
    agent.membership.cluster = Cluster("uid", LogVoters(1, 1, "h2:7071", ("h2:7071", ME.address, "h4:7071")))
    told = agent.witness.waits(True)
    assert told == Waits(
        "it waits for the voters of the catalog log (h2:7071, h1:7071, h4:7071), most of which must be there",
        ("h2:7071", "h4:7071"),
    )
    agent.hear(joined(1, 2), joined(2, 1, incarnation=6))
    assert agent.witness.waits(True) == told, "the log has it as it was in an earlier life"
    agent.hear(joined(3, 1))
    assert agent.witness.waits(True) is None
    assert agent.witness.waits(False) is not None


def test_who_comes_and_goes_is_told_by_name_once_it_is_ready() -> None:
    agent = Agent()
    agent.membership.cluster = Cluster("uid", LogVoters(1, 1, ME.address, (ME.address,)))
    assert agent.hear(joined(1, 2)) == []
    assert agent.witness.peer(down(2)) == [], "it is not ready"
    assert agent.hear(joined(2, 1), joined(3, 3)) == [], "all that was before, and itself"
    assert agent.hear(joined(4, 4)) == [Seen("joins a stream", "web-4", "h4:7071", "s")]
    assert agent.witness.peer(up(4)) == [], "a neighbour that is heard for the first time has not just come"
    assert agent.witness.peer(down(4)) == [Seen("is silent: it is taken for dead", "web-4", "h4:7071")]
    assert agent.witness.peer(up(4)) == [Seen("is back", "web-4", "h4:7071")]
    assert agent.witness.peer(up(4)) == []
    assert agent.witness.peer(down(9, left=True)) == [Seen("has gone", "", "h9:7071")]
    left = MemberLeft(seq=5, stream="s", number=3, until_us=1)
    assert agent.hear(left) == [Seen("has left a stream", "web-3", "h3:7071", "s")]


def test_it_remembers_a_bounded_number() -> None:
    agent = Agent()
    agent.membership.cluster = Cluster("uid", LogVoters(1, 1, ME.address, (ME.address,)))
    agent.hear(joined(1, 1))
    for number in range(GONE_MAX + 10):
        assert agent.witness.peer(down(number))
    back = [bool(agent.witness.peer(up(number))) for number in range(GONE_MAX + 10)]
    assert sum(back) == GONE_MAX
