"""Raft groups, one promise at a time, in small worlds of default settings."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import pytest

from lab.raft.oracles import Broken
from lab.raft.world import Weather, World
from overlay import Peer
from overlay.errors import OverlayError
from overlay.ids import key_of
from overlay.raft import Accepted, Effect, Groups, Persist, RaftConfig, Rejected, Send
from overlay.raft.effects import Promised
from overlay.raft.local import Role
from tests.overlay.plants import Plant, answers_before_it_persists, commits_an_old_term_by_counting

KEY = key_of(b"a root's hard state")
FIVE = ["n0", "n1", "n2", "n3", "n4"]


class Small:
    """A world with one group, of which the first node is the founder; and short ways to use it."""

    def __init__(
        self,
        members: Sequence[str] = FIVE,
        others: Sequence[str] = (),
        config: RaftConfig | None = None,
        weather: Weather | None = None,
    ) -> None:
        self.world = World(random.Random(1), config, weather, check=True)
        self.tokens = 0
        for address in (*members, *others):
            self.world.start(address)
        self.do(members[0], lambda node: node.create(KEY, b"", members[1:], self.world.now))
        assert self.until(lambda: len(self.voters()) == len(members))
        self.world.run(2_500)

    def do(self, address: str, call: Callable[[Groups], list[Effect]]) -> list[Effect]:
        effects = call(self.world.at(address))
        self.world.perform(address, effects)
        return effects

    def until(self, condition: Callable[[], bool], limit_ms: int = 20_000) -> bool:
        return self.world.run_until(condition, limit_ms, every_ms=5)

    def leader(self) -> str:
        leader = self.world.leader(KEY)
        assert leader is not None
        return leader

    def followers(self) -> list[str]:
        return [address for address in self.voters() if address != self.leader()]

    def voters(self) -> list[str]:
        leader = self.world.leader(KEY)
        standing = self.world.at(leader).standing(KEY) if leader else None
        return [voter.address for voter in standing.membership.voters] if standing else []

    def term(self, address: str) -> int:
        standing = self.world.at(address).standing(KEY)
        assert standing is not None
        return standing.term

    def ask(self, address: str, term: int = 0, size: int = 8) -> int:
        """Ask for a record; its token."""
        self.tokens += 1
        payload = b"%08d" % self.tokens + b"x" * (size - 8)
        self.world.judge.asked(address, self.tokens, KEY, payload)
        self.do(address, lambda node: node.propose(KEY, self.tokens, payload, self.world.now, term))
        return self.tokens

    def fate(self, address: str, token: int, wait_ms: int = 500) -> str:
        """What has come of it: accepted, the reason of a refusal, or nothing yet."""
        self.world.run(wait_ms)
        operation = self.world.judge.operations[address, token]
        return "accepted" if operation.index else operation.refused

    def rests(self) -> None:
        self.world.run(3_000)
        self.world.judge.rest(self.world, KEY)
        self.world.judge.logs(self.world)
        self.world.judge.operations_hold()

    def stand(self, address: str) -> None:
        """Let a member stand now, whoever leads."""
        node = self.world.at(address)
        group = node.group(KEY)
        if group._election.stand(pre=False, told_to_stand=True):
            group._lead()
        self.world.perform(address, node._take())
        self.world.run(12)

    def stop(self, *addresses: str) -> None:
        """Crash these; what is on its way to them is lost."""
        for address in addresses:
            self.world.crash(address)
        self.world.run(12)

    def go(self, *addresses: str) -> None:
        for address in addresses:
            self.world.start(address)


def figure_eight() -> Small:
    """Figure 8 of the Raft paper: a record of an old term reaches a majority, and is replaced still."""
    small = Small(config=RaftConfig(batch_entries=1), weather=Weather(delay_min=5, delay_max=5))
    small.world.partition(["n0", "n1"], ["n2", "n3"], ["n4"])
    small.ask("n0")
    small.world.run(12)
    old = small.world.at("n1").group(KEY).local.log.last_index
    small.stop("n0")
    small.world.partition(["n1"], ["n2", "n3", "n4"])
    small.stand("n4")
    assert small.world.leader(KEY) == "n4"
    small.stop("n2", "n3", "n4")
    small.go("n0", "n2", "n3")
    small.world.heal()
    small.stand("n0")
    small.stand("n0")
    assert small.world.leader(KEY) == "n0"
    small.world.partition(["n0", "n1", "n2"], ["n3", "n4"])
    assert small.until(lambda: small.world.at("n2").group(KEY).local.log.last_index >= old, 50)
    small.world.run(5)
    small.stop("n0", "n1", "n2")
    small.world.heal()
    small.go("n2", "n4")
    small.stand("n4")
    small.stand("n4")
    assert small.world.leader(KEY) == "n4", "the others have nothing newer"
    small.go("n0", "n1")
    small.rests()
    return small


def blackouts() -> None:
    """All stop in the moment a record is accepted, again and again; the old leader comes back last."""
    small = Small(FIVE[:3], weather=Weather(delay_min=1, delay_max=2, sync_max=60))
    for _ in range(40):
        leader, members = small.leader(), small.voters()
        token = small.ask(leader)
        assert small.until(lambda: small.world.judge.operations[leader, token].index > 0)  # noqa: B023
        small.stop(*members)
        small.go(*(address for address in members if address != leader))
        assert small.until(lambda: small.world.leader(KEY) is not None)
        small.go(leader)
        small.rests()


@pytest.mark.parametrize(
    ("story", "plant"),
    [(figure_eight, commits_an_old_term_by_counting), (blackouts, answers_before_it_persists)],
    ids=["figure eight", "blackouts"],
)
def test_a_story_that_ends_well_unless_a_bug_is_planted(
    story: Callable[[], object], plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    story()
    plant(monkeypatch)
    with pytest.raises(Broken):
        story()


def test_a_founder_alone_leads_at_once_and_is_joined_by_the_others() -> None:
    small = Small()
    assert small.leader() == "n0"
    assert sorted(small.voters()) == FIVE
    standings = [small.world.at(address).standing(KEY) for address in FIVE]
    assert len({(s.birth, s.epoch, s.term, s.committed, s.leader) for s in standings if s}) == 1
    assert small.fate("n0", small.ask("n0")) == "accepted"
    small.rests()


def test_a_member_alone_leads_again_as_soon_as_it_is_back() -> None:
    """No election is waited for that nobody else could win."""
    small = Small(["n0"])
    record = small.ask("n0")
    assert small.fate("n0", record) == "accepted"
    term = small.term("n0")
    small.world.crash("n0")
    small.world.start("n0")
    assert small.until(lambda: small.world.leader(KEY) == "n0", limit_ms=10)
    assert small.term("n0") > term
    assert small.fate("n0", small.ask("n0")) == "accepted"
    small.rests()


def test_founding_twice_is_refused() -> None:
    with pytest.raises(OverlayError, match="exists"):
        Small().do("n0", lambda node: node.create(KEY, b"", [], 0))


def test_unknown_is_never_new() -> None:
    world = World(random.Random(1), check=True)
    for address in FIVE:
        world.start(address)
    world.perform("n0", world.at("n0").enter(KEY, FIVE, world.now))
    world.run(60_000)
    assert not any(world.at(address).held() for address in FIVE)
    assert world.messages["Ask"] > 100
    assert world.messages["Ask"] - world.messages["Told"] <= 4, "all but the last have been answered"


def test_a_promise_is_written_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every list of effects has its writes first, and a vote is among them."""
    small = Small()
    seen: list[list[Effect]] = []
    small.world.crash("n0")
    perform = small.world.perform

    def seeing(address: str, effects: Iterable[Effect]) -> None:
        seen.append(list(effects))
        perform(address, seen[-1])

    monkeypatch.setattr(small.world, "perform", seeing)
    assert small.until(lambda: small.world.leader(KEY) is not None)
    for effects in seen:
        kinds = [isinstance(effect, Persist) for effect in effects]
        assert sum(kinds) <= 1
        assert not any(kinds[1:])
    written = [write for effects in seen for e in effects if isinstance(e, Persist) for write in e.writes]
    assert sum(isinstance(write, Promised) for write in written) >= 3


