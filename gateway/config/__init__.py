"""Settings: the YAML file, the flags of `serve`, and the checks between them."""

from gateway.config._aliases import ModelsConfig
from gateway.config._changes import changes
from gateway.config._load import check, from_args, load, redacted
from gateway.config._models import (
    AdmissionConfig,
    AuthConfig,
    AuthKeyConfig,
    Config,
    CorsConfig,
    EngineConfig,
    LimitsConfig,
    Priority,
    RoutingConfig,
    TlsConfig,
    UsageConfig,
)
from gateway.config._normalize import NormalizeRule
from gateway.config._problems import ConfigError, Problem
from gateway.config._tls import TlsProblem, engine_context, server_context
from gateway.config._units import Address
from gateway.core.router import Policy

__all__ = [
    "Address",
    "AdmissionConfig",
    "AuthConfig",
    "AuthKeyConfig",
    "Config",
    "ConfigError",
    "CorsConfig",
    "EngineConfig",
    "LimitsConfig",
    "ModelsConfig",
    "NormalizeRule",
    "Policy",
    "Priority",
    "Problem",
    "RoutingConfig",
    "TlsConfig",
    "TlsProblem",
    "UsageConfig",
    "changes",
    "check",
    "engine_context",
    "from_args",
    "load",
    "redacted",
    "server_context",
]
