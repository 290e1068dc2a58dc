"""torch's switch for deterministic algorithms, for a while, and all that belongs to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.utils.deterministic

from recompute_lab.instruments.interrupts import uninterrupted

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
FIXED = (":4096:8", ":16:8")  # the two settings with which cuBLAS adds up in a fixed order, by NVIDIA's documentation


@contextmanager
def switched(on: bool) -> Iterator[Callable[[], None]]:
    """Inside, `torch.use_deterministic_algorithms` is on, or off; what is yielded sets it again, should code inside
    have changed it.

    With it goes what it needs: cuBLAS's workspace, an environment variable without which some products raise on CUDA
    (torch reads it at the process's first product: set here, it is of use where none came before); cuDNN's own choice
    of the fastest kernel is off. Afterwards all of it, and every other environment variable, is as it was, also after
    an error.
    """
    before, environment = _read(), dict(os.environ)

    def switch() -> None:
        torch.use_deterministic_algorithms(on)
        if on:
            torch.utils.deterministic.fill_uninitialized_memory = True
            torch.backends.cudnn.benchmark = False
            if os.environ.get(WORKSPACE) not in FIXED:
                os.environ[WORKSPACE] = FIXED[0]

    try:
        switch()
        yield switch
    finally:
        with uninterrupted():
            _write(*before)
            for name in os.environ.keys() - environment.keys():
                del os.environ[name]
            os.environ.update(environment)


def without_implementation(error: BaseException) -> str:
    """The operator of which torch says that it cannot be computed deterministically; "" for any other error."""
    told = str(error)
    if isinstance(error, RuntimeError) and "does not have a deterministic implementation" in told:
        return told.partition(" does not have")[0].strip().splitlines()[-1]
    return ""


def without_workspace(error: BaseException) -> bool:
    """Is it a product by cuBLAS that has raised, for want of a fixed workspace?"""
    return isinstance(error, RuntimeError) and WORKSPACE in str(error)


def _read() -> tuple:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
    )


def _write(enabled: bool, warn_only: bool, fill: bool, benchmark: bool, deterministic: bool) -> None:
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    torch.utils.deterministic.fill_uninitialized_memory = fill
    torch.backends.cudnn.benchmark = benchmark
    torch.backends.cudnn.deterministic = deterministic
