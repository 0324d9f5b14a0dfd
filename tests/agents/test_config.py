"""The configuration: what a user may write, what they are told when it is wrong, and the example file that
lists it all.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.config import ClusterConfig, Config
from agents.loading import load
from agents.settings.declare import settings_of, variable
from agents.settings.links import stated_links
from agents.settings.tree import ConfigProblems
from agents.validation import validate
from elf.errors import ConfigError
from elf.fields import replace
from elf.transport.base import Limits
from overlay import OverlayConfig
from tests.support.files import written

EXAMPLE = Path(__file__).parents[2] / "deploy" / "elf.example.yaml"
KEYS = dict(settings_of(Config))


def problems(folder: Path, text: str, env: dict[str, str] | None = None) -> list[str]:
    """What is said about a file, with the folder's own path taken out."""
    with pytest.raises(ConfigProblems) as caught:
        load(written(folder, text), env or {})
    assert isinstance(caught.value, ConfigError)
    assert str(caught.value) == "\n".join(caught.value.problems)
    assert all("\n" not in problem for problem in caught.value.problems)
    return [problem.replace(f"{folder}/", "") for problem in caught.value.problems]


FULL = """
agent: {name: web-1, listen: "0.0.0.0:7071", advertise: "web-1.shop:7071"}
cluster:
  name: shop
  bootstrap: [web-2.shop:7071, "[2001:db8::7]:7071"]
  retry_join_secs: 0.5
data_dir: /srv/elf
memory_max_bytes: 2_000_000_000
streams:
  clicks:
    type: file
    include: /var/log/clicks-*.log
    exclude: [/var/log/clicks-old.log]
    format: json
    timestamp: at
    columns: {price: double, user.age: bigint}
    lateness_secs: 1.5
    initial_read_offset: end
    rotate_wait_secs: 0
    max_line_bytes: 4096
    idle_timeout_secs: 3
    shared: [/mnt/logs/*/clicks*.log]
  web-access: {include: [/var/log/nginx/access.log], format: combined}
archive: {path: "s3://bucket/elf", roll_secs: 10, roll_bytes: 1000}
http: {listen: null}
log: {level: debug, format: console}
protocol: {straggler_min_secs: 1, straggler_max_secs: 1, restart_grace_secs: 0}
ring: {base_bits: 2, leaf_set_size: 8, fanout_max: 4}
transport: {message_bytes_max: 1000000}
"""


def test_all_that_can_be_written(tmp_path: Path) -> None:
    config = load(written(tmp_path, FULL), {})
    assert config.notes == ()
    assert (config.agent.name, config.agent.advertise) == ("web-1", "web-1.shop:7071")
    assert config.cluster.bootstrap == ("web-2.shop:7071", "[2001:db8::7]:7071")
    assert config.memory_max_bytes == 2_000_000_000
    clicks = config.streams["clicks"]
    assert clicks.include == ("/var/log/clicks-*.log",)
    assert clicks.exclude == ("/var/log/clicks-old.log",)
    assert (clicks.format, clicks.timestamp, clicks.lateness_secs) == ("json", "at", 1.5)
    assert clicks.columns == {"price": "double", "user.age": "bigint"}
    assert (clicks.idle_timeout_secs, clicks.max_line_bytes, clicks.rotate_wait_secs) == (3.0, 4096, 0.0)
    assert [config.streams[name].shared for name in ("clicks", "web-access")] == [
        ("/mnt/logs/*/clicks*.log",),
        (),
    ]
    assert config.streams["web-access"].initial_read_offset == "beginning"
    assert config.archive.path == "s3://bucket/elf"
    assert config.http.listen is None
    assert config.transport.limits() == Limits(message_bytes_max=1_000_000)


