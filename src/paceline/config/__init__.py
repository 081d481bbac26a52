"""Configuration: frozen schemas and the sources they are read from."""

from paceline.config.schema import EngineConfig, ServerConfig
from paceline.config.sources import Settings, load_settings

__all__ = ["EngineConfig", "ServerConfig", "Settings", "load_settings"]
