"""The page's API, at an agent with keys and through ``elf ui``: who is let in, what each may, and what is
refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from elf.page.app import BODY_BYTES_MAX, POLICY
from elf.page.asked import Composed, Filter
from elf.page.panels import panels, queries, query
from elf.ql.planner import plan_text
from elf.schema import Column, Schema
from elf.security.bearer import bearer
from elf.security.folder import load
from tests.page.conftest import BAD, Pages
from tests.support.asking import Asking

COUNT = "SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS"
API = ("session", "fleet", "jobs/most/tree", "jobs/most/past", "words", "panels")


def test_files_are_anybodys_and_tell_nothing(pages: Pages) -> None:
    stranger = Asking(pages.agent.port)
    index = stranger.ask("GET", "/")
    assert (index.status, index.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert index.headers["content-security-policy"] == POLICY
    assert b"most" not in index.body
    for path in ("main.js", "pages/job.js", "style.css", "vendor/uplot-1.6.32/uPlot.esm.js"):
        found = stranger.ask("GET", f"/page/{path}")
        assert found.status == 200, path
        again = stranger.ask("GET", f"/page/{path}", headers={"if-none-match": found.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
    for path in ("../app.py", "%2e%2e/app.py", "vendor", "nothing.js"):
        assert stranger.ask("GET", f"/page/{path}").status == 404, path


@pytest.mark.parametrize("at", ["agent", "own"])
def test_without_a_token_nothing_is_answered(pages: Pages, at: str) -> None:
    port = getattr(pages, at).port
    token = getattr(pages, at).token
    for stranger in (Asking(port), Asking(port, "elf_x"), Asking(port, "é")):
        for path in API:
            answer = stranger.get(path)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), path
        for path in ("sql", "watch", "panels", "jobs/most/compare"):
            assert stranger.post(path, {"sql": "SHOW JOBS"}).status == 401
    assert Asking(port).get(f"session?key={token}&token={token}").status == 401
    assert (
        Asking(port).ask("GET", "/api/v1/session", headers={"cookie": f"key={token}; token={token}"}).status
        == 401
    )


def test_a_token_lets_in_its_owner_until_it_ends(pages: Pages) -> None:
    told = pages.agent.get("session").told
    assert (told["name"], told["roles"], told["agent"]) == ("rita", ["read"], "web-0")
    assert told["may"] == {"tap": False, "write": False, "admin": False, "compare": False}
    pair = load(pages.fleet.folder / "rita").pair
    ended = Asking(pages.agent.port, bearer(pair, "shop", int(time.time()) - 90, 60))
    answer = ended.get("session")
    assert (answer.status, answer.told["error"]) == (401, "this token has expired")
    soon = Asking(pages.agent.port, bearer(pair, "shop", int(time.time()), 2))
    *_, (name, data) = soon.watch(most="SUBSCRIBE most")
    assert (name, data["error"]) == ("error", "this token has expired")


def test_who_may_read_reads(pages: Pages) -> None:
    fleet = pages.agent.get("fleet").told
    assert [(one["agent"], one["stats"]["state"]) for one in fleet["agents"]] == [("web-0", "live")]
    assert 0 <= fleet["agents"][0]["at"] < 1
    windows = (data for name, data in pages.agent.watch(most="SUBSCRIBE most") if name == "window")
    window = next(one for one in windows if one["rows"])
    assert (window["id"], window["coverage"], window["whole"]) == ("most", "1 of 1 agent", True)
    assert window["columns"] == [
        {"name": "product", "kind": "text"},
        {"name": "clicks", "kind": "number"},
    ]
    past = pages.agent.get("jobs/most/past?since=-1%20hour").told["windows"]
    assert any(one["end"] == window["end"] and one["rows"] == window["rows"] for one in past)
    tree = pages.agent.get("jobs/most/tree").told
    assert [edge["name"] for edge in tree["flows"][0]["edges"]] == ["web-0"]
    table = pages.agent.sql("SHOW JOBS")["table"]
    assert table["rows"][0][0] == "most"


def test_several_statements_come_in_one_stream_and_one_that_fails_ends_alone(pages: Pages) -> None:
    seen: set[tuple[str, str]] = set()
    statements = {"a": "SUBSCRIBE most", "b": "SUBSCRIBE nobody", "c": "SHOW STREAMS", "d": COUNT}
    for name, data in pages.agent.watch(**statements):
        seen.add((data["id"], name))
        if seen >= {("a", "window"), ("b", "error"), ("c", "result"), ("c", "end"), ("d", "window")}:
            break


def test_roles_decide(pages: Pages) -> None:
    assert "needs the role write, which rita does not have" in pages.agent.refused("PAUSE JOB most")
    assert "needs the role write" in pages.agent.refused(f"ALTER JOB most AS {COUNT}")
    assert "needs the role tap" in pages.agent.refused("SELECT * FROM clicks LIMIT 5")
    assert pages.tapping.sql("SELECT product FROM clicks LIMIT 5")["table"] is not None
    assert pages.own.get("session").told["may"]["write"] is True
    assert "created" in pages.own.sql(f"CREATE JOB mine AS {COUNT}")["text"]
    assert "needs the role write" in pages.agent.refused("DROP JOB mine")
    assert "dropped" in pages.own.sql("DROP JOB mine")["text"]


def test_an_agent_reads_no_file_for_whoever_is_at_its_page(pages: Pages) -> None:
    secret = Path(pages.fleet.folder) / "secret.csv"
    secret.write_text("product,word\nx,hidden\n")
    counted = f"SELECT word, COUNT(*) AS n FROM clicks JOIN '{secret}' AS s USING (product)"
    join = f"{counted} GROUP BY word WINDOWING 1 SECONDS"
    said = pages.agent.refused(f"EXPLAIN {join}")
    assert "hidden" not in said
    assert "secret.csv" in said


def test_errors_have_their_caret(pages: Pages) -> None:
    said = pages.agent.refused("SELECT produkt FROM clicks GROUP BY produkt WINDOWING 1 SECONDS")
    assert 'unknown column "produkt"; did you mean "product"?' in said
    assert "(line 1, column 37)" in said
    assert said.splitlines()[-1].strip() == "^"


def test_what_is_no_request_is_refused(pages: Pages) -> None:
    ask, path = pages.agent.ask, "/api/v1/sql"
    json = {"content-type": "application/json"}
    assert ask("POST", path, b"{}", headers={"content-type": "text/plain"}).status == 415
    assert ask("POST", path, b'{"sql": ', headers=json).status == 400
    assert ask("POST", path, b'{"sql": 3}', headers=json).status == 400
    assert ask("POST", path, b'{"sql": "SHOW JOBS", "more": 1}', headers=json).status == 400
    assert ask("POST", path, b"[" * 100_000, headers=json).status == 400
    assert ask("POST", path, b" " * (BODY_BYTES_MAX + 1), headers=json).status == 413
    assert ask("GET", path).status == 405
    assert ask("GET", "/api/v1/session", b"{}", headers=json).status == 413
    assert pages.agent.post("watch", {"statements": {}}).status == 400
    assert pages.agent.post("watch", {"statements": {str(n): "SHOW JOBS" for n in range(33)}}).status == 400
    assert pages.agent.get("jobs/nobody/tree").told["error"].startswith("there is no job nobody")
    assert ask("GET", "/api/v1/session", headers={"host": "evil.example"}).status == 421
    assert pages.agent.post("jobs/most/compare", {}).status == 501


def test_an_answer_of_windows_is_for_the_stream(pages: Pages) -> None:
    said = pages.agent.refused("SUBSCRIBE most")
    assert "until it is ended" in said


def test_what_a_log_has_is_a_text_in_the_answers(pages: Pages) -> None:
    rows = pages.own.sql("SELECT product FROM clicks WHERE product LIKE '/%' LIMIT 5")["table"]["rows"]
    assert BAD in {row[-1] for row in rows}


# -- panels --------------------------------------------------------------------------------------------------


def _schema(integers: str, texts: str, *more: Column) -> Schema:
    numbers = (Column(name, "bigint") for name in integers.split())
    return Schema(
        (Column("ts", "timestamp"), *numbers, *(Column(n, "text") for n in texts.split()), *more), "ts"
    )


LOG = _schema("sc_status sc_bytes", "c_ip cs_uri_stem cs_referer cs_user_agent")
JSON_LOG = _schema("body_bytes_sent status", "host remote_addr request_uri", Column("request_time", "double"))
OF_JSON = ("latency", "virtual_hosts")
FILTERS = (
    Filter("browsers", "browser", "Fire'fox"),
    Filter("status_codes", "class", "client error"),
    Filter("hosts", "host", None),
    Filter("visit_times", "hour", 7),
)


@pytest.mark.parametrize("name", [panel.name for panel in panels()])
@pytest.mark.parametrize("filters", [(), FILTERS], ids=["all", "filtered"])
def test_each_panel_is_a_query_with_any_window_and_filter(name: str, filters: tuple[Filter, ...]) -> None:
    (panel,) = (one for one in panels() if one.name == name)
    of_json = name in OF_JSON
    asked = Composed("shop", 90, 5, (Filter("latency", "page", "/"),) if of_json and filters else filters)
    text = query(panel, asked)
    plan = plan_text(text, JSON_LOG if of_json else LOG)
    assert [kind.text for kind in plan.windows] == ["90 s"]
    since = plan_text(query(panel, Composed("shop", None, 5)), JSON_LOG if of_json else LOG)
    assert "landmark" in since.windows[0].text
    assert "\nFROM shop\n" in text
    assert panel.title
    assert panel.about.endswith(".")
    assert panel.needs


def test_filters_are_of_columns_that_panels_have(pages: Pages) -> None:
    told = pages.agent.get("panels").told["panels"]
    assert {one["name"] for one in told} == {one.name for one in panels()} == set(queries(Composed()))
    wrong = {"filters": [{"panel": "hosts", "column": "hits", "value": 3}]}
    assert "to filter by" in pages.agent.post("panels", wrong).told["error"]
    assert "is no name of a stream" in pages.agent.post("panels", {"stream": "a; DROP"}).told["error"]
    found = pages.agent.post(
        "panels", {"filters": [{"panel": "hosts", "column": "host", "value": "1.2.3.4' OR"}]}
    )
    assert "(c_ip) = '1.2.3.4'' OR'" in found.told["queries"]["visitors"]