def test_only_files_can_be_shared(tmp_path: Path) -> None:
    stream = "streams: {a: {format: json, type: journal, shared: [/b]}}"
    (problem,) = problems(tmp_path, stream)
    assert problem == "streams.a.shared: only files can be read by other agents (type file)"
    stream = "streams: {a: {include: [/a], format: json, shared: nfs}}"
    (problem,) = problems(tmp_path, stream)
    assert (
        problem
        == 'elf.yaml:1: streams.a.shared must be an absolute path (wildcards: *, **, ?, [abc]), not "nfs"'
    )
    stream = "streams: {a: {include: [/a], format: json, shared: true}}"
    (problem,) = problems(tmp_path, stream)
    assert problem.startswith("elf.yaml:1: streams.a.shared must be an absolute path")
    env = {"ELF_STREAMS_A_SHARED": "/mnt/*/a"}
    streams = load(written(tmp_path, "streams: {a: {include: [/a], format: json}}"), env).streams
    assert streams["a"].shared == ("/mnt/*/a",)


@pytest.mark.parametrize("text", ["archive: off", "archive: false", "archive: {enabled: off}"])
def test_an_archive_can_be_off(tmp_path: Path, text: str) -> None:
    assert not load(written(tmp_path, text), {}).archive.enabled
    assert load(written(tmp_path, text), {"ELF_ARCHIVE_ENABLED": "true"}).archive.enabled
    with pytest.raises(ConfigProblems, match=r"elf.yaml:1: ring must have keys"):
        load(written(tmp_path, "ring: off"), {})


def test_nothing_at_all_is_a_configuration(tmp_path: Path) -> None:
    for config in (load(None, {}), load(written(tmp_path, "# nothing"), {})):
        assert config.agent.name == socket.gethostname()
        assert config.agent.listen == config.agent.advertise == "127.0.0.1:7071"
        assert config.archive.path == "/var/lib/elf/archive"
        assert config.streams == {}
        assert config.transport.limits() == Limits()


def test_defaults_are_those_of_the_protocol() -> None:
    """Lateness, idleness and the future bound (protocol 3.4), the straggler limit (protocol 4.4), how long
    panes are revised (protocol 8.1), and how long an agent that restarts is waited for (protocol 10.1)."""
    config = load(None, {})
    protocol = config.protocol
    assert (protocol.future_bound_secs, protocol.revise_secs, protocol.restart_grace_secs) == (60, 600, 300)
    assert (protocol.straggler_min_secs, protocol.straggler_max_secs) == (3, 30)
    stream = {path: known.default for path, known in KEYS.items() if path.startswith("streams.")}
    assert stream["streams.<name>.lateness_secs"] == 2
    assert stream["streams.<name>.idle_timeout_secs"] == 10


def test_no_key_that_people_rely_on_is_taken_away() -> None:
    """A file that somebody has written can still be read."""
    agent = """agent.name agent.listen agent.advertise cluster.name cluster.bootstrap
        cluster.retry_join_secs data_dir memory_max_bytes archive.path archive.roll_secs archive.roll_bytes
        http.listen log.level log.format"""
    stream = """type include exclude format timestamp lateness_secs initial_read_offset rotate_wait_secs
        max_line_bytes"""
    assert {*agent.split(), *(f"streams.<name>.{key}" for key in stream.split())} <= set(KEYS)


def test_describe_gives_every_key_its_value(tmp_path: Path) -> None:
    described = load(written(tmp_path, FULL), {}).describe()
    there = [path for path in KEYS if path.startswith("streams.") or "<name>" not in path]
    named = {path.replace("<name>", name) for path in there for name in ("clicks", "web-access")}
    assert set(described) == named
    assert described["streams.clicks.timestamp"] == "at"
    assert described["cluster.name"] == "shop"


# -- the environment -----------------------------------------------------------------------------------------


