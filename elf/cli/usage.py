"""The examples with which ``--help`` of a command ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "run": (
        "elf run -q 'SELECT status, COUNT(*) AS n FROM log GROUP BY status' --input access.log",
        "zcat access.log.*.gz | elf run -f slow.sql --input -",
    ),
    "test": ("elf test tests/*.yaml", "elf test access.yaml --only 'failures' --junit report.xml"),
    "report": (
        "elf report --html report.html --input /var/log/nginx/access.log*",
        "elf report --html busy.html --job busy --since '-6 hours' --connect web-1:7071",
    ),
    "graph": (
        "elf run -q 'SELECT c_ip, cs_user_agent FROM log GROUP BY c_ip, cs_user_agent HAVING COUNT(*) > 9' "
        "--input access.log --output json | elf graph --plot rings.svg",
    ),
    "demo": ("elf demo", "elf demo --app product-bundling"),
    "audit": ("elf audit --data-dir /var/lib/elf",),
    "backup": ("elf backup --out fleet.tar.gz", "elf backup --out fleet.tar.gz --keys"),
    "support-bundle": ("elf support-bundle", "elf support-bundle --out /tmp/elf.tar.gz"),
    "reload": ("elf reload", "elf reload --data-dir /srv/elf"),
    "sql": (
        "elf sql 'SHOW JOBS'",
        "elf sql 'SELECT COUNT(*) AS n FROM access WINDOWING 5 SECONDS' --windows 3 --output json",
        "elf sql 'ALTER JOB busy SET least = 500 PREVIEW 3 WINDOWS'",
        "elf sql -f jobs.sql --connect web-1:7071",
    ),
    "shell": ("elf shell", "elf shell --connect web-1:7071,web-2:7071"),
    "ui": ("elf ui", "elf ui --connect web-1:7071 --listen 127.0.0.1:0"),
    "flight": ("elf flight", "elf flight --connect web-1:7071 --listen 127.0.0.1:0 --windows 3"),
    "mcp": ("elf mcp", "elf mcp --connect web-1:7071 --statements 20 --rows 50"),
    "submit": ("elf submit popular.py --set every=2", "elf submit popular.py --name lately --replace"),
    "query": ("elf query busy", """elf query popular '{"since": 3}'"""),
    "jobs": ("elf jobs", "elf jobs --output json"),
    "members": ("elf members",),
    "streams": ("elf streams",),
    "top": ("elf top --every 5", "elf top --rounds 3 --output json"),
    "dash": ("elf dash", "elf dash busy errors --every 1"),
    "tap": (
        "elf tap access --where 'sc_status >= 500' --limit 20",
        "elf tap access --columns c_ip,sc_status",
    ),
    "tree": ("elf tree busy", "elf tree stream:access --plot access.svg"),
    "compare": ("elf compare busy --windows 10", "elf compare busy --follow --every 60s"),
    "leave": ("elf leave --connect web-2:7071", "elf leave --dead web-3"),
    "scale": ("elf scale in 1", "elf scale in 2 --connect web-1:7071"),
    "completion": (
        "elf completion bash > ~/.local/share/bash-completion/completions/elf",
        "elf completion zsh > ~/.zfunc/_elf    # a folder of fpath",
        "elf completion fish > ~/.config/fish/completions/elf.fish",
    ),
    "doctor": ("elf doctor --data-dir /var/lib/elf", "elf doctor --connect web-1:7071"),
}
"""By command; each is a whole line of a shell."""


def examples(command: str) -> str | None:
    """What stands below a command's options; None: nothing."""
    lines = EXAMPLES.get(command)
    return None if lines is None else "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