def test_a_new_leader_within_four_seconds_and_nothing_lost() -> None:
    small = Small()
    assert small.fate("n0", small.ask("n0")) == "accepted"
    at = small.world.now
    small.world.crash("n0")
    assert small.until(lambda: small.world.leader(KEY) is not None)
    assert small.world.now - at < 4_000
    leader = small.leader()
    assert small.fate(leader, small.ask(leader)) == "accepted"
    small.world.start("n0")
    small.rests()


def test_a_hint_that_a_peer_is_gone_saves_the_wait() -> None:
    small = Small()
    at = small.world.now
    small.world.crash("n0")
    for address in FIVE[1:]:
        small.do(address, lambda node: node.peer_down("n0", small.world.now))
    assert small.until(lambda: small.world.leader(KEY) is not None)
    assert small.world.now - at < 1_200


def test_a_leader_that_stalls_for_two_seconds_stays() -> None:
    small = Small()
    term = small.term("n0")
    for _ in range(10):
        small.world.stall("n0", 2_000)
        small.world.run(5_000)
    assert small.leader() == "n0"
    assert small.term("n0") == term


def test_a_node_that_returns_disturbs_nobody() -> None:
    small = Small()
    term = small.term("n0")
    small.world.partition(["n4"])
    small.world.run(60_000)
    assert small.world.at("n4").group(KEY).local.role in (Role.ASKING, Role.FOLLOWER)
    small.world.heal()
    small.world.run(10_000)
    assert small.leader() == "n0"
    assert {small.term(address) for address in FIVE} == {term}
    small.rests()


