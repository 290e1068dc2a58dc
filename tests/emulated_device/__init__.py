"""A GPU made of nothing: a device of its own in torch, "emulated", whose memory and arithmetic are the CPU's.

What it shares with CUDA: tensors of two devices do not mix, draws come from the device's own generators, backward runs
in the device's thread. What it does not: kernels, races, and the time that a GPU takes. `emulated.cpp` is compiled with
the machine's own compiler; where there is none, nothing can be registered.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils import cpp_extension

SOURCE = Path(__file__).with_name("emulated.cpp")
NAME = "emulated"
_initialized = True  # torch.utils.checkpoint asks for it by this name


def build(folder: Path) -> Path:
    """Compile the device into a folder, unless it is there; half a minute. Raises RuntimeError where that fails."""
    library = folder / f"{NAME}-{torch.__version__}.so"
    if library.exists() and library.stat().st_mtime > SOURCE.stat().st_mtime:
        return library
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None or not sys.platform.startswith("linux"):
        raise RuntimeError("the emulated device is compiled by a C++ compiler on Linux, and there is none")
    started = library.with_suffix(f".{os.getpid()}")  # others may be at it
    command = [compiler, "-shared", "-fPIC", "-O0", "-std=c++20", "-w", str(SOURCE), "-o", str(started)]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    command += [f"-isystem{path}" for path in cpp_extension.include_paths()]
    command += [f"-L{path}" for path in cpp_extension.library_paths()] + ["-lc10", "-ltorch_cpu", "-ltorch"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the emulated device does not compile: {done.stderr[:2000]}")
    return started.rename(library)


def register(library: Path) -> torch.device:
    """From here on this process has the device; it cannot be taken away again."""
    torch.ops.load_library(str(library))
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, sys.modules[__name__])
    return torch.device(NAME)


# --- What torch asks a device's module for


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def synchronize(device=None) -> None:
    """Nothing is ever pending."""


def _is_in_bad_fork() -> bool:
    return False


def manual_seed_all(seed: int) -> None:
    torch.ops.emulated.manual_seed(seed)


def get_rng_state(device=None) -> torch.Tensor:
    return torch.ops.emulated.get_rng_state()


def set_rng_state(state: torch.Tensor, device=None) -> None:
    torch.ops.emulated.set_rng_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state()]


def set_rng_state_all(states: list[torch.Tensor]) -> None:
    set_rng_state(states[0])


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


@contextmanager
def device(index):
    """There is but one."""
    yield
