"""Installs a wheel into an empty environment and answers with it, where no compiler can be found.

    try_wheel.py WHEEL [--model smollm2-135m]

Exits 1 if the package needs anything but the wheel and what the wheel depends on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
import venv
from pathlib import Path

TIMEOUT_S = 300
QUESTION = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0}


def run(command: list[str], environment: dict[str, str]) -> str:
    """Runs a command, and returns what it prints; ends this script if the command fails."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def answer_over_http(binaries: Path, model: str, environment: dict[str, str]) -> str:
    """Serves the model, asks one question, and returns the text of the answer."""
    command = [str(binaries / "paceline"), "serve", model, "--port", "0", "--log-format", "json"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            log = []
            for line in process.stderr:
                log.append(line)
                event = json.loads(line) if line.startswith("{") else {}
                if event.get("event") == "ready":
                    request = urllib.request.Request(f"{event['url']}/chat/completions", json.dumps(QUESTION).encode())
                    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                        text: str = json.load(response)["choices"][0]["message"]["content"]
                    return text
            sys.exit("the server ended before it was ready:\n" + "".join(log))
        finally:
            process.terminate()


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--model", default="smollm2-135m")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pl-wheel-") as name:
        venv.create(name, with_pip=True)
        binaries = Path(name) / "bin"
        # pip is told to take wheels only, so that nothing is compiled here either.
        install = [str(binaries / "pip"), "install", "--quiet", "--only-binary", ":all:", str(options.wheel)]
        run(install, dict(os.environ))
        kept = {
            key: value
            for key, value in os.environ.items()
            if key in ("HOME", "PACELINE_CACHE_DIR", "TMPDIR", "XDG_CACHE_HOME")
        }
        environment = {**kept, "PATH": str(binaries)}
        text = run(
            [str(binaries / "paceline"), "generate", options.model, "Say hello.", "--max-tokens", "8"], environment
        )
        served = answer_over_http(binaries, options.model, environment)
    if not text.strip() or not served.strip():
        sys.exit("the installed package gave an empty answer")
    print(f"{options.wheel.name} answers: {served!r}")


if __name__ == "__main__":
    main()
