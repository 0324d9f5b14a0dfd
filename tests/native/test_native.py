"""The native reader gives what DuckDB's SQL gives, whatever is in a line, and keeps to its buffers."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from agents.formats import get_format
from agents.tasks.extracting import Extractor
from elf import native
from elf.batch import encode
from elf.ipcsize import NotArrow, told_bytes
from elf.job.ports import Wanted
from elf.native.binding import ipc_size
from elf.native.reading import ACCESS_FIELDS
from elf.schema import Column
from lab.bench.native.compare import compare
from lab.bench.native.drawing import FORMATS, NAMES, AccessLines, JsonLines, spoilt
from tests.support.long import cases

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "elf" / "native"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SEEDS = range(6)
needs_native = pytest.mark.skipif(native.library() is None, reason=native.why_not())


def drawn(format: str, seed: int, count: int) -> list[str]:
    rng = Random(seed)
    drawer = JsonLines(rng) if format == "json" else AccessLines(rng, combined=format == "combined")
    lines = [drawer.line() for _ in range(count)]
    return [line if rng.random() < 0.6 else spoilt(rng, line) for line in lines]


@needs_native
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("seed", SEEDS)
def test_it_gives_what_sql_gives(format: str, seed: int) -> None:
    compared = compare(format, seed, 1000)
    assert compared.differences == []


@needs_native
@pytest.mark.parametrize("format", FORMATS)
def test_it_decides_what_logs_have(format: str) -> None:
    lines = {
        "json": '{"ts":"2026-01-01T00:00:00.5Z","user":{"name":"\\u00e9"},"n":-5,"x":0.25,'
        '"ok":true,"tags":["a",1]}',
        "common": '1.2.3.4 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.0" 200 2326',
        "combined": '::1 - - [10/Oct/2000:13:55:36 +0000] "-" 408 - "-" "a \\"b\\" c" "10.0.0.1" 0.003',
    }
    asked = {
        "json": [
            ("user.name", "text"),
            ("n", "bigint"),
            ("x", "double"),
            ("ok", "boolean"),
            ("tags", "text"),
        ],
        "common": [("cs_uri_query", "text"), ("sc_bytes", "bigint")],
        "combined": [("cs_method", "text"), ("cs_user_agent", "text"), ("_extra", "text")],
    }
    values: dict[str, list[object]] = {
        "json": ["é", -5, 0.25, True, '["a",1]'],
        "common": ["b=c", 2326],
        "combined": [None, 'a \\"b\\" c', '"10.0.0.1" 0.003'],
    }
    columns = [Column(name, kind) for name, kind in asked[format]]  # type: ignore[arg-type]
    reader = get_format(format).reader(columns, "ts", native.library() or ctypes.CDLL(None))
    assert reader is not None
    read = reader.read(pa.array([lines[format]] * 3))
    assert read.decided.all()
    assert [column.to_pylist() for column in read.columns[:-1]] == [[value] * 3 for value in values[format]]
    assert read.columns[-1].null_count == 0


@needs_native
@pytest.mark.parametrize("format", FORMATS)
def test_all_instructions_find_the_same(format: str) -> None:
    lines = pa.array(drawn(format, 7, 500))
    columns = (Column("a" if format == "json" else "cs_request", "text"),)
    reader = get_format(format).reader(columns, None, native.library() or ctypes.CDLL(None))
    assert reader is not None
    found = []
    for level in (0, 1, 2):
        reader.level = level
        read = reader.read(lines)
        found.append((read.decided.tolist(), read.columns[0].filter(pa.array(read.decided)).to_pylist()))
    assert found[0] == found[1] == found[2]
    assert any(found[0][0])


@needs_native
def test_lines_that_are_part_of_a_larger_array() -> None:
    lines = pa.array(["junk", '{"a": 1}', '{"a": 2}', "{", '{"a": 3}'])
    extractor = Extractor(get_format("json"), None, Wanted((Column("a", "bigint"),)))
    found = extractor.extract(lines[1:4])
    extractor.close()
    assert (found.table["a"].to_pylist(), found.accepted.tolist(), found.rejected.tolist()) == (
        [1, 2],
        [0, 1],
        [2],
    )


@needs_native
def test_a_null_has_nothing_of_what_was_in_memory() -> None:
    reader = get_format("json").reader((Column("a", "bigint"),), None, native.library() or ctypes.CDLL(None))
    assert reader is not None
    for rows in (16, 64, 100):
        used = [np.full(rows, 77) for _ in range(50)]
        del used
        (values,) = (read.buffers()[1] for read in reader.read(pa.array(["{}"] * rows)).columns[:1])
        assert not np.frombuffer(values, dtype=np.int64).any()


@needs_native
def test_mostly_odd_lines_go_to_sql_for_a_while() -> None:
    odd, plain = pa.array(['{"a": 1e400}'] * 3), pa.array(['{"a": 1}'] * 3)
    extractor = Extractor(get_format("json"), None, Wanted((Column("a", "double"),)))
    for lines in (odd, plain, odd, plain):
        assert extractor.extract(lines).accepted.tolist() == [0, 1, 2]
    extractor.close()


@needs_native
def test_unsound_arguments_are_refused() -> None:
    reader = get_format("json").reader((Column("a", "text"),), None, native.library() or ctypes.CDLL(None))
    assert reader is not None
    offsets = np.array([0, 9, 5], dtype=np.int32)
    lines = pa.StringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(b'{"a": 1}x'))
    with pytest.raises(Exception, match="unsound"):
        reader.read(lines)


def test_without_it_everything_works(tmp_path: Path) -> None:
    code = (
        "from elf import native\n"
        "import pyarrow as pa\n"
        "from agents.formats import get_format\n"
        "from agents.tasks.extracting import Extractor\n"
        "from elf.job.ports import Wanted\n"
        "from elf.schema import Column\n"
        "made = Extractor(get_format('json'), None, Wanted((Column('a', 'bigint'),)))\n"
        "found = made.extract(pa.array(['{\"a\": 5}', 'x']))\n"
        "print(native.library(), native.why_not(), found.table['a'].to_pylist(), found.rejected.tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"ELF_NATIVE": "off"},
        cwd=ROOT,
    )
    assert done.stdout == "None ELF_NATIVE in the environment says so [5] [1]\n"


def test_groups_keep_to_their_buffers(tmp_path: Path) -> None:
    """The same, over drawn columns, and some that lie about themselves."""
    program = built(tmp_path, "grouped.c", ("hash", "rows", "table"))
    for seed in range(3):
        done = subprocess.run([program, str(seed)], capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
        assert int(done.stdout) > 500


def test_it_keeps_to_its_buffers(tmp_path: Path) -> None:
    """Under sanitizers of addresses and undefined behaviour, over drawn and spoilt lines and raw bytes."""
    program = built(tmp_path, "sanitized.c", ("access", "json", "marks", "split"))
    names = {"json": [name for name in NAMES if len(name) < 30], "combined": [], "common": []}
    for format, keys in names.items():
        words = keys or [str(number) for number in range(len(ACCESS_FIELDS))]
        lines = "\n".join(drawn(format, 3, 4000)).encode() + b"\n" + raw_lines(format)
        done = subprocess.run([program, format, *words], input=lines, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
        assert int(done.stdout) > 500


def streams(seed: int, count: int) -> Iterator[bytes]:
    """Of Arrow, most of them with some bytes that are other ones, or cut."""
    rng = Random(seed)
    texts = pa.array(["a", "b"] * 200).dictionary_encode()
    table = pa.table({"t": ["x" * 9, None] * 200, "n": range(400), "l": [[1, 2], []] * 200, "d": texts})
    whole = [encode(pa.table({})), encode(table)]
    for codec in ("zstd", None):
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        whole.append(sink.getvalue().to_pybytes())
    yield from whole
    for _ in range(count):
        data = bytearray(rng.choice(whole))
        near = min(len(data), rng.choice((1_200, len(data))))
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(near)] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        yield bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.2 else data)


@pytest.mark.skipif(ipc_size() is None, reason="the native part is not there, or an older one")
@pytest.mark.parametrize("seed", range(cases(2, 200)))
def test_streams_are_measured_as_in_python(seed: int) -> None:
    sized = ipc_size()
    assert sized is not None
    taken = 0
    for data in streams(seed, 1_000):
        try:
            told = told_bytes(data)
        except NotArrow:
            told = -1
        found = sized(data, len(data))
        assert found == told or (found < 0 and told >= 1 << 62), data
        taken += found >= 0
    assert 100 < taken < 900


def test_measuring_streams_keeps_to_their_bytes(tmp_path: Path) -> None:
    program = built(tmp_path, "ipc.c", ("ipc",))
    given = b"".join(len(data).to_bytes(4, "little") + data for data in streams(7, 4_000))
    done = subprocess.run([program], input=given, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    assert int(done.stdout) > 500


def raw_lines(format: str) -> bytes:
    """Bytes that are no UTF-8, which it is never given, and shall read no worse."""
    rng = Random(5)
    text = "\n".join(drawn(format, 4, 500)).encode()
    return bytes(byte if rng.random() < 0.97 else rng.randrange(1, 256) for byte in text) + b"\r\n"


def built(folder: Path, main: str, names: Sequence[str]) -> Path:
    """A program around some of the sources, with sanitizers. Skips where no compiler here can make it."""
    program, why = folder / "program", "there is no C compiler"
    for compiler in filter(None, map(shutil.which, ("cc", "gcc", "clang"))):
        command = [compiler, "-std=c11", "-O1", "-g", *SANITIZERS, "-ffp-contract=off", f"-I{SOURCES}"]
        command += [str(SOURCES / f"{name}.c") for name in names]
        command += [str(Path(__file__).with_name(main)), "-o", str(program)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0 and subprocess.run([program, "json", "0"], input=b"").returncode == 0:
            return program
        why = f"{compiler} has no such sanitizers: {done.stderr.strip()[:200]}"
    pytest.skip(why)
