"""pip's settings are read in the way pip reads them: files in pip's order, their sections, then the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.checkpoint.pip_settings import DEFAULT_INDEX_URL, PipSettings
from paceline.core.errors import ConfigError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Returns a home directory without any pip configuration."""
    return tmp_path / "home"


def read(home: Path, **environment: str) -> PipSettings:
    return PipSettings.read({"HOME": str(home), "XDG_CONFIG_DIRS": str(home / "system"), **environment})


def write_conf(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_nothing_configured_is_the_public_index(home: Path):
    assert PipSettings.read({"PIP_CONFIG_FILE": os.devnull}) == PipSettings()
    assert PipSettings().index_urls == (DEFAULT_INDEX_URL,)


def test_environment_wins_over_files(home: Path):
    write_conf(home / ".config" / "pip" / "pip.conf", "[global]\nindex-url = https://user.example/simple\n")
    assert read(home).index_urls[0] == "https://user.example/simple"
    assert read(home, PIP_INDEX_URL="https://env.example/simple").index_urls[0] == "https://env.example/simple"


def test_later_files_and_narrower_sections_win(home: Path):
    write_conf(
        home / "system" / "pip" / "pip.conf", "[global]\nindex-url = https://system.example/simple\nproxy = p:1\n"
    )
    write_conf(home / ".config" / "pip" / "pip.conf", "[global]\nindex_url = https://user.example/simple\n")
    assert read(home).index_urls[0] == "https://user.example/simple"
    assert read(home).proxy == "p:1"
    write_conf(home / "chosen.conf", "[install]\nindex-url = https://chosen.example/simple\n")
    chosen = read(home, PIP_CONFIG_FILE=str(home / "chosen.conf"))
    assert chosen.index_urls[0] == "https://chosen.example/simple"


def test_lists_certificate_and_trusted_hosts(home: Path):
    write_conf(
        home / ".config" / "pip" / "pip.conf",
        "[global]\n"
        "extra-index-url =\n    https://one.example/simple\n    file:///two/simple\n"
        "find-links = /wheels https://three.example/page\n"
        "cert = ~/authority.pem\n"
        "trusted-host = inner.example:8443 other.example\n",
    )
    settings = read(home, PIP_INDEX_URL="https://main.example/simple")
    assert settings.index_urls == ("https://main.example/simple", "https://one.example/simple", "file:///two/simple")
    assert settings.find_links == ("/wheels", "https://three.example/page")
    assert settings.certificate == Path("~/authority.pem").expanduser()
    assert settings.trusted_hosts == ("inner.example:8443", "other.example")


def test_no_index_leaves_only_find_links(home: Path):
    settings = read(home, PIP_NO_INDEX="true", PIP_FIND_LINKS="/wheels")
    assert settings.index_urls == ()
    assert settings.find_links == ("/wheels",)


def test_unreadable_configuration_is_reported(home: Path):
    write_conf(home / ".config" / "pip" / "pip.conf", "index-url = https://no.section/simple\n")
    with pytest.raises(ConfigError, match=r"pip\.conf: this pip configuration cannot be parsed"):
        read(home)