def test_the_environment_wins(tmp_path: Path) -> None:
    env = {
        "ELF_AGENT_LISTEN": "127.0.0.1:9000",
        "ELF_CLUSTER_BOOTSTRAP": "a:1, b:2",
        "ELF_CLUSTER_RETRY_JOIN_SECS": "7",
        "ELF_DATA_DIR": "/data",
        "ELF_MEMORY_MAX_BYTES": "1073741824",
        "ELF_HTTP_LISTEN": "127.0.0.1:0",
        "ELF_STREAMS_CLICKS_INCLUDE": "/a/*.log,/b/*.log",
        "ELF_STREAMS_CLICKS_TIMESTAMP": "none",
        "ELF_STREAMS_CLICKS_COLUMNS": "price:double, user.age:bigint",
        "ELF_STREAMS_CLICKS_MAX_LINE_BYTES": "77",
        "ELF_STREAMS_WEB_ACCESS_FORMAT": "common",
        "ELF_STREAMS_NEW_INCLUDE": "/new.log",
        "ELF_STREAMS_NEW_FORMAT": "json",
        "ELF_LOG_LEVEL": "",
        "HOME": "/root",
    }
    config = load(written(tmp_path, FULL), env)
    assert config.agent.listen == "127.0.0.1:9000"
    assert config.agent.name == "web-1"
    assert config.cluster.bootstrap == ("a:1", "b:2")
    assert config.cluster.retry_join_secs == 7
    assert config.data_dir == "/data"
    assert config.http.listen == "127.0.0.1:0"
    assert config.log.level == "debug", "an empty variable is none"
    clicks = config.streams["clicks"]
    assert (clicks.include, clicks.timestamp, clicks.max_line_bytes) == (("/a/*.log", "/b/*.log"), None, 77)
    assert clicks.columns == {"price": "double", "user.age": "bigint"}
    assert config.streams["web-access"].format == "common"
    assert config.streams["new"].include == ("/new.log",)
    assert set(config.streams) == {"clicks", "web-access", "new"}


@pytest.mark.parametrize(
    ("agent", "allow"),
    [
        ({}, "anybody"),
        ({"ELF_AGENT_LISTEN": "[::1]:7071"}, "anybody"),
        ({"ELF_AGENT_LISTEN": "0.0.0.0:7071", "ELF_AGENT_ADVERTISE": "web-1.shop:7071"}, "nobody"),
        ({"ELF_AGENT_LISTEN": "10.0.0.1:7071"}, "nobody"),
        ({"ELF_AGENT_ADVERTISE": "web-1.shop:7071"}, "nobody"),
        ({"ELF_AGENT_LISTEN": "10.0.0.1:7071", "ELF_FUNCTIONS_ALLOW": "signed"}, "signed"),
        ({"ELF_FUNCTIONS_ALLOW": "nobody"}, "nobody"),
    ],
)
def test_code_runs_by_default_where_nobody_else_gets_at(agent: dict[str, str], allow: str) -> None:
    assert load(None, agent).functions.allow == allow


@pytest.mark.parametrize("path", sorted(KEYS))
def test_every_key_can_be_given_by_its_variable(tmp_path: Path, path: str) -> None:
    """An example, or else the default, written in the environment reads back as it is."""
    known = KEYS[path]
    value = known.default if known.example is None else known.example
    match value:
        case None:
            line = "none"
        case tuple():
            line = ",".join(value)
        case dict():
            line = ",".join(f"{name}:{kind}" for name, kind in value.items())
        case _:
            line = str(value)
    env = {"ELF_STREAMS_S_INCLUDE": "/x", "ELF_STREAMS_S_FORMAT": "common"} if "<name>" in path else {}
    name, text = "s", ""
    if path.startswith("budgets.jobs."):  # a job has its creator's name too, which only a file can say
        name, text = "ada/s", "budgets: {jobs: {ada/s: {}}}"
    env[variable(path.replace("<name>", name))] = line
    config = load(written(tmp_path, text), env)
    assert config.notes == ()
    if value not in ("", (), {}):
        assert config.describe()[path.replace("<name>", name)] == value


def test_a_budget_of_a_job_names_its_creator_too(tmp_path: Path) -> None:
    text = "budgets: {jobs: {ada@shop.com/top: {cpu_share: 0.5}}}"
    budgets = load(written(tmp_path, text), {}).budgets.budgets()
    assert {name: one.cpu_share for name, one in budgets.jobs.items()} == {"ada@shop.com/top": 0.5}
    said = "a job is named in the file, with its creator: CREATOR/JOB"
    assert problems(tmp_path, "budgets: {jobs: {top: {cpu_share: 0.5}}}") == [
        f"elf.yaml:1: budgets.jobs.top: {said}"
    ]
    assert problems(tmp_path, "", {"ELF_BUDGETS_JOBS_TOP_CPU_SHARE": "0.5"}) == [
        f"ELF_BUDGETS_JOBS_TOP_CPU_SHARE: budgets.jobs.top: {said}"
    ]


