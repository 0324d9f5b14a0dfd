"""Elections: Raft sections 5.2 and 5.4.1, with the pre-vote of Ongaro's thesis (9.6).

A candidate first asks whether it would be elected, which costs nobody a promise; a voter that hears a leader
says no. So a node that comes back disturbs nobody. Each ``stand`` and ``reply`` says whether it was won.
"""

from __future__ import annotations

from overlay.replica.messages import VoteReply, VoteRequest
from overlay.replica.place import Place, Role


class Election:
    """One member's part in the elections of one group."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._votes: set[int] = set()
        self._ballot = 0

    def stand(self, *, pre: bool, urged: bool = False) -> bool:
        """Stand (or ask first). Alone in the group, we have won."""
        place = self._place
        if not place.voter:
            return False
        hard = place.hard
        self._ballot = hard.term + 1
        self._votes = {hard.seat}
        place.leader = None
        place.role = Role.ASKING if pre else Role.CANDIDATE
        if not pre:
            hard.promise(self._ballot, hard.seat)
        place.tie()
        place.show()
        if self._won():
            return pre is False or self.stand(pre=False)
        place.attempts += 1
        place.wait(place.desk.config.vote_ms)
        for member in place.membership.voters:
            if member.seat != hard.seat:
                place.desk.part(
                    member.address,
                    VoteRequest(
                        place.header(member.seat),
                        self._ballot,
                        pre,
                        urged,
                        place.log.last_index,
                        place.log.last_term,
                    ),
                )
        return False

    def request(self, address: str, part: VoteRequest) -> None:
        """Somebody wants our vote."""
        place, hard, log = self._place, self._place.hard, self._place.log
        complete = (part.last_term, part.last_index) >= (log.last_term, log.last_index)
        candidate = part.header.from_seat
        if place.led() and not part.urged:
            granted = False
        elif part.pre:
            granted = complete and part.ballot > hard.term
        else:
            if part.ballot > hard.term:
                place.obey(part.ballot, None)
            granted = complete and part.ballot == hard.term and hard.vote in (0, candidate)
            if granted:
                hard.promise(part.ballot, candidate)
                place.wait(place.desk.config.vote_ms)
        reply = VoteReply(place.header(candidate), part.ballot, part.pre, granted)
        place.desk.part(address, reply)

    def reply(self, part: VoteReply) -> bool:
        """An answer to our request."""
        place = self._place
        if part.header.term > place.term:
            place.obey(part.header.term, None)
            return False
        asked = Role.ASKING if part.pre else Role.CANDIDATE
        if place.role is not asked or part.ballot != self._ballot or not part.granted:
            return False
        self._votes.add(part.header.from_seat)
        if not self._won():
            return False
        return not part.pre or self.stand(pre=False)

    def _won(self) -> bool:
        membership = self._place.membership
        return sum(membership.votes(seat) for seat in self._votes) >= membership.quorum
