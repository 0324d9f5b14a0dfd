"""What users' code takes is counted and told, and who is stopped tells nothing more."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from elf.functions.cpu import cpu_us
from elf.functions.function import UserFunction
from elf.functions.hosts import Hosts
from elf.functions.sandbox import Limits, Sandboxes
from elf.job.program.calls import Place, Timer
from elf.job.program.port import CallProgram, ProgramEvent, ProgramState, StartProgram, StopProgram
from elf.job.program.spec import ProgramSpec
from elf.ql.plan import Function
from tests.support.confined import needs_confinement
from tests.support.enrolled import until

BATCH = pa.RecordBatch.from_pydict({"x": [1]})
BURNS = "began = time.process_time()\n    while time.process_time() - began < 0.06: pass"
BURNING_JOB = """
import time
from elf.job import Job
class J(Job):
    def on_timer(self):
        began = time.process_time()
        while time.process_time() - began < 0.06: pass
"""


@needs_confinement
@pytest.mark.parametrize("ending", ["return batch", "raise ValueError", "os._exit(1)"])
def test_what_a_function_takes_is_cpu_time_of_who_calls_it(ending: str, tmp_path: Path) -> None:
    sandboxes = Sandboxes()
    text = f"import os, time\ndef map(batch):\n    {BURNS}\n    {ending}\n"
    made = UserFunction(sandboxes, Function("map", text, "f.py"), Limits(), print, tmp_path)
    began, own = cpu_us(), time.thread_time_ns() // 1_000
    made(BATCH.slice(0, 1))
    functions = cpu_us() - began - (time.thread_time_ns() // 1_000 - own)
    made.close()
    sandboxes.close()
    assert 60_000 <= functions < 10_000_000


@needs_confinement
def test_what_a_job_in_python_takes_is_told() -> None:
    sandboxes, said = Sandboxes(), list[ProgramEvent]()
    hosts = Hosts(said.append, lambda spec, line: None, None, sandboxes)
    program, place = ProgramSpec("job", "me", 1, BURNING_JOB, "job.py", "J"), Place("web-1:7071", 0)
    hosts.perform(StartProgram(program, place))
    hosts.perform(CallProgram(program.uid, Timer(), place))
    until(lambda: sum(getattr(one, "cpu_us", 0) for one in said) >= 60_000, 20)
    hosts.close()


SLOW_JOB = """
import time
from elf.job import Job
class J(Job):
    def on_timer(self):
        print("began", flush=True)
        time.sleep(0.5)
        self.multicast("late")
"""


@needs_confinement
def test_a_job_that_is_stopped_says_nothing_under_the_name_of_the_next_one() -> None:
    sandboxes, said, lines = Sandboxes(), list[ProgramEvent](), list[str]()
    hosts = Hosts(said.append, lambda spec, line: lines.append(line), None, sandboxes)
    program, place = ProgramSpec("job", "me", 1, SLOW_JOB, "job.py", "J"), Place("web-1:7071", 0)
    hosts.perform(StartProgram(program, place))
    first = hosts._hosts[program.uid]
    hosts.perform(CallProgram(program.uid, Timer(), place))
    until(lambda: bool(lines), 20)
    hosts.perform(StopProgram(program.uid))
    said.clear()
    hosts.perform(StartProgram(program, place))
    first.join()
    until(lambda: bool(said), 20)
    hosts.close()
    assert said == [ProgramState(program.uid, "running")]
