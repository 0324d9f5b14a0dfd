"""Windows as messages, over Kafka's protocol: to the broker that librdkafka has for tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.disk.store import Store
from agents.outputs.delivering import Deliveries
from tests.support.delivered import commit, deliver, output

kafka = pytest.importorskip("confluent_kafka")


def test_a_window_is_a_message_whose_key_is_the_window() -> None:
    broker = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none"})
    (at,) = broker.list_topics(timeout=10).brokers.values()
    url, store = f"kafka://{at.host}:{at.port}", Store(":memory:")
    commit(store, 0, [{"page": "/", "n": 2}])
    commit(store, 10, [{"page": "/", "n": 3}])
    commit(store, 0, [{"page": "/", "n": 4}], revision=1)
    to, spec = Deliveries("a:1", (url,)), output(f"{url}/windows")
    done = deliver(to, spec, store)
    assert (done.error, done.kept.number) == ("", 3)
    deliver(to, spec, store, 2)
    consumer = kafka.Consumer(
        {"bootstrap.servers": f"{at.host}:{at.port}", "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["windows"])
    messages: list[Any] = []
    while len(messages) < 4:
        messages += consumer.consume(4, timeout=10) or pytest.fail("no more messages")
    consumer.close()
    to.close()
    newest = {one.key(): json.loads(one.value()) for one in messages}
    assert {key: said["rows"][0]["n"] for key, said in newest.items()} == {
        b"out:0:10000000": 4,
        b"out:10000000:20000000": 3,
    }
    ids = [dict(one.headers())["elf-id"] for one in messages]
    assert len(set(ids)) == 3
    store.close()


def test_a_broker_that_is_not_there_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.outputs.kafka.TIMEOUT_SECS", 1)
    store = Store(":memory:")
    commit(store, 0, [{"n": 2}])
    done = deliver(Deliveries("a:1", ("kafka:",)), output("kafka://127.0.0.1:1/windows"), store)
    assert done.kept.number == 0
    assert "Connection refused" in done.error or "timed out" in done.error
    store.close()
