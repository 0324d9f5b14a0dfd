"""``elf-agent``: one agent beside one web server.

``elf-agent --config elf.yaml`` runs it until SIGTERM (takes a checkpoint and stops; it goes on from there at
the next start) or ``elf leave``. ``elf-agent validate --config elf.yaml`` looks at a configuration, and at
this machine and fleet, and says all that a start would trip over. Exit status of both: 0, 78 for a bad
configuration, 1 for anything else (a port in use, a folder that cannot be written to). ``--join``
(or ``ELF_JOIN``) enrols a host that has no keys yet. ``--config`` may be
given several times: these agents share a process then, for experiments. All files are looked at, each line
then names its own.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agents.config import DEFAULT_PATH, Config
from agents.loading import load
from elf.errors import ConfigError, ElfError

if TYPE_CHECKING:  # as in ``run``
    from agents.reload import Again

BAD_CONFIG: Final = 78
CANNOT_START: Final = 1


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; the exit status."""
    files = list(dict.fromkeys(arguments.config or [DEFAULT_PATH]))
    configs, problems = loaded(files)
    if arguments.command is not None:
        return validated(files, configs, problems)
    if problems:
        for file, lines in problems.items():
            _say(lines, file, files)
        return BAD_CONFIG
    spare()
    token = arguments.join or os.environ.get("ELF_JOIN", "")
    if token:
        join(token, list(configs.values()))
    from agents.process import run_agents

    agents = [configs[file] for file in arguments.config or files]
    return run_agents(agents, reread=partial(read_again, files))


def loaded(files: Sequence[Path]) -> tuple[dict[Path, Config], dict[Path, list[str]]]:
    """The configurations of these files, and what is wrong with the others."""
    configs, problems = dict[Path, Config](), dict[Path, list[str]]()
    for file in files:
        try:
            configs[file] = load(file)
        except ConfigError as error:
            problems[file] = str(error).splitlines()
    return configs, problems


def read_again(files: Sequence[Path], running: Sequence[Config]) -> Again:
    """What agents that run with these files are to go on with, looked at as ``elf-agent validate`` does."""
    from agents.keyring import named_by, open_keyring
    from agents.process import in_one_process
    from agents.reload import Again
    from agents.validation import validate_all

    configs, problems = loaded(files)
    if problems:
        return Again(wrong=tuple(line for lines in problems.values() for line in lines))
    found = validate_all(configs, dict(zip(files, running, strict=True)))
    wrong = [line for one in found.values() for line in (*one.wrong, *one.machine)]
    if why := in_one_process(list(configs.values())):
        wrong.append(why)
    if wrong:
        return Again(wrong=tuple(wrong))
    keyrings = tuple(open_keyring(config) for config in configs.values())
    named = tuple(
        named_by(keyring, config) for keyring, config in zip(keyrings, configs.values(), strict=True)
    )
    return Again(named, keyrings, notes=tuple(note for one in found.values() for note in one.notes))


def validated(
    files: Sequence[Path], configs: Mapping[Path, Config], problems: Mapping[Path, list[str]]
) -> int:
    """Say all that is wrong with these files, and what a start with them would trip over; the status with
    which that start would end, 0 where it would work."""
    from agents.validation import validate_all

    wrong, found = dict(problems), validate_all(configs)
    for file in files:
        if file in found:
            wrong[file] = found[file].wrong
            _say([f"note: {note}" for note in found[file].notes], file, files)
            _say([*found[file].wrong, *found[file].machine], file, files)
            if not found[file].wrong and not found[file].machine:
                print(f"{file}: ok")
        else:
            _say(problems[file], file, files)
    if any(wrong.values()):
        return BAD_CONFIG
    return CANNOT_START if any(one.machine for one in found.values()) else 0


def _say(lines: Sequence[str], file: Path, files: Sequence[Path]) -> None:
    for line in lines:
        named = len(files) == 1 or str(file) in line
        print(f"elf-agent: {line if named else f'{file}: {line}'}", file=sys.stderr)


def join(token: str, configs: Sequence[Config]) -> None:
    """Enrol those that have no keys yet with a token, which is a secret. Raises ``ElfError``."""
    import asyncio

    from agents.keyring import has_identity
    from elf.client.enrolment import fit_name, join_fleet

    for config in configs:
        if not has_identity(config):
            asyncio.run(join_fleet(token, Path(config.keys), fit_name(config.agent.name)))


def spare() -> None:
    """Keep what libraries do in passing, and no agent needs, out of a process that runs for months."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's: else a thread with buffers for each core
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # a heap that Arrow leaves idle


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
    parser.add_argument(
        "--join",
        metavar="TOKEN",
        help="enrol this host first, if it has no keys yet (elf keys token; better in the variable ELF_JOIN: "
        "others on this machine can read a command line)",
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
        return CANNOT_START


def main() -> None:
    """Entry point."""
    arguments = _parser().parse_args()
    status = ended(lambda: run(arguments))
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # who started it, and its terminal, are gone: that is no failure of the agent
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)


if __name__ == "__main__":
    main()