def test_wrong_variables_are_named() -> None:
    env = {"ELF_AGENT_LISTEN": "nowhere", "ELF_ARCHIVE_ROLL_SECS": "soon", "ELF_STREAMS_C_FORMAT": "jsn"}
    with pytest.raises(ConfigProblems) as caught:
        load(None, env)
    assert caught.value.problems == [
        "ELF_AGENT_LISTEN: agent.listen 'nowhere' is not host:port",
        'ELF_STREAMS_C_FORMAT: streams.c.format is wrong: unknown format "jsn"; did you mean "json"?',
        'ELF_ARCHIVE_ROLL_SECS: archive.roll_secs must be a number above 0, not "soon"',
        "streams.c.include is missing: the files to follow (type file)",
    ]


def test_a_variable_that_wins_over_the_file_is_noted(tmp_path: Path) -> None:
    """With what the file says, and where; not if both say the same, in whatever form."""
    text = "cluster:\n  name: east\n  bootstrap: [a:1, b:2]\nstreams: {s: {include: /x.log, format: json}}\n"
    same = {"ELF_CLUSTER_NAME": "east", "ELF_CLUSTER_BOOTSTRAP": "a:1,b:2", "ELF_STREAMS_S_INCLUDE": "/x.log"}
    assert load(written(tmp_path, text), same | {"ELF_LOG_LEVEL": "debug"}).notes == ()
    config = load(written(tmp_path, text), {"ELF_CLUSTER_NAME": "west", "ELF_CLUSTER_BOOTSTRAP": "a:1"})
    assert config.cluster.name == "west"
    assert [note.replace(f"{tmp_path}/", "") for note in config.notes] == [
        "ELF_CLUSTER_BOOTSTRAP=a:1 of the environment is used instead of "
        "cluster.bootstrap: ['a:1', 'b:2'] (elf.yaml:3)",
        "ELF_CLUSTER_NAME=west of the environment is used instead of cluster.name: east (elf.yaml:2)",
    ]


def test_a_clients_variables_are_no_agents() -> None:
    """Who tells the commands which fleet to ask does not tell an agent where to belong."""
    config = load(None, {"ELF_CLUSTER": "west", "ELF_CONNECT": "h:1"})
    assert (config.cluster, config.notes) == (ClusterConfig(), ())


def test_unknown_variables_are_noted_when_they_look_like_ours() -> None:
    env = {"ELF_AGENT_LISTNE": "a:1", "ELF_AGENT_PORT_7071_TCP_ADDR": "10.0.0.1", "ELF_SOMETHING": "else"}
    assert load(None, env).notes == (
        "ELF_AGENT_LISTNE is no setting and was not used (nearest: ELF_AGENT_LISTEN)",
    )


