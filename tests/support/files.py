"""Files that agents read: the configuration, and logs that are followed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from agents.inputs.values import Chunk, Input


def written(folder: Path, text: str) -> Path:
    path = folder / "elf.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def zstd(data: bytes) -> bytes:
    """Compressed."""
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def drain(tail: Input, now_ms: int, bytes_max: int = 1 << 20) -> list[Chunk]:
    chunks = []
    while (chunk := tail.read(bytes_max, now_ms)) is not None:
        chunks.append(chunk)
    return chunks


def lines(chunks: list[Chunk]) -> list[str]:
    return [line for chunk in chunks for line in chunk.lines.to_pylist()]
