"""Certificates and revocations in the catalog log: who gets them there, and that all copies say the same."""

from __future__ import annotations

import pytest

from agents.answering import audited
from elf.errors import UserError
from elf.job.catalog.admission import entry_for, grow
from elf.job.catalog.log import CatalogLog, decode_entry, encode_entry
from elf.job.catalog.membership import Cluster, Identity, Membership
from elf.job.catalog.voters import Proposed, ReplicatedLog, bootstrap, encode, with_keys
from elf.job.effects import Audited, Faulted, Send
from elf.job.messages.log import ChangeRoster, JoinStream, LogVoters, RosterChanged
from elf.security.certificates import Signed
from elf.security.keys import KeyPair, shown
from elf.security.roster import Trust
from tests.support.certified import AUTHORITY, PAIRS, SHOP, TOKEN, certificate, revocation

TRUST = Trust(SHOP, AUTHORITY.public)
WEB = certificate("web-1", PAIRS[0])
ADMIN = certificate("ada", PAIRS[1], "person", roles=("admin",))


def log_of(*signed: Signed) -> CatalogLog:
    log = CatalogLog(trust=TRUST)
    for one in signed:
        grow(log, ChangeRoster(signed=one))
    return log


def join(name: str, address: str, agent_id: str = "", incarnation: int = 1) -> JoinStream:
    who = agent_id or name
    return JoinStream(
        stream="s", agent_id=who, name=name, incarnation=incarnation, address=address, since_us=0
    )


def joined(log: CatalogLog, name: str, address: str) -> None:
    grow(log, join(name, address))


def names(log: CatalogLog) -> list[str]:
    assert log.roster is not None
    return [one.name for one in log.roster]


def test_what_may_not_be_signed_gets_no_entry() -> None:
    log = log_of(WEB)
    forged = Signed(WEB.body, AUTHORITY.public, bytes(64))
    for signed in (
        forged,
        certificate("web-9", PAIRS[2], by=PAIRS[0]),
        certificate("eve", PAIRS[2], "person", by=PAIRS[0], roles=("admin",)),
        certificate("web-9", PAIRS[2], by=KeyPair.new()),
        certificate("web-9", PAIRS[2], cluster="other"),
        revocation(PAIRS[0], PAIRS[2]),
        WEB,
    ):
        assert entry_for(log, ChangeRoster(signed=signed)) is None
    assert (log.last, names(log)) == (1, ["web-1"])


def test_an_entry_that_a_voter_forged_changes_no_roster() -> None:
    log = log_of(WEB)
    log.append(RosterChanged(seq=2, signed=certificate("web-9", PAIRS[2], by=PAIRS[0])))
    log.append(RosterChanged(seq=3, signed=revocation(PAIRS[0], PAIRS[2])))
    log.append(RosterChanged(seq=4, signed=WEB))
    assert names(log) == ["web-1"]
    assert {seq: "its signer may not" in why for seq, why in log.skipped.items()} == {2: True, 3: True}


def test_the_audit_has_who_got_a_key_and_who_lost_it() -> None:
    log = log_of(WEB, revocation(PAIRS[0]))
    told = [fact for entry in log.after(0) for fact in audited.entry(entry, log)]
    key, by = shown(PAIRS[0].public), shown(AUTHORITY.public)
    assert told == [
        Audited(
            "key enrolled",
            {"kind": "agent", "name": "web-1", "roles": (), "key": key, "signed_by": by},
        ),
        Audited("key revoked", {"key": key, "signed_by": by}),
    ]


def test_a_fleet_without_keys_takes_none() -> None:
    log = CatalogLog()
    assert entry_for(log, ChangeRoster(signed=WEB)) is None
    log.append(RosterChanged(seq=1, signed=WEB))
    assert log.roster is None
    assert log.is_enrolled("anywhere:1", 0)


