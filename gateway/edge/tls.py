"""TLS of the API port, and what is wrong when a TLS connection to an engine fails."""

import ssl
from typing import Any

from gateway.config import Config


def listener_options(config: Config) -> dict[str, Any]:
    """For `Listener`; none without `tls`. Raises `TlsProblem`."""
    context = config.tls.context
    if context is None:
        return {}
    limits = config.limits
    return {
        "ssl": context,
        "ssl_handshake_timeout": limits.header_timeout_s,
        "ssl_shutdown_timeout": limits.write_timeout_s,
    }


def trouble(error: BaseException | None) -> str:
    """In words for whoever runs the engine, where TLS is to blame; else empty."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS with it: {(error.reason or str(error)).replace('_', ' ').lower()}"
    return ""
