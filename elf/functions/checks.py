"""What is looked at before a user's code is sent anywhere: each failure is one line that says where and what.

A function must parse and have its signature. A job must parse, define one subclass of ``Job``, and get
through its ``start``, which is run in a sandbox.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from elf.errors import UserError
from elf.functions import wire
from elf.functions.sandbox import Limits, Sandbox, SandboxError, Sandboxes
from elf.job.program.calls import Loaded, Place
from elf.job.program.spec import TEXT_BYTES_MAX
from elf.paos.texts import signature_of
from elf.ql.plan import Function


def check_text(spec: Function) -> None:
    """Of a function. Raises ``UserError``."""
    _has_function(_parse(spec.text, spec.filename), spec)


def check_aggregate(text: str, filename: str) -> None:
    """Of an aggregate. Raises ``UserError``."""
    _bound(text, filename)
    signature_of(text, filename)


def check_job(
    sandboxes: Sandboxes, text: str, filename: str, name: str, creator: str, limits: Limits | None = None
) -> Loaded:
    """What the job asks for in its ``start``. Raises ``UserError``."""
    _parse(text, filename)
    sandbox = Sandbox(sandboxes, limits or replace(Limits(), call_secs=5.0), lambda _: None)
    try:
        said, _ = sandbox.call(wire.LoadJob(text, filename, name, creator, Place("check", 0)))
    except SandboxError as error:
        raise UserError(f"{error.at(filename)}; mend it and send it again") from None
    finally:
        sandbox.close()
    if not isinstance(said, wire.Ready):
        raise UserError(f"{filename}: it cannot be loaded")
    return said.loaded


def _bound(text: str, filename: str) -> None:
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise UserError(f"{filename} has {len(text.encode())} bytes; at most {TEXT_BYTES_MAX} can be sent")


def _parse(text: str, filename: str) -> ast.Module:
    _bound(text, filename)
    try:
        return ast.parse(text, filename)
    except SyntaxError as error:
        raise UserError(
            f"{filename}:{error.lineno}: SyntaxError: {error.msg} in `{(error.text or '').strip()}`"
        ) from None
    except ValueError as error:
        raise UserError(f"{filename}: {error}") from None


def _has_function(tree: ast.Module, spec: Function) -> None:
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == spec.kind]
    if not found:
        names = ", ".join(n.name for n in tree.body if isinstance(n, ast.FunctionDef)) or "none"
        raise UserError(
            f"{spec.filename} has no `def {spec.kind}(batch)` at its top level; functions there: {names}"
        )
    arguments = found[-1].args
    plain = [*arguments.posonlyargs, *arguments.args]
    needed = len(plain) - len(arguments.defaults)
    if not (needed <= 1 <= len(plain) or (arguments.vararg and needed <= 1)) or any(
        default is None for default in arguments.kw_defaults
    ):
        raise UserError(
            f"{spec.filename}:{found[-1].lineno}: {spec.kind}() must take one argument, a pyarrow.RecordBatch"
        )
