"""Elections: Raft sections 5.2 and 5.4.1, with the pre-vote of Ongaro's thesis (9.6).

A candidate first asks whether it would be elected, which asks for no promise; a voter that hears a leader
says no. So a returning node disturbs no group. Each ``stand`` and ``reply`` returns whether it was won.
"""

from __future__ import annotations

from overlay.raft.local import LocalMember, Role
from overlay.raft.messages import VoteReply, VoteRequest


class Election:
    """One member's part in the elections of one group."""

    def __init__(self, local: LocalMember) -> None:
        self._local = local
        self._votes: set[int] = set()
        self._ballot = 0

    def stand(self, *, pre: bool, told_to_stand: bool = False) -> bool:
        """Stand (or ask first). A member that is alone in the group has won."""
        local = self._local
        if not local.voter:
            return False
        hard = local.hard
        self._ballot = hard.term + 1
        self._votes = {hard.slot}
        local.leader = None
        local.role = Role.ASKING if pre else Role.CANDIDATE
        if not pre:
            hard.promise(self._ballot, hard.slot)
        local.tie()
        local.show()
        if self._won():
            return pre is False or self.stand(pre=False)
        local.attempts += 1
        local.wait(local.context.config.vote_ms)
        for member in local.membership.voters:
            if member.slot != hard.slot:
                local.context.part(
                    member.address,
                    VoteRequest(
                        local.header(member.slot),
                        self._ballot,
                        pre,
                        told_to_stand,
                        local.log.last_index,
                        local.log.last_term,
                    ),
                )
        return False

    def request(self, address: str, part: VoteRequest) -> None:
        """A candidate wants our vote."""
        local, hard, log = self._local, self._local.hard, self._local.log
        complete = (part.last_term, part.last_index) >= (log.last_term, log.last_index)
        candidate = part.header.from_slot
        if local.led() and not part.told_to_stand:
            granted = False
        elif part.pre:
            granted = complete and part.ballot > hard.term
        else:
            if part.ballot > hard.term:
                local.obey(part.ballot, None)
            granted = complete and part.ballot == hard.term and hard.vote in (0, candidate)
            if granted:
                hard.promise(part.ballot, candidate)
                local.wait(local.context.config.vote_ms)
        reply = VoteReply(local.header(candidate), part.ballot, part.pre, granted)
        local.context.part(address, reply)

    def reply(self, part: VoteReply) -> bool:
        """An answer to our request; returns whether the ballot is won."""
        local = self._local
        if part.header.term > local.term:
            local.obey(part.header.term, None)
            return False
        asked = Role.ASKING if part.pre else Role.CANDIDATE
        if local.role is not asked or part.ballot != self._ballot or not part.granted:
            return False
        self._votes.add(part.header.from_slot)
        if not self._won():
            return False
        return not part.pre or self.stand(pre=False)

    def _won(self) -> bool:
        membership = self._local.membership
        return sum(membership.votes(slot) for slot in self._votes) >= membership.quorum
