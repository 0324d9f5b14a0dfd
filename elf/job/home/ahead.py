"""Words about flows, and homes of jobs, that are not here yet.

The entry of a new flow reaches members, readers and home each when the tree comes to it, and the home of a
key range is founded only then. Who hears of it sooner may have begun, failed, or asked before the flow is at
its home; who reads a job's windows may ask where its home has just come (or come back) and is not up.
Such a word waits, so that nobody has to wait until it is said again, nor misses a window meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from elf.job.messages import Begun, FlowBegun, FunctionFailed, Progress, ReadPanes, SubscribeJob

WORDS_MAX: Final = 4_096
"""Words that wait; of more the oldest are forgotten. All of them are said again, each second or two."""

Word = Progress | Begun | ReadPanes | FunctionFailed | SubscribeJob


class Ahead:
    """Of each sender the last word of a kind about a flow, while it is ``coming`` here; or about a job, while
    its home is ``rising``."""

    def __init__(self, coming: Callable[[str], bool], rising: Callable[[str], bool]) -> None:
        self._coming = coming
        self._rising = rising
        self._words: dict[tuple[str, type[Word], str], Word] = {}

    def keep_progress(self, progress: Progress) -> None:
        """A member has begun."""
        for report in progress.flows:
            if self._coming(report.flow):
                word = msgspec.structs.replace(progress, flows=(report,))
                self._keep(report.flow, str(progress.member), word)

    def keep_begun(self, message: Begun) -> None:
        """Members have begun, several at once."""
        for begun in message.flows:
            for one in begun.members if self._coming(begun.flow) else ():
                word = Begun(flows=(FlowBegun(begun.flow, (one,)),))
                self._keep(begun.flow, str(one.member), word)

    def keep_wishes(self, sender: str, message: ReadPanes) -> None:
        """A reader asks."""
        for wish in message.wishes:
            if self._coming(wish.flow):
                self._keep(wish.flow, sender, ReadPanes(wishes=(wish,)))

    def keep_failure(self, word: FunctionFailed) -> None:
        """A user's function has failed at a member."""
        if self._coming(word.flow):
            self._keep(word.flow, word.agent, word)

    def keep_reader(self, request: SubscribeJob) -> None:
        """Somebody wants a job's windows."""
        if self._rising(request.uid):
            self._keep(request.uid, request.origin, request)

    def _keep(self, uid: str, sender: str, word: Word) -> None:
        self._words.pop((uid, type(word), sender), None)
        self._words[uid, type(word), sender] = word
        if len(self._words) > WORDS_MAX:
            del self._words[next(iter(self._words))]

    def take(self) -> list[tuple[str, Word]]:
        """(Sender, word) of each whose flow or home has come, in the order in which they were said."""
        if not self._words:
            return []
        known = {key: word for key, word in self._words.items() if not self._waits(key[0], word)}
        for key in known:
            del self._words[key]
        return [(sender, word) for (_, _, sender), word in known.items()]

    def _waits(self, uid: str, word: Word) -> bool:
        return self._rising(uid) if isinstance(word, SubscribeJob) else self._coming(uid)
