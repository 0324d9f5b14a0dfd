"""``elf keys``: who may take part in a fleet, and ask it.

The *authority* of a cluster signs the keys of hosts and persons. It is two files in the folder ``authority``
of whoever made it, beside that person's own keys. It works where no agent runs; where a fleet runs, what was
signed is told to it, and reaches all agents at once (``elf.cli.enrol`` and ``elf.cli.rotate`` do the work).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elf.cli.options import Output, OutputOption, group
from elf.errors import UserError

app = group("Keys of hosts and persons: who takes part in a fleet, and who may ask it what.")


def _own_folder() -> Path:
    from elf.security.loopback import own_folder  # where it is used: it loads ZeroMQ

    return own_folder()


Own = Annotated[
    Path,
    typer.Option(
        "--dir",
        default_factory=_own_folder,
        envvar="ELF_KEYS",
        metavar="DIR",
        help="Your own keys, and the authority in DIR/authority (default ~/.config/elf).",
        show_default=False,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", help="A host's: its agent's data_dir. Else your own.", show_default=False
    ),
]
Fleet = Annotated[
    str | None,
    typer.Option(
        "--connect",
        metavar="HOST:PORT[,…]",
        help="Agents to tell; else those of ELF_CONNECT, or that were told before, if they answer.",
        show_default=False,
    ),
]
Expires = Annotated[
    str, typer.Option("--expires", metavar="TIME", help="How long it holds: 90s, 30m, 12h, 365d.")
]
Named = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME[=DIR]…]", help="Hosts; DIR: the agent's data_dir, on this machine.", show_default=False
    ),
]


@app.command()
def init(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="The name of the cluster.")],
    *,
    own: Own,
) -> int:
    """Make the authority of a new cluster, and your own key, with all roles."""
    from elf.cli.enrol import make_authority

    return make_authority(own, cluster)


@app.command()
def enrol(
    names: Named = None,
    person: Annotated[
        list[str] | None,
        typer.Option("--person", metavar="NAME[=DIR]", help="A person; DIR: a folder for the keys."),
    ] = None,
    roles: Annotated[
        str,
        typer.Option(
            "--roles",
            metavar="A,B,…",
            help="What persons may: read (results), tap (raw rows), write (own jobs), code (functions and "
            "jobs in Python), admin (all, for everybody).",
        ),
    ] = "read",
    expires: Expires = "365d",
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="PUBLIC", help="Of the one host or person, as elf keys new prints it."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="With --key: where to write what elf keys install takes."),
    ] = None,
    connect: Fleet = None,
    *,
    own: Own,
) -> int:
    """Sign keys of hosts and persons, new ones or again, and tell a running fleet."""
    from elf.cli.enrol import Wanted, enrol_all

    wanted = Wanted(tuple(names or ()), tuple(person or ()), roles, expires, key, out)
    return enrol_all(own, wanted, connect)


@app.command()
def new(data_dir: DataDir = None, *, own: Own) -> int:
    """Make a key on this machine, and print its public part, for elf keys enrol --key."""
    from elf.cli.enrol import make_key

    return make_key(own, data_dir)


@app.command()
def install(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What elf keys enrol --key wrote; -: standard input.")
    ],
    data_dir: DataDir = None,
    *,
    own: Own,
) -> int:
    """Put what was signed beside the key that elf keys new has made here."""
    from elf.cli.enrol import install_identity

    return install_identity(own, data_dir, file)


@app.command()
def token(
    uses: Annotated[int, typer.Option("--uses", min=1, max=100_000, help="How many hosts it enrols.")] = 1,
    expires: Expires = "1h",
    name: Annotated[str | None, typer.Option("--name", help="What it is called in elf keys list.")] = None,
    connect: Fleet = None,
    *,
    own: Own,
) -> int:
    """Print a token with which new hosts enrol themselves. It is a secret."""
    from elf.cli.enrol import make_token

    return make_token(own, name, uses, expires, connect)


@app.command()
def join(
    token: Annotated[
        str, typer.Argument(envvar="ELF_JOIN", metavar="TOKEN", help="Of elf keys token; -: standard input.")
    ],
    data_dir: Annotated[Path, typer.Option("--data-dir", metavar="DIR", help="The agent's data_dir.")],
    name: Annotated[str | None, typer.Option("--name", help="The host's (default: its own).")] = None,
) -> int:
    """Enrol this host with a token: what elf-agent --join does before it starts."""
    from elf.cli.enrol import join_with

    return join_with(token, data_dir, name)


@app.command()
def deploy(
    hosts: Annotated[list[str], typer.Argument(metavar="[USER@]HOST…", help="As ssh takes them.")],
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="The agents' data_dir there.")
    ] = Path("/var/lib/elf"),
    elf: Annotated[str, typer.Option("--elf", metavar="COMMAND", help="What elf is called there.")] = "elf",
    expires: Expires = "365d",
    connect: Fleet = None,
    *,
    own: Own,
) -> int:
    """Enrol hosts over ssh: each makes its key, which is signed here. Again: a new key."""
    from elf.cli.enrol import deploy_all

    return deploy_all(own, tuple(hosts), data_dir, elf, expires, connect)


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a host, a person or a token.")],
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="agent|person|token", help="Where several have that name.")
    ] = None,
    connect: Fleet = None,
    *,
    own: Own,
) -> int:
    """Have a key hold no more. It never comes back: enrol the name again with another one."""
    from elf.cli.rotate import revoke_key

    return revoke_key(own, name, kind, connect)


@app.command()
def rotate(
    names: Named = None,
    person: Annotated[
        list[str] | None, typer.Option("--person", metavar="NAME=DIR", help="A person, and the keys' folder.")
    ] = None,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="A new key that all agents listen with, without a restart.")
    ] = False,
    overlap: Annotated[
        str,
        typer.Option(
            "--overlap",
            metavar="TIME",
            help="With --fleet: until the new key counts, and the old one does not any more.",
        ),
    ] = "7d",
    expires: Expires = "365d",
    connect: Fleet = None,
    *,
    own: Own,
) -> int:
    """Make new keys for hosts (NAME=DIR) and persons, with the same roles; without any, for yourself; or
    the one that all agents listen with (--fleet)."""
    from elf.cli.rotate import rotate_fleet, rotate_keys

    if fleet:
        if names or person:
            raise UserError("--fleet stands alone: it is for all agents")
        return rotate_fleet(own, overlap, connect)
    return rotate_keys(own, tuple(names or ()), tuple(person or ()), expires, connect)


@app.command()
def bearer(
    expires: Annotated[
        str, typer.Option("--expires", metavar="TIME", help="How long it holds: 90s, 30m, 12h, 31d at most.")
    ] = "1h",
    *,
    own: Own,
) -> int:
    """Print a token with which HTTP clients may read what you may, as Authorization: Bearer … It is a
    secret."""
    from elf.cli.enrol import make_bearer

    return make_bearer(own, expires)


def doctor(
    data_dir: DataDir = None,
    connect: Fleet = None,
    *,
    own: Own,
) -> int:
    """Look at the keys of an agent on this machine (--data-dir), or at your own: modes, expiry, clock;
    whether the fleet is reached; and what its agents archive."""
    from elf.cli.doctor import examine

    return examine(own, data_dir, connect)


@app.command("list")
def list_keys(connect: Fleet = None, output: OutputOption = Output.TABLE, *, own: Own) -> int:
    """Who has keys, what they may, and until when: as the fleet says, or else the authority."""
    from elf.cli.rotate import show_keys

    return show_keys(own, connect, output)