def test_all_copies_of_the_log_say_the_same_after_a_restart_and_a_snapshot() -> None:
    signed = (WEB, ADMIN, TOKEN, certificate("web-2", PAIRS[2], by=PAIRS[5]), revocation(PAIRS[0], PAIRS[1]))
    voters = [ReplicatedLog(f"v{n}:1", 1, TRUST) for n in range(3)]
    for voter in voters:
        voter.install(bootstrap("uid", ()))
    for one in signed:
        record = encode(Proposed(ChangeRoster(signed=one), "asker:1", "v0:1", 1))
        for voter in voters:
            assert voter.apply(record) == []
    first = voters[0].log
    assert names(first) == ["ada", "scale", "web-2"]
    stored = CatalogLog([decode_entry(encode_entry(entry)) for entry in first.after(0)], TRUST)
    late = ReplicatedLog("v9:1", 1, TRUST)
    late.install(voters[1].state())
    for log in (voters[1].log, voters[2].log, stored, late.log):
        assert log.roster is not None
        assert first.roster is not None
        assert log.roster.signed == first.roster.signed
        assert names(log) == names(first)


def test_a_voter_whose_log_fails_at_a_record_still_asks_for_signatures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    voter = ReplicatedLog("v0:1", 1, TRUST)
    voter.install(bootstrap("uid", ()))
    voter.apply(encode(Proposed(ChangeRoster(signed=WEB), "asker:1", "v0:1", 1)))
    with monkeypatch.context() as broken:
        broken.setattr(CatalogLog, "member_of", lambda *_: 1 / 0)
        (fault,) = voter.apply(encode(Proposed(join("a", "a:1"), "a:1", "v0:1", 1)))
    assert isinstance(fault, Faulted)
    assert names(voter.log) == ["web-1"]
    voter.apply(encode(Proposed(ChangeRoster(signed=ADMIN), "asker:1", "v0:1", 1)))
    assert names(voter.log) == ["web-1", "ada"]


def test_the_founder_begins_the_log_with_what_it_knows() -> None:
    entries = with_keys((), TRUST, (WEB, ADMIN, WEB, certificate("x", PAIRS[3], by=PAIRS[4])))
    assert [type(entry) for entry in entries] == [RosterChanged, RosterChanged]
    assert with_keys(entries, TRUST, (WEB, ADMIN)) == entries


def test_an_agent_proposes_what_its_log_lacks_until_it_stands_there() -> None:
    log = log_of(WEB)
    me = Identity("web-1", "web-1", 1, "web-1:1")
    cluster = Cluster("c", LogVoters(1, 1, "v:1", ("v:1",)))
    host = certificate("web-2", PAIRS[2], by=PAIRS[5])
    membership = Membership(me, (), log, cluster=cluster, signed=(WEB, host, TOKEN))

    def proposed() -> list[Signed]:
        sent = [effect.message for effect in membership.ask(0, ()) if isinstance(effect, Send)]
        return [message.signed for message in sent if isinstance(message, ChangeRoster)]

    assert proposed() == [TOKEN] == proposed()
    grow(log, ChangeRoster(signed=TOKEN))
    assert proposed() == [host]
    grow(log, ChangeRoster(signed=host))
    assert proposed() == []
    membership.sign(certificate("eve", PAIRS[3], by=PAIRS[3]))
    assert proposed() == []
    membership.sign(revocation(PAIRS[0]))
    assert proposed() == [revocation(PAIRS[0])]


def test_an_agent_does_not_take_the_place_of_another() -> None:
    """All agents know each other's ids, which are in the log."""
    log = log_of(WEB, certificate("web-2", PAIRS[2]))
    joined(log, "web-1", "h1:1")
    with pytest.raises(UserError, match="is web-1, whose key holds, and not web-2"):
        grow(log, join("web-2", "h2:1", "web-1", incarnation=9))
    assert [member.address for member in log.members("s")] == ["h1:1"]
    grow(log, ChangeRoster(signed=revocation(PAIRS[0])))
    grow(log, join("web-2", "h2:1", "web-1", incarnation=9))
    assert [member.name for member in log.members("s")] == ["web-2"], "a host that got another name"


def test_only_members_whose_key_holds_are_in_groups() -> None:
    log = log_of(WEB, certificate("web-2", PAIRS[2], expires=50))
    joined(log, "web-1", "h1:1")
    joined(log, "web-2", "h2:1")
    joined(log, "eve", "h3:1")
    at = [address for address in ("h1:1", "h2:1", "h3:1", "h4:1") if log.is_enrolled(address, 60_000)]
    assert at == ["h1:1"]
    assert log.is_enrolled("h2:1", 49_000)
    grow(log, ChangeRoster(signed=revocation(PAIRS[0])))
    assert not log.is_enrolled("h1:1", 60_000)