# -- what is wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("agent:\n  lisen: a:1", "elf.yaml:2: unknown key agent.lisen (nearest: agent.listen)"),
        ("\n\nlisten: a:1", "elf.yaml:3: unknown key listen (nearest: agent.listen)"),
        ("data-dir: /x", "elf.yaml:1: unknown key data-dir (nearest: data_dir)"),
        ("agent: {listen: a}", "elf.yaml:1: agent.listen 'a' is not host:port"),
        ("agent: {listen: 'a:70000'}", "elf.yaml:1: agent.listen 'a:70000' has no port from 0 to 65535"),
        ("agent: {listen: 7071}", "elf.yaml:1: agent.listen must be host:port, not 7071"),
        ("agent: web", "elf.yaml:1: agent must have keys: name, listen, advertise, labels, place"),
        ("agent: [1]", "elf.yaml:1: agent must have keys: name, listen, advertise, labels, place"),
        (f"agent: {{labels: {{a: {'x' * 4_097}}}}}", "elf.yaml:1: agent.labels must be at most 64 names"),
        (
            "agent: {labels: {" + ", ".join(f"l{n}: x" for n in range(65)) + "}}",
            "elf.yaml:1: agent.labels must be at most 64 names of 255 characters, and texts of 4096",
        ),
        ("streams: [a]", "elf.yaml:1: streams must have a name for each of its parts"),
        ("cluster: {bootstrap: [a:1, b]}", "elf.yaml:1: cluster.bootstrap 'b' is not host:port"),
        (
            "cluster: {bootstrap: ['a:0']}",
            "cluster.bootstrap: nobody can connect to port 0 of a:0",
        ),
        ("cluster: {links: {eu: 20 Mbit/s}}", "elf.yaml:1: cluster.links eu must be two regions, as eu/us"),
        ("cluster: {links: {eu/eu: 20 Mbit/s}}", "cluster.links eu/eu must be two regions, as eu/us"),
        ("cluster: {links: {eu/us: 0 Mbit/s}}", "cluster.links eu/us must have a rate above 0"),
        (
            "cluster: {links: {eu/us: fast}}",
            "cluster.links eu/us must be a rate above 0, and a delay or none",
        ),
        (
            "cluster:\n  retry_join_secs: -1",
            "elf.yaml:2: cluster.retry_join_secs must be a number above 0, not -1",
        ),
        (
            "cluster: {retry_join_secs: .nan}",
            "elf.yaml:1: cluster.retry_join_secs must be a number above 0, not NaN",
        ),
        (
            "cluster: {retry_join_secs: yes}",
            "elf.yaml:1: cluster.retry_join_secs must be a number above 0, not true",
        ),
        (
            "memory_max_bytes: 1",
            "elf.yaml:1: memory_max_bytes must be a whole number, at least 67108864, not 1",
        ),
        ("memory_max_bytes: 1e10", 'must be a whole number, at least 67108864, not "1e10"'),
        ("data_dir: elf", 'elf.yaml:1: data_dir must be an absolute path, not "elf"'),
        ("data_dir: {a: 1}", 'elf.yaml:1: data_dir must be an absolute path, not {"a": 1}'),
        ("data_dir: [{2020-01-01: 1}]", "elf.yaml:1: data_dir must be an absolute path, not [{"),
        ("data_dir:", "elf.yaml:1: data_dir must be an absolute path, not null"),
        (
            "log: {level: wran}",
            'log.level must be one of debug, info, warning, error, not "wran" (nearest: warning)',
        ),
        (
            "streams: {c: {include: /x}}",
            "elf.yaml:1: streams.c.format is missing: How a line is parsed (docs/formats.md).",
        ),
        ("streams: {c: }", "streams.c.include is missing"),
        (
            "streams: {'a b': {include: /x, format: json}}",
            "streams.a b: a name has letters, digits, - and _ only",
        ),
        ("streams: {c: {include: x.log, format: json}}", "streams.c.include must be an absolute path"),
        ("streams: {c: {include: [], format: json}}", "streams.c.include is missing: the files to follow"),
        (
            "streams: {c: {include: /x, format: json, columns: {a: integer}}}",
            'streams.c.columns a must be one of bigint, double, text, boolean, timestamp, not "integer"',
        ),
        (
            "streams: {c: {include: /x, format: json, columns: [a]}}",
            "streams.c.columns must be names with values",
        ),
        ("streams: {c: {format: json, type: syslog}}", "streams.c.receive.listen is missing"),
        (
            "streams: {c: {format: json, type: http, receive: {listen: '127.0.0.1:7072'}}}",
            "streams.c.receive.listen: 127.0.0.1:7072 is where http.listen is; choose another port",
        ),
        (
            "streams: {c: {format: json, include: /x, multiline: {start: '('}}}",
            "elf.yaml:1: streams.c.multiline.start is no regular expression (RE2): ",
        ),
        (
            "streams: {c: {format: json, include: /x, multiline: {start: a}, shared: [/y]}}",
            "streams.c.shared: the work of another agent is run again line by line",
        ),
        (
            "streams: {c: {format: json, type: journal, multiline: {start: a}}}",
            "streams.c.multiline is for files",
        ),
        (
            "streams: {c: {format: json, include: /x, receive: {open: true}}}",
            "streams.c.receive is for streams of another type than file",
        ),
        (
            "streams: {c: {format: json, type: http, include: /x, receive: {listen: 'a:1'}}}",
            "streams.c.include: no files are followed by a stream of type http",
        ),
        (
            "streams: {c: {format: json, type: syslog, receive: {listen: 'a:1', token_file: /x}}}",
            "streams.c.receive.token_file: syslog knows no tokens",
        ),
        (
            "streams: {c: {format: json, type: syslog, receive: {listen: 'a:1', tls_cert: /x}}}",
            "streams.c.receive.transport must be tcp with receive.tls_cert",
        ),
        (
            "streams: {c: {format: json, type: http, receive: {listen: 'a:1', spool_bytes_max: 2000000}}}",
            "streams.c.receive.spool_bytes_max must be three times receive.body_bytes_max at least",
        ),
        (
            "streams: {c: {includ: /x, format: json}}",
            "unknown key streams.c.includ (nearest: streams.c.include)",
        ),
        ("agent: {listen: '0.0.0.0:1'}", "agent.advertise must say how to reach this host"),
        ("archive: {path: archive}", "archive.path must be an absolute path or a URI, not archive"),
        ("archive: {path: 'ftp://x/y'}", "archive.path: unknown scheme ftp (known: file, s3,"),
        ("protocol: {straggler_min_secs: 40}", "protocol.straggler_min_secs must not be above"),
        ("ring: {base_bits: 3}", "ring: base_bits must divide 128"),
        ("ring: {leaf_set_size: 7}", "ring: leaf_set_size must be even"),
        ("log: {level: info}\nlog: {level: info}", "elf.yaml:2: log stands here twice"),
        ("agent: {name: a\n", "elf.yaml:2: not YAML: "),
        ("\tagent: x", "elf.yaml:1: not YAML: found character '\\t' that cannot start any token"),
        ("a: 1\n---\nb: 2", "elf.yaml:2: not YAML: but found another document"),
        ("just words", "elf.yaml:1: must be keys with values"),
        ("a: !!python/object:os.system {}", "elf.yaml:1: not YAML: could not determine a constructor"),
        ("data_dir: 2020-13-45", "elf.yaml:1: data_dir: month must be in 1..12"),
        ("memory_max_bytes: " + "9" * 5000, "elf.yaml:1: memory_max_bytes: "),
        ("a: &x {b: *x}", "elf.yaml: nested too deeply"),
        ("a: \x01", "elf.yaml: not YAML: special characters are not allowed"),
    ],
)
def test_one_clear_line(tmp_path: Path, text: str, says: str) -> None:
    found = problems(tmp_path, text)
    assert any(says in problem for problem in found), found


