"""Where settings come from: defaults < file < environment < flags, merged by pydantic-settings and validated once.

The file is `paceline.yaml` in the working directory unless another is named; the environment's names are the settings'
names in capitals after `PACELINE_`. All three sources use one flat set of names. The schemas themselves are `schema`'s.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, YamlConfigSettingsSource

from paceline.config.schema import EngineConfig, ServerConfig
from paceline.core.errors import ConfigError

DEFAULT_FILE = Path("paceline.yaml")
ENVIRONMENT_PREFIX = "PACELINE_"
OTHER_VARIABLES = frozenset({"PACELINE_CACHE_DIR", "PACELINE_ISA"})
"""Variables with the prefix that are read elsewhere: the model cache's folder and the native core's instruction set."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What one start of Paceline was asked to do."""

    engine: EngineConfig
    server: ServerConfig


def load_settings(flags: Mapping[str, object], *, file: Path | None = None) -> Settings:
    """Merges all sources; a flag whose value is None is absent.

    `file` None reads `paceline.yaml` where it exists. Raises ConfigError, naming the setting, for an unknown key, a bad
    value, an unreadable file or an unknown `PACELINE_` variable.
    """
    _check_environment()
    path = _find_file(file)
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    try:
        merged = _merging_class(path)(**given)
    except ValidationError as error:
        raise ConfigError(_describe(error)) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid yaml: {_one_line(error)}") from error
    except (OSError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise ConfigError(f"cannot read settings from {path}: {_one_line(error)}") from error
    return Settings(EngineConfig(**_fields_of(merged, EngineConfig)), ServerConfig(**_fields_of(merged, ServerConfig)))


class _MergedSettings(EngineConfig, ServerConfig, BaseSettings):
    """All settings in one flat namespace; `settings_customise_sources` orders the sources, first wins."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix=ENVIRONMENT_PREFIX, enable_decoding=False)

    @field_validator("drafters", mode="before")
    @classmethod
    def _split_drafters(cls, value: object) -> object:
        """Accepts what the command line accepts: names joined by commas, or `none`."""
        if not isinstance(value, str):
            return value
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        return () if names == ("none",) else names

    @field_validator("activation_bits", mode="before")
    @classmethod
    def _read_number(cls, value: object) -> object:
        """Accepts what the environment has: digits."""
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    @field_validator("draft_vocab_size", "draft_weight_bits", mode="before")
    @classmethod
    def _read_limit(cls, value: object) -> object:
        """Accepts what the command line accepts: a number, or `all` for no limit."""
        if not isinstance(value, str):
            return value
        return None if value == "all" else int(value) if value.isdecimal() else value


def _merging_class(path: Path | None) -> type[_MergedSettings]:
    class FromFile(_MergedSettings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            if path is None:
                return init_settings, env_settings
            return init_settings, env_settings, YamlConfigSettingsSource(settings_cls, path)

    return FromFile


def _find_file(file: Path | None) -> Path | None:
    if file is None:
        return DEFAULT_FILE if DEFAULT_FILE.exists() else None
    if not file.is_file():
        raise ConfigError(f"the settings file {file} does not exist: name another with --config, or leave it out")
    return file


def _check_environment() -> None:
    known = {ENVIRONMENT_PREFIX + name.upper() for name in _MergedSettings.model_fields} | OTHER_VARIABLES
    for variable in os.environ:
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in known:
            raise ConfigError(f"the environment variable {variable} is not a setting: unset it or correct its name")


def _fields_of(merged: _MergedSettings, schema: type[EngineConfig] | type[ServerConfig]) -> dict[str, Any]:
    return {name: getattr(merged, name) for name in schema.model_fields}


def _describe(error: ValidationError) -> str:
    """One line for all faults, each with the setting's name and the value."""
    return "; ".join(
        _describe_fault(fault["loc"], fault["type"], fault["msg"], fault["input"]) for fault in error.errors()
    )


def _describe_fault(location: tuple[int | str, ...], kind: str, message: str, value: object) -> str:
    name = str(location[0]) if location else "settings"
    if kind == "extra_forbidden":
        return f"{name} is not a setting: remove it or correct its name"
    if kind == "missing":
        return f"{name} is missing: give it as an argument, in {DEFAULT_FILE} or as {ENVIRONMENT_PREFIX}{name.upper()}"
    return f"{name} cannot be {value!r}: {message[:1].lower()}{message[1:]}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
