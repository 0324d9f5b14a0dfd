"""What clients may say to jobs in Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from agents.answering.submissions import Submissions
from elf.errors import UserError
from elf.job import JobError
from elf.wire.clients import Call
from tests.support.graph_examples import Degrees
from tests.support.two_agents import two_agents


@pytest.mark.parametrize("message", ['{"scale": -2}', '{"scale": 1, "more": 2}'])
def test_a_query_does_not_scale_a_job_which_only_its_owner_may(message: str) -> None:
    job: Any = SimpleNamespace(name="walks", creator="ada")
    log: Any = SimpleNamespace(find_program=lambda *_: job, find_job=lambda *_: None)
    nobody: Any = None
    submissions = Submissions(log, nobody, nobody, nobody)
    argument = f'{{"job": "ada/walks", "message": {message}}}'
    call = Call(request=1, verb="query", argument=argument, creator="eve")
    with pytest.raises(UserError, match="a query changes no job: ALTER JOB walks SCALE OUT n, or SCALE IN n"):
        next(submissions.query(call))


def test_nor_does_another_job() -> None:
    master, below = two_agents(Degrees)
    below.on_timer()
    with pytest.raises(JobError, match="is asked null"):
        master.deliver(b"x" * 16, {"scale": 1})


def test_of_more_rows_than_there_are_a_query_gets_all() -> None:
    master, _ = two_agents(Degrees)
    state: Any = master.kept_beside()
    state["result"] = {"rows": pa.table({"vertex": ["a"], "value": [1.0]})}
    assert master.deliver(b"", {"top": 1 << 70}) == [{"vertex": "a", "value": 1.0}]