def test_a_side_without_a_majority_accepts_nothing_and_loses_nothing() -> None:
    small = Small()
    small.world.partition(["n0", "n1"], ["n2", "n3", "n4"])
    early = small.ask("n0")
    small.world.run(6_000)
    assert small.fate("n0", early) == "unsure"
    assert small.fate("n0", small.ask("n0")) == "not leader"
    leader = small.leader()
    assert leader in ("n2", "n3", "n4")
    assert small.fate(leader, small.ask(leader)) == "accepted"
    small.world.heal()
    small.rests()


def test_a_deposed_leader_writes_nothing_and_reads_nothing() -> None:
    """It does not know yet that it is deposed; its records and reads wait, and are refused when it learns."""
    small = Small()
    small.world.partition(["n0"], FIVE[1:])
    for address in FIVE[1:]:
        small.do(address, lambda node: node.peer_down("n0", small.world.now))
    assert small.until(lambda: small.world.leader(KEY) != "n0")
    assert small.world.at("n0").group(KEY).local.role is Role.LEADER
    record = small.ask("n0")
    small.tokens += 1
    small.world.judge.asked("n0", small.tokens, KEY, b"")
    small.do("n0", lambda node: node.read(KEY, small.tokens, small.world.now))
    small.world.heal()
    assert small.fate("n0", record, 3_000) == "unsure"
    assert small.fate("n0", small.tokens) == "not leader"
    small.rests()


def test_a_record_of_another_term_is_fenced_off() -> None:
    small = Small()
    term = small.term("n0")
    assert small.fate("n0", small.ask("n0", term)) == "accepted"
    assert small.fate("n0", small.ask("n0", term - 1)) == "stale term"
    assert small.fate("n1", small.ask("n1", term)) == "accepted"
    assert small.fate("n1", small.ask("n1", term + 1)) == "stale term"
    small.do("n0", lambda node: node.transfer(KEY, "n3", small.world.now))
    assert small.until(lambda: small.world.leader(KEY) == "n3", 1_000)
    small.world.run(100)
    assert small.fate("n3", small.ask("n3", term)) == "stale term"
    assert small.fate("n0", small.ask("n0", term)) == "stale term"


def test_what_was_accepted_before_can_be_read() -> None:
    small = Small()
    for _ in range(5):
        small.ask("n0")
    small.world.run(100)
    small.world.judge.asked("n0", 99, KEY, b"")
    small.do("n0", lambda node: node.read(KEY, 99, small.world.now))
    assert small.fate("n0", 99) == "accepted"
    assert small.world.judge.operations["n0", 99].index == small.world.at("n0").group(KEY).local.commit


