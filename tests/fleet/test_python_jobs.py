"""Jobs in Python with everything real: drivers and sandbox processes; over memory, and once over sockets."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import elf.examples
from agents.disk.store import Store
from agents.driver import Driver
from agents.node.beginning import NodeSettings, Restored, raft_config
from agents.node.node import Node
from elf.client.results import facts_of
from elf.errors import UserError
from elf.functions.sandbox import Sandboxes
from elf.job.catalog.membership import Identity
from elf.job.program.calls import Loaded
from elf.job.program.seats import uid_of
from elf.job.program.spec import Submission
from elf.transport.memory import MemoryNetwork
from elf.wire.base import Message
from elf.wire.clients import Call, Execute, Reply
from lab.chaos.programs import COUNTS
from overlay import Overlay, OverlayConfig, Peer, raft
from tests.support.confined import needs_confinement
from tests.support.fleet import Fleet
from tests.support.waiting import eventually
from tests.support.watching import connected, create

pytestmark = needs_confinement

HEAD = "import time, os\nfrom elf.job import Job, QueryFailed\nclass J(Job):\n    every = 0.1\n"
ASKS = """    def start(self): self.last = None
    def on_timer(self):
        if self.is_root:
            began = time.monotonic()
            try:
                self.last = [self.query("{to}", 1, timeout=2), (time.monotonic() - began) * 1000]
            except QueryFailed as failed:
                self.last = [str(failed), 0]
            print("got", *self.last)
"""
ADDS = '    def deliver(self, app, message): return self.query("{to}", message + 1, timeout=2)\n'
SQUARES = "    def deliver(self, app, message): return (message + 1) ** 2\n"


class Agents:
    """N drivers without streams in this process; their jobs' sandboxes share one template."""

    def __init__(self, count: int) -> None:
        network = MemoryNetwork()
        self.said: list[tuple[str, str]] = []
        self.sandboxes = Sandboxes()
        self.drivers = [self._driver(network, i) for i in range(count)]
        self._requests = 0

    def _driver(self, network: MemoryNetwork, index: int) -> Driver:
        address = f"agent-{index}:0"
        me = Identity(f"id{index}", f"agent-{index}", 1, address)
        peer, rng = Peer(address, 1), random.Random(index)
        overlay, groups = Overlay(peer, OverlayConfig(), rng), raft.Groups(peer, raft_config(), rng)
        node = Node(me, [], overlay, groups, NodeSettings(), Restored(), new_cluster_uid="c")
        driver = Driver(node, network.listen(address), Store(":memory:"), [], cluster="c")
        driver._hosts.sandboxes = self.sandboxes
        driver._hosts._log = lambda spec, line: self.said.append((spec.name, line))
        return driver

    async def call(self, verb: str, argument: str) -> Message:
        """A client's call, through any of the agents."""
        self._requests += 1
        driver = self.drivers[self._requests % len(self.drivers)]
        client = f"client:{self._requests}"
        inbox = driver.open_client(client)
        message: Message = (
            Execute(request=1, sql=argument, creator="me")
            if verb == "sql"
            else Call(request=1, verb=verb, argument=argument, creator="me")
        )
        driver.from_client(client, message)
        try:
            return await asyncio.wait_for(inbox.get(), 20)
        finally:
            driver.close_client(client)

    async def submit(self, name: str, body: str) -> None:
        loaded = Loaded("J", 100, ())
        asked = Submission(name, HEAD + body, f"{name}.py", loaded, name)
        answer = await self.call("submit", json.dumps(_plain(asked)))
        assert isinstance(answer, Reply), answer

    async def jobs(self) -> dict[str, tuple[str, str]]:
        from elf.batch import decode

        answer = await self.call("sql", "SHOW JOBS")
        assert isinstance(answer, Reply)
        rows = decode(answer.payload).to_pylist() if answer.payload else []
        return {row["job"]: (row["state"], row["reason"]) for row in rows}


def _plain(asked: Submission) -> object:
    import msgspec

    return msgspec.to_builtins(asked)


