"""Is everything there that the lessons need, and new enough? (Without torch the package itself does not import.)"""

from __future__ import annotations

import importlib
import platform
import re
import sys
from importlib import metadata

# The oldest versions that will do: the same as in pyproject.toml.
PYTHON = (3, 11)
NEEDED = {
    "fsrs": (6,),
    "ipython": (8, 18),
    "ipywidgets": (8, 1),
    "jupyterlab": (4, 2),
    "matplotlib": (3, 8),
    "numpy": (1, 26),
    "pillow": (10,),
    "platformdirs": (4,),
    "scikit-learn": (1, 4),
    "scipy": (1, 11),
    "torch": (2, 6),
    "traitlets": (5, 9),
}
_IMPORTED_AS = {"ipython": "IPython", "pillow": "PIL"}


def problems() -> list[str]:
    """One sentence for everything that is missing, broken or too old; empty where all is well."""
    found = []
    if sys.version_info < PYTHON:
        found.append(f"Python {platform.python_version()} is too old: {_dotted(PYTHON)} is needed.")
    for name, oldest in NEEDED.items():
        try:
            version = metadata.version(name)
            if name == "scikit-learn":  # takes long to import, and all that the lessons want of it are the digits
                importlib.import_module("recompute_lab.specimens.digits").digit_images()
            elif name != "jupyterlab":  # takes seconds, and whoever sees a notebook has one
                importlib.import_module(_IMPORTED_AS.get(name, name))
        except metadata.PackageNotFoundError:
            found.append(f"{name} is not installed in this notebook's Python. {_ADVICE}")
        except Exception as error:  # a broken library fails in its own way
            if isinstance(error, ModuleNotFoundError) and error.name in NEEDED and error.name != name:
                continue  # what is missing is another one, which has a sentence of its own
            kind = type(error).__name__
            found.append(f"{name} is there, but cannot be loaded ({kind}). {_ADVICE}")
        else:
            if _numbers(version) < oldest:
                found.append(f"{name} {version} is too old: {_dotted(oldest)} is needed. {_ADVICE}")
    return found


def machine() -> str:
    """What the outputs of a lesson may depend on: for the eye, and for a report of a problem."""
    import torch

    from recompute_lab.instruments.device import device_name, lab_device
    from recompute_lab.instruments.nondeterminism import atomics_differ
    from recompute_lab.instruments.torch_version import not_tested

    versions = ", ".join(f"{name} {metadata.version(name)}" for name in NEEDED)
    kernels = torch.backends.cpu.get_cpu_capability()
    lines = [
        f"Python {platform.python_version()}, {versions}",
        f"{platform.system()} {platform.machine()}, CPU kernels: {kernels}",
        f"torch threads: {torch.get_num_threads()}",
        f"CUDA: {_yes(torch.cuda.is_available())}; lessons 01 to 05 and 07 compute on: {device_name(lab_device())}",
        f"the same sum can differ from call to call here: {_yes(atomics_differ(lab_device()))}",
    ]
    return "\n".join([*lines, *filter(None, [not_tested()])])


def _yes(truth: bool) -> str:
    return "yes" if truth else "no"


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "2.13.0+cpu" is (2, 13, 0)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


_ADVICE = "Start the notebook as the README says; if you did, install again."