def test_a_node_without_memory_has_no_vote_until_it_is_let_in_again() -> None:
    small = Small(["n0", "n1", "n2"])
    assert small.fate("n0", small.ask("n0")) == "accepted"
    before = small.world.at("n2").group(KEY).local.hard.slot
    for address in ("n0", "n2"):
        small.world.crash(address)
    small.world.wipe("n2")
    small.world.start("n2")
    small.world.run(30_000)
    assert small.world.leader(KEY) is None, "one disk of three is no majority"
    assert small.world.messages["UnknownMembers"] > 0
    assert small.world.at("n2").held() == ()
    small.world.start("n0")
    assert small.until(lambda: sorted(small.voters()) == ["n0", "n1", "n2"] and "n2" in small.world.running())
    assert small.until(lambda: bool(small.world.at("n2").held()))
    assert small.world.at("n2").group(KEY).local.hard.slot != before
    small.rests()


def test_two_foundings_under_one_key_never_mix() -> None:
    world = World(random.Random(1), check=True)
    for address in FIVE:
        world.start(address)
    world.perform("n0", world.at("n0").create(KEY, b"one", ["n1", "n2", "n3"], world.now))
    world.perform("n4", world.at("n4").create(KEY, b"other", ["n3", "n2", "n1"], world.now))
    world.run(40_000)
    births: defaultdict[int, set[str]] = defaultdict(set)
    for address in FIVE:
        standing = world.at(address).standing(KEY)
        assert standing is not None
        births[standing.birth].add(address)
    assert len(births) == 2
    for address in ("n0", "n4"):
        standing = world.at(address).standing(KEY)
        assert standing is not None
        assert {member.address for member in standing.membership.members} == births[standing.birth]


def test_a_nearer_node_forwards_and_joins() -> None:
    small = Small(others=["near"])
    small.do("near", lambda node: node.enter(KEY, ["n1", "n2"], small.world.now))
    assert small.until(lambda: bool(small.world.at("near").held()))
    assert small.fate("near", small.ask("near")) == "accepted"
    small.world.run(5_000)
    assert len(small.voters()) == 5
    if "near" in small.voters():
        small.do("n0", lambda node: node.transfer(KEY, "near", small.world.now))
        assert small.until(lambda: small.world.leader(KEY) == "near", 1_000)
    else:
        assert small.world.at("near").held() == ()
    small.rests()


def test_who_leaves_hands_over_and_no_record_is_missed() -> None:
    small = Small()
    small.ask("n0")
    at = small.world.now
    small.do("n0", lambda node: node.leave(small.world.now))
    assert small.until(lambda: small.world.leader(KEY) not in (None, "n0"))
    assert small.world.now - at < 200
    assert small.until(lambda: small.world.at("n0").held() == ())
    assert small.world.nodes["n0"].disk.groups == {}
    assert sorted(small.voters()) == FIVE[1:]
    leader = small.leader()
    assert small.fate(leader, small.ask(leader)) == "accepted"
    small.rests()


def test_one_that_was_never_let_in_just_goes_and_is_not_invited_again() -> None:
    small = Small(others=["guest"])
    small.world.partition([*FIVE[1:], "guest"])
    small.do("guest", lambda node: node.enter(KEY, ["n1"], small.world.now))
    small.world.run(1_000)
    assert small.world.at("guest").held() == (KEY,)
    small.do("guest", lambda node: node.leave(small.world.now))
    assert small.world.at("guest").held() == ()
    small.world.heal()
    small.do("n0", lambda node: node.invite(KEY, ["guest"], small.world.now))
    small.world.run(5_000)
    assert small.world.at("guest").held() == ()


def test_the_only_voter_can_not_leave() -> None:
    small = Small(["n0"])
    small.do("n0", lambda node: node.leave(small.world.now))
    small.world.run(5_000)
    assert small.world.at("n0").held() == (KEY,)
    assert small.fate("n0", small.ask("n0")) == "accepted"


