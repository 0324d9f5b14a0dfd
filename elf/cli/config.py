"""``elf config``: the configuration of an agent on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from elf.cli.options import group
from elf.errors import UserError

PATH: Final = Path("/etc/elf/elf.yaml")
"""Where an agent looks for its configuration."""

app = group("The configuration of an agent on this machine (elf-agent validate checks one).")


@app.callback()
def _config() -> None:
    """So that ``init`` is a command, though it is the only one."""


@app.command()
def init(
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where it goes; -: standard output.")
    ] = PATH,
    nginx: Annotated[
        Path | None,
        typer.Option(
            "--nginx",
            metavar="FILE",
            help="nginx's configuration, whose logs and formats are taken.",
            show_default="/etc/nginx/nginx.conf, if it is there",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="agent.name", show_default="the host's")] = "",
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="agent.listen", show_default="127.0.0.1:7071")
    ] = "",
    advertise: Annotated[
        str, typer.Option("--advertise", metavar="HOST:PORT", help="agent.advertise", show_default=False)
    ] = "",
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="http.listen", show_default="127.0.0.1:7072")
    ] = "",
    cluster: Annotated[str, typer.Option("--cluster", help="cluster.name", show_default="elf")] = "",
    bootstrap: Annotated[
        list[str] | None,
        typer.Option("--bootstrap", metavar="HOST:PORT", help="cluster.bootstrap; may be repeated."),
    ] = None,
    data_dir: Annotated[
        str, typer.Option("--data-dir", metavar="DIR", help="data_dir", show_default="/var/lib/elf")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    start: Annotated[
        bool,
        typer.Option(
            "--start", help="Start an agent with it, in this process (where one is there: with that)."
        ),
    ] = False,
) -> int:
    """Write a commented configuration from what this machine has: the logs of nginx, with their formats, or
    logs at their usual places."""
    from elf.cli.configuring import Wanted, initialise

    if start and str(out) == "-":
        raise UserError("--start needs a file: --out FILE")
    told = {
        "name": name, "listen": listen, "advertise": advertise, "http": http, "cluster": cluster,
        "data_dir": str(Path(data_dir).absolute()) if data_dir else "",
    }  # fmt: skip
    return initialise(Wanted(out, nginx, told, tuple(bootstrap or ()), force=force, start=start))
