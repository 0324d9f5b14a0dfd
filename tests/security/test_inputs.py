"""Who may send lines to an agent that other machines can reach: nobody who has not been asked."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agents.keyring import open_keyring
from agents.loading import load
from agents.settings.tree import ConfigProblems
from tests.support.files import written
from tests.support.receiving import receiving


def problems(folder: Path, receive: str, type: str = "http", more: str = "") -> str:
    text = f"data_dir: {folder}\nloopback_key: {folder}/key\n{more}\n"
    text += f"streams: {{s: {{type: {type}, format: json, receive: {{listen: '0.0.0.0:0', {receive}}}}}}}"
    try:
        open_keyring(load(written(folder, text), {}))
    except ConfigProblems as found:
        return str(found)
    return ""


def secret(folder: Path, text: str = "0123456789abcdef", mode: int = 0o600) -> str:
    path = folder / "token"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_off_loopback_somebody_has_to_say_who_may_send(tmp_path: Path) -> None:
    for type in ("http", "otlp", "forward", "syslog"):
        assert "other machines can reach 0.0.0.0:0, and anybody could send" in problems(tmp_path, "", type)
        assert problems(tmp_path, "open: true", type) == ""
        assert problems(tmp_path, "", type, "security: open") == ""
    token = f"token_file: {secret(tmp_path)}"
    assert problems(tmp_path, token, "forward") == ""
    assert "so that nobody on the way reads the token" in problems(tmp_path, token)
    assert "chmod 600" in problems(tmp_path, f"token_file: {secret(tmp_path, mode=0o640)}", "forward")
    assert "16 characters at least" in problems(
        tmp_path, f"token_file: {secret(tmp_path, 'short')}", "forward"
    )
    assert "cannot be read: No such file" in problems(tmp_path, f"token_file: {tmp_path}/none", "forward")
    assert "cannot be used" in problems(tmp_path, "tls_cert: /none, tls_key: /none")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
async def test_syslog_over_tls_wants_a_certificate(tmp_path: Path) -> None:
    for name in ("own", "foreign"):
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        made += ["-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        made += ["-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.pem")]
        subprocess.run(made, check=True, capture_output=True, timeout=30)
    own = str(tmp_path / "own.pem")
    tls: dict[str, Any] = {"tls_cert": own, "tls_key": str(tmp_path / "own.key"), "tls_ca": own}

    async def send(certificate: str) -> None:
        context = ssl.create_default_context(cafile=own)
        if certificate:
            context.load_cert_chain(tmp_path / f"{certificate}.pem", tmp_path / f"{certificate}.key")
        _, writer = await asyncio.open_connection(*side.at, ssl=context)
        writer.write(f"<1>Nov 26 20:00:00 a b: {certificate}\n".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with receiving(tmp_path / "s", "syslog", transport=("tcp",), **tls) as side:
        for certificate in ("", "foreign"):
            with contextlib.suppress(OSError):  # TLS 1.3 may tell the sender later
                await send(certificate)
        await side.refused("tls", 2)
        _, plain = await asyncio.open_connection(*side.at)
        plain.write(b"<1>Nov 26 20:00:00 a b: plain\n")
        await side.refused("tls", 3)
        plain.close()
        await send("own")
        await side.until("own")
