"""What can go wrong with a measurement as a whole."""


class RelayError(Exception):
    """Nothing can be measured; the message says why and what would help."""
