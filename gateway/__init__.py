"""prefix-gateway: one endpoint in front of several LLM engines."""

__version__ = "0.1.0"
