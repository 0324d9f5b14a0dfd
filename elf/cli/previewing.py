"""ALTER JOB … PREVIEW for people: what differs in each window, what both versions cost, and COMMIT.

A preview changes nothing. COMMIT performs the statement that was previewed last, without its PREVIEW; what
else creates, changes or drops something in between takes that away.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from elf.cli.printing import Printer, say
from elf.client import Client, Window
from elf.client.previews import Costs, Previewed, beside
from elf.client.results import Result, facts_of
from elf.errors import UserError
from elf.wire.clients import Preview


@dataclass
class Pending:
    """What COMMIT would make so; None: nothing."""

    preview: Preview | None = None

    async def statement(self, text: str, client: Client) -> str:
        """What is to be performed of what somebody says. Raises ``UserError``, also where the job is not
        what the preview was held against any more."""
        words = text.strip().rstrip(";").upper().split(maxsplit=1)
        if words != ["COMMIT"]:
            if words and words[0] in ("ALTER", "CREATE", "DROP", "ROLLBACK", "PAUSE"):
                self.preview = None
            return text
        found, self.preview = self.preview, None
        if found is None:
            raise UserError("COMMIT: nothing was previewed: ALTER JOB … PREVIEW 3 WINDOWS comes first")
        facts = facts_of(await client.sql(f"DESCRIBE JOB {found.job}"))
        version = facts.get("version", "none")
        if version != str(found.version):
            raise UserError(
                f"COMMIT: job {found.job} is version {version} by now, and the preview was beside version "
                f"{found.version}: preview it again"
            )
        return found.change


async def show(
    client: Client, preview: Preview, windows: AsyncGenerator[Result | Window], out: Printer, pending: Pending
) -> None:
    """Print a preview to its end."""
    job = preview.job
    _aside(out, f"{job}: version {preview.version} (-) beside the new one (+); nothing is changed")
    seen: list[Previewed] = []
    async with contextlib.aclosing(beside(client, preview, windows)) as told:
        async for one in told:
            if isinstance(one, Result):
                _aside(out, one.text)
            elif isinstance(one, Previewed):
                seen.append(one)
                out.windows([_shown(one, preview)])
                if one.before is None:
                    _aside(out, f"{job} has no such window")
            else:
                _tell(one, seen, out)
                pending.preview = preview


def _shown(one: Previewed, preview: Preview) -> Window:
    """Under the name of the job."""
    return replace(one.window, name=preview.job)


def _tell(costs: Costs, seen: list[Previewed], out: Printer) -> None:
    preview, pairs = costs.preview, [one for one in seen if one.before is not None]
    alike, gone, come = (sum(getattr(one, name) for one in pairs) for name in ("alike", "gone", "come"))
    rows = f"{alike:,} rows alike, {gone:,} only now, {come:,} only in the new version"
    _aside(out, f"{len(pairs)} of {len(seen)} windows are in both: {rows}")
    for names, which in ((costs.columns_gone, "now"), (costs.columns_come, "in the new version")):
        if names:
            _aside(out, f"columns only {which}, which are not compared: {', '.join(names)}")
    out.table(costs.table)
    if costs.shared:
        _aside(out, f"{costs.shared} of these flows are the same one: what it costs, it costs once")
    if preview.readers:
        by = ", ".join(preview.readers)
        _aside(out, f"{preview.job} is read by {by} (FROM JOB): it cannot be altered while it is")
    _aside(out, "nothing is changed; COMMIT makes it so (in the same shell, or behind it in one elf sql)")


def _aside(out: Printer, text: str) -> None:
    out.beside()
    say(f"elf: {text}", sys.stderr)
