"""``elf-agent``: one agent beside one web server.

``elf-agent --config elf.yaml`` runs it until SIGTERM (takes a cut and stops; it goes on from there at the
next start) or ``elf leave``. ``elf-agent validate --config elf.yaml`` looks at a configuration and says all
that is wrong with it. Exit status 0, 78 for a bad configuration, 1 for anything else. ``--config`` may be
given several times: these agents share a process then, for experiments. All files are looked at, each line
then names its own.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agents.config import DEFAULT_PATH, Config, load
from elf.errors import ConfigError, ElfError

BAD_CONFIG: Final = 78


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; the exit status."""
    files = arguments.config or [DEFAULT_PATH]
    configs, problems = dict[Path, Config](), dict[Path, list[str]]()
    for file in files:
        try:
            configs[file] = load(file)
        except ConfigError as error:
            problems[file] = str(error).splitlines()
    if arguments.command is None and not problems:
        spare()
        from agents.process import run_agents

        return run_agents([configs[file] for file in files])
    if arguments.command is not None:
        from agents.validation import doubts, validate_all

        problems |= validate_all(configs)
        for file, config in configs.items():
            for doubt in doubts(config):
                where = "" if len(files) == 1 else f"{file}: "
                print(f"elf-agent: warning: {where}{doubt}", file=sys.stderr)
    for file in dict.fromkeys(files):
        for problem in problems.get(file, ()):
            named = len(files) == 1 or str(file) in problem
            print(f"elf-agent: {problem if named else f'{file}: {problem}'}", file=sys.stderr)
        if arguments.command is not None and not problems[file]:
            print(f"{file}: ok")
    return BAD_CONFIG if any(problems.values()) else 0


def spare() -> None:
    """Keep what libraries do in passing, and no agent needs, out of a process that runs for months."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's: else a thread with buffers for each core
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # a heap that Arrow leaves idle
    # structlog imports it when it is imported itself, however it is configured: 4 MB for coloured tracebacks
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]


def _parser() -> argparse.ArgumentParser:
    """Of the standard library: an agent runs for months, and should not hold the tools of a command line."""
    parser = argparse.ArgumentParser(
        "elf-agent", description="One elf agent: follows logs, computes, answers."
    )
    parser.add_argument(
        "command", nargs="?", choices=["validate"], help="check a configuration, and this machine against it"
    )
    parser.add_argument(
        "--config",
        type=Path,
        action="append",
        metavar="FILE",
        help=f"the YAML file (default {DEFAULT_PATH}); several: that many agents in one process",
    )
    return parser


def ended(work: Callable[[], int]) -> int:
    """The exit status of an agent's work: one clear line for whatever goes wrong."""
    try:
        return work()
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"elf-agent: {line}", file=sys.stderr)
        return BAD_CONFIG
    except ElfError as error:
        print(f"elf-agent: {error}", file=sys.stderr)
        return 1


def main() -> None:
    """Entry point."""
    arguments = _parser().parse_args()
    sys.exit(ended(lambda: run(arguments)))


if __name__ == "__main__":
    main()
