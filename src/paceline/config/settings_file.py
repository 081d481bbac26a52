"""Reads a settings file: YAML, flat or in sections, each value with the line that it stands in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from paceline.config.names import ALIASES, COORDINATION, MODE, SECTIONS, SETTINGS
from paceline.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FileValue:
    """A value as a file has it, the key as written (`server.port`), and its line, counted from 1."""

    value: object
    key: str
    line: int


def read_settings_file(path: Path) -> dict[str, FileValue]:
    """Returns the values of a file by the names of their settings.

    Raises ConfigError for a file that cannot be read or is not YAML, for an unknown key, for a key in the wrong
    section, and for a setting that is given twice.
    """
    try:
        found = list(_entries(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read settings from {path}: {' '.join(str(error).split())}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    values: dict[str, FileValue] = {}
    for name, value in found:
        if name in values:
            places = " and ".join(f"{one.key} (line {one.line})" for one in (values[name], value))
            raise ConfigError(f"{path}: {places} are the same setting: remove one of them")
        values[name] = value
    return values


def _entries(text: str) -> Iterator[tuple[str, FileValue]]:
    loader = yaml.SafeLoader(text)
    root = loader.get_single_node()
    if root is None:
        return
    for key, value in _pairs(loader, root, "the file"):
        if key.value in (*SECTIONS, "coordination") and isinstance(value, yaml.MappingNode):
            for inner, inner_value in _pairs(loader, value, key.value):
                name = _name_in_section(key.value, inner.value)
                yield name, _file_value(loader, inner_value, f"{key.value}.{inner.value}", inner)
        else:
            yield _flat_name(key.value), _file_value(loader, value, key.value, key)


def _pairs(loader: yaml.SafeLoader, node: yaml.Node, place: str) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{place} must hold names of settings, each with its value")
    loader.flatten_mapping(node)
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"line {key.start_mark.line + 1}: a setting's name must be a plain word")
        yield key, value


def _file_value(loader: yaml.SafeLoader, node: yaml.Node, key: str, key_node: yaml.Node) -> FileValue:
    return FileValue(loader.construct_object(node, deep=True), key, key_node.start_mark.line + 1)


def _flat_name(key: str) -> str:
    name = ALIASES.get(key, key)
    if name not in SETTINGS:
        raise ConfigError(f"{key} is not a setting: remove it or correct its name")
    return name


def _name_in_section(section: str, key: str) -> str:
    if section == "coordination":
        if key not in COORDINATION:
            raise ConfigError(f"coordination.{key} is not a setting; known are {', '.join(COORDINATION)}")
        return COORDINATION[key]
    name = "speculation" if (section, key) == ("speculation", MODE) else _flat_name(key)
    if name not in SECTIONS[section]:
        right = next(other for other, names in SECTIONS.items() if name in names)
        raise ConfigError(f"{section}.{key} stands in the wrong section: move it to {right}")
    return name
