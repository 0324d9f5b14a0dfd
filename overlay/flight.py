"""What is under way to a child: sent, and neither acknowledged nor known to be lost."""

from __future__ import annotations

from collections import deque

from overlay.ids import Peer


class Flight:
    """Multicasts in the order in which they were sent, each with the round of our answers in which it was."""

    def __init__(self) -> None:
        self._sent: deque[tuple[int, Peer, int, int]] = deque()
        self._bytes = 0

    def room(self, messages_max: int, bytes_max: int) -> bool:
        """Whether one more may be sent; one always may, whatever its size."""
        return not self._sent or (len(self._sent) < messages_max and self._bytes < bytes_max)

    def add(self, round_: int, root: Peer, number: int, size: int) -> None:
        """One is sent."""
        self._sent.append((round_, root, number, size))
        self._bytes += size

    def heard(self, root: Peer, number: int) -> None:
        """This one has come; so those sent before it have, too, or are lost."""
        names = [(sent_root, sent_number) for _, sent_root, sent_number, _ in self._sent]
        if (root, number) in names:
            for _ in range(names.index((root, number)) + 1):
                self._pop()

    def round_over(self, round_: int) -> None:
        """An answer of ours has come: so what was sent before it has, or is lost."""
        while self._sent and self._sent[0][0] < round_:
            self._pop()

    def __len__(self) -> int:
        return len(self._sent)

    def _pop(self) -> None:
        self._bytes -= self._sent.popleft()[3]
