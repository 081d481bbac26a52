"""Configuration: frozen schemas of settings, the sources of their values, and references to secrets."""

from paceline.config.schema import EngineConfig, ServerConfig
from paceline.config.sources import Settings, load_settings

__all__ = ["EngineConfig", "ServerConfig", "Settings", "load_settings"]
