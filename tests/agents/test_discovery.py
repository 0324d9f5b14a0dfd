"""What ``elf config init`` finds on a machine, and the file that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agents import discovery
from agents.discovery import Told, discover, written
from agents.loading import load
from elf.cli.config import app
from elf.errors import ConfigError, UserError

CONF = """
events {}
http {
  log_format main '$remote_addr - $remote_user [$time_local] "$request" '
                  '$status $body_bytes_sent $request_time';
  log_format stuck '$a$b';
  access_log LOGS/access.log main buffer=32k;
  error_log LOGS/error.log warn;
  include sites/*.conf;
}
"""
SITE = """
server {
  access_log LOGS/$host.log;
  access_log syslog:server=192.0.2.1;
  access_log LOGS/access.log combined;
  access_log LOGS/packed.log main gzip;
  location /x { access_log off; }
  location /y { access_log own/y.log stuck; }
}
"""


def nginx(folder: Path) -> Path:
    (folder / "sites").mkdir()
    (folder / "sites" / "shop.conf").write_text(SITE.replace("LOGS", str(folder)))
    (conf := folder / "nginx.conf").write_text(CONF.replace("LOGS", str(folder)))
    return conf


def test_the_logs_of_nginx_are_streams_by_format(tmp_path: Path) -> None:
    conf = nginx(tmp_path)
    found = discover(conf)
    assert {one.name: (one.include, one.exclude, one.format) for one in found.streams} == {
        "access": ((f"{tmp_path}/access.log",), (), f"nginx:main@{conf}"),
        "errors": ((f"{tmp_path}/error.log",), (), "nginx_error"),
        "access_combined": (
            (f"{tmp_path}/*.log",),
            (f"{tmp_path}/access.log", f"{tmp_path}/error.log", f"{tmp_path}/own/y.log"),
            "combined",
        ),
    }
    notes = sorted(note.replace(str(tmp_path), "") for note in found.notes)
    assert [note.split(":")[0] for note in notes] == [
        "/access.log has lines of several formats",
        "/packed.log is left out",
        "log_format stuck (/own/y.log) is left out",
        "syslog",
    ]


def test_the_file_loads_and_has_what_was_told(tmp_path: Path) -> None:
    told = Told(
        name="web-1",
        listen="127.0.0.1:7100",
        http="127.0.0.1:7101",
        cluster="shop",
        bootstrap=("web-2:7071",),
        data_dir=f"{tmp_path}/data",
    )
    (path := tmp_path / "elf.yaml").write_text(written(told, discover(nginx(tmp_path))))
    config = load(path, {})
    assert (config.agent.name, config.agent.listen, config.http.listen) == (told.name, told.listen, told.http)
    assert (config.cluster.name, config.cluster.bootstrap, config.data_dir) == (
        "shop",
        ("web-2:7071",),
        f"{tmp_path}/data",
    )
    assert set(config.streams) == {"access", "errors", "access_combined"}
    assert config.streams["access"].format.endswith("$request_time")


def test_without_nginx_logs_are_looked_for_where_they_usually_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = '1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 94 "-" "x"\n'
    (log := tmp_path / "access.log").write_text(line * 5)
    (tmp_path / "empty.log").write_text("")
    monkeypatch.setattr(discovery, "NGINX", str(tmp_path / "none"))
    empty = str(tmp_path / "empty.log")
    places = (("access", str(log), "caddy"), ("access", empty, "caddy"), ("errors", empty, "nginx_error"))
    monkeypatch.setattr(discovery, "USUAL", places)
    assert [(one.name, one.include, one.format) for one in discover().streams] == [
        ("access", (str(log),), "combined"),
        ("errors", (empty,), "nginx_error"),
    ]
    monkeypatch.setattr(discovery, "USUAL", ())
    (path := tmp_path / "elf.yaml").write_text(written(Told(), discover()))
    assert load(path, {}).streams == {}


def test_it_is_written_once_and_only_where_it_is_right(tmp_path: Path) -> None:
    conf, out = nginx(tmp_path), tmp_path / "etc" / "elf.yaml"

    def init(*args: str) -> object:
        command = ["init", "--out", str(out), "--nginx", str(conf), *args]
        return CliRunner().invoke(app, command, standalone_mode=False).exception

    assert "agent.listen 'web' is not host:port" in str(init("--listen", "web"))
    assert not out.exists()
    assert init() is None
    text = out.read_text()
    assert isinstance(refused := init("--name", "x"), UserError)
    assert "is there already" in str(refused)
    assert out.read_text() == text
    assert init("--name", "x", "--force") is None
    assert 'name: "x"' in out.read_text()
    assert isinstance(init("--nginx", str(tmp_path / "none"), "--force"), ConfigError)
