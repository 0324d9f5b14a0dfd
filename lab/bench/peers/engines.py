"""The engines that ``elf bench peers`` knows, and their virtual environments.

elf and DuckDB run in elf's own interpreter, every other engine in ``ENVS/NAME``, which ``install`` makes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elf.errors import UserError

HERE: Final = Path(__file__).parent
ENVS: Final = Path("~/.cache/elf/peers")


@dataclass(frozen=True)
class Engine:
    """``script`` has a function of its name. ``requirements`` are what pip installs, pinned, the engine's own
    package first; none: it runs in elf's own interpreter."""

    name: str
    title: str
    script: Path
    requirements: tuple[str, ...] = ()
    needs_java: bool = False

    def python(self, envs: Path) -> Path:
        return envs / self.name / "bin" / "python" if self.requirements else Path(sys.executable)

    def command(self, envs: Path, scratch: Path) -> list[str]:
        """``lab.bench.peers.serve`` with this engine; other engines see nothing of elf's packages."""
        apart = "-I" if self.requirements else "-P"
        package = self.requirements[0].partition("==")[0] if self.requirements else PACKAGES[self.name]
        serve = [str(self.python(envs)), apart, str(HERE / "serve.py")]
        return [*serve, str(self.script), self.name, package, str(scratch)]


OWN: Final = HERE / "own.py"
OTHERS: Final = HERE / "others.py"
PACKAGES: Final = {"elf": "elf-stream", "elf_archive": "elf-stream", "duckdb": "duckdb"}
ELF: Final = Engine("elf", "elf", OWN)
ARCHIVING: Final = Engine("elf_archive", "elf with its archive", OWN)
ORACLE: Final = Engine("duckdb", "DuckDB (batch)", OWN)
PEERS: Final = (
    Engine("polars", "Polars (batch)", OTHERS, ("polars==2.1.0",)),
    Engine("flink", "Flink SQL", OTHERS, ("apache-flink==2.3.0",), needs_java=True),
    Engine("spark", "Spark Structured Streaming", OTHERS, ("pyspark==4.3.0",), needs_java=True),
    Engine("pathway", "Pathway", OTHERS, ("pathway==0.33.0",)),
    Engine("bytewax", "Bytewax", OTHERS, ("bytewax==0.21.1", "orjson==3.13.0")),
)


def chosen(names: Sequence[str] | None, peers: Sequence[Engine] = PEERS) -> list[Engine]:
    """The peers of these names, all if None; elf and DuckDB may be named too. Raises ``UserError``."""
    known = {peer.name: peer for peer in peers}
    wanted = [name for name in dict.fromkeys(known if names is None else names) if name not in PACKAGES]
    for name in wanted:
        if name not in known:
            raise UserError(f"no engine {name}: there are {', '.join(known)} (elf and DuckDB always run)")
    return [known[name] for name in wanted]


def missing(peers: Iterable[Engine], envs: Path) -> list[Engine]:
    """Those without an environment."""
    return [peer for peer in peers if not peer.python(envs).exists()]


def how_to_install(peers: Sequence[Engine], envs: Path) -> str:
    """One line that names them and the command."""
    titles = ", ".join(peer.title for peer in peers)
    command = f"elf bench peers --envs {envs} --install {' '.join(peer.name for peer in peers)}"
    return f"not installed: {titles}; install with: {command}"


def lacks_java() -> bool:
    return shutil.which("java") is None and "JAVA_HOME" not in os.environ


def able(peers: Sequence[Engine], envs: Path) -> tuple[list[Engine], list[str]]:
    """Those that can run here; and of the others why they cannot, and what to install."""
    absent = missing(peers, envs.expanduser())
    why = [how_to_install(absent, envs)] if absent else []
    there = [peer for peer in peers if peer not in absent]
    if lacks_java() and (stuck := [peer for peer in there if peer.needs_java]):
        why.append(needs_java(stuck))
        there = [peer for peer in there if not peer.needs_java]
    return there, why


def needs_java(peers: Iterable[Engine]) -> str:
    """One line that names them, where Java is missing."""
    return f"no java for {', '.join(peer.title for peer in peers)}: install Java 17, or set JAVA_HOME"


def install(names: Sequence[str], envs: Path, peers: Sequence[Engine] = PEERS) -> int:
    """Make the environments anew; pip's own configuration says where packages come from. Raises
    ``UserError``; what is half done is removed."""
    for peer in chosen(names, peers):
        folder = envs / peer.name
        print(f"installing {', '.join(peer.requirements)} in {folder}", flush=True)
        try:
            _run([sys.executable, "-m", "venv", "--clear", str(folder)], peer)
            pip = [str(peer.python(envs)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run([*pip, *peer.requirements], peer)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return 0


def _run(command: list[str], peer: Engine) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UserError(f"cannot install {peer.title}: {said[-1] if said else f'status {done.returncode}'}")
