"""`make setup` says in one line which packages the machine lacks, before it installs or builds anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
HIDDEN_VENV = 'import sys\nsys.modules["ensurepip"] = None\n'
HIDDEN_HEADERS = 'import sysconfig\nsysconfig.get_path = lambda name: "/no/such/folder"\n'


def setup(tmp_path: Path, hidden: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `make setup` for a new environment, with a Python in which `hidden` hides something."""
    (tmp_path / "sitecustomize.py").write_text(hidden)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "--no-print-directory", "setup", f"VENV={tmp_path / 'venv'}", f"PYTHON={sys.executable}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(tmp_path)} | variables,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("hidden", "variables", "what", "packages"),
    [
        (HIDDEN_VENV, {}, "venv with pip", f"python{VERSION}-venv"),
        (HIDDEN_HEADERS, {}, "python headers (Python.h)", f"python{VERSION}-dev"),
        ("", {"CXX": "no-such-compiler -O2"}, "a C++ compiler", "g++"),
        (
            HIDDEN_VENV + HIDDEN_HEADERS,
            {},
            "venv with pip, python headers (Python.h)",
            f"python{VERSION}-venv python{VERSION}-dev",
        ),
    ],
)
def test_what_is_missing_is_one_line(
    hidden: str, variables: dict[str, str], what: str, packages: str, tmp_path: Path
) -> None:
    result = setup(tmp_path, hidden, **variables)
    assert result.returncode == 2
    assert result.stdout == ""
    complaint, verdict = result.stderr.splitlines()
    assert complaint == f"missing: {what}; on Debian and Ubuntu: apt install {packages}"
    assert verdict.startswith("make: *** ")
    assert not (tmp_path / "venv").exists()


def test_an_old_python_is_one_line(tmp_path: Path) -> None:
    result = setup(tmp_path, "import sys\nsys.version_info = (3, 9, 2)\n")
    assert result.stderr.splitlines()[0] == (
        "paceline needs python 3.11 or newer, this is 3.9: name another, as in make PYTHON=python3.12"
    )
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("arguments", [[], ["venv"]])
def test_a_python_that_has_everything_passes_in_silence(arguments: list[str]) -> None:
    command = [sys.executable, str(ROOT / "dev" / "prerequisites.py"), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_an_environment_that_is_there_needs_no_venv(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDDEN_VENV)
    result = subprocess.run(
        [sys.executable, str(ROOT / "dev" / "prerequisites.py")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
