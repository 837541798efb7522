"""A certificate authority of the tests' own, made anew for each run."""

import ssl
from functools import cache
from pathlib import Path

import trustme


@cache
def authority() -> trustme.CA:
    return trustme.CA()


def server_files(directory: Path, *names: str, ca: trustme.CA | None = None) -> dict[str, str]:
    """`cert` and `key` of a server with these names, as the configuration takes them."""
    issued = (ca or authority()).issue_cert(*(names or ("127.0.0.1", "localhost", "::1")))
    cert, key = directory / "cert.pem", directory / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return {"cert": str(cert), "key": str(key)}


def ca_file(directory: Path, ca: trustme.CA | None = None) -> str:
    path = directory / "ca.pem"
    path.write_bytes((ca or authority()).cert_pem.bytes())
    return str(path)


def server_context(*names: str, ca: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (ca or authority()).issue_cert(*(names or ("127.0.0.1",))).configure_cert(context)
    return context


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority().configure_trust(context)
    return context
