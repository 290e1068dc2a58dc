"""Is an answer the guarded function without its guard? The check of all exercises that ask for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest

import torch

from recompute_lab.instruments.checkpointing import weighted_sum
from recompute_lab.instruments.isolation import isolated
from recompute_lab.instruments.ledger import record
from recompute_lab.instruments.state import same_bits
from recompute_lab.lessons.exercise import Wrong


def must_equal(answer: Callable, guarded: Callable, inputs: Mapping[str, tuple]) -> int:
    """Raise `Wrong` unless the answer is `guarded` without a decision; how many tensors it saves for the first input.

    For each of the named inputs (a tensor, and whatever else the functions take) output and gradients must be those of
    `guarded`, to the last bit, and the arguments must stay as they are. Between inputs of one shape and
    equal numbers, neither the saved tensors nor the graph may differ.
    """
    if not callable(answer) or isinstance(answer, type):
        what = f"the class {answer.__name__}" if isinstance(answer, type) else f"this {type(answer).__name__}"
        raise Wrong(f"expected a function, or an object to be called like one, in place of {what}")
    programs: dict[tuple, dict[str, list]] = {}
    saved = {}
    for name, arguments in inputs.items():
        arguments = tuple(map(_ready, arguments))
        nodes = _compare(name, answer, guarded, arguments)
        rows = [(row.operator, f"saves {row.shape} {row.dtype}") for row in record(answer, *arguments)]
        saved[name] = len(rows)
        # Compared with their names: an operation is more than what it saves.
        same = (arguments[0].shape, *(a for a in arguments if not isinstance(a, torch.Tensor)))
        programs.setdefault(same, {})[name] = rows + nodes
    for same_shape in programs.values():
        _must_not_depend(same_shape, saved)
    return next(iter(saved.values()))


def _ready(argument):
    if not isinstance(argument, torch.Tensor):
        return argument
    return argument.detach().clone().requires_grad_(argument.is_floating_point())


def _compare(name: str, answer: Callable, guarded: Callable, arguments: tuple) -> list[tuple]:
    """The nodes of the answer's graph; raises `Wrong` where anything differs but these."""
    expected, _ = _run(name, guarded, arguments)
    made, nodes = _run(name, answer, arguments)
    for part, right in expected.items():
        if gap := _gap(made[part], right):
            idle = same_bits(expected["output"], arguments[0].detach())
            why = ". Here the condition is false, so the operation must be the identity" if idle else ""
            raise Wrong(f"for {name}, the {part} should be the guarded form's bit for bit; {gap}{why}")
    return nodes


def _gap(made: torch.Tensor | None, right: torch.Tensor | None) -> str:
    """How the two differ, in words; nothing where they do not. None stands for zeros of either sign."""
    if made is None or right is None:
        gradient = right if made is None else made
        if gradient is None or not gradient.count_nonzero():
            return ""
        return "there is none" if made is None else "the guarded form has none"
    if made.dtype != right.dtype:
        return f"its dtype is {made.dtype}, not {right.dtype}"
    if made.shape != right.shape:
        return f"its shape is {tuple(made.shape)}, not {tuple(right.shape)}"
    if same_bits(*(t.where(~t.isnan(), torch.nan) for t in (made, right))):  # any NaN is a NaN
        return ""
    different = int(((made != right) & ~(made.isnan() & right.isnan())).sum())
    numbers = {0: "a zero has the other sign", 1: "1 element differs"}
    return numbers.get(different, f"{different} elements differ")


def _run(name: str, function: Callable, arguments: tuple) -> tuple[dict[str, torch.Tensor | None], list[tuple]]:
    with isolated(function, *arguments) as call:
        output = function(*call.args)
        if not isinstance(output, torch.Tensor) or not output.requires_grad:
            raise Wrong(
                f"for {name}, the output or its gradient is missing: "
                "your function must return a tensor that depends on its first argument; did you forget return?"
            )
        for i, (now, before) in enumerate(zip(call.args, arguments, strict=True), 1):
            if isinstance(now, torch.Tensor) and not same_bits(now, before):
                raise Wrong(
                    f"for {name}, your function changes argument {i} in place: "
                    "a recomputation would start from other values"
                )
        result, nodes = {"output": output.detach().clone()}, _graph(output)
        finite = torch.where(output.isfinite(), output, 0.0)
        leaves = list(call.leaves.values())
        gradients = torch.autograd.grad(weighted_sum(finite), leaves, allow_unused=True)
    for i, gradient in enumerate(gradients, 1):
        result["gradient" if i == 1 else f"gradient of argument {i}"] = gradient
    return result, nodes


def _graph(output: torch.Tensor) -> list[tuple]:
    """The nodes behind a tensor in a fixed order, with the numbers (not the tensors) that they keep."""
    nodes, todo, seen = [], [output.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        names = dir(node)
        kept = [n for n in names if n.startswith("_saved_") and f"_raw{n}" not in names]
        nodes.append((node.name().removesuffix("0"), *(f"{n[7:]}={getattr(node, n)}" for n in kept)))
        todo += [following for following, _ in node.next_functions]
    return nodes


def _must_not_depend(programs: dict[str, list], saved: Mapping[str, int]) -> None:
    first, *others = programs
    for other in others:
        if saved[first] != saved[other]:
            raise Wrong(
                "the values are right, but the number of saved tensors still depends on them: "
                f"{saved[first]} for {first}, {saved[other]} for {other}"
            )
        if programs[first] != programs[other]:
            steps = zip_longest(programs[first], programs[other], fillvalue=("nothing more",))
            a, b = (" ".join(step) for step in next(pair for pair in steps if pair[0] != pair[1]))
            raise Wrong(f"the values are right, but what runs still depends on them: {a} for {first}, {b} for {other}")
