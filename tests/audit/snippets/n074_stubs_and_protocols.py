from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

import torch


@runtime_checkable
class Sized(Protocol):
    def size(self) -> int: ...
    def any(self) -> bool: ...


class Base(ABC):
    @abstractmethod
    def any(self) -> bool: ...

    @abstractmethod
    def max(self) -> float:
        raise NotImplementedError


class Windows(Base):
    def __init__(self, *sizes: int):
        self.sizes = sizes

    def any(self) -> bool:
        return len(self.sizes) > 0

    def max(self) -> float:
        return max(self.sizes, default=0)


def pool(x, windows: Base):
    if windows.any() and windows.max() > 1:
        x = x.unfold(0, 2, 2).mean(-1)
    return x if isinstance(windows, Sized) else -x


def build():
    windows = Windows(1, 2)
    return lambda x: pool(x, windows)


def inputs(flip=False):
    return (torch.full((4,), -1.0 if flip else 1.0),)
