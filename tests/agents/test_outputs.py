"""What a host does with results on their way out: which targets it allows, files, webhooks."""

from __future__ import annotations

import base64
import csv
import hashlib
import hmac
import io
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agents.disk.store import Store
from agents.exposition import exposition
from agents.metrics import Metrics
from agents.outputs import files, webhook
from agents.outputs.delivering import Deliveries
from agents.outputs.parcels import Parcel
from agents.outputs.targets import Target
from elf.fields import replace
from elf.job.output import OutputSpec, is_allowed, why_not
from tests.support.delivered import JOB, SECOND, commit, deliver, output
from tests.support.receiver import serving


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(":memory:")
    yield store
    store.close()


@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        ("https://hooks.example.com/a?b", True),
        ("https://hooks.example.com", True),
        ("https://hooks.example.com.evil.org/a", False),
        ("https://hooks.example.com@evil.org/a", False),
        ("https://hooks.example.com:99@evil.org/a", False),
        ("https://hooks.example.co", False),
        ("file:/var/out/x", True),
        ("file:/var/outside", False),
        ("prometheus:", True),
        ("prometheus:x", True),
    ],
)
def test_a_host_allows_what_its_configuration_begins(target: str, allowed: bool) -> None:
    prefixes = ("https://hooks.example.com", "file:/var/out/", "prometheus:")
    assert is_allowed(target, prefixes) == allowed
    assert not is_allowed(target, ())


@pytest.mark.parametrize(
    ("target", "options", "why"),
    [
        ("ftp://x/y", {}, "no target begins like 'ftp://x/y'"),
        ("https://me:word@x/y", {}, "put it in a file of the hosts"),
        ("https://me@x/y", {}, "has no user"),
        ("https:///y", {}, "names no host"),
        ("https://x:99999/y", {}, "is no URL"),
        ("https://x/y", {"format": "csv"}, "https: has no option format; options: secret"),
        ("file:out", {}, "an absolute folder"),
        ("file:/var/../etc", {}, "no . and no .. in its path"),
        ("file://host/var", {}, "an absolute folder"),
        ("file:/srv/elf/%2e%2e/etc", {}, "no . and no .. in its path"),
        ("file:/srv/elf/..%2fetc", {}, "no . and no .. in its path"),
        ("file:/srv/elf/%252e%252e/etc", {}, "no . and no .. in its path"),
        ("file:/srv/elf/%00", {}, "no spaces"),
        ("https://h/elf/../admin", {}, "no . and no .. in its path"),
        ("https://h/elf/.%2E/admin", {}, "no . and no .. in its path"),
        ("https://h/elf/..;a/admin", {}, "no . and no .. in its path"),
        ("https://h/elf/..\\admin", {}, "no spaces"),
        ("otlp+https://h/./v1", {}, "no . and no .. in its path"),
        ("postgres://elf@db.example/stats#?host=evil&port=1", {}, "no spaces, no #"),
        ("postgres://elf@db.example/stats?host=evil", {}, "at most with ?sslmode="),
        ("postgres://elf@db.example/stats?sslmode=disable&host=evil", {}, "at most with ?sslmode="),
        ("postgres://elf@db.example/host=evil", {}, "the target of PostgreSQL"),
        ("postgres://elf@db.example,evil/stats", {}, "names no host"),
        ("postgres://elf@%2ftmp/stats", {}, "names no host"),
        ("postgres://elf@[::1]:5432/stats?sslmode=verify-full", {}, ""),
        ("https://h/elf\r\nx", {}, "no spaces"),
        ("https://hé/elf", {}, "names no host"),
        ("https://h/a.b/..c?d=../e", {}, ""),
        ("delta:lake/pages", {}, "an absolute folder, such as 'delta:/var/lib/lake/pages'"),
        ("delta:/lake/../etc", {}, "no . and no .. in its path"),
        ("delta:/lake", {"secret": "s"}, "delta: has no option secret; options: none"),
        ("delta+s3://bucket", {}, "is 'delta+s3://bucket/folder'"),
        ("delta+s3://bucket/a?endpoint=evil", {}, "is 'delta+s3://bucket/folder'"),
        ("delta+s3://key:word@bucket/a", {}, "put it in a file of the hosts"),
        ("delta+s3://my-bucket/lake/pages", {"secret": "s"}, ""),
        ("file:/var/out", {"format": "xml"}, "json, csv, parquet, not 'xml'"),
        ("file:/var/out", {"format": "csv"}, ""),
    ],
)
def test_a_target_that_is_none_is_refused_with_what_to_do(
    target: str, options: dict[str, str], why: str
) -> None:
    assert why in why_not(target, options)
    assert bool(why) == bool(why_not(target, options))


