"""Merges the sources of settings (defaults < file < environment < flags), validates the values and keeps their origins.

The file is `paceline.yaml` in the working directory, unless another is named. The environment variable of a setting is
`PACELINE_` and the setting's name in capitals.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from paceline.config.names import SECRETS, SETTINGS, setting_named
from paceline.config.schema import EngineConfig, ServerConfig
from paceline.config.settings_file import read_settings_file
from paceline.core.errors import ConfigError

DEFAULT_FILE = Path("paceline.yaml")
ENVIRONMENT_PREFIX = "PACELINE_"
OTHER_VARIABLES = frozenset({"PACELINE_CACHE_DIR", "PACELINE_ISA"})
"""Variables with this prefix that other modules read: the folder of the model cache and the native instruction set."""

_OF_A_SERVICE = re.compile(r"PACELINE_(GRPC_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
"""Variables that Kubernetes sets in every pod if a service is called paceline or paceline-grpc. It also sets
`PACELINE_PORT=tcp://...`, which is recognized by its value."""

_PORTS = frozenset({"PACELINE_PORT", "PACELINE_GRPC_PORT"})

DEFAULT, COMMAND_LINE = "default", "command line"

Schema = TypeVar("Schema", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one run of Paceline.

    `origins` says for every setting where its value comes from: `default`, a line of the file (`paceline.yaml, line
    3`), the name of an environment variable, or `command line`.
    """

    engine: EngineConfig
    server: ServerConfig
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Given:
    value: object
    origin: str


def load_settings(flags: Mapping[str, object], *, file: Path | None = None) -> Settings:
    """Merges all sources and returns the settings. A flag whose value is None counts as not given.

    `file` None means `paceline.yaml` if it exists. Raises ConfigError for an unknown key, a bad value, an unreadable
    file or an unknown `PACELINE_` variable. Its message names the setting and the origin of the value.
    """
    given = {
        **_from_file(_find_file(file)),
        **_from_environment(os.environ),
        **{name: _Given(value, COMMAND_LINE) for name, value in flags.items() if value is not None},
    }
    faults = [f"{name} is not a setting: remove it or correct its name" for name in given.keys() - SETTINGS]
    engine = _validated(EngineConfig, given, faults)
    server = _validated(ServerConfig, given, faults)
    if engine is None or server is None or faults:
        raise ConfigError("; ".join(faults))
    origins = {name: given[name].origin if name in given else DEFAULT for name in SETTINGS}
    return Settings(engine, server, origins)


def _find_file(file: Path | None) -> Path | None:
    if file is None:
        return DEFAULT_FILE if DEFAULT_FILE.exists() else None
    if not file.is_file():
        raise ConfigError(f"the settings file {file} does not exist: name another with --config, or leave it out")
    return file


def _from_file(path: Path | None) -> dict[str, _Given]:
    if path is None:
        return {}
    return {name: _Given(one.value, f"{path}, line {one.line}") for name, one in read_settings_file(path).items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in OTHER_VARIABLES:
            continue
        if _OF_A_SERVICE.fullmatch(variable) or (variable in _PORTS and "://" in value):
            continue
        if variable != variable.upper():
            raise ConfigError(f"the environment variable {variable} is not a setting: write it in capitals or unset it")
        name = setting_named(variable.removeprefix(ENVIRONMENT_PREFIX).lower(), f"the environment variable {variable}")
        if name in given:
            raise ConfigError(f"{given[name].origin} and {variable} are the same setting: unset one of them")
        given[name] = _Given(value, variable)
    return given


def _validated(schema: type[Schema], given: Mapping[str, _Given], faults: list[str]) -> Schema | None:
    """Returns the values of this schema. If some are invalid, adds a message to `faults` for each and returns None."""
    try:
        return schema(**{name: given[name].value for name in schema.model_fields if name in given})
    except ValidationError as error:
        faults += [_describe(fault, given) for fault in error.errors()]
        return None


def _describe(fault: ErrorDetails, given: Mapping[str, _Given]) -> str:
    name = str(fault["loc"][0])
    if fault["type"] == "missing":
        return f"{name} is missing: give it as an argument, in {DEFAULT_FILE} or as {ENVIRONMENT_PREFIX}{name.upper()}"
    origin = given[name].origin
    place = "" if origin == COMMAND_LINE else f" ({origin})"
    if name in SECRETS:
        return f"{name} cannot be the secret itself{place}: say where the secret is, as env:NAME or file:PATH"
    message = fault["msg"]
    return f"{name} cannot be {given[name].value!r}{place}: {message[:1].lower()}{message[1:]}"
