"""``Deliver``, performed: results are read from the store and put to their targets, as far as these go.

A target stays open between deliveries. Whatever is wrong with one is an answer: the output waits, says why,
and everything else goes on.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from agents.disk.store import StoreError
from agents.outputs.parcels import Refused, said
from agents.outputs.targets import OPENERS, Opener, Target
from agents.ports import Results
from elf.errors import UserError
from elf.fields import replace
from elf.job.effects import Deliver
from elf.job.events import Delivered
from elf.job.output import OutputKept, OutputSpec, is_allowed, why_not

if TYPE_CHECKING:  # without outputs an agent does not load it, nor does `elf run`
    from prometheus_client.core import Metric

RESULTS_MAX: Final = 64
"""That are delivered at a time."""
BYTES_MAX: Final = 16 << 20
"""Of rows; one result may have more."""
DELIVERY_SECS: Final = 60
"""After which no more of them begin: other outputs have their turn."""
OPEN_MAX: Final = 256
"""Targets that stay open: those used last."""
FOR: Final = "for:"
"""What the file of a secret begins with: the targets that it is for follow, as in ``outputs.allow``."""
SECRET_BYTES_MAX: Final = 64 << 10
ERROR_CHARS_MAX: Final = 500
_SECRET: Final = re.compile(r"\A\w[\w.-]{0,127}\Z")


class Deliveries:
    """Of one agent. ``allow``: the beginnings of targets that its host lets data out to; ``secrets``: the
    folder with a file for each secret, if there is one; ``openers``: of targets, by their scheme."""

    def __init__(
        self,
        master: str,
        allow: tuple[str, ...] = (),
        secrets: Path | None = None,
        openers: Mapping[str, Opener] = OPENERS,
    ) -> None:
        self._openers = openers
        self._master = master
        self.allow = allow
        self._secrets = secrets
        self._open: OrderedDict[str, tuple[OutputSpec, Target]] = OrderedDict()
        self._busy: set[str] = set()
        """The uids of outputs that are being delivered."""
        self._lock = Lock()
        self._closed = False

    def deliver(self, effect: Deliver, results: Results) -> Delivered:
        """On a thread; of one output, one at a time."""
        got, error = effect.kept, ""
        with self._lock:
            if effect.output.uid in self._busy:
                return Delivered(effect, got, "the delivery before it is still under way")
            self._busy.add(effect.output.uid)
        until = time.monotonic() + DELIVERY_SECS
        try:
            rows = results.some_windows_after(effect.job.uid, got.number, RESULTS_MAX, BYTES_MAX)
            if effect.output.from_beginning and not got.number and rows:
                got = replace(got, number=rows[0].seq - 1)  # the beginning is what is kept now
            target = self._target(effect.output)
            for row in rows:
                if self._closed:
                    raise UserError("the agent stops")
                some, state = said(effect, row, self._master, got)
                try:
                    target.put(some)
                except Refused as refusal:
                    error = _told(refusal)
                got = replace(advanced(got, row.seq, len(some)), state=state)
                if error or time.monotonic() > until:
                    break
        except StoreError:
            raise
        except Exception as failure:
            error = _told(failure)
            self._forget(effect.output)
        finally:
            with self._lock:
                self._busy.discard(effect.output.uid)
        return Delivered(effect, got, error)

    def gauges(self, lives: Callable[[OutputSpec], bool]) -> list[Metric]:
        """The gauges of outputs that are still this agent's."""
        from agents.outputs.prometheus import Gauges

        with self._lock:
            shown = [one for _, one in self._open.values() if isinstance(one, Gauges)]
        families = (family for one in shown if lives(one.output) for family in one.families())
        return list({family.name: family for family in families}.values())

    def let_go(self, lives: Callable[[OutputSpec], bool]) -> None:
        """Close what is not this agent's any more: another one is the master, or there is no such output."""
        with self._lock:
            over = [uid for uid, (output, _) in self._open.items() if not lives(output)]
            targets = [self._open.pop(uid)[1] for uid in over]
        for target in targets:
            target.close()

    def _target(self, output: OutputSpec) -> Target:
        if why := why_not(output.target, dict(output.options)):
            raise UserError(why)
        if not is_allowed(output.target, self.allow):
            raise UserError("this agent's configuration does not allow this target (outputs.allow)")
        with self._lock:
            known = self._open.get(output.uid)
            if known is not None:
                self._open.move_to_end(output.uid)
                return known[1]
        target = self._openers[output.kind](output, self._secret(output.option("secret"), output.target))
        with self._lock:
            closed, over = self._closed, None
            if not closed:
                self._open[output.uid] = output, target
                over = self._open.popitem(last=False)[1][1] if len(self._open) > OPEN_MAX else None
        if closed:
            target.close()
            raise UserError("the agent stops")
        if over is not None:
            over.close()
        return target

    def _secret(self, name: str, target: str) -> str:
        """Whoever makes an output names a secret and a target: the file says which targets it is for."""
        if not name:
            return ""
        if self._secrets is None:
            raise UserError(f"secret {name}: this agent's configuration names no folder (outputs.secrets)")
        if not _SECRET.match(name):
            raise UserError(f"a secret has a name like a file, not {name!r}")
        try:
            with (self._secrets / name).open("rb") as file:
                text = file.read(SECRET_BYTES_MAX).decode().strip()
        except OSError as error:
            raise UserError(f"secret {name} cannot be read: {error}") from None
        except UnicodeDecodeError:
            raise UserError(f"secret {name} is no text (UTF-8)") from None
        whom, _, word = text.partition("\n")
        if not whom.startswith(FOR):
            raise UserError(
                f"secret {name}: the first line of its file says '{FOR} ' and the beginning of targets"
            )
        if not is_allowed(target, tuple(whom.removeprefix(FOR).split())):
            raise UserError(
                f"secret {name} is not for this target: the first line of its file says for which"
            )
        if not word.strip().isprintable():
            raise UserError(f"secret {name} is not one line")
        return word.strip()

    def _forget(self, output: OutputSpec) -> None:
        """The next delivery opens it anew."""
        with self._lock:
            known = self._open.pop(output.uid, None)
        if known is not None:
            known[1].close()

    def close(self) -> None:
        """What is under way ends soon."""
        with self._lock:
            self._closed = True
            targets = [target for _, target in self._open.values()]
            self._open.clear()
        for target in targets:
            target.close()


def advanced(got: OutputKept, number: int, windows: int) -> OutputKept:
    """A result is delivered; those between it and the one before were no longer kept."""
    missing = number - got.number - 1
    gap = (got.number + 1, number - 1) if missing > 0 else got.gap
    return replace(
        got, number=number, windows=got.windows + windows, lost=got.lost + max(missing, 0), gap=gap
    )


def _told(failure: Exception) -> str:
    """In a line. What others raise may have a secret in its text, so of that only the kind is said."""
    text = str(failure) if isinstance(failure, UserError | OSError) else ""
    return " ".join(text.split())[:ERROR_CHARS_MAX] or f"it fails ({type(failure).__name__})"