def test_a_file_for_each_window_and_a_newer_one_in_its_place(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "out"
    to, spec = Deliveries("a:1", (f"file:{tmp_path}",)), output(f"file:{folder}")
    commit(store, 0, [{"page": "/", "n": 2}, {"page": "é", "n": None}])
    commit(store, 10, [])
    commit(store, 20, [{"page": "/x", "n": 1}])
    done = deliver(to, spec, store)
    assert (done.error, done.kept.number, done.kept.windows) == ("", 3, 3)
    names = [
        "19700101T000000Z_19700101T000010Z.o1g1v1r0.jsonl",
        "19700101T000020Z_19700101T000030Z.o1g1v1r0.jsonl",
    ]
    assert sorted(file.name for file in folder.glob("*.jsonl")) == names
    first = [json.loads(line) for line in (folder / names[0]).read_text().splitlines()]
    assert [(row["window_start"], row["page"], row["n"]) for row in first] == [
        ("1970-01-01T00:00:00.000Z", "/", 2),
        ("1970-01-01T00:00:00.000Z", "é", None),
    ]
    commit(store, 0, [{"page": "/", "n": 3}], revision=1)
    assert deliver(to, spec, store, 3).error == ""
    deliver(Deliveries("b:1", (f"file:{tmp_path}",)), spec, store)  # all again, by one that is behind
    assert sorted(file.name for file in folder.glob("*.jsonl")) == [names[0].replace("r0", "r1"), names[1]]


def test_two_masters_may_write_the_same_window_at_once(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store, 0, [{"n": 1}])
    one, other = (Deliveries(f"{who}:1", (f"file:{tmp_path}",)) for who in "ab")
    spec, said = output(f"file:{tmp_path}"), list[str]()

    def slow(table: pa.Table, out: io.BufferedIOBase) -> None:
        if not said:
            said.append("")
            said.append(deliver(other, spec, store).error)
        files._json(table, out)

    monkeypatch.setattr(files, "_FORMATS", {"json": ("jsonl", slow)})
    assert deliver(one, spec, store).error == ""
    assert said == ["", ""]
    assert sorted(file.suffix for file in tmp_path.iterdir()) == ["", ".jsonl"]


def test_csv_and_parquet(tmp_path: Path, store: Store) -> None:
    commit(store, 0, [{"page": 'a"b', "n": 2}, {"page": None, "n": 3}])
    to = Deliveries("a:1", (f"file:{tmp_path}",))
    for number, kind in enumerate(("csv", "parquet")):
        assert deliver(to, output(f"file:{tmp_path}/{kind}", number, format=kind), store).error == ""
    (file,) = (tmp_path / "csv").glob("*.csv")
    header, *rows = csv.reader(file.open())
    assert header == ["window_start", "window_end", "page", "n"]
    assert rows == [
        ["1970-01-01T00:00:00.000Z", "1970-01-01T00:00:10.000Z", page, n]
        for page, n in (('a"b', "2"), ("", "3"))
    ]
    assert pq.read_table(tmp_path / "parquet").column("n").to_pylist() == [2, 3]


def test_a_folder_has_files_of_one_output(tmp_path: Path, store: Store) -> None:
    commit(store, 0, [{"n": 2}])
    to, spec = Deliveries("a:1", (f"file:{tmp_path}",)), output(f"file:{tmp_path}")
    assert deliver(to, spec, store).error == ""
    assert deliver(to, output(f"file:{tmp_path}", 2), store).error == ""  # of that name, made anew
    assert [file.name.split(".")[1] for file in tmp_path.glob("*.jsonl")] == ["o2g1v1r0"]
    assert deliver(to, spec, store).error == ""  # the one before, by one who is behind
    assert [file.name.split(".")[1] for file in tmp_path.glob("*.jsonl")] == ["o2g1v1r0"]
    done = deliver(to, replace(spec, name="other"), store)
    assert "has files of another output" in done.error
    assert done.kept.number == 0


def test_a_window_is_a_signed_request_and_comes_again_until_it_is_taken(tmp_path: Path, store: Store) -> None:
    for start in (0, 10, 20):
        commit(store, start, [{"page": "/", "n": start}])
    with serving() as server:
        word = base64.b64encode(b"secret").decode()
        (tmp_path / "hook").write_text(f"for: {server.url}\nwhsec_{word}\n")
        to = Deliveries("a:1", (server.url,), tmp_path)
        spec = output(server.url, secret="hook")
        server.answers = [204, 503]
        done = deliver(to, spec, store)
        assert (done.kept.number, done.kept.windows) == (1, 1)
        assert done.error == "the server answers 503: busy"
        done = deliver(to, spec, store, done.kept.number)
        assert (done.kept.number, done.error) == (3, "")
        server.drop()  # between two windows, as servers do
        assert deliver(to, spec, store, 2).error == ""
        server.answers = [302]  # elsewhere is not allowed
        assert "answers 302" in deliver(to, spec, store, 2).error
        to.close()
    first, second, repeated = server.requests[:3]
    assert second[0]["idempotency-key"] == repeated[0]["idempotency-key"] != first[0]["idempotency-key"]
    assert second[1] == repeated[1]
    headers, body = first
    said = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mac = base64.b64encode(hmac.new(b"secret", said, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{mac}"
    (told, *_) = server.bodies
    assert told["rows"] == [
        {
            "window_start": "1970-01-01T00:00:00.000Z",
            "window_end": "1970-01-01T00:00:10.000Z",
            "page": "/",
            "n": 0,
        }
    ]
    assert (told["kind"], told["output"], told["job"], told["job_uid"]) == (
        "window",
        "out",
        JOB.name,
        JOB.uid,
    )
    assert (told["version"], told["revision"], told["number"]) == (1, 0, 1)
    assert told["status"]["missing"] == ["web-2"]
    assert told["window_end"] == "1970-01-01T00:00:10.000Z"


def test_a_target_that_opens_as_the_agent_stops_is_closed(store: Store) -> None:
    class Slow:
        closed = False

        def put(self, parcels: Sequence[Parcel]) -> None:
            raise AssertionError("nothing goes out any more")

        def close(self) -> None:
            self.closed = True

    def opener(output: OutputSpec, secret: str) -> Target:
        to.close()
        return target

    target = Slow()
    to = Deliveries("a:1", ("https://outside.example",), openers={"https": opener})
    commit(store, 0, [{"n": 1}])
    assert "the agent stops" in deliver(to, output("https://outside.example/in"), store).error
    assert target.closed


def test_a_server_that_never_ends_its_answer_holds_up_nobody(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store, 0, [{"n": 1}])
    with serving() as server, ThreadPoolExecutor(1) as pool:
        server.drips = True
        to, spec = Deliveries("a:1", (server.url,)), output(server.url)
        slow = pool.submit(deliver, to, spec, store)
        while not server.requests:
            time.sleep(0.001)
        assert "still under way" in deliver(to, spec, store).error
        to.close()  # as the agent stops; it is not tried again
        assert "breaks off" in slow.result().error
        assert len(server.requests) == 1
        assert "the agent stops" in deliver(to, spec, store).error
        monkeypatch.setattr(webhook, "POST_SECS", 0.1)
        to = Deliveries("a:1", (server.url,))
        assert deliver(to, spec, store).error == "the server has not answered in 0.1 s"
        server.drips = False


def test_whatever_is_wrong_is_an_answer_in_a_line(tmp_path: Path, store: Store) -> None:
    commit(store, 0, [{"n": 1}])
    nobody, anybody = Deliveries("a:1"), Deliveries("a:1", ("http://127.0.0.1:1",), tmp_path)
    assert (
        "does not allow this target (outputs.allow)"
        in deliver(nobody, output("http://127.0.0.1:1"), store).error
    )
    assert "refused" in deliver(anybody, output("http://127.0.0.1:1"), store).error
    assert (
        "no folder (outputs.secrets)"
        in Deliveries("a:1", ("http://127.0.0.1:1",))
        .deliver(deliver(nobody, output("http://127.0.0.1:1", secret="x"), store).done, store)
        .error
    )
    assert (
        "secret x cannot be read" in deliver(anybody, output("http://127.0.0.1:1", secret="x"), store).error
    )
    for word, why in (("one\ntwo", "is not one line"), ("wörd", "a bearer token is ASCII")):
        (tmp_path / "x").write_text(f"for: otlp+http:\n{word}")
        to = Deliveries("a:1", ("otlp+http://127.0.0.1:1",), tmp_path)
        error = deliver(to, output("otlp+http://127.0.0.1:1", secret="x"), store).error
        assert why in error
        assert word.split()[-1] not in error

    def failing(_output: OutputSpec, secret: str) -> Target:
        raise ValueError(f"it is {secret}")

    for text, why in (
        ("word", "the first line of its file says 'for: '"),
        ("for: postgres://elf@db\nword", "not for this target"),
        ("for:\nword", "not for this target"),
    ):
        (tmp_path / "x").write_text(text)
        assert why in deliver(anybody, output("http://127.0.0.1:1", secret="x"), store).error
    (tmp_path / "x").write_text("for: postgres://elf@db http://127.0.0.1:1\nword")
    to = Deliveries("a:1", ("http://127.0.0.1:1",), tmp_path, {"http": failing})
    assert deliver(to, output("http://127.0.0.1:1", secret="x"), store).error == "it fails (ValueError)"
    assert "a name like a file" in deliver(anybody, output("http://127.0.0.1:1", secret="../x"), store).error


def test_results_that_are_gone_are_counted_and_named(tmp_path: Path, store: Store) -> None:
    for start in range(0, 60, 10):
        commit(store, start, [{"n": start}])
    store.prune_windows(JOB.uid, 40 * SECOND)
    done = deliver(Deliveries("a:1", (f"file:{tmp_path}",)), output(f"file:{tmp_path}"), store, 1)
    assert (done.kept.number, done.kept.windows, done.kept.lost, done.kept.gap) == (6, 2, 3, (2, 4))
    done = deliver(Deliveries("a:1"), replace(output(f"file:{tmp_path}"), from_beginning=True), store)
    assert "does not allow" in done.error
    assert (done.kept.number, done.kept.lost) == (4, 0)  # what was gone before it began is not lost


# -- those who keep series -----------------------------------------------------------------------------------

ROWS: list[dict[str, object]] = [
    {"page": "/", "status": 200, "n": 2, "secs": 0.5},
    {"page": "/", "status": 500, "n": 1, "secs": None},
    {"page": '"x"\n', "status": 200, "n": 3, "secs": 1.0},
]


def test_the_newest_window_is_gauges_with_a_bounded_number_of_labels(store: Store) -> None:
    commit(store, 10, ROWS)
    commit(store, 0, [{"page": "/old", "status": 1, "n": 9, "secs": 9.0}])  # a revision of before, say
    to = Deliveries("a:1", ("prometheus:",))
    spec = output("prometheus:", labels="page, status", series="2")
    assert deliver(to, spec, store).error == ""
    shown = exposition(Metrics(), to.gauges(lambda one: one == spec)).decode().splitlines()
    assert [line for line in shown if line.startswith("elf_output_out_")] == [
        'elf_output_out_n{page="/",status="200"} 2.0',
        'elf_output_out_n{page="/",status="500"} 1.0',
        'elf_output_out_secs{page="/",status="200"} 0.5',
        "elf_output_out_window_end_seconds 20.0",
        "elf_output_out_rows_left_out 1.0",
    ]
    assert to.gauges(lambda one: False) == []
    commit(store, 20, [])
    assert deliver(to, spec, store, 2).error == ""
    shown = exposition(Metrics(), to.gauges(lambda one: True)).decode().splitlines()
    assert [line for line in shown if line.startswith("elf_output_out_")] == [
        "elf_output_out_window_end_seconds 30.0",
        "elf_output_out_rows_left_out 0.0",
    ]
    to.let_go(lambda one: False)  # another agent is the master now
    assert to.gauges(lambda one: True) == []
    plain = deliver(to, output("prometheus:", 2), store).error
    assert plain.startswith("two rows have the same labels (page: /); WITH (labels = 'column, …')")
    assert "no column host" in deliver(to, output("prometheus:", 3, labels="host"), store).error


def test_no_two_gauges_and_no_two_labels_have_one_name(store: Store) -> None:
    commit(
        store, 0, [{"a.b": 1, "a-b": 2, "rows_left_out": 3, "2xx": "x", "__m": "y", "2-xx": "z", "2.xx": ""}]
    )
    to, spec = Deliveries("a:1", ("prometheus:",)), output("prometheus:")
    assert deliver(to, spec, store).error == ""
    shown = exposition(Metrics(), to.gauges(lambda one: True)).decode().splitlines()
    labels = '{_2_xx="z",_2_xx_2="",_2xx="x",_m="y"}'
    assert sorted(line for line in shown if line.startswith("elf_output_out_")) == [
        f"elf_output_out_a_b_2{labels} 2.0",
        f"elf_output_out_a_b{labels} 1.0",
        "elf_output_out_rows_left_out 0.0",
        f"elf_output_out_rows_left_out_2{labels} 3.0",
        "elf_output_out_window_end_seconds 10.0",
    ]


def test_a_window_is_gauges_of_opentelemetry(tmp_path: Path, store: Store) -> None:
    (tmp_path / "token").write_text("for: otlp+http:\nword")
    commit(store, 10, ROWS[:2])
    commit(store, 20, [])
    with serving() as server:
        to = Deliveries("a:1", (f"otlp+{server.url}",), tmp_path)
        spec = output(f"otlp+{server.url}", labels="status", secret="token")
        assert deliver(to, spec, store).error == ""
        rejected = {"partialSuccess": {"rejectedDataPoints": "2", "errorMessage": "too old" + " " * 900}}
        server.says, server.answers = json.dumps(rejected).encode(), [200]
        commit(store, 30, ROWS[:2])
        done = deliver(to, spec, store, 2)  # is not sent again
        assert (done.kept.number, done.error) == (3, "the server rejects 2 points: too old")
        to.close()
    headers, _ = server.requests[0]
    assert headers["authorization"] == "Bearer word"
    (resource,) = server.bodies[0]["resourceMetrics"]
    (scope,) = resource["scopeMetrics"]
    points = {metric["name"]: metric["gauge"]["dataPoints"] for metric in scope["metrics"]}
    assert set(points) == {"out.n", "out.secs"}
    attributes = [{"key": "status", "value": {"stringValue": "200"}}]
    assert points["out.secs"] == [{"timeUnixNano": "20000000000", "asDouble": 0.5, "attributes": attributes}]
