"""Reads a settings file: YAML, flat or in sections. Each value keeps the number of its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from paceline.config.names import COORDINATION, MODE, SECTIONS, setting_named
from paceline.core.errors import ConfigError

_BOOL = "tag:yaml.org,2002:bool"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_TRUTH_VALUE = re.compile(r"^(true|True|TRUE|false|False|FALSE)$")


@dataclass(frozen=True, slots=True)
class FileValue:
    """A value as it is in the file, its key as written there (such as `server.port`), and its line, counted from 1."""

    value: object
    key: str
    line: int


class _Loader(yaml.SafeLoader):
    """Reads words as YAML 1.2 does: only true and false are booleans, so `off` and `no` stay words. Dates stay text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - declared so by the base class
        first: [(tag, _TRUTH_VALUE if tag == _BOOL else pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def read_settings_file(path: Path) -> dict[str, FileValue]:
    """Returns the values in a file by the names of their settings.

    Raises ConfigError for a file that cannot be read or is not YAML, an unknown key, a key in the wrong section, and a
    setting that is given twice.
    """
    try:
        found = list(_entries(path.read_text(encoding="utf-8")))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read settings from {path}: {_reason_of(error)}") from error
    values: dict[str, FileValue] = {}
    for name, value in found:
        if name in values:
            places = " and ".join(f"{one.key} (line {one.line})" for one in (values[name], value))
            raise ConfigError(f"{path}: {places} are the same setting: remove one of them")
        values[name] = value
    return values


def _reason_of(error: Exception) -> str:
    """Returns what is wrong and in which line, but not the line itself, which may contain a secret."""
    if isinstance(error, yaml.MarkedYAMLError):
        place = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        return f"{place}{error.problem}"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return f"it is not a YAML file of settings ({type(error).__name__})"


def _entries(text: str) -> Iterator[tuple[str, FileValue]]:
    loader = _Loader(text)
    root = loader.get_single_node()
    if root is None:
        return
    for key, value in _pairs(loader, root, "the file"):
        is_section = key.value in (*SECTIONS, "coordination")
        if is_section and value.tag == "tag:yaml.org,2002:null":
            continue
        if is_section and isinstance(value, yaml.MappingNode):
            for inner, inner_value in _pairs(loader, value, key.value):
                name = _name_in_section(key.value, inner)
                yield name, _file_value(loader, inner_value, f"{key.value}.{inner.value}", inner)
        else:
            yield setting_named(key.value, _place(key, key.value)), _file_value(loader, value, key.value, key)


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


def _place(key_node: yaml.ScalarNode, key: str) -> str:
    return f"line {key_node.start_mark.line + 1}: {key}"


def _name_in_section(section: str, key_node: yaml.ScalarNode) -> str:
    key: str = key_node.value
    place = _place(key_node, f"{section}.{key}")
    if section == "coordination":
        if key not in COORDINATION:
            raise ConfigError(f"{place} is not a setting; known are {', '.join(COORDINATION)}")
        return COORDINATION[key]
    name = "speculation" if (section, key) == ("speculation", MODE) else setting_named(key, place)
    if name not in SECTIONS[section]:
        right = next(other for other, names in SECTIONS.items() if name in names)
        raise ConfigError(f"{place} stands in the wrong section: move it to {right}")
    return name
