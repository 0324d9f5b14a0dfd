"""``elf-agent``: one agent beside one web server.

``elf-agent --config elf.yaml`` runs it until SIGTERM (takes a cut and stops; it goes on from there at the
next start) or ``elf leave``. ``elf-agent validate --config elf.yaml`` looks at a configuration and says all
that is wrong with it. Exit status 0, 78 for a bad configuration, 1 for anything else. ``--config`` may be
given several times: these agents share a process then, for experiments.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agents.config import DEFAULT_PATH, load, validate
from elf.errors import ConfigError, ElfError

BAD_CONFIG: Final = 78


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; the exit status."""
    files = arguments.config or [DEFAULT_PATH]
    configs = [load(file) for file in files]
    if arguments.command is None:
        spare()
        from agents.process import run_agents

        return run_agents(configs)
    problems = {file: validate(config) for file, config in zip(files, configs, strict=True)}
    for file, found in problems.items():
        for problem in found:
            print(f"elf-agent: {problem}", file=sys.stderr)
        if not found:
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
