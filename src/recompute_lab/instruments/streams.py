"""Random streams: what can be read, and rewound.

A stream is whatever random draws come from: torch's default generator of each device, Python's, NumPy's, and generators
that somebody made. Each is read and written by a pair of functions.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from recompute_lab.instruments.device import accelerator
from recompute_lab.instruments.interrupts import uninterrupted


@dataclass(frozen=True)
class Stream:
    """`write(read())` takes the stream back to where it stood at `read`."""

    name: str
    read: Callable[[], object]
    write: Callable[[object], None]


def torch_cpu() -> Stream:
    return Stream("torch", torch.get_rng_state, torch.set_rng_state)


def torch_device(device: torch.device) -> Stream:
    """The default generator of a device other than the CPU."""
    module = torch.get_device_module(device)
    write = functools.partial(_write_device, module, device)
    return Stream(str(device), functools.partial(module.get_rng_state, device), write)


def _write_device(module, device: torch.device, state) -> None:
    module.set_rng_state(state, device)


def torch_streams(tensors: Iterable[torch.Tensor] = ()) -> list[Stream]:
    """torch's default generators of the CPU and of every device that one of the tensors lives on."""
    devices = sorted({t.device for t in tensors if t.device.type not in ("cpu", "meta")}, key=str)
    return [torch_cpu(), *map(torch_device, devices)]


def library_streams() -> list[Stream]:
    """The default streams outside torch: Python's, and NumPy's where it is loaded."""
    streams = [Stream("Python", random.getstate, random.setstate)]
    if numpy := sys.modules.get("numpy"):
        streams.append(Stream("NumPy", numpy.random.get_state, numpy.random.set_state))
    return streams


def process_streams() -> list[Stream]:
    """All that belong to the process: torch's on every device in use, and those of `library_streams`."""
    streams = [torch_cpu(), *library_streams()]
    if module := accelerator():
        streams.append(Stream("GPU", module.get_rng_state_all, module.set_rng_state_all))
    return streams


def is_generator(value) -> bool:
    """True for torch's, Python's and NumPy's generator objects."""
    numpy = sys.modules.get("numpy")
    kinds = (torch.Generator, random.Random) + ((numpy.random.Generator, numpy.random.RandomState) if numpy else ())
    return isinstance(value, kinds) and not isinstance(value, random.SystemRandom)  # which has no state


def generator_stream(generator, name: str = "a generator") -> Stream:
    """The stream of a generator object. Raises TypeError for what is none."""
    if not is_generator(generator):
        raise TypeError(
            "a generator is a torch.Generator, a random.Random, or one of NumPy's (default_rng, RandomState); got "
            f"{type(generator).__name__}"
        )
    if isinstance(generator, random.Random):
        return Stream(name, generator.getstate, generator.setstate)
    if hasattr(generator, "bit_generator"):
        bits = generator.bit_generator
        return Stream(name, lambda: bits.state, functools.partial(setattr, bits, "state"))
    return Stream(name, generator.get_state, generator.set_state)


def seed_everything(seed: int) -> None:
    """Seed torch's, Python's and, where it is loaded, NumPy's default streams."""
    torch.manual_seed(seed)
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


@contextmanager
def kept(streams: Sequence[Stream]) -> Iterator[None]:
    """Whatever is drawn or seeded inside: afterwards, every stream stands where it stood before."""
    now = [stream.read() for stream in streams]
    try:
        yield
    finally:
        with uninterrupted():
            for stream, state in zip(streams, now, strict=True):
                stream.write(state)


@contextmanager
def rewound(streams: Sequence[Stream], states: Sequence) -> Iterator[None]:
    """Inside, every stream stands where `states` says; afterwards, where it stood before."""
    with kept(streams):
        for stream, state in zip(streams, states, strict=True):
            stream.write(state)
        yield