def test_the_ring_is_as_it_is_set(tmp_path: Path) -> None:
    assert load(None, {}).ring.overlay(0.5) == OverlayConfig()
    text = "ring: {base_bits: 2, leaf_set_size: 16, fanout_max: 4}"
    overlay = load(written(tmp_path, text), {}).ring.overlay(2.0)
    assert (overlay.base_bits, overlay.leaf_set_size, overlay.fanout_max) == (2, 16, 4)
    assert overlay.join_retry_ms == 2_000


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    assert len(problems(tmp_path, "agent: {listen: x}\nlog: {level: x}\nfoo: 1\ndata_dir: y")) == 4


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblems, match=r"no\.yaml: cannot be read: No such file or directory"):
        load(tmp_path / "no.yaml", {})
    with pytest.raises(ConfigProblems, match="cannot be read: Is a directory"):
        load(tmp_path, {})
    (tmp_path / "latin").write_bytes(b"name: \xe4")
    with pytest.raises(ConfigProblems, match="cannot be read: not UTF-8"):
        load(tmp_path / "latin", {})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.text(max_size=5) | st.sampled_from([part for path in KEYS for part in path.split(".")]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
@settings(max_examples=200, deadline=None)
def test_any_yaml_gives_a_configuration_or_problems(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    with suppress(ConfigProblems):
        config = load(path, {})
        validate(replace(config, cluster=replace(config.cluster, bootstrap=())))  # nobody is called


@pytest.mark.parametrize("listen", ["127.0.0.1:7071", "0.0.0.0:7071"])
def test_one_address_for_both_is_a_contradiction(tmp_path: Path, listen: str) -> None:
    text = f"agent: {{listen: 127.0.0.1:7071}}\nhttp: {{listen: '{listen}'}}"
    with pytest.raises(ConfigProblems, match=rf"^http.listen: {listen} is where agent.listen is; choose"):
        load(written(tmp_path, text), {})


def test_the_example_is_what_the_code_says() -> None:
    made = subprocess.run([sys.executable, "-m", "agents.config"], capture_output=True, text=True, check=True)
    assert EXAMPLE.read_text(encoding="utf-8") == made.stdout


def test_the_example_has_every_key_and_every_variable() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    for path in KEYS:
        assert f"{path.rpartition('.')[2]}: " in text
        assert variable(path) in text


def test_the_example_as_it_stands_sets_nothing() -> None:
    assert load(EXAMPLE, {}) == load(None, {})


def test_the_example_uncommented_says_the_defaults(tmp_path: Path) -> None:
    """Every commented setting is taken as it stands, and is the default: the text cannot lie."""
    lines = []
    for line in EXAMPLE.read_text(encoding="utf-8").splitlines():
        bare = line
        while bare.lstrip().startswith("# "):
            bare = bare.replace("# ", "", 1)
        key = bare.strip().partition(":")[0]
        if bare.strip() and (
            key in ("clicks", "ada/top_pages", "ada") or any(key in path.split(".") for path in KEYS)
        ):
            lines.append(bare)
    config = load(written(tmp_path, "\n".join(lines)), {})
    clicks = {"clicks": config.streams["clicks"]}
    expected = load(
        written(tmp_path, "budgets: {jobs: {ada/top_pages: {}}}"),
        {
            "ELF_STREAMS_CLICKS_INCLUDE": clicks["clicks"].include[0],
            "ELF_STREAMS_CLICKS_FORMAT": "json",
            "ELF_BUDGETS_CREATORS_ADA_CPU_SHARE": "0",
        },
    )
    assert config == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lazy", (2, False)),
        ("eager", (2, True)),
        ("eager 1", (1, True)),
        ("lazy 3", (3, False)),
        ("3", (3, False)),
        ("0", (0, False)),
    ],
)
def test_how_many_copies_and_when(text: str, expected: tuple[int, bool], tmp_path: Path) -> None:
    path = written(tmp_path, FULL.replace("protocol: {", f"protocol: {{copies: {text}, "))
    for env in ({}, {"ELF_PROTOCOL_COPIES": text}):
        found = load(path if not env else written(tmp_path, FULL), env).protocol
        assert (found.replicas, found.eager) == expected


@pytest.mark.parametrize("text", ["often", "5", "eager 0", "eager 9", "true", "1.5"])
def test_copies_that_are_none(text: str, tmp_path: Path) -> None:
    (said,) = problems(tmp_path, FULL.replace("protocol: {", f"protocol: {{copies: {text}, "))
    assert "protocol.copies must be lazy or eager, a whole number from 0 to 4, or both" in said


def test_a_link_is_stated_for_both_directions_or_each(tmp_path: Path) -> None:
    text = "cluster: {links: {eu/us: 20 Mbit/s 40 ms, us/eu: 4.8Mbit/s, eu/ap: 8 Mbit/s}}"
    config = load(written(tmp_path, text), {}).cluster
    assert stated_links(config.links) == {
        ("eu", "us"): (2.5e6, 0.04),
        ("us", "eu"): (6e5, None),
        ("eu", "ap"): (1e6, None),
        ("ap", "eu"): (1e6, None),
    }
