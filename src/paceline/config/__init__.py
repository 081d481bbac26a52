"""Configuration: frozen schemas and the sources they are read from."""

from paceline.config.schema import DrafterName, EngineConfig, GatewayConfig

__all__ = ["DrafterName", "EngineConfig", "GatewayConfig"]
