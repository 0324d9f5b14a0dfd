"""Who has wanted what stands in the catalog log: the signed statements behind jobs, versions and jobs in
Python, in a fleet with keys (``elf.security.authorship``).

A version of a job keeps all the statements that made it, CREATE first: from them alone follow its query and
its functions (``elf.ql.signed``). So whatever a member says of a job, the others take of it only what persons
have signed who may: a version that goes back to an earlier one, by itself or by ROLLBACK, comes with the
statements of that one. What else is in a plan (types, panes, flows, roots) agents decide.

A statement is used for one job: its nonce is remembered for ever, in the tombstone too. A statement that the
log has not had yet must be of a key that is enrolled then; one that it has had holds until that key is
revoked. Every answer follows from the log alone, so all agents skip the same entries.

``unsigned`` says of a function whether it may run here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from elf.errors import UserError
from elf.job.output import OutputSpec
from elf.job.own import OwnSpec
from elf.job.program.spec import ProgramSpec
from elf.job.spec import JobSpec
from elf.ql.own import owns_of
from elf.ql.plan import Plan
from elf.security.authored import SUBMIT, Authorship, digest
from elf.security.authorship import refusal
from elf.security.roles import Role
from elf.security.roster import Roster
from elf.wire.clients import ONE_SHOT_PREFIX

STATEMENTS_MAX: Final = 64
"""That a version may rest on: those that others have made superfluous are left out."""


def nonces_of(spec: JobSpec | ProgramSpec | OutputSpec | OwnSpec) -> tuple[bytes, ...]:
    """Of the statements behind it."""
    authors = getattr(spec, "authors", None) or (getattr(spec, "author", None),)
    return tuple(one.authored.nonce for one in authors if one is not None)


class Authors:
    """Of one log. ``roster``: what the log says of keys; None: there are none, and nothing is asked."""

    def __init__(self, roster: Roster | None) -> None:
        self._roster = roster
        self._used: dict[bytes, str] = {}
        """For which job a statement was used, by nonce."""
        self._code: dict[bytes, dict[bytes, None]] = {}
        """Who has signed a function, by its digest."""
        self._tried: dict[bytes, bytes] = {}
        self._aggregates: set[tuple[str, bytes]] = set()
        """Aggregates that there are or were: name, digest."""

    # -- what stands in the log ------------------------------------------------------------------------------

    def add(self, spec: JobSpec) -> None:
        """The log has a version of a job."""
        if self._roster is None:
            return
        self.used(nonces_of(spec), spec.uid)
        for text in _texts(spec.plan):
            self._sign(text, spec.authors)

    def add_program(self, spec: ProgramSpec) -> None:
        """The log has a job in Python."""
        if self._roster is not None and spec.author is not None:
            self.used(nonces_of(spec), spec.uid)
            self._sign(spec.text, (spec.author,))

    def add_output(self, spec: OutputSpec) -> None:
        """The log has an output."""
        self.used(nonces_of(spec), spec.uid)

    def add_aggregate(self, spec: OwnSpec) -> None:
        """The log has an aggregate; what it was is known for ever."""
        self._aggregates.add((spec.name, spec.digest))
        self.used(nonces_of(spec), spec.uid)
        if spec.author is not None and spec.digest in dict(spec.author.digests).values():
            self._code.setdefault(spec.digest, {})[spec.author.authored.key] = None

    def used(self, nonces: Iterable[bytes], uid: str) -> None:
        for nonce in nonces:
            self._used.setdefault(nonce, uid)

    def has_used(self, author: Authorship | None) -> bool:
        """Whether something has come of a statement."""
        return author is not None and author.authored.nonce in self._used

    def _sign(self, text: str, authors: Iterable[Authorship]) -> None:
        it = digest(text)
        for one in authors:
            if it in dict(one.digests).values():
                self._code.setdefault(it, {})[one.authored.key] = None

    # -- what may come to stand there ------------------------------------------------------------------------

    def refused(self, spec: JobSpec, read: Sequence[Plan] = ()) -> str:
        """Why a version of a job is not what was signed; empty: it is. ``read``: the plans of the jobs that
        it reads, whose functions it has too."""
        if self._roster is None:
            return ""
        for called in owns_of(spec.plan.unranged):
            if (called.name, digest(called.text)) not in self._aggregates:
                return f"its aggregate {called.name} is not one that was signed"
        theirs = {digest(text) for plan in read for text in _texts(plan)}
        own = {digest(text) for text in _texts(spec.plan)} - theirs
        if spec.name.startswith(ONE_SHOT_PREFIX):
            return "a SELECT with a function" if own else ""
        if not spec.authors:
            return "nobody has signed it"
        if len(spec.authors) > STATEMENTS_MAX:
            return f"it rests on more than {STATEMENTS_MAX} statements"
        for one in spec.authors:
            roles: tuple[Role, ...] = ("write",)
            if own & set(dict(one.digests).values()):
                roles = ("write", "code")
            if why := self._refused(one, spec.uid, spec.creator, roles):
                return why
        return _differs(spec, own, theirs)

    def refused_program(self, spec: ProgramSpec) -> str:
        """The same of a job in Python."""
        if self._roster is None:
            return ""
        if spec.author is None:
            return "nobody has signed it"
        if spec.author.text != SUBMIT + spec.name:
            return "another job was signed"
        if digest(spec.text) not in dict(spec.author.digests).values():
            return "another text was signed"
        code: tuple[Role, ...] = ("code",)
        return self._refused(spec.author, spec.uid, spec.creator, code)

    def refused_output(self, spec: OutputSpec, job: str) -> str:
        """The same of an output of the job of that name; empty: the log does not know that any more."""
        if self._roster is None:
            return ""
        if spec.author is None:
            return "nobody has signed it"
        if job and not _says(spec, job):
            return "another output was signed"
        write: tuple[Role, ...] = ("write",)
        return self._refused(spec.author, spec.uid, spec.creator, write)

    def refused_aggregate(self, spec: OwnSpec) -> str:
        """The same of an aggregate."""
        if self._roster is None:
            return ""
        if spec.author is None:
            return "nobody has signed it"
        if not _says_aggregate(spec):
            return "another aggregate was signed"
        code: tuple[Role, ...] = ("code",)
        return self._refused(spec.author, spec.uid, spec.creator, code)

    def refused_change(
        self, author: Authorship, uid: str, creator: str, role: Role = "write", *, again: bool = False
    ) -> str:
        """Why a signed statement does not change a job of this creator; empty: it does. What it says of the
        job is another question (``elf.job.catalog.wishes``). ``again``: it also makes the next job of that
        name."""
        if again and self._roster is not None:
            return refusal(self._roster, author, creator, ("code",))
        return self._refused(author, uid, creator, (role,))

    def refused_by_admin(self, author: Authorship) -> str:
        """Why a signed call is not an admin's; empty: it is."""
        return "" if self._roster is None else refusal(self._roster, author, "", ("admin",))

    def _refused(self, author: Authorship, uid: str, creator: str, roles: Collection[Role]) -> str:
        if self._roster is None:
            return ""
        used = self._used.get(author.authored.nonce)
        if used is not None and used != uid:
            return "what was signed for it was used for another job"
        return refusal(self._roster, author, creator, roles, known=used is not None)

    # -- functions -------------------------------------------------------------------------------------------

    def trying(self, spec: JobSpec) -> None:
        """The functions of a version that the log does not have yet are tried here; it was not refused."""
        for one in spec.authors:
            for text in _texts(spec.plan):
                if digest(text) in dict(one.digests).values():
                    self._tried[digest(text)] = one.authored.key

    def unsigned(self, text: str) -> str:
        """Why this code may not run here; empty: it may. Code is known by its text."""
        if self._roster is None:
            return ""
        it = digest(text)
        keys = [*self._code.get(it, ()), *((self._tried[it],) if it in self._tried else ())]
        if not keys:
            return "nobody who may has signed it"
        if all(self._roster.revoked(key) for key in keys):
            return "the key that signed it was revoked"
        return ""


