"""Configuration: frozen schemas, the sources they are read from, and secrets by reference."""

from paceline.config.schema import EngineConfig, ServerConfig
from paceline.config.sources import Settings, load_settings

__all__ = ["EngineConfig", "ServerConfig", "Settings", "load_settings"]
