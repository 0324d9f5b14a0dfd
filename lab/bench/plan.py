"""``elf bench plan``: how long it takes from a text to its plan, and to plan many jobs and find the flows
that they share.

Examples are those of the reference that join no file, and the panels of ``deploy/queries``. A job is parsed,
planned (with both engines' SQL) and proposed to a catalog log, which gives it the flow of an equal fragment.
CPU time counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final

from typer import Option

from elf.errors import QueryError
from elf.job.catalog.admission import grow
from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import AddJob
from elf.job.spec import Flow, JobSpec, app_id, flow_topic, flow_uid
from elf.ql.catalogue import CLAUSES
from elf.ql.looks import is_look
from elf.ql.plan import Plan
from elf.ql.statements import joined_files, parse_query
from elf.schema import Column, Schema
from lab.bench.measure import plan_of
from lab.bench.options import Fragments, Jobs
from lab.bench.runner import Bench, Figure, Report, Scratch
from lab.bench.sides import clocked
from lab.chaos.engine import spec_of

PANELS: Final = Path(__file__).parents[2] / "deploy" / "queries"
HERE: Final = "127.0.0.1:7071"

_ACCESS: Final = (
    "c_ip cs_username cs_method cs_uri_stem cs_uri_query cs_version cs_referer cs_user_agent cs_request",
    "sc_status sc_bytes",
)
_JSON: Final = ("host remote_addr request_uri", "status body_bytes_sent")


def _schema(texts: str, integers: str) -> Schema:
    columns = [Column("ts", "timestamp"), Column("request_time", "double")]
    columns += [Column(name, "text") for name in texts.split()]
    columns += [Column(name, "bigint") for name in integers.split()]
    return Schema(tuple(columns), event_time="ts")


_SCHEMAS: Final = (_schema(*_ACCESS), _schema(*_JSON))
"""Access logs, and the JSON lines that some panels read."""
_JOB: Final = (
    "SELECT cs_uri_stem, COUNT(*) AS hits, SUM(sc_bytes) AS bytes, APPROX_PERCENTILE(sc_bytes, 0.99) AS p99 "
    "FROM access WHERE sc_status >= {least} AND cs_method IN ('GET', 'POST') GROUP BY cs_uri_stem "
    "HAVING hits > {number} ORDER BY hits DESC LIMIT 10 WINDOWING 1 MINUTE LATENESS 2 SECONDS"
)


@dataclass(frozen=True)
class Planning(Bench[str, dict[str, float]]):
    """All examples, again and again; once, many jobs."""

    jobs: Jobs = 1000
    fragments: Fragments = 100
    repeat: Annotated[int, Option("--repeat", min=1, help="Plans of each example; medians.")] = 9

    once: ClassVar = ("jobs",)

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], dict[str, float]]]:
        """The examples: ms of each. The jobs: seconds, and flows."""
        texts = _texts()
        schemas = {name: _schema_for(text) for name, text in texts.items()}
        return {
            "examples": lambda: {name: _ms(text, schemas[name]) for name, text in texts.items()},
            "jobs": lambda: _many(self.jobs, self.fragments),
        }

    def report(self, runs: Mapping[str, Sequence[dict[str, float]]]) -> Report:
        """Medians of the examples."""
        texts, (many,) = _texts(), runs["jobs"]
        took = {name: statistics.median(run[name] for run in runs["examples"]) for name in texts}
        middle, slowest = statistics.median(took.values()), max(took, key=took.__getitem__)
        longest = max(texts, key=lambda name: len(texts[name]))
        return Report(
            {
                "examples": len(texts),
                "median_ms": round(middle, 3),
                "longest": longest,
                "longest_ms": round(took[longest], 3),
                "slowest": slowest,
                "slowest_ms": round(took[slowest], 3),
                "jobs": self.jobs,
                "flows": many["flows"],
                "jobs_seconds": round(many["seconds"], 3),
            },
            [
                Figure(
                    f"text to plan, {len(texts)} examples: median, slowest", (middle, took[slowest]), "ms"
                ),
                Figure(f"{self.jobs} jobs parsed, planned and put together to flows", many["seconds"], "s"),
            ],
        )


def _texts() -> dict[str, str]:
    examples = {clause.name: clause.example for clause in CLAUSES if not joined_files(clause.example)}
    texts = {name: text for name, text in examples.items() if not _is_look(text)}
    return texts | {path.name: path.read_text(encoding="utf-8") for path in sorted(PANELS.glob("*.sql"))}


def _is_look(text: str) -> bool:
    query = parse_query(text)
    return query is not None and is_look(query)


def _schema_for(text: str) -> Schema:
    """The columns that the text is about."""
    try:
        plan_of(text, _SCHEMAS[0])
    except QueryError:
        return _SCHEMAS[1]
    return _SCHEMAS[0]


def _ms(text: str, schema: Schema) -> float:
    with clocked() as clock:
        plan_of(text, schema)
    return clock.cpu_seconds * 1000


def _many(jobs: int, fragments: int) -> dict[str, float]:
    """Jobs of so many different fragments; how many flows compute them."""
    log = CatalogLog()
    with clocked() as clock:
        for number in range(jobs):
            plan = plan_of(_JOB.format(least=200 + number % fragments, number=number), _SCHEMAS[0])
            grow(log, AddJob(spec=_proposed(f"job{number}", plan)))
    return {"flows": len(log.flows()), "seconds": clock.cpu_seconds}


def _proposed(name: str, plan: Plan) -> JobSpec:
    """A job with flows of its own, as its master proposes them."""
    spec = spec_of(name, "bench", 0, plan, master=HERE)
    uids = [(flow_uid(one, f"{spec.uid}.{spec.version}.{n}"), one) for n, one in enumerate(plan.fragments)]
    key = app_id(name, "bench")
    return spec.with_flows(Flow(uid, one, flow_topic(key, uid), HERE) for uid, one in uids)
