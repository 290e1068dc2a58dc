"""An evaluation with its arguments, called again and again, and the state that it is met in and leaves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection

import torch
from torch import nn

from recompute_lab.instruments.agreement import Agreement
from recompute_lab.instruments.determinism import FIXED, WORKSPACE, without_implementation, without_workspace
from recompute_lab.instruments.interrupts import uninterrupted
from recompute_lab.instruments.narrowing import Log, logged
from recompute_lab.instruments.results import compared, entries
from recompute_lab.instruments.state import Snapshot, same_bits
from recompute_lab.instruments.streams import process_streams
from recompute_lab.instruments.witness.words import group_of, label

_MOST_BYTES = 4 << 30  # of what can be reached: beyond that, a change is seen, but not put back


class Call:
    """An evaluation with its arguments, and the state in which it is met."""

    def __init__(self, evaluation: Callable, args: tuple, kwargs: dict, model: nn.Module | None):
        self.evaluation, self.args, self.kwargs, self.model = evaluation, args, kwargs, model
        self.start = self.snapshot()
        self.streams = [(stream, stream.read()) for stream in process_streams()]
        self.skipped: dict[str, str] = {}

    def snapshot(self) -> World:
        return World(Snapshot.within(_MOST_BYTES, self.evaluation, self.args, {"model": self.model} | self.kwargs))

    def run(self, switch: Callable[[], None]) -> dict[str, object]:
        """The entries of one run's result; global streams at the start."""
        for stream, state in self.streams:
            stream.write(state)
        switch()
        try:
            result, self.skipped = entries(self.evaluation(*self.args, **self.kwargs))
        except RuntimeError as error:
            if operator := without_implementation(error):
                raise RuntimeError(
                    f"torch has no deterministic implementation of {operator}, so the check cannot be made: compute "
                    "it in another way, or ask for deterministic=False, under which a disagreement says little"
                ) from error
            if without_workspace(error):
                raise RuntimeError(
                    "cuBLAS has no fixed workspace, so the check cannot be made: torch reads the environment variable "
                    f"{WORKSPACE} at a process's first product, and never again. Set it to {FIXED[0]} before Python "
                    "starts, or before the first product"
                ) from error
            raise
        return result

    def logged(self, switch: Callable[[], None]) -> tuple[dict[str, object], Log]:
        with logged(self.model) as log:
            return self.run(switch), log

    def check(self, switch: Callable[[], None], times: int, deterministic: bool) -> Agreement:
        """The runs, one after the other, from the state as it is."""
        first, number = self.run(switch), 1
        while number < times:
            number += 1
            metrics = compared(first, self.run(switch))
            if not all(metric.agrees for metric in metrics):
                break
        return Agreement(
            {metric.name: metric for metric in metrics},
            deterministic,
            times,
            number,
            skipped=self.skipped,
            threads=torch.get_num_threads(),
            cuda=any(tensor.is_cuda for tensor in self.start.held.tensors.values()),
        )

    def changed_groups(self) -> dict[tuple, list[str]]:
        """What is not as it was at the start, by group (see `words.group_of`); the global streams, which are put back
        before each run, left out.
        """
        groups: dict[tuple, list[str]] = {}
        for name, kind in self.start.changed({stream.name for stream, _ in self.streams}).items():
            if name == f"os.environ.{WORKSPACE}":  # the switch's own, where code can reach the environment
                continue
            groups.setdefault(group_of(name, kind), []).append(name)
        return groups

    def left(self) -> tuple[list[str], list[str]]:
        """What a run has left behind, and what of it is too large to be put back."""
        left, lost = [], []
        for group, names in self.changed_groups().items():
            (lost if self.start.held.digested.intersection(names) else left).append(self.called(group, names))
        return sorted(left), sorted(lost)

    def called(self, group: tuple, names: list[str]) -> str:
        """What a group is called; an argument by its parameter's name."""
        told = f"generator {group[1]}" if group[0] == "random stream" else label(group, names)
        try:
            bound = inspect.signature(self.evaluation).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):
            return told
        for i, parameter in enumerate(list(bound.arguments)[: len(self.args)]):
            told = told.replace(f"args[{i}]", parameter)
        return re.sub(r"kwargs\['(\w+)'\]", r"\1", told)


class World:
    """A `Snapshot`, `held`, and the values of the gradients that were there: a backward adds to them."""

    def __init__(self, held: Snapshot):
        self.held = held
        gradients = {name: (tensor, tensor.grad) for name, tensor in held.parameters().items()}
        self.gradients = {
            f"{name}.grad": (tensor, grad, None if grad is None else grad.detach().clone())
            for name, (tensor, grad) in gradients.items()
        }

    def restore(self, keep: Collection[str] = ()) -> None:
        """Put everything back but what `keep` names."""
        with uninterrupted():
            kept = {name: tensor.grad for name, (tensor, _, _) in self.gradients.items() if name in keep}
            self.held.restore(keep)
            for name, (tensor, grad, copy) in self.gradients.items():
                if name in keep:
                    tensor.grad = kept[name]
                elif grad is not None and not same_bits(grad, copy):
                    grad.data.copy_(copy)

    def changed(self, streams: Collection[str]) -> dict[str, str]:
        """What differs by name, with its kind; `streams` are those that do not count."""
        changed = self.held.changed_kinds()
        changed |= {name: "switch" for name in self.held.moved_switches() if name != "determinism"}
        changed |= {name: "random stream" for name in self.held.moved_streams() if name not in streams}
        for name, (tensor, grad, copy) in self.gradients.items():
            if tensor.grad is not grad or grad is not None and not same_bits(grad, copy):
                changed[name] = "gradient"
        return changed