@contextlib.asynccontextmanager
async def agents(count: int) -> AsyncIterator[Agents]:
    fleet = Agents(count)
    first, *others = fleet.drivers
    tasks = [asyncio.create_task(first.run([]))]
    tasks += [asyncio.create_task(driver.run([first.node.me.address])) for driver in others]
    try:
        await eventually(lambda: all(d.node.ready for d in fleet.drivers), "ready")
        await asyncio.to_thread(fleet.sandboxes._template._ready)
        yield fleet
    finally:
        for driver in fleet.drivers:
            driver.stop("done")
        await asyncio.gather(*tasks)


def got(fleet: Agents, name: str) -> list[str]:
    return [line for job, line in fleet.said if job == name and line.startswith("got")]


async def test_a_chain_of_queries_is_answered_and_a_cycle_refused() -> None:
    async with agents(2) as fleet:
        await fleet.submit("c", SQUARES)
        await fleet.submit("b", ADDS.format(to="c"))
        await fleet.submit("a", ASKS.format(to="b"))
        await eventually(
            lambda: any(line.startswith("got 9") for line in got(fleet, "a")), "a chain of three", 20
        )
        await fleet.submit("ring2", ADDS.format(to="ring3"))
        await fleet.submit("ring3", ADDS.format(to="ring1"))
        await fleet.submit("ring1", ASKS.format(to="ring2"))
        circle = "me/ring1 → me/ring2 → me/ring3 → me/ring1"
        await eventually(lambda: any(circle in line for line in got(fleet, "ring1")), "a cycle refused", 20)
        await fleet.submit("x", ASKS.format(to="y") + "    def deliver(self, app, message): return 7\n")
        await fleet.submit("y", ASKS.format(to="x") + "    def deliver(self, app, message): return 8\n")
        await eventually(lambda: any(line.startswith("got 8") for line in got(fleet, "x")), "at once", 20)
        await eventually(lambda: any(line.startswith("got 7") for line in got(fleet, "y")), "at once", 20)
        await fleet.submit("lonely", ASKS.format(to="nobody"))
        await eventually(
            lambda: any("there is no job" in line for line in got(fleet, "lonely")), "nobody there", 20
        )
        times = sorted(float(line.split()[-1]) for line in got(fleet, "a") if line.startswith("got 9"))
        assert times[len(times) // 2] < 500, times  # two sandboxes and a route, on a busy machine; mostly 5
        await fleet.call("sql", "DROP JOB c")
        await eventually(lambda: any("there is no job" in line for line in got(fleet, "a")), "c is gone", 20)


async def test_a_job_that_blocks_or_dies_fails_alone_and_says_why() -> None:
    async with agents(2) as fleet:
        await fleet.submit("good", '    def on_timer(self): print("got", self.now)\n')
        await fleet.submit("blocks", "    def on_timer(self): time.sleep(99)\n")
        await fleet.submit("dies", "    def on_timer(self): os._exit(7)\n")
        await fleet.submit("raises", "    def on_timer(self): self.nothing.of_this\n")

        async def failed() -> bool:
            states = await fleet.jobs()
            return all(name in states and states[name][0] == "failed" for name in ("dies", "blocks"))

        await eventually(failed, "two jobs that fail", 30)
        jobs = await fleet.jobs()
        assert jobs["good"] == ("running", "")
        assert "dies.py: its process ended in the middle of a call (exit status 7)" in jobs["dies"][1]
        assert "blocks.py: it did not return within 1 s" in jobs["blocks"][1]
        assert jobs["raises"][0] == "failing"
        assert "raises.py:5: AttributeError: 'J' object has no attribute 'nothing'" in jobs["raises"][1]
        before = len(got(fleet, "good"))
        await eventually(lambda: len(got(fleet, "good")) > before + 4, "the good one goes on", 10)


PROMOTION = Path(elf.examples.__file__).with_name("micro_promotion.py")
SALES = """
from elf.job import Job, QueryFailed

class Sales(Job):
    every = 0.3
    def on_timer(self):
        if self.is_root:
            window = self.query("popular", timeout=2)
            if window["rows"]:
                best = max(window["rows"], key=lambda row: (row["clicks"], row["product"]))
                self.query("promo", timeout=2)
                print("selling", best["product"])
"""


FAILS = """
from elf.job import Job

class Fails(Job):
    def deliver(self, app, message):
        return message["nothing"]
"""


async def test_micro_promotion_gives_the_products_clicked_most_a_discount_on_every_agent(
    three: Fleet,
) -> None:
    async with await connected(three, 1) as client:
        now = time.time_ns() // 1000
        for index, agent in enumerate(three.agents):
            agent.append(
                (now + n, product, 1)
                for n, product in enumerate(["Tetris"] * 9 + ["Myst"] * 8 + ["Doom"] * 7)
            )
            agent.append((now + n, f"only {index}", 2) for n in range(2))
        await create(client)  # an SQL job, to be asked by one in Python
        text, settings = PROMOTION.read_text(), {"every": 0.4}
        with pytest.raises(UserError, match="MicroPromotion has no setting evry; it has"):
            await client.submit(text, "micro_promotion.py", "promo", settings={"evry": 1})
        answer = await client.submit(text, "micro_promotion.py", "promo", settings=settings)
        assert answer["job"] == "promo"
        await client.submit(SALES, "sales.py", "sales")

        def discounts(said: str) -> set[str]:
            lines = [json.loads(line) for line in said.splitlines() if '"job": "promo"' in line]
            return {line["event"].removeprefix("discount on ") for line in lines}

        async def clicks() -> None:
            while True:
                now = time.time_ns() // 1000
                for agent in three.agents:
                    agent.append(
                        (now, p, n) for p, n in (("Tetris", 9), ("Myst", 8), ("Doom", 7), ("Pong", 1))
                    )
                await asyncio.sleep(0.1)  # ten times a second, people click

        clicking = asyncio.create_task(clicks())
        try:
            best = {"Tetris", "Myst", "Doom"}
            await eventually(
                lambda: all(discounts(a.said()) == best for a in three.agents), "a discount everywhere", 60
            )
            await eventually(
                lambda: any("selling Tetris" in a.said() for a in three.agents), "asks an SQL job", 60
            )
            batches: Any = []
            async with asyncio.timeout(30):
                while not batches:  # a person asks as a job does, perhaps before the second batch is over
                    batches = await client.query("promo", {"since": 1})
            assert batches[-1]["batch"] > 1
            assert batches[-1]["agents"] == 3
            window: Any = await client.query(f"{client.creator}/popular")
            assert window["job"] == "popular"
            assert {"expected", "reported", "missing", "late"} <= set(window["status"])
            with pytest.raises(UserError, match="there is no job nobody; jobs: popular, promo, sales"):
                await client.query("nobody")
            all_batches: Any = await client.query("promo", {"since": "x"})  # no number: all that are kept
            assert len(all_batches) >= len(batches)
            await client.submit(FAILS, "fails.py", "fails")
            with pytest.raises(UserError, match=r"job fails gave no answer: fails\.py:.*TypeError"):
                await client.query("fails", 1)
            await client.sql("DROP JOB fails")
        finally:
            clicking.cancel()
        await client.sql("DROP JOB promo")
        left: set[str] = set()
        while left != {"popular", "sales"}:
            found = await client.sql("SHOW JOBS")
            assert found.table is not None
            left = set(found.table["job"].to_pylist())
    assert [agent.terminate() for agent in three.agents] == [0, 0, 0]


BLOCKS_ONCE = """    def start(self): self.seen = 0
    def on_timer(self): pass
    def deliver(self, app, message):
        time.sleep(99 * os.path.exists({flag!r}))
        self.seen += 1
        return self.seen
"""


async def test_a_deliver_that_blocks_is_told_until_one_returns(tmp_path: Path) -> None:
    """Its state is lost with its process: that is seen though timers run again at once."""
    flag = tmp_path / "blocks"
    async with agents(1) as fleet:
        await fleet.submit("asked", BLOCKS_ONCE.format(flag=str(flag)))
        await fleet.submit("asks", ASKS.format(to="asked"))
        await eventually(lambda: any(line.startswith("got 3 ") for line in got(fleet, "asks")), "asked", 20)
        flag.touch()
        await eventually(
            lambda: any("it did not return" in line for line in got(fleet, "asks")), "blocked", 20
        )
        await fleet.call("sql", "DROP JOB asks")

        async def lost() -> bool:
            state, reason = (await fleet.jobs())["asked"]
            return state == "failing" and "begun anew from its last checkpoint" in reason

        await eventually(lost, "what it lost is told", 20)
        await asyncio.sleep(1.5)  # its timers run again meanwhile, which must not hide that
        await eventually(lost, "it is told still", 20)
        flag.unlink()
        await fleet.submit("asks", ASKS.format(to="asked"))
        await eventually(
            lambda: any(line.startswith("got 1 ") for line in got(fleet, "asks")[3:]), "begun", 20
        )
        assert (await fleet.jobs())["asked"] == ("running", "")


KEEPS = """    def start(self):
        self.state.setdefault("sent", 0)
        self.state.setdefault("got", 0)
    def on_timer(self):
        if self.is_root:
            self.state["sent"] += 1
            self.send_to(self.me, 1)  # to the job of the master's agent
    def on_recv(self, node, paos):
        if self.is_root:
            self.state["got"] += paos
        else:
            self.send_to(self.parent, paos)
    def deliver(self, app, message): return [self.state["sent"], self.state["got"]]
"""


async def test_a_process_that_is_killed_goes_on_with_its_state() -> None:
    async with agents(1) as fleet:
        await fleet.submit("asked", KEEPS)
        await fleet.submit("asks", ASKS.format(to="asked"))

        def told() -> list[list[int]]:
            return [json.loads(line[4 : line.index("]") + 1]) for line in got(fleet, "asks") if "[" in line]

        await eventually(lambda: bool(told()) and told()[-1][0] >= 5, "five messages", 20)
        hosts = [h for h in fleet.drivers[0]._hosts._hosts.values() if h._spec.name == "asked"]
        assert sorted(uid_of(host._uid) == host._uid for host in hosts) == [False, True], "and its master"
        for host in hosts:
            before = told()[-1]
            os.kill(host._sandbox.pid, signal.SIGKILL)
            await eventually(lambda least=before[0]: told()[-1][0] >= least + 5, "five more", 20)  # type: ignore[misc]
        counts = told()
        assert counts == sorted(counts), "nothing was taken back"
        assert all(0 <= sent - received <= 20 for sent, received in counts), counts


FEEDBACK = """    import hashlib
    def on_timer(self):
        if self.is_root and not self.state.get("said"):
            self.multicast({"pad": bytes(range(256)) * 20_480})
            self.multicast("then")
            self.state["said"] = True
    def on_multicast(self, app, message):
        said = message if message == "then" else self.hashlib.sha1(message["pad"]).hexdigest()
        print("got", self.me, self.is_root, said)
"""


async def test_a_multicast_of_five_mebibytes_comes_to_all_agents_before_the_next() -> None:
    async with agents(3) as fleet:
        await fleet.submit("large", FEEDBACK)
        await eventually(lambda: len(got(fleet, "large")) == 8, "three agents and the master", 30)
        digest = hashlib.sha1(bytes(range(256)) * 20_480).hexdigest()
        for who in {tuple(line.split()[1:3]) for line in got(fleet, "large")}:
            heard = [line.split()[3] for line in got(fleet, "large") if tuple(line.split()[1:3]) == who]
            assert heard == [digest, "then"], who


BY_KEY = """    def on_timer(self):
        if not self.is_root and self.parent and "asked" not in self.state:
            self.state["asked"] = True
            self.ask_for([self.me, ("all", 1)])
            self.send_to(self.parent, self.me)
    def on_recv(self, node, paos):
        if not self.is_root:
            return self.send_to(self.parent, paos)
        agents = self.state.setdefault("agents", [])
        agents.append(paos)
        if len(agents) == 3:
            many = {n: bytes(1_000) for n in range(2_000)}
            self.feed_back({**many, **{agent: agent for agent in agents}, ("all", 1): "all"})
            self.multicast("then")
    def on_feedback(self, messages): print("got", self.me, *sorted(messages.values()))
    def on_multicast(self, app, message): print("got", self.me, message) if not self.is_root else None
"""


async def test_what_is_fed_back_comes_to_those_who_have_asked_for_its_keys_and_before_the_next() -> None:
    async with agents(3) as fleet:
        await fleet.submit("fed", BY_KEY)
        await eventually(lambda: len(got(fleet, "fed")) == 6, "three agents", 30)
        for agent in (driver.node.me.address for driver in fleet.drivers):
            heard = [line for line in got(fleet, "fed") if line.split()[1] == agent]
            assert heard == [f"got {agent} {agent} all", f"got {agent} then"]


TOO_MUCH = """    def on_timer(self): self.state["all"] = b"x" * (17 << 20)
"""
NOT_KEPT = """    def on_timer(self): self.state["file"] = time.sleep
"""


async def test_a_state_that_cannot_be_kept_is_told_in_one_line() -> None:
    async with agents(1) as fleet:
        await fleet.submit("much", TOO_MUCH)
        await fleet.submit("other", NOT_KEPT)

        async def failed() -> bool:
            states = await fleet.jobs()
            return all(name in states and states[name][0] == "failed" for name in ("much", "other"))

        await eventually(failed, "two jobs that fail", 30)
        jobs = await fleet.jobs()
        assert re.search(r"much\.py: self\.state cannot be kept: .* at most 16777216", jobs["much"][1])
        assert "other.py: self.state cannot be kept" in jobs["other"][1]
        assert "not builtin_function_or_method" in jobs["other"][1]


async def test_each_row_is_counted_once_by_a_job_whose_agents_are_killed(three: Fleet) -> None:
    """One agent after the other, among them the master."""
    now, products = time.time_ns() // 1000, ["Tetris", "Myst", "Doom"]
    async with await connected(three, 0) as client:
        for agent in three.agents:
            agent.append([(now, "for its columns", 1)])

        async def submitted() -> object:
            return await client.submit(COUNTS.replace("key", "product"), "counts.py", "counts")

        async def counts() -> dict[str, int]:
            found: Any = await client.query("counts")
            return dict(found)

        despite = (UserError,)
        await eventually(submitted, "columns are known", 60, despite=despite)

        async def begun() -> bool:
            for agent in three.agents:
                agent.append([(time.time_ns() // 1000, f"of {agent.name}", 1)])
            return {f"of {agent.name}" for agent in three.agents} <= {*await counts()}

        await eventually(begun, "all agents give their rows", 60, despite=despite)

        async def counted() -> bool:
            found = await counts()
            return {product: found.get(product) for product in products} == dict.fromkeys(products, 120)

        for place, victim in enumerate(three.agents):
            for agent in three.agents:
                agent.append((now + 1_000 * place + n, products[place], 1) for n in range(40))
            if victim is not three.agents[0]:  # whom we ask
                victim.kill()
                victim.start()
        await eventually(counted, "every row", 60, despite=despite)
        await asyncio.sleep(1.0)  # in which what comes twice would come
        assert await counted()


@pytest.mark.parametrize("trees", [1, 2])
async def test_a_master_goes_on_elsewhere_when_its_agent_is_gone_with_its_disk(
    three: Fleet, trees: int
) -> None:
    """The only one, or that of the second tree; the other one has other keys."""
    now, products = time.time_ns() // 1000, ["Doom", "Myst", "Pong", "Tetris"]
    for agent in three.agents:
        agent.append([(now, "for its columns", 1)])
    async with await connected(three, 0) as client:

        async def submitted() -> object:
            text = COUNTS.replace("key", "product")
            return await client.submit(text, "counts.py", "counts", settings={"trees": trees})

        await eventually(submitted, "columns are known", 60, despite=(UserError,))
        told = facts_of(await client.sql("DESCRIBE counts"))
    at = told["trees"].rpartition(" at ")[2] if trees > 1 else told["master"]
    lost = next(agent for agent in three.agents if agent.address == at)
    left = [agent for agent in three.agents if agent is not lost]
    async with await connected(three, three.agents.index(left[0])) as client:

        async def counts() -> dict[str, int]:
            counted: Any = await client.query("counts")
            return dict(counted)

        async def begun() -> bool:
            for agent in three.agents:
                agent.append([(time.time_ns() // 1000, f"of {agent.name}", 1)])
            return {f"of {agent.name}" for agent in three.agents} <= {*await counts()}

        despite = (UserError,)
        await eventually(begun, "all agents give their rows", 60, despite=despite)
        for agent in three.agents:
            agent.append((now + n, product, 1) for n in range(40) for product in products)

        async def counted(each: int) -> bool:
            found = await counts()
            return {product: found.get(product) for product in products} == dict.fromkeys(products, each)

        await eventually(lambda: counted(120), "every row", 60, despite=despite)
        await asyncio.sleep(3)  # what its own agent has sent is committed within a second or two
        lost.kill()
        shutil.rmtree(lost.folder / "data")
        for agent in left:
            agent.append((now + n, product, 1) for n in range(10) for product in products)
        await eventually(lambda: counted(140), "every row, at another master", 60, despite=despite)
