"""The interpreters of the matrix: which Pythons are here, and a virtual environment for each with each torch.

An environment is made once and kept (gigabytes each, most of it torch), in a folder of its own that git ignores. It has
the packages of requirements.lock, but of torch and of what torch itself asks for, those that this torch chooses.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from plan import KERNELS, Environment
from processes import Processes

INSTALL_LIMIT = 3600  # seconds: gigabytes over a slow line
LOCKED = re.compile(r"^([\w.-]+)==")
ASKS_FOR = "import importlib.metadata as m, json; print(json.dumps(m.requires('torch') or []))"
LOOK = """
import json, platform, torch
print(json.dumps({"python": platform.python_version(), "torch": torch.__version__.partition("+")[0],
    "threads": torch.get_num_threads(), "kernels": torch.backends.cpu.get_cpu_capability()}))
"""


class NoEnvironment(Exception):
    """An environment could not be made; the message says why and what to do."""


def answer(command: list[str], **env: str) -> str | None:
    """What a command prints; None if it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | env)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def interpreter(version: str) -> str | None:
    """A Python of this version (as "3.12"): this one, one on the PATH, or one that pyenv has; None if none runs."""
    candidates = [sys.executable, shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")  # its commands on the PATH may be
    candidates += sorted(map(str, pyenv.glob(f"{version}.*/bin/python")), reverse=True)  # switched off
    asks = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
    return next((path for path in candidates if path and answer([path, "-c", asks]) == version), None)


def python_of(environment: Environment, cache: Path) -> Path:
    return cache / str(environment) / "bin" / "python"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def without(lock: str, names: set[str]) -> str:
    """The lock's pins but those of these packages (canonical names)."""
    return "".join(
        line
        for line in lock.splitlines(keepends=True)
        if (pin := LOCKED.match(line)) and canonical(pin[1]) not in names
    )


def stamp_of(root: Path) -> str:
    """What a finished environment carries: the place of the package and the packages it asks for."""
    files = "".join((root / name).read_text() for name in ("requirements.lock", "pyproject.toml"))
    return hashlib.sha256(f"{root}\n{files}".encode()).hexdigest()


def make(environment: Environment, cache: Path, root: Path, processes: Processes) -> None:
    """Makes the environment, if it is not there with the packages that requirements.lock asks for today.

    Raises NoEnvironment.
    """
    place, wanted = cache / str(environment), stamp_of(root)
    stamp, log = place / ".installed", cache / f"{environment}.log"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    python = str(python_of(environment, cache))

    def install(*what: str) -> None:
        command = [python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off", *what]
        if processes.run(command, log, INSTALL_LIMIT) != 0:
            last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
            raise NoEnvironment(f"{environment} could not be installed: {''.join(last)} (pip's words are in {log})")

    if answer([python, "-c", "import pip"]) is None:
        base = interpreter(environment.python)
        if base is None:
            raise NoEnvironment(f"there is no Python {environment.python} here")
        # The Python outside of any active venv, which may go away.
        base = answer([base, "-c", "import sys; print(getattr(sys, '_base_executable', sys.executable))"])
        if answer([base, "-m", "venv", "--clear", str(place)]) is None:
            raise NoEnvironment(f"'{base} -m venv {place}' failed: does this Python have its venv module?")
    stamp.unlink(missing_ok=True)
    install(f"torch=={environment.torch}")
    asked = json.loads(answer([python, "-c", ASKS_FOR]) or "[]")
    own = {canonical(re.match(r"[\w.-]+", need)[0]) for need in asked} | {"torch"}
    pins = place / "requirements.txt"
    pins.write_text(without((root / "requirements.lock").read_text(), own))
    install("-r", str(pins))
    install("--no-deps", "--no-build-isolation", "-e", str(root))
    stamp.write_text(wanted)


def named(kernels: str) -> str:
    """torch's word for its CPU kernels, as ATEN_CPU_CAPABILITY has it; older versions call the plain ones NO AVX."""
    return {"no avx": "default"}.get(kernels.lower(), kernels.lower())


def settings(threads: int, kernels: str) -> dict[str, str]:
    """The environment variables that make torch use so many threads and these CPU kernels.

    Left to itself, MKL holds torch to as many threads as there are cores.
    """
    return {"OMP_NUM_THREADS": str(threads), "MKL_DYNAMIC": "FALSE", "ATEN_CPU_CAPABILITY": kernels}


def seen(environment: Environment, cache: Path, threads: int, kernels: str) -> dict:
    """What an environment says of itself under these settings: versions, threads, kernels.

    Raises NoEnvironment if torch does not load there, or is another one, or does not take the settings: a run
    would then be of something else than the table says.
    """
    said = answer([str(python_of(environment, cache)), "-c", LOOK], **settings(threads, kernels))
    if said is None:
        raise NoEnvironment(f"torch cannot be loaded in {environment}: remove that folder of {cache.name}/ and go on")
    here = json.loads(said)
    if (here["torch"], here["threads"], named(here["kernels"])) != (environment.torch, threads, kernels):
        raise NoEnvironment(f"{environment}, told to use {threads} threads and {kernels}, says of itself: {here}")
    return here


def kernels_here(python: Path) -> tuple[str, ...]:
    """The sets of CPU kernels that this processor can run. torch would obey, and crash, if told to use another one."""
    env = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    done = subprocess.run([str(python), "-c", LOOK], capture_output=True, text=True, env=env)
    best = named(json.loads(done.stdout)["kernels"]) if done.returncode == 0 else ""
    return KERNELS[: KERNELS.index(best) + 1] if best in KERNELS else KERNELS[:1]
