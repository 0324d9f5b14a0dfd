"""A person's signature behind jobs, versions and jobs in Python: what a member that lies can make of them."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from agents.answering.once import Once
from elf.batch import encode as packed
from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.admission import entry_for, grow
from elf.job.catalog.log import CatalogLog, decode_entry, encode_entry
from elf.job.catalog.permission import forbidden
from elf.job.catalog.voters import Proposed, ReplicatedLog, bootstrap, encode
from elf.job.catalog.wishes import refused_change
from elf.job.group.reconfiguration import proposed
from elf.job.messages.groups import ReconfigureJob
from elf.job.messages.log import (
    AddJob,
    AddOutput,
    AddProgram,
    AddVersion,
    ChangeRoster,
    DecideTrees,
    DropJobEntry,
    EndVersion,
    FlowEnded,
    JobAdded,
    JobDropped,
    JoinStream,
    LogEntry,
    OffloadRows,
    OutputAdded,
    PauseRekeying,
    ProgramAdded,
)
from elf.job.output import OutputSpec
from elf.job.program.spec import ProgramSpec
from elf.job.spec import JobSpec, app_id
from elf.ql.definition import Contents, Definition
from elf.ql.plan import Function, TableMoment
from elf.ql.signed import least, outcome
from elf.ql.statements import parse
from elf.security.authored import SUBMIT, Authorship, digests_of
from elf.security.authorship import author
from elf.security.keys import KeyPair
from elf.security.principals import Principal
from elf.wire.clients import Call, Execute, authorship_of, signed_part
from tests.support.certified import PAIRS, SHOP, certificate, revocation
from tests.support.signed_log import ADA, BOB, HOST, ROOT, SCHEMA, TRUST, log_with, said

QUERY = "SELECT host, SUM(n) AS n FROM s GROUP BY host WINDOWING 1 SECONDS"
CREATE = f"CREATE JOB busy AS {QUERY}"
WITH_A = f"{CREATE} WITH (a = 1)".replace("WINDOWING", "HAVING SUM(n) > :a WINDOWING")
CODE = "def map(batch):\n    return batch\n"
EVIL = "import os\ndef map(batch):\n    os.system('id')\n    return batch\n"
ALTER = "ALTER JOB busy SET FUNCTION map FROM 'f.py'"


def job(
    *authors: Authorship,
    creator: str = "ada",
    name: str = "busy",
    sql: str = QUERY,
    code: str = "",
    generation: int = 1,
    tables: tuple[Contents, ...] = (),
) -> JobSpec:
    functions = (Function("map", code, "f.py"),) if code else ()
    stream = "t" if "FROM t" in sql else "s"
    definition = Definition(sql, ((stream, SCHEMA),), tables, functions=functions)
    spec = JobSpec(name, creator, 1, definition, master="m:1", authors=authors)
    return spec.with_flows(proposed(spec, app_id(name, creator), "m:1"))


def refused(spec: JobSpec, log: CatalogLog | None = None) -> str:
    """Why a log refuses a job; voters do not propose it, and no agent takes an entry of it."""
    log = log_with() if log is None else log
    why = log.refused(spec)
    if why:
        flows = log.flows()
        assert entry_for(log, AddJob(spec=spec)) is None
        forged = JobAdded(seq=log.last + 1, spec=spec)
        log.append(forged)
        assert log.skipped[forged.seq] == why
        assert log.job(spec.uid) is None
        assert log.flows() == flows
    return why


# -- jobs ----------------------------------------------------------------------------------------------------


def test_what_a_person_has_signed_is_taken_by_all() -> None:
    log = log_with()
    (entry,) = grow(log, AddJob(spec=job(said(CREATE))))
    assert not log.skipped
    copy = CatalogLog([decode_entry(encode_entry(one)) for one in log.after(0)], TRUST)
    assert copy.job(entry.spec.uid) == log.job(entry.spec.uid) is not None  # type: ignore[union-attr]
    assert not copy.skipped


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (job(), "nobody has signed it"),
        (job(said(CREATE, HOST)), "of nobody who is enrolled"),
        (job(said(CREATE, KeyPair.new())), "of nobody who is enrolled"),
        (job(said(CREATE, cluster="other")), "signature is wrong"),
        (job(said(CREATE.replace("busy", "calm"))), "about another job"),
        (job(said(f"DROP JOB busy; {CREATE}")), "about another job"),
        (job(said(CREATE), sql=QUERY.replace("SUM", "MAX")), "not the one that was signed"),
        (job(said(CREATE), sql=QUERY.replace("FROM s", "FROM t")), "not the one that was signed"),
        (job(said(CREATE), creator="root"), "said to be of root, and ada has signed it"),
        (job(said(CREATE, BOB)), "said to be of ada, and bob has signed it"),
        (job(said(WITH_A), said("ALTER JOB busy SET a = 2 PREVIEW 3 WINDOWS")), "about another job"),
        (job(said(CREATE), code=EVIL), "functions are not those that were signed"),
        (job(said(CREATE), said(ALTER, files=(("f.py", CODE),)), code=EVIL), "functions are not those"),
        (job(said(CREATE), said(ALTER, files=(("f.py", CODE),))), "functions are not those"),
        (job(said(CREATE), said(ALTER, BOB, (("f.py", CODE),)), code=CODE), "bob, has not the role code"),
        (job(said(CREATE), said(ALTER), code=CODE), "f.py was not signed"),
        (job(said("SELECT * FROM (((")), "cannot be read"),
        (job(*[said(CREATE)] * 65), "more than 64 statements"),
        (job(name="_select_1", code=EVIL), "a SELECT with a function"),
    ],
)
def test_what_nobody_has_signed_who_may_is_taken_by_nobody(spec: JobSpec, why: str) -> None:
    assert why in refused(spec)


def test_a_text_or_a_signature_that_was_changed_on_its_way() -> None:
    good = said(CREATE)
    for changed in (
        msgspec.structs.replace(good, text=CREATE + " "),
        msgspec.structs.replace(good, digests=digests_of([("f.py", CODE)])),
        msgspec.structs.replace(good, authored=msgspec.structs.replace(good.authored, nonce=bytes(16))),
        msgspec.structs.replace(good, authored=msgspec.structs.replace(good.authored, expires=9_999)),
        msgspec.structs.replace(good, authored=msgspec.structs.replace(good.authored, key=BOB.public)),
    ):
        assert "signature is wrong" in refused(job(changed))
    assert not log_with().refused(job(good))


def test_a_select_needs_no_signature_and_has_no_function() -> None:
    assert not log_with().refused(job(name="_select_web_1"))


def test_an_admin_signs_for_others() -> None:
    assert not log_with().refused(job(said(CREATE, ROOT)))


def test_whose_key_was_revoked_or_who_lost_the_role_creates_nothing() -> None:
    spec = job(said(CREATE))
    assert "key was revoked" in refused(spec, log_with(revocation(ADA)))
    less = certificate("ada", ADA, "person", roles=("read",), issued=200)
    assert "has not the role write" in refused(spec, log_with(less))
    other = certificate("ada", PAIRS[4], "person", roles=("write",), issued=200)
    assert "of nobody who is enrolled" in refused(spec, log_with(other))


def test_a_fleet_without_keys_asks_for_no_signature() -> None:
    log = CatalogLog()
    grow(log, AddJob(spec=job(code=EVIL)))
    assert not log.skipped
    assert len(log.jobs()) == 1
    assert log.authors.unsigned(EVIL) == ""


# -- outputs -------------------------------------------------------------------------------------------------

OUT = "CREATE OUTPUT o FROM JOB busy TO 'https://x.example/in' WITH (secret = 'k')"


def output(author: Authorship | None = None, **changes: object) -> OutputSpec:
    made = OutputSpec("o", "ada", 1, job().uid, "https://x.example/in", (("secret", "k"),), author=author)
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (output(said(OUT)), ""),
        (output(said(OUT, ROOT)), ""),
        (output(), "nobody has signed it"),
        (output(said(OUT, BOB)), "said to be of ada, and bob has signed it"),
        (output(said(OUT, BOB), creator="bob"), "the job is ada's, and the output bob's"),
        (output(said(OUT), target="https://evil.example/"), "another output was signed"),
        (output(said(OUT), options=()), "another output was signed"),
        (output(said(OUT), from_beginning=True), "another output was signed"),
        (output(said(OUT), name="p"), "another output was signed"),
        (output(said(OUT.replace("busy", "calm"))), "another output was signed"),
        (output(said(CREATE)), "another output was signed"),
    ],
)
def test_an_output_is_what_its_jobs_owner_has_signed(spec: OutputSpec, why: str) -> None:
    log = log_with()
    grow(log, AddJob(spec=job(said(CREATE))))
    assert why in log.refused_output(spec)
    assert bool(why) == bool(log.refused_output(spec))
    assert bool(grow(log, AddOutput(spec=spec))) != bool(why)
    forged = OutputAdded(seq=log.last + 1, spec=spec)
    log.append(forged)
    assert (forged.seq in log.skipped) == bool(why)
    assert len(log.outputs()) == (not why)


def test_no_output_stands_before_its_job() -> None:
    log, evil = log_with(), output(said(OUT), target="https://evil.example/")
    assert "no such job" in log.refused_output(evil)
    log.append(OutputAdded(seq=log.last + 1, spec=evil))
    grow(log, AddJob(spec=job(said(CREATE))))
    assert log.outputs() == ()


def test_an_output_ends_by_a_word_of_its_owner_or_with_its_job() -> None:
    log, made = log_with(), job(said(CREATE))
    grow(log, AddJob(spec=made))
    spec = output(said(OUT))
    grow(log, AddOutput(spec=spec))
    for other in (None, said("DROP OUTPUT p"), said("DROP JOB o"), said("DROP OUTPUT o", BOB)):
        assert grow(log, DropJobEntry(uid=spec.uid, author=other)) == ()
    assert log.find_output("o", "ada") == spec
    grow(log, DropJobEntry(uid=spec.uid, author=said("DROP OUTPUT o")))
    assert log.outputs() == ()
    assert "was used for another job" in log.refused_output(replace(spec, generation=2))
    second = output(said(OUT), generation=2)
    grow(log, AddOutput(spec=second))
    grow(log, DropJobEntry(uid=second.uid, author=said("DROP OUTPUT o", ROOT)))  # an admin
    assert log.outputs() == ()
    second = output(said(OUT), generation=3)
    grow(log, AddOutput(spec=second))
    assert log.outputs(made.uid) == (second,)
    ended(log, made)
    assert log.outputs() == ()
    assert log.is_dropped(second.uid)
    assert sum(isinstance(entry, OutputAdded) for entry in log.after(0)) == 0  # tombstones are left
    copy = CatalogLog([decode_entry(encode_entry(one)) for one in log.after(0)], TRUST)
    assert (copy.outputs(), copy.skipped) == ((), {})
    assert "was used for another job" in copy.refused_output(replace(second, generation=4))


def test_a_table_gets_another_key_by_a_word_of_its_owner_once() -> None:
    log = log_with()
    grow(log, AddJob(spec=job(said(CREATE))))
    made = "CREATE TABLE t FROM JOB busy KEY (a) RETAIN 2 DAYS"
    options: tuple[tuple[str, str], ...] = (("key", "a"), ("retain", "172800000000"))
    first = OutputSpec("t", "ada", 1, job().uid, "table:", options, author=said(made))
    grow(log, AddOutput(spec=first))
    assert log.outputs() == (first,)
    alter = "ALTER TABLE t SET KEY (b, c)"
    options = (("key", "b,c"), ("of", first.uid), ("retain", "172800000000"))
    second = replace(first, generation=2, options=options, author=said(alter))
    wrong = {
        "another output was signed": replace(second, author=said("ALTER TABLE t SET KEY (b)")),
        "said to be of ada, and bob has signed it": replace(second, author=said(alter, BOB)),
        "nothing of a table but its key is changed": replace(second, options=options[:2]),
        "nobody has signed it": replace(second, author=None),
    }
    for why, spec in wrong.items():
        assert why in log.refused_output(spec)
        assert grow(log, AddOutput(spec=spec)) == ()
    grow(log, AddOutput(spec=second))
    assert log.outputs() == (second,)
    assert log.is_dropped(first.uid)
    late = replace(second, generation=3, author=said("ALTER TABLE t SET KEY (c)"))
    late = replace(late, options=(("key", "c"), *options[1:]))
    assert grow(log, AddOutput(spec=late)) == (), "another one has its place already"
    copy = CatalogLog([decode_entry(encode_entry(one)) for one in log.after(0)], TRUST)
    assert (copy.outputs(), copy.skipped) == ((second,), {})


def test_rows_are_mapped_elsewhere_by_a_word_of_the_owner_of_the_job_said_once() -> None:
    log = log_with()
    grow(log, AddJob(spec=job(said(CREATE))))
    (stream,) = job().plan.streams
    joins = JoinStream(
        stream=stream, agent_id="id-1", name="web-1", incarnation=1, address="web-1:1", since_us=0
    )
    grow(log, joins)
    (member,) = log.members(stream)

    def asked(helper: str, author: Authorship | None, at_ms: int = 1) -> str:
        word = OffloadRows(uid=job().uid, agent_id=member.agent_id, helper=helper, at_ms=at_ms, author=author)
        why = forbidden(log, "other:1", "m:1", word, 1_001_000)
        assert bool(grow(log, word)) == (not why)
        return why

    over = said(f"ALTER JOB busy OFFLOAD '{member.name}' TO 'helper:1'")
    back = said(f"ALTER JOB busy OFFLOAD '{member.name}' BACK")
    for wrong in (back, said("ALTER JOB busy OFFLOAD 'x' TO 'helper:1'"), said("ALTER JOB busy MOVE TO 'x'")):
        assert asked("helper:1", wrong) == "another statement was signed"
    assert asked("liar:1", over) == "another statement was signed"
    assert asked("helper:1", None) == "nobody has signed it"
    foreign = said(f"ALTER JOB busy OFFLOAD '{member.name}' TO 'helper:1'", BOB)
    assert "said to be of ada, and bob has signed it" in asked("helper:1", foreign)
    assert asked("helper:1", over) == ""
    assert log.offloads.helper(job().uid, member.agent_id) == "helper:1"
    assert asked("", back, 2) == ""
    assert "said before" in asked("helper:1", over, 3)
    copy = CatalogLog([decode_entry(encode_entry(one)) for one in log.after(0)], TRUST)
    assert copy.offloads.helper(job().uid, member.agent_id) == ""
    late = OffloadRows(uid=job().uid, agent_id=member.agent_id, helper="helper:1", at_ms=2)
    assert grow(log, late) == (), "something newer was said"
    ended(log, job())
    assert log.offloads.helper(job().uid, member.agent_id) == ""


def test_the_change_of_a_key_is_paused_by_a_word_of_the_owner_of_the_table_said_once() -> None:
    log = log_with()
    grow(log, AddJob(spec=job(said(CREATE))))
    options: tuple[tuple[str, str], ...] = (("key", "a"),)
    made = said("CREATE TABLE t FROM JOB busy KEY (a)")
    first = OutputSpec("t", "ada", 1, job().uid, "table:", options, author=made)
    grow(log, AddOutput(spec=first))
    pause, resume = said("ALTER TABLE t PAUSE"), said("ALTER TABLE t RESUME")
    assert grow(log, PauseRekeying(uid=first.uid, paused=True, author=pause)) == (), "nothing is changed"
    alter = said("ALTER TABLE t SET KEY (b)")
    second = replace(first, generation=2, options=(("key", "b"), ("of", first.uid)), author=alter)
    grow(log, AddOutput(spec=second))

    def asked(paused: bool, author: Authorship | None) -> str:
        proposal = PauseRekeying(uid=second.uid, paused=paused, author=author)
        why = forbidden(log, "other:1", "m:1", proposal, 1_001_000)
        assert bool(grow(log, proposal)) == (not why)
        return why

    for wrong in (resume, said("ALTER TABLE u PAUSE"), said("ALTER TABLE t SET KEY (c)")):
        assert asked(True, wrong) == "another statement was signed"
    assert asked(True, None) == "nobody has signed it"
    assert "said to be of ada, and bob has signed it" in asked(True, said("ALTER TABLE t PAUSE", BOB))
    assert not log.is_rekeying_paused(second.uid)
    assert asked(True, pause) == ""
    assert log.is_rekeying_paused(second.uid)
    again = PauseRekeying(uid=second.uid, paused=True, author=pause)
    assert (forbidden(log, "other:1", "m:1", again, 1_001_000), grow(log, again)) == ("", ()), (
        "it says so twice"
    )
    copy = CatalogLog([decode_entry(encode_entry(one)) for one in log.after(0)], TRUST)
    assert copy.is_rekeying_paused(second.uid)
    assert asked(False, resume) == ""
    assert "said before" in asked(True, pause)
    assert asked(True, said("ALTER TABLE t PAUSE", ROOT)) == ""
    grow(log, DropJobEntry(uid=second.uid, author=said("DROP TABLE t")))
    assert not log.is_rekeying_paused(second.uid)
    late = PauseRekeying(uid=second.uid, paused=True, author=said("ALTER TABLE t PAUSE"))
    assert (forbidden(log, "other:1", "m:1", late, 1_001_000), grow(log, late)) == ("", ())


# -- again ---------------------------------------------------------------------------------------------------


def ended(log: CatalogLog, spec: JobSpec) -> None:
    """The job is over, and its entry a tombstone."""
    grow(log, DropJobEntry(uid=spec.uid, author=said(f"DROP JOB {spec.name}")))
    for flow in log.flows():
        log.append(FlowEnded(seq=log.last + 1, uid=flow.uid))
    log.forget()


def test_a_statement_makes_one_job_however_often_it_is_said() -> None:
    log, first = log_with(), job(said(CREATE))
    grow(log, AddJob(spec=first))
    again = replace(first, generation=2)
    assert "was used for another job" in refused(again, log)


def test_a_statement_that_was_used_stays_so_when_its_job_is_forgotten() -> None:
    log, first = log_with(), job(said(CREATE))
    grow(log, AddJob(spec=first))
    ended(log, first)
    kinds = {type(entry) for entry in log.after(0)}
    assert JobDropped in kinds
    assert JobAdded not in kinds
    again = replace(first, generation=2)
    assert "was used for another job" in log.refused(again)
    voter = ReplicatedLog("v:1", 1, TRUST)
    voter.install(bootstrap("uid", log.after(0, log.last)))
    voter.apply(encode(Proposed(AddJob(spec=again), "a:1", "v:1", 1)))
    assert voter.log.jobs() == ()
    assert "was used for another job" in voter.log.refused(again)


def test_a_signed_drop_ends_one_job() -> None:
    """It is the owner's or an admin's, of that name, and no job that comes later falls by it."""
    log, first = log_with(), job(said(CREATE))
    grow(log, AddJob(spec=first))
    drop = said("DROP JOB busy")
    for wrong in (
        None,
        said("DROP JOB busy", BOB),
        said("DROP JOB lazy"),
        said(CREATE),
        said("no statement"),
    ):
        assert grow(log, DropJobEntry(uid=first.uid, author=wrong)) == ()
    for unknown in (("busy", "bob"), ("_select_x", "ada"), ("", "")):
        named = DropJobEntry(uid=job(said(CREATE)).uid, name=unknown[0], creator=unknown[1])
        assert grow(log_with(), named) == ()
    (entry,) = grow(log, DropJobEntry(uid=first.uid, author=drop))
    assert entry == JobDropped(seq=log.last, uid=first.uid, nonces=(drop.authored.nonce,))
    again = replace(job(said(CREATE)), generation=2)
    grow(log, AddJob(spec=again))
    assert log.job(again.uid) is not None
    assert grow(log, DropJobEntry(uid=again.uid, author=drop)) == ()
    assert len(grow(log, DropJobEntry(uid=again.uid, author=said("DROP JOB busy", ROOT)))) == 1


def test_a_new_job_takes_the_place_of_no_other_one() -> None:
    log, first = log_with(), job(said(CREATE))
    grow(log, AddJob(spec=first))
    text = CREATE.replace("busy", "lazy")
    lazy = replace(job(said(text), name="lazy"), replaces=first.uid)
    grow(log, AddJob(spec=lazy))
    assert log.job(lazy.uid) is not None
    assert log.job(first.uid) is not None


# -- versions ------------------------------------------------------------------------------------------------


def as_version(spec: JobSpec, version: int) -> JobSpec:
    """The same as a version of its job, with flows of its own."""
    spec = replace(spec, version=version)
    return spec.with_flows(proposed(spec, app_id(spec.name, spec.creator), "m:1"))


def with_version(log: CatalogLog, spec: JobSpec, version: int) -> LogEntry | None:
    return entry_for(log, AddVersion(spec=as_version(spec, version)))


def test_a_version_rests_on_all_its_statements() -> None:
    log, create = (
        log_with(),
        said(f"{CREATE} WITH (a = 1)".replace("WINDOWING", "HAVING SUM(n) > :a WINDOWING")),
    )
    sql = "SELECT host, SUM(n) AS n FROM s GROUP BY host HAVING SUM(n) > :a WINDOWING 1 SECONDS WITH (a = {})"
    first = job(create, sql=sql.format(1))
    grow(log, AddJob(spec=first))
    function, setting = said(ALTER, files=(("f.py", CODE),)), said("ALTER JOB busy SET a = 5", ROOT)
    second = job(create, function, sql=sql.format(1), code=CODE)
    third = job(create, function, setting, sql=sql.format(5), code=CODE)
    for version, spec in ((2, second), (3, third), (4, first), (5, second)):  # 4 and 5 go back
        assert with_version(log, spec, version) is not None, log.refused(replace(spec, version=version))
        grow(log, AddVersion(spec=as_version(spec, version)))
    assert with_version(log, job(create, function, setting, sql=sql.format(6), code=CODE), 6) is None
    assert with_version(log, job(create, function, sql=sql.format(1), code=EVIL), 6) is None
    assert with_version(log, replace(first, authors=()), 6) is None
    gone = said("ALTER JOB busy DROP FUNCTION map")
    assert with_version(log, job(create, function, gone, sql=sql.format(1)), 6) is not None
    assert not log.skipped


def test_another_number_of_trees_is_what_was_signed_for_it() -> None:
    log, create, trees = log_with(), said(CREATE), said("ALTER JOB busy TREES 4")
    grow(log, AddJob(spec=job(create)))
    four, one = job(create, trees, sql=f"{QUERY} TREES 4"), said("ALTER JOB busy TREES 1")
    assert with_version(log, four, 2) is not None, log.refused(replace(four, version=2))
    assert with_version(log, job(create, trees, sql=f"{QUERY} TREES 3"), 2) is None
    assert with_version(log, job(create, trees, one, sql=f"{QUERY} TREES 1"), 2) is not None


def scaled(spec: JobSpec, bounds: tuple[int, int] | None) -> JobSpec:
    return replace(spec, scale=bounds)


def test_how_many_trees_there_are_is_for_agents_to_say_where_somebody_has_signed_that() -> None:
    """What a version computes, and within which bounds it scales, is what was signed."""
    log, create = log_with(), said(CREATE)
    auto, out = said("ALTER JOB busy SCALE AUTO (1, 4)"), said("ALTER JOB busy SCALE OUT 1")
    least = said("ALTER JOB busy AS SELECT MIN(n) AS n FROM s GROUP BY host WINDOWING 1 SECONDS")
    few = said("ALTER JOB busy TREES 2")
    grow(log, AddJob(spec=job(create)))

    def taken(spec: JobSpec) -> bool:
        return with_version(log, spec, 2) is not None

    three = f"{QUERY} TREES 3"
    assert taken(scaled(job(create, auto, sql=QUERY), (1, 4)))
    assert taken(scaled(job(create, auto, sql=three), (1, 4)))
    assert not taken(scaled(job(create, auto, sql=three), (1, 9)))
    assert not taken(job(create, auto, sql=three))
    assert not taken(scaled(job(create, sql=QUERY), (1, 4)))
    assert not taken(scaled(job(create, auto, sql=QUERY.replace("SUM", "MAX")), (1, 4)))
    assert taken(job(create, auto, out, sql=three))
    assert not taken(scaled(job(create, auto, out, sql=three), (1, 4)))
    assert taken(job(create, auto, few, sql=f"{QUERY} TREES 2"))
    assert not taken(job(create, out, few, sql=three))
    other = "SELECT MIN(n) AS n FROM s GROUP BY host WINDOWING 1 SECONDS"
    assert taken(scaled(job(create, auto, least, sql=other), (1, 4)))
    assert not taken(job(create, out, least, sql=f"{other} TREES 3"))


def test_a_job_gets_other_trees_unsigned_only_where_the_log_wants_just_these() -> None:
    log, create, auto = log_with(), said(CREATE), said("ALTER JOB busy SCALE AUTO (1, 4)")
    grow(log, AddJob(spec=job(create)))
    grow(log, AddVersion(spec=as_version(scaled(job(create, auto, sql=QUERY), (1, 4)), 2)))
    spec = log.job(job(create).uid)
    assert spec is not None

    def asked(trees: int, *by: Authorship, **changes: object) -> str:
        wanted = replace(spec.definition, sql=f"{QUERY} TREES {trees}")
        facts = {"verb": "alter", "definition": wanted, "authors": by, "scale": (1, 4)} | changes
        request = ReconfigureJob(id=1, origin="", uid=spec.uid, **facts)  # type: ignore[arg-type]
        return refused_change(log, request, spec, 5_000)

    both = (create, auto)
    assert asked(2, *both) == "nobody has signed it"
    late = DecideTrees(uid=spec.uid, before=1, trees=2, at_ms=5_000, why="w")
    for wrong in (replace(late, trees=5), replace(late, before=3), replace(late, trees=1)):
        assert grow(log, wrong) == ()
    assert len(grow(log, late)) == 1
    assert grow(log, late) == (), "once"
    assert asked(2, *both) == ""
    assert asked(3, *both) == asked(2) == asked(2, *both, scale=None) == "nobody has signed it"
    assert asked(2, *both, immediately=True) == asked(2, *both, verb="pause") == "nobody has signed it"
    assert (
        forbidden(log, "other:1", "m:1", late, 5_000) == "the leader of the voters says so, and nobody else"
    )


def test_the_leader_of_a_job_gives_it_other_rows_of_a_table_unsigned_and_nothing_else() -> None:
    text = "SELECT c.k, SUM(n) AS n FROM s JOIN {} AS c ON host = c.h GROUP BY c.k WINDOWING 1 SECONDS"
    of_job, of_file = text.format("TABLE client"), text.format("'client.csv'")

    def joins(host: str, moment: TableMoment | None, file: str = "TABLE client") -> tuple[Contents, ...]:
        data = packed(pa.table({"h": pa.array([host]), "k": pa.array([1])}), small=True)
        return (Contents("c", file, data, moment),)

    def asked(sql: str, had: tuple[Contents, ...], new: tuple[Contents, ...], **changes: object) -> str:
        log, create = log_with(), said(f"CREATE JOB busy AS {sql}")
        spec = job(create, sql=sql, tables=had)
        grow(log, AddJob(spec=spec))
        known = log.job(spec.uid)
        assert known is not None
        definition = replace(known.definition, tables=new)
        facts = {"verb": "alter", "definition": definition, "authors": (create,), "by_itself": True} | changes
        request = ReconfigureJob(id=1, origin="m:1", uid=spec.uid, verb="alter")
        return refused_change(log, replace(request, **facts), known, 5_000)

    early, late = TableMoment("app", 3), TableMoment("app", 4)
    had, new = joins("a", early), joins("b", late)
    assert asked(of_job, had, new) == ""
    other = replace(new[0], file="f.csv"), replace(new[0], moment=None)
    for wrong in (*((one,) for one in other), joins("b", TableMoment("other", 4))):
        assert asked(of_job, had, wrong) == "nobody has signed it", wrong
    assert (
        asked(of_job, had, new, reset=True) == asked(of_job, had, new, authors=()) == "nobody has signed it"
    )
    whole = job(sql=of_job.replace("SUM", "MAX"), tables=new).definition
    assert asked(of_job, had, new, definition=whole) == "nobody has signed it"
    assert (
        asked(of_job, had, new, verb="pause")
        == asked(of_job, had, new, scale=(1, 2))
        == "nobody has signed it"
    )
    assert asked(of_job, had, new, origin="other:1") == "nobody has signed it"
    file = joins("a", None, "client.csv")
    assert asked(of_file, file, joins("b", None, "client.csv")) == "nobody has signed it"


def test_a_version_goes_on_when_its_author_has_another_key_and_ends_when_that_was_revoked() -> None:
    log, create, function = log_with(), said(CREATE), said(ALTER, files=(("f.py", CODE),))
    grow(log, AddJob(spec=job(create)))
    grow(log, AddVersion(spec=as_version(job(create, function, code=CODE), 2)))
    other = certificate("ada", PAIRS[4], "person", roles=("write", "code"), issued=200)
    grow(log, ChangeRoster(signed=other))
    assert with_version(log, job(create), 3) is not None
    late = said("ALTER JOB busy AS SELECT MAX(n) AS n FROM s WINDOWING 1 SECONDS")
    changed = job(create, late, sql="SELECT MAX(n) AS n FROM s WINDOWING 1 SECONDS")
    assert with_version(log, changed, 3) is None  # signed with the old key, and new to the log
    assert log.authors.unsigned(CODE) == ""
    grow(log, ChangeRoster(signed=revocation(ADA)))
    assert with_version(log, job(create), 3) is None
    assert "was revoked" in log.authors.unsigned(CODE)


def test_versions_are_forgotten_and_all_copies_still_agree() -> None:
    log, create, function = log_with(), said(CREATE), said(ALTER, files=(("f.py", CODE),))
    grow(log, AddJob(spec=job(create)))
    for version in range(2, 8):
        spec = job(create, function, code=CODE) if version % 2 else job(create)
        grow(log, AddVersion(spec=as_version(spec, version)))
        grow(log, EndVersion(uid=spec.uid, version=version - 1))
    log.forget()
    copy = CatalogLog([decode_entry(encode_entry(one)) for one in log.after(0)], TRUST)
    assert not copy.skipped
    assert len(copy.after(0)) == log.last
    assert copy.jobs() == log.jobs()
    assert copy.authors.unsigned(CODE) == log.authors.unsigned(CODE) == ""


def test_what_is_signed_for_a_preview_alters_nothing() -> None:
    log, create = log_with(), said(WITH_A)
    grow(log, AddJob(spec=job(create, sql=WITH_A.partition(" AS ")[2])))
    (spec,) = log.jobs()
    for text, why in (
        ("ALTER JOB busy SET a = 2", ""),
        ("ALTER JOB busy SET a = 2 PREVIEW 3 WINDOWS", "another statement was signed"),
    ):
        author = said(text)
        asked = ReconfigureJob(id=1, origin="m:1", uid=spec.uid, verb="alter", author=author)
        assert refused_change(log, asked, spec, 1_001_000) == why


def test_statements_that_change_nothing_more_are_left_out() -> None:
    create = said(WITH_A)
    settings = [said(f"ALTER JOB busy SET a = {n}") for n in range(3)]
    function = said(ALTER, files=(("f.py", CODE),))
    kept = least("busy", (create, *settings[:2], function, settings[2]))
    assert kept == (create, function, settings[2])
    assert outcome("busy", kept) == outcome("busy", (create, *settings[:2], function, settings[2]))


def test_one_text_has_several_statements() -> None:
    text = f"{CREATE}; CREATE JOB calm AS {QUERY}"
    both = said(text)
    assert len(parse(text)) == 2
    log = log_with()
    second = msgspec.structs.replace(both, place=1)
    assert not log.refused(job(both))
    assert not log.refused(job(second, name="calm"))
    assert "about another job" in log.refused(job(second))


# -- jobs in Python ------------------------------------------------------------------------------------------


def program(
    author: Authorship | None, text: str = CODE, name: str = "py", creator: str = "ada"
) -> ProgramSpec:
    return ProgramSpec(name, creator, 1, text, "py.py", author=author)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (program(None), "nobody has signed it"),
        (program(said(f"{SUBMIT}py", files=(("py.py", CODE),)), text=EVIL), "another text"),
        (program(said(f"{SUBMIT}other", files=(("py.py", CODE),))), "another job"),
        (program(said(f"{SUBMIT}py", BOB, (("py.py", CODE),)), creator="bob"), "has not the role code"),
        (program(said(f"{SUBMIT}py", HOST, (("py.py", CODE),))), "nobody who is enrolled"),
        (program(said(f"{SUBMIT}py", files=(("py.py", CODE),)), creator="root"), "said to be of root"),
    ],
)
def test_a_job_in_python_that_nobody_has_signed_runs_nowhere(spec: ProgramSpec, why: str) -> None:
    log = log_with()
    assert why in log.authors.refused_program(spec)
    assert entry_for(log, AddProgram(spec=spec)) is None
    log.append(ProgramAdded(seq=log.last + 1, spec=spec))
    assert why in log.skipped[log.last]
    assert log.programs() == ()
    assert "nobody who may has signed it" in log.authors.unsigned(spec.text)


def test_a_job_in_python_is_submitted_once() -> None:
    log, spec = log_with(), program(said(f"{SUBMIT}py", files=(("py.py", CODE),)))
    grow(log, AddProgram(spec=spec))
    assert log.authors.unsigned(CODE) == ""
    assert "was used for another job" in log.authors.refused_program(replace(spec, generation=2))
    grow(log, DropJobEntry(uid=spec.uid))
    log.forget()
    assert "was used for another job" in log.authors.refused_program(replace(spec, generation=2))


# -- the agent that it comes to ------------------------------------------------------------------------------

ASKED = Execute(request=1, sql=CREATE, creator="ada", files=(("f.py", CODE),))
AS_ADA = Principal("person", "ada", ("write",), ADA.public)


def signed(asked: Execute | Call, by: KeyPair = ADA, now: float = 1_000.0, cluster: str = SHOP) -> Execute:
    text, digests = signed_part(asked)
    return msgspec.structs.replace(asked, authored=author(by, cluster, text, digests, now))  # type: ignore[return-value]


def test_a_statement_is_taken_once_and_while_it_is_fresh() -> None:
    once, asked = Once(log_with()), signed(ASKED)
    assert once.taken(asked, AS_ADA, 1_000_000, changes=True) == asked
    with pytest.raises(UserError, match="was said before"):
        once.taken(asked, AS_ADA, 1_001_000, changes=True)
    for now in (0, 800_000, 1_121_000, 9_000_000):
        with pytest.raises(UserError, match="has expired, or is for later"):
            once.taken(signed(ASKED), AS_ADA, now, changes=True)


@pytest.mark.parametrize(
    ("asked", "who", "why"),
    [
        (ASKED, AS_ADA, "is not signed"),
        (signed(ASKED), None, "is not signed"),
        (signed(ASKED, BOB), AS_ADA, "another key than that of the connection"),
        (signed(ASKED), Principal("person", "bob", ("write",), BOB.public), "another key than that"),
        (signed(ASKED, cluster="other"), AS_ADA, "signature of this statement is wrong"),
        (msgspec.structs.replace(signed(ASKED), sql=CREATE + " "), AS_ADA, "signature of this statement"),
        (msgspec.structs.replace(signed(ASKED), files=(("f.py", EVIL),)), AS_ADA, "signature of this"),
        (msgspec.structs.replace(signed(ASKED), tables=(("t", b""),)), AS_ADA, "signature of this"),
        (Call(request=1, verb="submit", argument="{"), AS_ADA, "is not signed"),
        (
            Call(request=1, verb="submit", argument="{", authored=signed(ASKED).authored),
            AS_ADA,
            "cannot be read",
        ),
    ],
)
def test_what_an_agent_does_not_take(asked: Execute, who: Principal | None, why: str) -> None:
    with pytest.raises(UserError, match=why):
        Once(log_with()).taken(asked, who, 1_000_000, changes=True)


def test_what_changes_nothing_needs_no_signature_and_keeps_none() -> None:
    assert Once(log_with()).taken(signed(ASKED), AS_ADA, 0, changes=False).authored is None
    assert Once(CatalogLog()).taken(signed(ASKED), None, 0, changes=True).authored is None


def test_a_signed_submission_names_its_job_and_its_text() -> None:
    argument = msgspec.json.encode({"name": "py", "text": CODE, "filename": "py.py", "more": 1}).decode()
    asked = signed(Call(request=1, verb="submit", argument=argument))
    found = authorship_of(asked)
    assert found is not None
    assert not log_with().authors.refused_program(program(found))
    other = msgspec.structs.replace(asked, argument=argument.replace("more", "less"))
    with pytest.raises(UserError, match="signature of this statement is wrong"):
        Once(log_with()).taken(other, AS_ADA, 1_000_000, changes=True)
