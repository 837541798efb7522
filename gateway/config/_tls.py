"""The files of `tls` and `engines[].ca`: what a connection needs of them, or what is wrong with them."""

import ssl
from pathlib import Path

_ALPN = ["http/1.1"]


class TlsProblem(ValueError):
    """`key` is the setting at fault: cert, key or ca."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def server_context(cert: str, key: str) -> ssl.SSLContext:
    """For the API port: TLS 1.2 and later, HTTP/1.1. Raises `TlsProblem`."""
    for name, path in (("cert", cert), ("key", key)):
        _read(name, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_ALPN)
    try:
        # Without `password` OpenSSL would ask for one at the terminal.
        context.load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsProblem(
                "key", "the private key does not belong to the certificate in tls.cert"
            ) from None
        if not _holds_certificates(cert):
            raise TlsProblem("cert", "the file holds no certificate in PEM form") from None
        raise TlsProblem("key", "the file holds no private key in PEM form") from None
    return context


def engine_context(ca: str | None = None) -> ssl.SSLContext:
    """For an https engine: its certificate is verified against `ca`, else the system's store. Raises
    `TlsProblem`."""
    if ca is not None:
        _read("ca", ca)
        if not _holds_certificates(ca):
            raise TlsProblem("ca", "the file holds no certificate in PEM form")
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_ALPN)
    return context


def _read(name: str, path: str) -> None:
    try:
        Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise TlsProblem(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _no_password() -> str:
    raise TlsProblem("key", "the private key is encrypted; give one without a passphrase")


def _holds_certificates(path: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True