@pytest.mark.parametrize("members", [FIVE[:2], FIVE[:3]])
def test_all_want_to_leave_at_once_and_the_last_one_finds_somebody(members: list[str]) -> None:
    """They don't hand it over to one another for ever, though each says again and again that it goes."""
    small = Small(members, others=["guest"])
    record = small.ask("n0")

    def go() -> bool:
        for address in members:
            if small.world.at(address).held():
                small.do(address, lambda node: node.leave(small.world.now))
        small.world.run(250)
        return len(small.voters()) == 1

    assert any(go() for _ in range(20))
    assert small.fate("n0", record) == "accepted"
    last = small.leader()
    small.do(last, lambda node: node.invite(KEY, ["guest"], small.world.now))
    assert small.until(lambda: not any(small.world.at(address).held() for address in members))
    assert small.voters() == ["guest"]


def test_one_that_was_away_gets_a_snapshot_in_pieces() -> None:
    small = Small(config=RaftConfig(compact_entries=8, piece_bytes=5))
    small.world.crash("n4")
    for _ in range(40):
        small.ask("n0")
        small.world.run(20)
    before = small.world.messages["InstallSnapshot"]
    assert small.world.at("n0").group(KEY).local.log.base.index > 30
    small.world.start("n4")
    small.rests()
    assert small.world.messages["InstallSnapshot"] - before >= 16 // 5 + 1


def test_a_dead_member_is_replaced_by_order() -> None:
    small = Small(others=["spare"])
    small.world.crash("n4")
    small.world.run(5_000)
    small.do("n0", lambda node: node.invite(KEY, ["spare"], small.world.now))
    small.world.run(5_000)
    assert sorted(small.voters()) == ["n0", "n1", "n2", "n3", "spare"], "the silent one is the one too many"
    small.world.start("n4")
    small.world.run(10_000)
    assert small.world.at("n4").held() == (), "it was told that it is out"
    small.rests()


@pytest.mark.parametrize("others", [0, 1])
def test_a_live_member_that_is_put_out_hears_of_it(others: int) -> None:
    """Also where it goes on to follow that leader in other groups; then it can be taken in again."""
    small = Small()
    for number in range(others):
        small.do("n0", lambda node, n=number: node.create(key_of(b"%d" % n), b"", FIVE, small.world.now))  # type: ignore[misc]
    small.world.run(5_000)
    small.do("n0", lambda node: node.remove(KEY, "n4", small.world.now))
    small.world.run(4_000)
    assert KEY not in small.world.at("n4").held()
    small.do("n0", lambda node: node.invite(KEY, ["n4"], small.world.now))
    assert small.until(lambda: "n4" in small.voters())
    small.rests()


def test_a_healthy_member_stays_while_the_group_depends_on_it() -> None:
    small = Small()
    for address in ("n3", "n4"):
        small.world.crash(address)
    small.world.run(5_000)
    small.do("n0", lambda node: node.remove(KEY, "n1", small.world.now))
    small.world.run(5_000)
    assert "n1" in small.voters()
    assert small.fate("n0", small.ask("n0")) == "accepted"


def test_nobody_is_let_go_on_the_word_of_one_that_has_just_died() -> None:
    """Its silence is not noticed yet, and the smaller group would need it."""
    small = Small(FIVE[:3], others=["spare"])
    small.world.crash("n2")
    small.do("n1", lambda node: node.leave(small.world.now))
    small.world.run(4_000)
    assert "n1" in small.voters()
    assert small.fate("n0", small.ask("n0")) == "accepted"
    small.do("n0", lambda node: node.invite(KEY, ["spare"], small.world.now))
    assert small.until(lambda: sorted(small.voters()) == ["n0", "n2", "spare"])


def test_where_a_dead_member_is_in_the_way_it_is_released_first() -> None:
    """Three of which one is dead and one has gone would decide nothing for good."""
    small = Small(FIVE[:3])
    small.world.crash("n2")
    small.do("n1", lambda node: node.leave(small.world.now))
    assert small.until(lambda: small.voters() == ["n0"], 10_000)
    assert small.fate("n0", small.ask("n0")) == "accepted"


