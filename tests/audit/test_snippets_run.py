"""The labelled snippets do what their labels say: each is run on two inputs that differ in their tensors' values only.

A branch on a tensor's value is proved by what runs: the bytecode steps at the labelled line, the values read there,
or the torch functions called. A module that is labelled quiet takes the same steps on both inputs.
"""

import ast
import contextlib
import importlib.util
import json
import logging
import sys
import types
from pathlib import Path

import pytest
import torch
from opcodes import each_instruction, trace
from torch.overrides import TorchFunctionMode

FOLDER = Path(__file__).parent / "snippets"
LABELS = json.loads((FOLDER / "labels.json").read_text())
READS = {"__bool__", "__int__", "__float__", "__index__", "__contains__", "item", "tolist", "is_nonzero", "equal"}


def load(name):
    spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), FOLDER / name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


class Steps:
    """The bytecode steps of one file, and the flow from each of its lines, while it runs."""

    def __init__(self, path):
        self.path, self.order, self.by_line, self.latest, self.lines = path, [], {}, {}, {}

    def __call__(self, frame, event, argument):
        if frame.f_code.co_filename != self.path:
            return None
        return each_instruction(frame, self.local)

    def local(self, frame, event, argument):
        code = frame.f_code
        if code not in self.lines:
            self.lines[code] = {2 * i: (p[0], p[1]) for i, p in enumerate(code.co_positions())}
        step = (code.co_qualname, frame.f_lasti if event == "opcode" else event)
        before = self.latest.get(frame)
        if before is not None:  # the line that was left knows where it went
            for line in range(before[0], before[1] + 1):
                self.by_line.setdefault(line, []).append(step)
        if event == "opcode":
            self.order.append(step)
            first, last = self.lines[code].get(frame.f_lasti, (None, None))
            self.latest[frame] = (first, last) if first else None
            for line in range(first or 1, (last or 0) + 1):
                self.by_line.setdefault(line, []).append(step)
        return self.local


class Calls(TorchFunctionMode):
    """The torch functions that ran, and the values that Python read, with the snippet's line."""

    def __init__(self, path):
        super().__init__()
        self.path, self.names, self.own_names, self.reads = path, [], [], {}

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", str(function))
        self.names.append(name)
        if sys._getframe(1).f_code.co_filename == self.path:
            self.own_names.append(name)
        if name in READS:
            frame = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename != self.path:
                frame = frame.f_back
            if frame is not None:
                self.reads.setdefault(frame.f_lineno, []).append(repr(out))
        return out


def picture(thing, seen=None):
    """What a write could change, as plain values; tensors with their version, which in-place writes raise."""
    seen = set() if seen is None else seen
    if isinstance(thing, torch.Tensor):
        return ("tensor", thing._version, repr(thing.tolist()), id(thing))
    if thing is None or isinstance(thing, (bool, int, float, str, bytes, types.ModuleType, type, logging.Logger)):
        return repr(thing)
    if id(thing) in seen:
        return "seen"
    seen.add(id(thing))
    if isinstance(thing, dict):
        return {repr(k): picture(v, seen) for k, v in thing.items()}
    if isinstance(thing, (list, tuple, set, frozenset)):
        return [picture(v, seen) for v in thing]
    if isinstance(thing, types.FunctionType):
        cells = [picture(c.cell_contents, seen) for c in thing.__closure__ or ()]
        return ("function", cells, picture(thing.__defaults__, seen))
    if isinstance(thing, types.MethodType):
        return picture(thing.__self__, seen)
    return picture(vars(thing), seen) if hasattr(thing, "__dict__") else repr(type(thing))


def classes(module):
    return [
        (picture({k: v for k, v in vars(c).items() if not k.startswith("__")}), picture(vars(c).get("forward")))
        for c in vars(module).values()
        if isinstance(c, type) and c.__module__ == module.__name__
    ]


def run(name, flip):
    module = load(name)
    path = module.__file__
    built = module.build()
    args = module.inputs(flip)
    world = {k: v for k, v in vars(module).items() if not k.startswith("__") and k not in ("build", "inputs")}
    steps, calls = Steps(path), Calls(path)
    watch = contextlib.nullcontext() if hasattr(module, "COMPILES") else calls
    before = picture([built, args, world]), classes(module)
    earlier = sys.gettrace()
    trace(steps)
    try:
        with watch:
            built(*args)
        ended = None
    except Exception as error:
        ended = type(error).__name__
    finally:
        sys.settrace(earlier)
    world = {k: v for k, v in vars(module).items() if not k.startswith("__") and k not in ("build", "inputs")}
    return steps, calls, ended, before != (picture([built, args, world]), classes(module))


@pytest.mark.parametrize("label", LABELS, ids=lambda label: label["file"])
def test_snippet(label):
    one, one_calls, one_end, one_wrote = run(label["file"], False)
    two, two_calls, two_end, two_wrote = run(label["file"], True)
    assert one_end is None
    branches = [r for r in label["reports"] if r["rule"] == "tensor-branch"]
    writes = [r for r in label["reports"] if r["rule"] == "lasting-write"]
    assert (one_wrote or two_wrote) == bool(writes)
    for report in writes:
        assert report["line"] in one.by_line or report["line"] in two.by_line
    if not branches:
        assert (two_end, two.order, two_calls.own_names) == (None, one.order, one_calls.own_names)
    for report in branches:
        line = report["line"]
        assert line in one.by_line or line in two.by_line
        assert (
            one.by_line.get(line) != two.by_line.get(line)
            or one_calls.reads.get(line) != two_calls.reads.get(line)
            or ("indexed" in label["form"] and one_calls.names != two_calls.names)
        )
        assert (report["decides"] == "raise") == (two_end is not None)


def test_labels_name_every_file_and_parse():
    assert [label["file"] for label in LABELS] == sorted(p.name for p in FOLDER.glob("*.py"))
    for label in LABELS:
        source = (FOLDER / label["file"]).read_text().splitlines()
        assert label["file"].startswith("p") == bool(label["reports"])
        assert 1 <= label["difficulty"] <= 5 and label["form"]
        for report in label["reports"] + label["optional"]:
            assert source[report["line"] - 1].strip()
            assert report["decides"] in ("graph", "raise", "shape", "telemetry", "state")
            if report["guard"] is not None:
                ast.parse(report["guard"], mode="eval")


def test_both_halves_are_alike():
    for rest in (0, 1):
        half = [label for label in LABELS if int(label["file"][1:4]) % 2 == rest]
        hard = [label for label in half if label["reports"] and label["difficulty"] >= 4]
        assert sum(bool(label["reports"]) for label in half) == 64
        assert 3 * len(hard) >= 64
