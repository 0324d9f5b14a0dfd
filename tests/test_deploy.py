"""Every file of ``deploy`` fits what it is for, and the product: settings, options, metrics and versions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from agents.exposition import exposition
from agents.formats import get_format, written_out
from agents.loading import load
from agents.main import _parser
from agents.metrics import Metrics
from elf.cli.main import app
from elf.transport.base import Counters

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
VARIABLES = set(re.findall(r"ELF_[A-Z_]+[A-Z]", (DEPLOY / "elf.example.yaml").read_text())) | {"ELF_JOIN"}
UNIT = DEPLOY / "systemd" / "elf-agent.service"
EXPOSURE_MAX = 2.5
"""Of ``systemd-analyze security``: 0 is closed, 10 open; below 2.5 is its best mark."""
CHECKED = {
    "Containerfile", "build.lock", "chromium.sh", "compiler.lock", "deb.sh", "debian/conffiles",
    "debian/control",
    "debian/elf-agent.default", "debian/postinst", "debian/postrm", "debian/prerm", "elf.example.yaml",
    "install.sh", "java.sh", "kubernetes.yaml", "logrotate/elf-agent", "logrotate/nginx", "nginx/elf.conf",
    "prometheus/grafana.json", "prometheus/rules.yaml", "requirements.lock", "runtime.lock",
    "systemd/elf-agent.service",
}  # fmt: skip
"""Here, or by who uses it; ``queries`` by tests/run/test_panels.py."""


def test_every_file_is_checked() -> None:
    said = subprocess.run(["git", "ls-files", "."], cwd=DEPLOY, capture_output=True, text=True, check=True)
    assert {name for name in said.stdout.split() if not name.startswith("queries")} == CHECKED


# -- what is measured ----------------------------------------------------------------------------------------


@cache
def shown() -> str:
    """/metrics, with those of a transport."""
    metrics = Metrics()
    metrics.watch(Counters())
    return exposition(metrics).decode()


@cache
def families() -> dict[str, str]:
    """The names and types of /metrics."""
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", shown(), re.M))


@cache
def series() -> set[str]:
    found = set(families())
    for name, kind in families().items():
        if kind == "histogram":
            found |= {f"{name}_{part}" for part in ("bucket", "count", "sum")}
    return found


def test_metrics_are_named_as_prometheus_wants_them() -> None:
    """What promtool's lint asks for."""
    helps = dict(re.findall(r"^# HELP (\w+) (.*)$", shown(), re.M))
    for name, kind in families().items():
        assert re.fullmatch(r"elf(_[a-z0-9]+)+", name), name
        assert helps[name].endswith("."), name
        assert name.endswith("_total") == (kind == "counter"), (name, kind)
        words = name.split("_")
        assert not {"counter", "gauge", "histogram", "summary"} & set(words), name
        assert kind == "histogram" or not name.endswith(("_count", "_sum", "_bucket")), name
        units = {"ms", "millis", "milliseconds", "micros", "us", "minutes", "hours", "kb", "mb", "kib", "mib"}
        assert not (units | {"percent", "ratios"}) & set(words), f"{name}: a base unit"
        for unit in ("seconds", "bytes"):
            assert unit not in words or words[-1 if kind != "counter" else -2] == unit, name


def asked(expression: str) -> set[str]:
    """The series that a PromQL expression names; those that are recorded have colons."""
    return set(re.findall(r"(?<![:\w])elf_\w+", expression))


def test_alerts_ask_for_what_agents_measure() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    assert set(rules) == {"groups"}
    alerts = []
    for group in rules["groups"]:
        assert set(group) == {"name", "rules"}
        for rule in group["rules"]:
            assert ("record" in rule) != ("alert" in rule)
            assert set(rule) <= {"record", "alert", "expr", "for", "labels", "annotations"}
            assert asked(rule["expr"]) <= series(), rule
            assert rule["expr"].count("(") == rule["expr"].count(")")
            if "alert" in rule:
                alerts.append(rule)
                assert re.fullmatch(r"\d+[smhd]", rule.get("for", "0s"))
                assert rule["labels"]["severity"] in ("warning", "critical")
                assert rule["annotations"]["summary"]
            else:
                assert re.fullmatch(r"elf:\w+:\w+", rule["record"])
    assert len({rule["alert"] for rule in alerts}) == len(alerts) > 8


def test_the_dashboard_asks_for_what_agents_measure() -> None:
    board = json.loads((DEPLOY / "prometheus" / "grafana.json").read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 15
    variables = {variable["name"] for variable in board["templating"]["list"]} | {"__all"}
    named: set[str] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert set(re.findall(r"\$\{?(\w+)", target["expr"])) <= variables
            assert asked(target["expr"]) <= series(), target
            named |= asked(target["expr"])
    assert len(named) > 15
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)), "panels lie over each other"