def test_of_three_nobody_is_let_go_before_there_is_one_in_its_place() -> None:
    """Or the other two would need each other from when one of them has it in its log."""
    small = Small(FIVE[:3], others=["spare"])
    small.do("n1", lambda node: node.leave(small.world.now))
    small.do("n0", lambda node: node.invite(KEY, ["spare"], small.world.now))

    def gone() -> bool:
        group = small.world.at("n0").group(KEY)
        assert group.local.membership.spare > 0
        return "n1" not in small.voters()

    assert small.until(gone, 2_000)
    assert sorted(small.voters()) == ["n0", "n2", "spare"]
    small.rests()


def test_who_leaves_does_not_wait_for_ever_for_one_in_its_place() -> None:
    small = Small(FIVE[:3])
    small.do("n1", lambda node: node.leave(small.world.now))
    small.world.run(2_500)
    assert "n1" in small.voters()
    assert small.until(lambda: "n1" not in small.voters(), 1_500)
    small.rests()


@pytest.mark.parametrize("count", [1, 50, 400])
def test_an_idle_group_costs_nothing(count: int) -> None:
    world = World(random.Random(1))
    for address in FIVE:
        world.start(address)
    for number in range(count):
        key = key_of(b"%d" % number)
        world.perform("n0", world.at("n0").create(key, b"", FIVE, world.now))
    world.run(10_000)
    assert len(world.at("n3").held()) == count
    world.messages.clear()
    world.run(10_000)
    assert dict(world.messages) == {"Beat": 80}, "one a second, there and back, to four peers"


def test_the_elections_of_many_groups_share_messages() -> None:
    world = World(random.Random(1))
    for address in FIVE:
        world.start(address)
    for number in range(200):
        world.perform("n0", world.at("n0").create(key_of(b"%d" % number), b"", FIVE, world.now))
    world.run(10_000)
    world.messages.clear()
    world.crash("n0")
    world.run(5_000)
    assert all(world.leader(key_of(b"%d" % number)) for number in range(200))
    assert world.messages["VoteRequests"] < 100, "alone, each group would need eight"


def test_what_is_too_much_is_refused() -> None:
    small = Small(config=RaftConfig(uncommitted_max=3, record_bytes_max=100, state_bytes_max=100))
    small.world.partition(["n0"])
    fates = [small.ask("n0") for _ in range(5)]
    assert [small.fate("n0", token, 0) for token in fates] == ["", "", "", "busy", "busy"]
    node = small.world.at("n0")
    with pytest.raises(ValueError, match="over the limit of 100"):
        node.propose(KEY, 1, bytes(101), 0)
    with pytest.raises(ValueError, match="not empty"):
        node.propose(KEY, 1, b"", 0)
    with pytest.raises(ValueError, match="over the limit of 100"):
        node.compact(KEY, 1, bytes(101), 0)
    with pytest.raises(ValueError, match="16 bytes"):
        node.create(b"short", b"", [], 0)


def test_a_record_for_a_group_that_we_do_not_have_is_refused() -> None:
    node = Groups(Peer("me", 1), RaftConfig(), random.Random(1))
    node.start(0)
    assert node.propose(KEY, 7, b"record", 0) == [Rejected(KEY, 7, "not leader", "")]
    assert node.read(KEY, 8, 0) == [Rejected(KEY, 8, "not leader", "")]


def test_alone_a_record_is_accepted_behind_its_write() -> None:
    node = Groups(Peer("me", 1), RaftConfig(), random.Random(1))
    node.start(0)
    node.create(KEY, b"", [], 0)
    effects = node.propose(KEY, 7, b"record", 1)
    assert isinstance(effects[0], Persist)
    assert isinstance(effects[-1], Accepted)
    assert not any(isinstance(effect, Send) for effect in effects)


@pytest.mark.parametrize("field", ["beat_ms", "size", "parts_max"])
def test_a_setting_that_makes_no_sense_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        RaftConfig(**{field: 0})
    with pytest.raises(ValueError, match="two beats"):
        RaftConfig(silence_ms=2_000)
