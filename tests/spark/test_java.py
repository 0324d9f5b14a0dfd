"""Finding Java: old ones are refused, one line when there is none; the script agrees with the module."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from elf.errors import UserError
from spark_backend import java
from spark_backend.session import SparkFailed, failing

SCRIPT = Path(__file__).parents[2] / "deploy" / "java.sh"


def fake(home: Path, version: str) -> Path:
    """A Java job group whose ``java -version`` says what is asked."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which no Java is known: the tests say what there is."""
    monkeypatch.setattr(java, "_INSTALLED", tmp_path / "jvm")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"))
    return tmp_path


@pytest.mark.parametrize(("said", "number"), [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("25-ea", 25)])
def test_versions(tmp_path: Path, said: str, number: int) -> None:
    assert java.java_version(fake(tmp_path / "j", said) / "bin" / "java") == number
    assert java.java_version(tmp_path / "none") is None


def test_the_path_then_what_is_installed(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake(bare / "path", "11.0.2")
    for name, version in (("a", "21.0.1"), ("b", "17.0.1"), ("c", "1.8.0")):
        fake(bare / "jvm" / name, version)
    assert java.ensure() == bare / "jvm" / "b"
    assert os.environ["JAVA_HOME"] == str(bare / "jvm" / "b")
    monkeypatch.setenv("JAVA_HOME", str(bare / "jvm" / "a"))
    assert java.ensure() == bare / "jvm" / "a"
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert java.ensure() == bare / "jvm" / "b"


def test_none_is_one_line_that_names_the_package(bare: Path) -> None:
    fake(bare / "path", "11.0.2")
    with pytest.raises(UserError) as caught:
        java.ensure()
    text = str(caught.value)
    assert "default-jre-headless" in text
    assert "Java 11" in text
    assert "\n" not in text


@pytest.mark.parametrize(("version", "status"), [("17.0.1", 0), ("1.8.0", 1), ("11.0.2", 1)])
def test_the_script_takes_what_the_module_takes(tmp_path: Path, version: str, status: int) -> None:
    """With a PATH that has the few tools that it needs, and no apt-get: it must not install anything here."""
    tools = fake(tmp_path / "tools", version) / "bin"
    for name in ("sed", "head", "id"):
        found = next(
            Path(folder) / name for folder in os.defpath.split(":") if (Path(folder) / name).exists()
        )
        (tools / name).symlink_to(found)
    script = SCRIPT.read_text().replace("/usr/lib/jvm", str(tmp_path / "jvm"))
    done = subprocess.run(
        ["/bin/sh", "-c", script], env={"PATH": str(tools)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    assert done.stdout == ""
    if status:
        assert "default-jre-headless" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    else:
        assert done.stderr == ""


def test_a_full_disk_says_where_spark_writes() -> None:
    with pytest.raises(SparkFailed, match=r"No space left on device: it sorts in /.+ set TMPDIR$"), failing():
        raise PySparkException("Job aborted: No space left on device")
