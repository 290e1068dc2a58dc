"""Interrupts at chosen places, and all that they must leave as it was.

CPython looks for a signal where a function begins, where a call of C returns and where a loop turns: a place here is
one of those, so that what is tried is what Ctrl-C can do, and nothing else. Left out are the few instructions between a
`with` and its block, and between a `finally` and what it calls: there Python promises nothing to anybody, and a signal
has to fall into a microsecond.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import os
import random
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FrameType

import torch
import torch.utils.checkpoint
import torch.utils.deterministic
from IPython import get_ipython
from opcodes import each_instruction, trace
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import recompute_lab
from recompute_lab.instruments.streams import process_streams

_LAB = os.path.dirname(recompute_lab.__file__)
_TORCH = os.path.dirname(torch.__file__)
_ENTERED = (
    _LAB,
    contextlib.__file__,
    os.path.join(_TORCH, "utils", "checkpoint.py"),
    os.path.join(_TORCH, "autograd"),
)
_GRAD_MODE = torch.autograd.grad_mode.__file__  # sets the mode where it is made, before anybody could take it back
_PATCHED = {  # whose attributes an instrument might replace
    "torch.utils.checkpoint": torch.utils.checkpoint,
    "torch.autograd": torch.autograd,
    "torch.autograd.graph": torch.autograd.graph,
    "torch.nn.Module": nn.Module,
    "torch.Tensor": torch.Tensor,
    "torch.nn.functional": nn.functional,
}
_KERNELS = "flash", "mem_efficient", "math", "cudnn"
_BETWEEN = {"__enter__", "__exit__", "_hold", "restore", "_push_mode", "_pop_mode", "set_grad_enabled"}
_SCALARS = bool, int, float, str, type(None)


def fingerprint() -> dict[str, object]:
    """What belongs to the process, by name: torch's switches, modes, hooks and streams; Python's own."""
    modules = sys.modules
    found: dict[str, object] = {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "filled memory": torch.utils.deterministic.fill_uninitialized_memory,
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "anomaly mode": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "threads of torch": torch.get_num_threads(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "autocast's cache": torch.is_autocast_cache_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "cuDNN": [getattr(torch.backends.cudnn, f) for f in ("enabled", "benchmark", "deterministic", "allow_tf32")],
        "attention kernels": [getattr(torch.backends.cuda, f"{kernel}_sdp_enabled")() for kernel in _KERNELS],
        "hooks on saved tensors": _hooked(),
        "function modes": list(map(id, torch.overrides._get_current_function_mode_stack())),
        "dispatch modes": list(map(id, _get_current_dispatch_mode_stack())),
        "hooks on all modules": {
            name: list(hooks) for name, hooks in vars(nn.modules.module).items() if name.startswith("_global") and hooks
        },
        "profiler": sys.getprofile(),
        "filters of warnings": (list(warnings.filters), warnings.showwarning),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "temporary files": sorted(os.listdir(tempfile.gettempdir())),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "collector": gc.isenabled(),
        "recursion limit": sys.getrecursionlimit(),
        "handler of interrupts": signal.getsignal(signal.SIGINT),
        "standard streams": (id(sys.stdout), id(sys.stderr)),
    }
    for stream in process_streams():
        state = stream.read()
        found[f"stream: {stream.name}"] = state.numpy().tobytes() if isinstance(state, torch.Tensor) else repr(state)
    for name, owner in _PATCHED.items():
        found |= {f"{name}.{n}": v if isinstance(v, _SCALARS) else id(v) for n, v in vars(owner).items()}
    for name in [name for name in modules if name.startswith("recompute_lab")]:
        found |= {f"{name}.{n}": v for n, v in vars(modules[name]).items() if isinstance(v, _SCALARS)}
    if matplotlib := modules.get("matplotlib"):
        found["matplotlib's parameters"] = str(dict.items(matplotlib.rcParams))
    if pyplot := modules.get("matplotlib.pyplot"):
        found["figures"] = pyplot.get_fignums()
    return found


def _hooked() -> bool:
    """Whether hooks on saved tensors are on: whether one of them is asked."""
    tensor = torch.ones((), requires_grad=True)
    saver = (tensor * tensor).grad_fn
    try:
        saver._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
        return False
    except RuntimeError:  # it has hooks
        return True


def of_module(module: nn.Module) -> dict[str, object]:
    """What a module is to its owner: values, gradients, flags, hooks and attributes."""
    found: dict[str, object] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        grad = tensor.grad
        found[name] = id(tensor), tensor.requires_grad, tensor.detach().numpy().tobytes()
        found[f"{name}.grad"] = None if grad is None else (id(grad), grad.numpy().tobytes())
        found[f"{name}'s hooks"] = len(tensor._backward_hooks or ()), len(tensor._post_accumulate_grad_hooks or ())
    for name, part in module.named_modules():
        found[f"{name}: attributes"] = {n: v if isinstance(v, _SCALARS) else id(v) for n, v in vars(part).items()}
        found[f"{name}: hooks"] = {n: len(v) for n, v in vars(part).items() if "hooks" in n and v is not None}
    return found


def changed(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """The names of what differs; what a module that was imported since has brought is no change."""
    names = [n for n in before.keys() | after.keys() if before.get(n, "absent") != after.get(n, "absent")]
    new = ("recompute_lab", "matplotlib", "figures")
    return sorted(n for n in names if n in before or not (n.startswith(new) or n.endswith("__warningregistry__")))


def places(call: Callable[[], object]) -> int:
    """How many places there are in a call at which Ctrl-C could come."""
    return _walk(call, None)[0]


def interrupted(call: Callable[[], object], place: int) -> tuple[str, str]:
    """Call, with Ctrl-C at one place: how it ended ("interrupted", "returned", "raised NAME ..."), and where it was."""
    return _walk(call, place)[1:]


def run_cell(source: str, after: float) -> None:
    """In a kernel: run a cell's source as one, with Ctrl-C so many seconds after it has begun, if it takes so long.

    From a thread of the kernel's own: a signal from outside can come a moment too late, when the kernel itself is at
    work, and then no reply is sent.
    """
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        get_ipython().run_cell(source)
        timer.cancel()
        timer.join()
    except KeyboardInterrupt:  # when the cell was done
        pass


def sample(number: int, most: int, seed: int) -> list[int]:
    """At most so many of the places 1 to `number`, the first and the last among them."""
    if number <= most:
        return list(range(1, number + 1))
    return sorted({1, number, *random.Random(seed).sample(range(1, number + 1), most - 2)})


def _walk(call: Callable[[], object], place: int | None) -> tuple[int, str, str]:
    number, where, back_to = 0, "not reached", None

    def reached(frame: FrameType) -> None:
        nonlocal number, where
        if frame.f_code.co_name in _BETWEEN or (frame.f_back and frame.f_back.f_code.co_name in _BETWEEN - {"restore"}):
            return
        number += 1
        if number == place:
            where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
            signal.raise_signal(signal.SIGINT)

    def inside(frame: FrameType, event: str, argument):
        nonlocal back_to
        if event == "return":
            # Where a Python function returns to, nobody looks for a signal; what `next` returns to is C's.
            back_to = None if frame.f_code.co_flags & 0x20 else frame.f_back
        elif event == "opcode":
            came_back, back_to = back_to is frame, None
            if frame.f_lasti in _looked_at(frame.f_code) and not came_back:
                reached(frame)
        return inside

    def begins(frame: FrameType, event: str, argument):
        if not frame.f_code.co_filename.startswith(_ENTERED) or frame.f_code.co_filename == _GRAD_MODE:
            return None
        reached(frame)
        return each_instruction(frame, inside)

    before, ended = sys.gettrace(), "returned"
    trace(begins)
    try:
        call()
    except KeyboardInterrupt:
        ended = "interrupted"
    except BaseException as error:
        ended = f"raised {type(error).__name__}: {error}"
    finally:
        sys.settrace(before)
    return number, ended, where


@functools.cache
def _looked_at(code: CodeType) -> frozenset[int]:
    """Offsets before which the interpreter has looked for a signal, but for the way out of a `with`: on its line."""
    offsets, after_call, line = set(), False, 0
    for instruction in dis.get_instructions(code):
        before, line = line, instruction.positions.lineno or line
        if after_call and line >= before:
            offsets.add(instruction.offset)
        name = instruction.opname
        after_call = name.startswith("CALL") and "INTRINSIC" not in name
        if name.startswith("JUMP_BACKWARD") and "NO_INTERRUPT" not in name:
            offsets.add(instruction.argval)
    return frozenset(offsets)


@contextlib.contextmanager
def own_temporary_folder(folder: str) -> Iterator[None]:
    """Temporary files go into a folder in which nobody else writes."""
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
