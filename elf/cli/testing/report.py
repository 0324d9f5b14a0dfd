"""``elf test``: files of tests in, a line each and their differences out."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import xml.etree.ElementTree as xml
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.loading import load
from elf.cli.errors import FAILED
from elf.cli.options import Shown
from elf.cli.printing import say, use_utf8
from elf.cli.testing.cases import File, read_cases
from elf.cli.testing.judging import Difference, differences
from elf.cli.testing.running import came_of
from elf.errors import UserError


@dataclass(frozen=True)
class Tried:
    """A test that was made."""

    file: Path
    name: str
    differences: Sequence[Difference]
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.differences


def try_files(files: Sequence[Path], only: str | None, output: Shown, junit: Path | None) -> int:
    """Run the tests of files; ``only``: those whose names have this in them. 1 if one fails. Raises
    ``UserError`` where a file is no file of tests, before any is run."""
    use_utf8()
    asked = [(path, read_cases(path)) for path in files]
    tried: list[Tried] = []
    for path, file in asked:
        for one in _tried(path, file, only):
            tried.append(one)
            _tell(one, output)
    if not tried:
        raise UserError(f"no test has {only!r} in its name" if only else "there is no test")
    if junit is not None:
        junit.write_bytes(_junit(tried))
    failed = sum(not one.passed for one in tried)
    if output is Shown.TABLE:
        say(f"{len(tried) - failed} passed" + (f", {failed} failed" if failed else ""), sys.stdout)
    return FAILED if failed else 0


def _tried(path: Path, file: File, only: str | None) -> Iterator[Tried]:
    with contextlib.chdir(path.absolute().parent):
        config = None if file.config is None else load(Path(file.config), {})
        for name, case in file.tests.items():
            if only is not None and only not in name:
                continue
            began = time.perf_counter()
            try:
                found = differences(case, came_of(case, file, config))
            except UserError as error:
                found = [Difference("it cannot be made", (f"+ {error}",))]
            yield Tried(path, name, found, time.perf_counter() - began)


def _tell(one: Tried, output: Shown) -> None:
    if output is Shown.JSON:
        facts = {
            "file": str(one.file),
            "test": one.name,
            "passed": one.passed,
            "seconds": round(one.seconds, 3),
        }
        facts["differences"] = [{"where": d.where, "lines": list(d.lines)} for d in one.differences]
        print(json.dumps(facts), flush=True)
        return
    say(f"{'ok    ' if one.passed else 'FAILED'}  {one.name}  ({one.file})", sys.stdout)
    for line in _lines(one):
        say(f"    {line}", sys.stdout)


def _lines(one: Tried) -> list[str]:
    if one.passed:
        return []
    shown = ["- expected, + came"]
    for difference in one.differences:
        shown += [difference.where, *(f"  {line}" for line in difference.lines)]
    return shown


def _junit(tried: Sequence[Tried]) -> bytes:
    """As CI servers read it."""
    suites = xml.Element("testsuites")
    for path in dict.fromkeys(one.file for one in tried):
        own = [one for one in tried if one.file == path]
        failed = sum(not one.passed for one in own)
        suite = xml.SubElement(
            suites, "testsuite", name=_xml(path), tests=str(len(own)), failures=str(failed)
        )
        for one in own:
            case = xml.SubElement(
                suite, "testcase", classname=_xml(path), name=_xml(one.name), time=f"{one.seconds:.3f}"
            )
            if not one.passed:
                failure = xml.SubElement(case, "failure", message=_xml(one.differences[0].where))
                failure.text = _xml("\n".join(_lines(one)))
    data: bytes = xml.tostring(suites, encoding="utf-8", xml_declaration=True)
    return data


def _xml(text: object) -> str:
    """What XML has no place for is escaped as Python does."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in str(text))
