"""`PipSettings`: where this machine gets Python packages from, read as pip does (the environment overrides files).

They hold only what a download needs. Files, names and order: https://pip.pypa.io/en/stable/topics/configuration/
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.checkpoint.user_paths import expand_user, find_home
from paceline.core.errors import ConfigError

DEFAULT_INDEX_URL = "https://pypi.org/simple"
_SECTIONS = ("global", "install", "download")
_TRUE_WORDS = frozenset({"1", "yes", "true", "on", "y", "t"})


@dataclass(frozen=True, slots=True)
class PipSettings:
    """Index addresses in the order in which they are asked, places with wheels (`find_links`), and how to connect.

    `trusted_hosts` are hosts, or hosts with a port, whose certificates are not checked.
    """

    index_urls: tuple[str, ...] = (DEFAULT_INDEX_URL,)
    find_links: tuple[str, ...] = ()
    certificate: Path | None = None
    proxy: str | None = None
    trusted_hosts: tuple[str, ...] = ()

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> PipSettings:
        """Returns the settings of this machine and user; raises ConfigError where a pip.conf cannot be parsed."""
        options = _read_files(_configuration_files(environment))
        for name, value in environment.items():
            if name.startswith("PIP_") and value:
                options[name.removeprefix("PIP_").lower().replace("_", "-")] = value
        index_urls = (options.get("index-url", DEFAULT_INDEX_URL), *options.get("extra-index-url", "").split())
        certificate = options.get("cert")
        return cls(
            index_urls=() if options.get("no-index", "").lower() in _TRUE_WORDS else index_urls,
            find_links=tuple(options.get("find-links", "").split()),
            certificate=expand_user(certificate) if certificate else None,
            proxy=options.get("proxy"),
            trusted_hosts=tuple(options.get("trusted-host", "").split()),
        )


def _read_files(paths: list[Path]) -> dict[str, str]:
    options: dict[str, str] = {}
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for path in filter(Path.is_file, paths):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: this pip configuration cannot be parsed ({error}); correct it") from error
        for section in filter(parser.has_section, _SECTIONS):
            entries = parser.items(section)
            sections[section] |= {name.replace("_", "-"): value.strip() for name, value in entries}
    for section in _SECTIONS:
        options |= sections[section]
    return options


def _configuration_files(environment: Mapping[str, str]) -> list[Path]:
    """Returns the paths where pip looks for configuration files; later files override earlier ones."""
    chosen = environment.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return []
    system_dirs = (environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    directories = [Path(directory) / "pip" for directory in reversed(system_dirs)]
    directories += [Path("/etc"), *_user_directories(environment), Path(sys.prefix)]
    files = [directory / "pip.conf" for directory in directories]
    return [*files, Path(chosen)] if chosen else files


def _user_directories(environment: Mapping[str, str]) -> list[Path]:
    """Returns the directories of the user's own pip files; a user without a home directory may have none."""
    home = find_home(environment)
    chosen = environment.get("XDG_CONFIG_HOME")
    user_dir = Path(chosen) if chosen else None if home is None else home / ".config"
    old = [] if home is None else [home / ".pip"]
    return old if user_dir is None else [*old, user_dir / "pip"]
