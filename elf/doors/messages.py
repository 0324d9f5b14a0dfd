"""Messages of Arrow Flight SQL, as far as the door knows them (``FlightSql.proto`` of Apache Arrow)."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_PACKAGE: Final = "arrow.flight.protocol.sql"
_STRING: Final = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_BYTES: Final = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_BOOL: Final = descriptor_pb2.FieldDescriptorProto.TYPE_BOOL
_FIELDS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "CommandStatementQuery": (("query", _STRING),),
    "CommandPreparedStatementQuery": (("prepared_statement_handle", _BYTES),),
    "ActionCreatePreparedStatementRequest": (("query", _STRING),),
    "ActionCreatePreparedStatementResult": (
        ("prepared_statement_handle", _BYTES),
        ("dataset_schema", _BYTES),
        ("parameter_schema", _BYTES),
    ),
    "CommandGetCatalogs": (),
    "CommandGetDbSchemas": (("catalog", _STRING), ("db_schema_filter_pattern", _STRING)),
    "CommandGetTableTypes": (),
    "CommandGetTables": (
        ("catalog", _STRING),
        ("db_schema_filter_pattern", _STRING),
        ("table_name_filter_pattern", _STRING),
        ("table_types", _STRING),
        ("include_schema", _BOOL),
    ),
}
"""The fields of each message, in the order of their numbers from 1."""
_SEVERAL: Final = frozenset({"table_types"})


@cache
def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="elf_flight.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, 1):
            label = 3 if field in _SEVERAL else 1  # repeated, or one
            message.field.add(name=field, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _FIELDS
    }


def unpacked(data: bytes) -> tuple[str, Any]:
    """The name of the message in an ``Any``, and the message; None: it is one that nobody here knows. Raises
    ``ValueError``."""
    try:
        whole = any_pb2.Any.FromString(data)
        name = whole.type_url.rpartition("/")[2].removeprefix(f"{_PACKAGE}.")
        kind = _classes().get(name)
        return name, None if kind is None else kind.FromString(whole.value)
    except DecodeError as error:
        raise ValueError(f"no message of Flight SQL: {error}") from None


def packed(name: str, **fields: object) -> bytes:
    """A message in an ``Any``."""
    whole = any_pb2.Any()
    whole.Pack(_classes()[name](**fields))
    data: bytes = whole.SerializeToString()
    return data
