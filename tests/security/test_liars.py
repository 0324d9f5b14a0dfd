"""What an enrolled agent that lies can do: it has a key, and says what its key does not let it say."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from agents.tasks import covered
from agents.tasks.covered import NotCovered
from agents.tasks.running import Running
from elf.job.effects import Run
from elf.job.events import Ran
from elf.job.messages.rollup import NotRun, Reexecute
from elf.job.reexecution import Reading, SourceAt, SourceOffsets
from tests.agents.test_running import FLOW, ROOT, pane

# -- files of others -----------------------------------------------------------------------------------------

LINE = '{"ts": 1700000001.5, "k": "secret", "n": 7}\n{"ts": 1700000009.5, "k": "secret", "n": 7}\n'


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A shared folder with the log of a neighbour, and a file that is nobody else's."""
    for name in ("logs/web-1", "private"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("logs/web-1/clicks.log", "private/clicks.log"):
        (tmp_path / name).write_text(LINE)
    return tmp_path / "logs"


def run_from(path: Path, shared: str, include: str = "") -> Ran:
    """What a helper that shares these files answers to a root that names this one."""
    status = path.stat()
    source = SourceAt("f", 0, 0, False, str(path), status.st_ino)
    offsets = SourceOffsets(1, 1_700_000_030_000, (source,))
    reading = Reading("json", "ts", None, 1_000_000, 0, 1 << 20, (include or str(path),))
    asked = Reexecute(flow=FLOW.uid, member=3, pane=pane(1), offsets=offsets, reading=reading)
    running = Running({FLOW.fragment.stream: (shared,)}, 1 << 20)
    try:
        return running.submit(Run(FLOW, asked, ROOT)).result(20)
    finally:
        running.close()


def refused(told: Ran) -> bool:
    assert bool(told.refused) == isinstance(told.answer, NotRun)
    return bool(told.refused)


def test_only_files_that_its_own_configuration_names_are_opened_for_others(logs: Path) -> None:
    shared = f"{logs}/*/clicks.log*"
    assert not refused(run_from(logs / "web-1" / "clicks.log", shared))
    for path in (logs.parent / "private" / "clicks.log", logs / ".." / "private" / "clicks.log"):
        told = run_from(path, shared)
        assert told.refused == f"{path} is not among the files that streams.NAME.shared names here"


def test_a_link_in_a_shared_folder_leads_nowhere(logs: Path) -> None:
    shared = f"{logs}/*/clicks.log*"
    (logs / "web-1" / "clicks.log.1").symlink_to(logs.parent / "private" / "clicks.log")
    (logs / "web-2").symlink_to(logs.parent / "private")
    assert refused(run_from(logs / "web-1" / "clicks.log.1", shared))
    assert refused(run_from(logs / "web-2" / "clicks.log", shared))
    (logs.parent / "here").symlink_to(logs)  # its owner's
    assert not refused(run_from(logs / "web-1" / "clicks.log", f"{logs.parent}/here/*/clicks.log"))


def test_what_is_no_file_is_not_opened(logs: Path) -> None:
    os.mkfifo(logs / "web-1" / "clicks.log.2")
    with pytest.raises(NotCovered, match="is no file"):
        covered.opened(str(logs / "web-1" / "clicks.log.2"), [f"{logs}/*/clicks.log*"])


def test_patterns_of_others_choose_among_our_files_and_cost_nothing(logs: Path) -> None:
    shared = [f"{logs}/*/clicks.log*"]
    ours = [str(logs / "web-1" / "clicks.log")]
    assert covered.covered(shared, ["/**"], []) == ours
    assert covered.covered(shared, [f"{logs.parent}/**/clicks.log"], []) == ours
    assert covered.covered(shared, [f"{logs}/clicks.log", f"{logs.parent}/private/*"], []) == []
    began = time.monotonic()
    assert covered.covered(shared, ["/**" * 400 + "/x", "/" + "*a" * 400], []) == []
    assert time.monotonic() - began < 2