# -- services ------------------------------------------------------------------------------------------------


def directives() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.M):
        found.setdefault(name, []).append(value)
    return found


def options_of(words: list[str]) -> None:
    """A command line of ours is one that exists."""
    name, *rest = words
    if Path(name).name == "elf-agent":
        _parser().parse_args(rest)
        return
    assert Path(name).name == "elf"
    path = [word for word in rest if re.fullmatch(r"[a-z]+", word)]
    done = CliRunner().invoke(app, [*path, "--help"])
    assert done.exit_code == 0, done.output
    for option in re.findall(r"--[a-z-]+", " ".join(rest)):
        assert option in done.output, words


def test_the_unit_is_what_systemd_takes(tmp_path: Path) -> None:
    said = directives()
    for command in said["ExecStart"] + said.get("ExecReload", []):
        options_of(command.split())
    assert f"/var/lib/{said['StateDirectory'][0]}" == load(None, {}).data_dir
    assert said["Type"] == ["notify"]
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    (unit := tmp_path / UNIT.name).write_text(re.sub(r"=/usr/bin/elf\S*", "=/bin/true", UNIT.read_text()))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=True,
    )
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure is not None
    assert float(exposure[1]) <= EXPOSURE_MAX


@pytest.mark.parametrize(
    "name",
    ["chromium.sh", "deb.sh", "install.sh", "java.sh", "debian/postinst", "debian/prerm", "debian/postrm"],
)
def test_scripts_are_shell(name: str) -> None:
    path = DEPLOY / name
    subprocess.run(["sh", "-n", str(path)], check=True)
    for line in re.findall(r"^[^#\n]*?(?:if |; |&& |^ *)(elf(?:-agent)? [a-z].*)", path.read_text(), re.M):
        options_of(re.split(r"[;&|>]", line)[0].split())


def test_the_package_says_what_it_has() -> None:
    control = (DEPLOY / "debian" / "control").read_text()
    assert re.findall(r"@\w+@", control) == ["@VERSION@", "@ARCHITECTURE@", "@PYTHON@", "@NEXT_PYTHON@"]
    assert all(line.startswith(" ") or re.match(r"[A-Z][\w-]*: \S", line) for line in control.splitlines())
    script = (DEPLOY / "deb.sh").read_text()
    assert all(
        path.removeprefix("/") in script for path in (DEPLOY / "debian" / "conffiles").read_text().split()
    )
    variables = set(re.findall(r"ELF_[A-Z_]+[A-Z]", (DEPLOY / "debian" / "elf-agent.default").read_text()))
    assert variables <= VARIABLES


def test_what_is_installed_is_what_was_tested() -> None:
    """The versions of the packages for servers are those of development."""
    tested, installed = (
        set(re.findall(r"^([a-z0-9-]+==\S+)", (DEPLOY / name).read_text(), re.M))
        for name in ("requirements.lock", "runtime.lock")
    )
    assert installed <= tested
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.match(r"[a-z0-9-]+", one)[0] for one in project["dependencies"]}  # type: ignore[index]
    assert wanted <= {one.partition("==")[0] for one in installed}


def test_the_wheel_has_all_that_the_packages_have() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    data = project["package-data"]
    folders = [name.rstrip("*") for name in project["packages"]["find"]["include"]]
    said = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    for path in map(Path, said.stdout.split()):
        if path.suffix == ".py":
            assert (ROOT / path).parent.joinpath("__init__.py").exists() or path.parts[0] == "lab", path
            continue
        package = next(one for one in path.parents if (ROOT / one / "__init__.py").exists())
        patterns = [*data["*"], *data.get(".".join(package.parts), ())]
        assert any(ROOT / path in (ROOT / package).glob(pattern) for pattern in patterns), path


# -- containers ----------------------------------------------------------------------------------------------


def test_the_image_is_made_of_what_is_there() -> None:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M):
        assert all((ROOT / source).exists() for source in sources.split()), sources
    assert set(re.findall(r"ELF_[A-Z_]+(?==)", text)) <= VARIABLES
    (entry,) = re.findall(r"^ENTRYPOINT (.+)$", text, re.M)
    options_of(json.loads(entry))
    (health,) = re.findall(r"^HEALTHCHECK .* CMD (.+)$", text, re.M)
    compile(json.loads(health)[2], "HEALTHCHECK", "exec")
    assert "USER elf" in text
    packages = set(re.findall(r"include = \[(.*)\]", (ROOT / "pyproject.toml").read_text())[0].split(", "))
    copied = {f'"{name}*"' for name in re.findall(r"^COPY (\w+) \1$", text, re.M)}
    assert copied == packages


