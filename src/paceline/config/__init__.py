"""Configuration: frozen schemas and the sources they are read from."""

from paceline.config.schema import DrafterName, EngineConfig, GatewayConfig
from paceline.config.sources import Settings, load_settings

__all__ = ["DrafterName", "EngineConfig", "GatewayConfig", "Settings", "load_settings"]
