"""Agents of one release and of the next understand each other: what travels, and what Raft groups keep,
only grows, by fields with defaults at the end.

``wire.txt`` has every type of ``WIRE_VERSION`` with its fields. What is added may be written there at any
time (run this module); a line may change or go only with another ``WIRE_VERSION``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import inspect

from agents import codec
from elf.job.catalog import voters
from elf.job.group import records
from elf.job.messages.log import LogEntry, Proposal
from elf.wire import frames
from elf.wire.base import Answer
from overlay.ids import Peer
from overlay.treemessages import Refreshed

KNOWN = Path(__file__).with_name("wire.txt")
REGENERATE = "python -m tests.agents.test_wire > tests/agents/wire.txt"


def test_what_an_agent_of_the_release_before_knows_is_as_it_was() -> None:
    known, now = read(KNOWN.read_text().splitlines()), read(lines())
    assert known["WIRE_VERSION"] == now["WIRE_VERSION"], f"another wire version: {REGENERATE}"
    for name, fields in known.items():
        assert name in now, f"{name} is gone, and agents of before say it"
        assert now[name][: len(fields)] == fields, f"{name}: fields of before have changed"
        added = now[name][len(fields) :]
        assert all(field.endswith("?") for field in added), f"{name}: a new field needs a default: {added}"


def test_wire_txt_has_all_there_is() -> None:
    assert read(KNOWN.read_text().splitlines()) == read(lines()), f"something was added: {REGENERATE}"


def test_a_message_of_before_lacks_fields_and_one_of_after_has_more() -> None:
    """What the rule rests on, through the codec."""
    for message in (Answer(id=3, body=b"x"), Refreshed(Peer("a:1", 2), 7, (), ())):
        sent = msgspec.msgpack.decode(codec.encode(message, cluster="c", sender="s")[0])
        fields = msgspec.msgpack.decode(sent[-1])
        for changed in ([*fields, "of the next release"], fields[:-1]):  # the last ones have defaults
            sent[-1] = msgspec.msgpack.encode(changed)
            sent[5] = frames._checksum(sent[-1], "c", "s", sent[4])
            found = codec.decode([msgspec.msgpack.encode(sent)], cluster="c", max_bytes=1 << 20)
            assert found.message == message


def lines() -> list[str]:
    """A line a type: its name, and its fields with their types; ``?`` has a default."""
    found = {"WIRE_VERSION": str(frames.WIRE_VERSION)}
    for tag, cls in sorted(codec.CODEC.types.items()):
        found[tag] = fields_of(inspect.type_info(cls), found)
    for kept in (voters.Proposed, voters._State, records.JobGroupState):
        shape(inspect.type_info(kept), found)
    found["a wish"] = shape(inspect.type_info(Proposal), found)
    found["an entry of the log"] = shape(inspect.type_info(LogEntry), found)
    found["a record of a job group"] = shape(inspect.type_info(records.JobGroupRecord), found)
    return [f"{name}: {said}" for name, said in sorted(found.items())]


def read(told: Iterable[str]) -> dict[str, list[str]]:
    pairs = (line.split(": ", 1) for line in told)
    return {name: said.split("; ") if said else [] for name, said in pairs}


def fields_of(info: inspect.Type, found: dict[str, str]) -> str:
    assert isinstance(info, inspect.StructType | inspect.DataclassType | inspect.NamedTupleType)
    return "; ".join(
        f"{field.encode_name} {shape(field.type, found)}{'' if field.required else '?'}"
        for field in info.fields
    )


def shape(info: inspect.Type, found: dict[str, str]) -> str:
    """A type in words; structs by their names, whose fields are noted in ``found``."""
    match info:
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType():
            named = isinstance(info, inspect.StructType) and not info.array_like
            name = f"{info.cls.__name__}{' (map)' if named else ''}"
            if name not in found:
                found[name] = ""
                found[name] = fields_of(info, found)
            return name
        case inspect.UnionType():
            return " | ".join(sorted(shape(one, found) for one in info.types))
        case inspect.VarTupleType() | inspect.ListType():
            return f"[{shape(info.item_type, found)}]"
        case inspect.TupleType():
            return f"({', '.join(shape(one, found) for one in info.item_types)})"
        case inspect.DictType():
            return f"{{{shape(info.key_type, found)}: {shape(info.value_type, found)}}}"
        case inspect.EnumType():
            return f"{info.cls.__name__}({', '.join(str(one.value) for one in info.cls)})"
        case inspect.LiteralType():
            return f"one of {', '.join(map(str, info.values))}"
        case _:
            return re.sub(r"Type$", "", type(info).__name__).lower()


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
