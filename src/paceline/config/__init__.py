"""Configuration: frozen schemas and the sources they are read from."""

from paceline.config.schema import EngineConfig, GatewayConfig
from paceline.config.sources import Settings, load_settings

__all__ = ["EngineConfig", "GatewayConfig", "Settings", "load_settings"]
