"""Certificates for tests: an authority of our own, and what it signs, by the program openssl."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificates(NamedTuple):
    """An authority, and a certificate of 127.0.0.1 that serves and asks."""

    ca: Path
    cert: Path
    key: Path


def why_no_certificates() -> str | None:
    return None if shutil.which("openssl") else "no openssl"


def make_certificates(directory: Path) -> Certificates:
    """Write a new authority and what it signs into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Certificates(*(directory / name for name in ("ca.pem", "cert.pem", "key.pem")))
    ca_key = directory / "ca-key.pem"
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    authority = ["-subj", "/CN=authority", "-addext", "basicConstraints=critical,CA:TRUE"]
    _openssl(["req", "-x509", *new, *authority, "-keyout", ca_key, "-out", made.ca])
    # Without a CommonName: etcd with users refuses those that have one at its JSON gateway.
    uses = ["-addext", "extendedKeyUsage=serverAuth,clientAuth"]
    own = ["-subj", "/O=test", "-addext", "subjectAltName=IP:127.0.0.1", *uses]
    signed = ["-CA", made.ca, "-CAkey", ca_key]
    _openssl(["req", "-x509", *new, *own, *signed, "-keyout", made.key, "-out", made.cert])
    return made


def _openssl(arguments: list[str | Path]) -> None:
    command = ["openssl", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
