"""What the parts of one node share: its identity, settings, current time, deadlines and effects."""

from __future__ import annotations

from overlay.config import OverlayConfig
from overlay.effects import Effect, Rng, Send
from overlay.ids import Peer
from overlay.messages import Message
from overlay.timers import Timers

Timer = tuple[str, int | bytes]
"""A deadline's name: what is due, and for which peer or topic (0: for none in particular)."""


class Context:
    """The state that ring and trees share. It decides nothing."""

    def __init__(self, me: Peer, config: OverlayConfig, rng: Rng, place: str = "") -> None:
        self.me = me
        self.place = place
        self.id = me.id
        self.config = config
        self.rng = rng
        self.now = 0
        self.timers: Timers[Timer] = Timers()
        self._effects: list[Effect] = []

    def send(self, to: Peer, message: Message) -> None:
        """Put a message on the wire."""
        self.send_to(to.address, message)

    def send_to(self, address: str, message: Message) -> None:
        """The same where only the address is known."""
        self._effects.append(Send(address, message))

    def emit(self, effect: Effect) -> None:
        """Any other effect, in order with the messages."""
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        """All effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def every(self, period_ms: int) -> int:
        """The next time of something periodic, varied by a tenth so that nodes do not run in step."""
        return self.now + max(1, round(period_ms * (0.9 + 0.2 * self.rng.random())))

    def about(self, timer: Timer, period_ms: int) -> None:
        """Set the next time of something periodic that may wait for a heartbeat, and is not waited for alone:
        a tenth later than its period at most, as with ``every``."""
        latest_ms = round(1.1 * period_ms)
        slack_ms = min(round(0.3 * period_ms), round(1.2 * self.config.beat_ms))
        self.timers.set(timer, self.now + latest_ms - slack_ms, slack_ms)
