"""What is wrong when a TLS connection to an engine fails, for whoever runs that engine."""

import ssl


def trouble(error: BaseException | None) -> str:
    """In words, where TLS is to blame; else empty."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS with it: {(error.reason or str(error)).replace('_', ' ').lower()}"
    return ""