def manifests() -> dict[str, dict[str, Any]]:
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    return {one["kind"]: one for one in found}


def test_the_fleet_in_kubernetes_hangs_together(tmp_path: Path) -> None:
    parts = manifests()
    assert set(parts) == {"ConfigMap", "Service", "StatefulSet", "DaemonSet"}
    assert all(set(one) >= {"apiVersion", "kind", "metadata"} for one in parts.values())
    assert {one["metadata"]["namespace"] for one in parts.values()} == {"elf"}
    service = parts["Service"]["spec"]
    assert service["clusterIP"] == "None"
    for kind in ("StatefulSet", "DaemonSet"):
        spec = parts[kind]["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        assert (service["selector"].items() <= labels.items()) == (kind == "StatefulSet")
        _pod(
            spec["template"]["spec"],
            {one["metadata"]["name"] for one in spec.get("volumeClaimTemplates", [])},
        )
    first = parts["StatefulSet"]
    assert first["spec"]["serviceName"] == parts["Service"]["metadata"]["name"]
    name = f"{first['metadata']['name']}-0.{first['spec']['serviceName']}.elf.svc:7071"
    assert settings(first)["ELF_AGENT_ADVERTISE"] == name
    assert settings(parts["DaemonSet"])["ELF_CLUSTER_BOOTSTRAP"] == name
    for file, text in parts["ConfigMap"]["data"].items():
        (path := tmp_path / file).write_text(text)
        load(path, {})
        for kind in ("StatefulSet", "DaemonSet"):
            values = settings(parts[kind])
            filled = {key: value.replace("$(ADDRESS)", "192.0.2.1") for key, value in values.items()}
            assert load(path, filled).security == "keys"


def settings(workload: dict[str, Any]) -> dict[str, str]:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}


def _pod(pod: dict[str, Any], claims: set[str]) -> None:
    there = {one["name"] for one in pod["volumes"]} | claims
    for container in pod["initContainers"] + pod["containers"]:
        assert {one["name"] for one in container["volumeMounts"]} <= there
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    (agent,) = pod["containers"]
    names = {one["name"] for one in agent["env"]}
    assert {name for name in names if name.startswith("ELF_")} <= VARIABLES
    for one in agent["env"]:
        assert set(re.findall(r"\$\((\w+)\)", one.get("value", ""))) <= names
    _parser().parse_args(agent["args"])
    assert agent["ports"][0]["containerPort"] == 7071
    for probe in ("readinessProbe", "livenessProbe"):
        compile(agent[probe]["exec"]["command"][2], probe, "exec")
    assert agent["securityContext"]["readOnlyRootFilesystem"] is True


# -- beside servers ------------------------------------------------------------------------------------------


def test_the_format_for_nginx_is_one_for_both(tmp_path: Path) -> None:
    snippet = DEPLOY / "nginx" / "elf.conf"
    columns = {field.name for field in get_format(written_out(f"nginx:elf@{snippet}")).fields}  # type: ignore[attr-defined]
    assert {"ts", "c_ip", "cs_host", "request_time", "upstream_response_time"} <= columns
    if shutil.which("nginx") is None:
        pytest.skip("there is no nginx")
    http = f"http {{ include {snippet}; access_log {tmp_path}/access.log elf; }}"
    (conf := tmp_path / "nginx.conf").write_text(f"events {{}}\n{http}\npid {tmp_path}/pid;\n")
    command = ["nginx", "-t", "-q", "-e", f"{tmp_path}/error.log", "-c", str(conf)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["nginx", "elf-agent"])
def test_logrotate_takes_what_is_for_it(name: str, tmp_path: Path) -> None:
    if shutil.which("logrotate") is None:
        pytest.skip("there is no logrotate")
    text = (DEPLOY / "logrotate" / name).read_text()
    text = re.sub(r"/var/log/(nginx|elf)", str(tmp_path), text)
    text = re.sub(r"www-data adm|su elf elf\n", lambda found: "" if "su" in found[0] else "root root", text)
    (tmp_path / "agent.log").write_text("x\n")
    (conf := tmp_path / "conf").write_text(text)
    conf.chmod(0o644)
    command = ["logrotate", "--debug", "--state", str(tmp_path / "state"), str(conf)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "error:" not in done.stderr
    assert "copytruncate\n" not in text