def _texts(plan: Plan) -> list[str]:
    """Of the functions in a plan."""
    from elf.ql.user_functions import functions_of

    return [function.text for function in functions_of(plan)]


def _says(spec: OutputSpec, job: str) -> bool:
    """Whether the statement that was signed for an output says just that."""
    from elf.ql.keyed import AlterTable
    from elf.ql.outputs import CreateOutput
    from elf.ql.signed import said_by

    said = None if spec.author is None else said_by(spec.author)
    if isinstance(said, AlterTable):
        return bool(spec.option("of")) and (said.name, ",".join(said.key)) == (spec.name, spec.option("key"))
    return isinstance(said, CreateOutput) and (
        (said.name, said.job, said.target, said.options, said.from_beginning, said.alert)
        == (spec.name, job, spec.target, spec.options, spec.from_beginning, spec.alert)
    )


def _says_aggregate(spec: OwnSpec) -> bool:
    """The same of an aggregate."""
    from elf.ql.aggregates import CreateAggregate
    from elf.ql.signed import said_by

    said = None if spec.author is None else said_by(spec.author)
    if spec.author is None or not isinstance(said, CreateAggregate) or said.name != spec.name:
        return False
    return dict(spec.author.digests).get(said.file) == spec.digest


def _differs(spec: JobSpec, own: set[bytes], theirs: set[bytes]) -> str:
    """Whether a version has another query, or other functions, than its statements say. ``theirs``: those of
    jobs that it reads."""
    from elf.ql.signed import Signed

    try:
        made = Signed(spec.name, spec.authors).made.value
    except UserError as error:
        return f"what was signed for it cannot be read: {error}"
    if not made.says(spec.definition.sql):
        return "its query is not the one that was signed"
    if made.scale != spec.scale:
        return "it scales otherwise than was signed"
    signed = set(made.functions.values())
    needed = {it for kind, it in made.functions.items() if kind != "final"}  # one that fails is given up
    if not needed - theirs <= own <= signed:
        return "its functions are not those that were signed"
    return ""
