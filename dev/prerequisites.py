"""What building Paceline needs and pip cannot install: one line on stderr and exit code 1 where some of it is missing.

    python3 dev/prerequisites.py        # headers and compiler
    python3 dev/prerequisites.py venv   # what a virtual environment is made with as well

Runs before anything is installed, and under Python versions that are too old.
"""

import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path

MINIMUM_VERSION = (3, 11)
COMPILERS = ("c++", "g++", "clang++")


def has_venv() -> bool:
    """Whether this Python makes environments that have pip."""
    return all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))


def has_headers() -> bool:
    """Whether extension modules can be compiled for this Python."""
    return any((Path(sysconfig.get_path(name)) / "Python.h").is_file() for name in ("include", "platinclude"))


def has_compiler() -> bool:
    """Whether there is a C++ compiler where CMake looks for one."""
    named = os.environ.get("CXX", "").split()
    return any(shutil.which(name) for name in named[:1] or COMPILERS)


def complaint(needs_venv: bool) -> str:
    """What is missing and how to get it; empty where nothing is."""
    version = ".".join(map(str, sys.version_info[:2]))
    if sys.version_info < MINIMUM_VERSION:
        return f"paceline needs python 3.11 or newer, this is {version}: name another, as in make PYTHON=python3.12"
    missing = {
        f"python{version}-venv": needs_venv and not has_venv() and "venv with pip",
        f"python{version}-dev": not has_headers() and "python headers (Python.h)",
        "g++": not has_compiler() and "a C++ compiler",
    }
    found = {package: what for package, what in missing.items() if what}
    if not found:
        return ""
    return f"missing: {', '.join(found.values())}; on Debian and Ubuntu: apt install {' '.join(found)}"


if __name__ == "__main__":
    sys.exit(complaint(needs_venv=sys.argv[1:] == ["venv"]) or 0)
