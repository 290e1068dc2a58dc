"""The audit never raises and never runs long: on any text, on programs made at random, on the standard library."""

import ast
import os
import random
import subprocess
import sys
import sysconfig
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recompute_lab import audit
from recompute_lab.instruments.audit.one_file import audit_source
from recompute_lab.instruments.audit.sources import Source

LONG_S = 20.0  # for a file that takes well under a second where nothing goes wrong

HEAD = "import torch\nimport torch.nn as nn\nfrom torch.utils.checkpoint import checkpoint\n"


def audited(text: str):
    """Audit it, within the time; every finding is on a line that exists."""
    began = time.monotonic()
    found = audit_source(Source(text), "one.py", "one", sizes=True)
    assert time.monotonic() - began < LONG_S
    lines = text.count("\n") + 1
    for one in found.findings:
        assert 1 <= one.line <= one.end_line <= lines and one.column >= 1
        assert one.rule in ("tensor-branch", "lasting-write") and one.suggestion and one.message
    return found


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_any_text(text):
    audited(text)


# Programs made of the statements and expressions that the audit knows, put together at random.

_NAMES = st.sampled_from(["x", "y", "hit", "self", "f", "xs", "é"])
_LEAVES = st.one_of(
    _NAMES, st.sampled_from(["0", "True", "None", "'text'", "[]", "{}", "x.shape", "self.training", "nn.Linear"])
)


def _join(template: str, *parts):
    return st.tuples(*parts).map(lambda values: template.format(*values))


def _bigger(inner):
    method = st.sampled_from(
        ["any()", "max(1)", "item()", "tolist()", "nonzero()", "add_(1)", "shape[0]", "numpy()", "append(x)"]
    )
    return st.one_of(
        _join("({}).{}", inner, method),
        _join("({} + {})", inner, inner),
        _join("({} and {})", inner, inner),
        _join("({} if {} else {})", inner, inner, inner),
        _join("({} > {} > 0)", inner, inner),
        _join("{}[{}]", _NAMES, inner),
        _join("{}[:int({})]", _NAMES, inner),
        _join("torch.where({}, x, y)", inner),
        _join("max({}, {})", inner, inner),
        _join("[i for i in {} if {}]", inner, inner),
        _join("{{'a': {}, **{}}}", inner, inner),
        _join("(lambda x, *, k={}: {})", inner, inner),
        _join("f({}, *{}, k={})", inner, inner, inner),
        _join("checkpoint({}, {})", inner, inner),
        _join("(not {})", inner),
        _join("({} in {})", inner, inner),
        _join("(z := {})", inner),
        _join("(await {})", inner),
        _join("f'{{{}}}'", _NAMES),
    )


_EXPRESSIONS = st.recursive(_LEAVES, _bigger, max_leaves=8)


def _indent(text: str) -> str:
    return "\n".join("    " + line for line in text.split("\n"))


def _blocks(inner):
    body = st.lists(inner, min_size=1, max_size=3).map("\n".join).map(_indent)
    return st.one_of(
        _join("if {}:\n{}\nelse:\n{}", _EXPRESSIONS, body, body),
        _join("while {}:\n{}", _EXPRESSIONS, body),
        _join("for {} in {}:\n{}", st.sampled_from(["x", "i, (x, *y)", "self.a", "xs[0]"]), _EXPRESSIONS, body),
        _join("async def {}({}, *a, k: torch.Tensor = {}, **kw):\n{}", _NAMES, _NAMES, _EXPRESSIONS, body),
        _join("class {}(nn.Module):\n{}", st.sampled_from(["A", "B"]), body),
        _join("def forward(self, x):\n{}", body),
        _join("try:\n{}\nexcept Exception as e:\n{}\nfinally:\n{}", body, body, body),
        _join("with {} as {}:\n{}", _EXPRESSIONS, _NAMES, body),
        _join(
            "match {}:\n    case [x, *_] if {}:\n{}\n    case _:\n{}",
            _EXPRESSIONS,
            _EXPRESSIONS,
            body.map(_indent),
            body.map(_indent),
        ),
    )


_SIMPLE = st.one_of(
    _join("{} = {}", st.sampled_from(["x", "x, y", "self.a", "xs[0]", "*x, y"]), _EXPRESSIONS),
    _join("{} += {}", st.sampled_from(["x", "self.a", "xs[0]"]), _EXPRESSIONS),
    _join("x: torch.Tensor | None = {}", _EXPRESSIONS),
    _join("return {}", _EXPRESSIONS),
    _join("assert {}, {}", _EXPRESSIONS, _EXPRESSIONS),
    _join("raise {}", _EXPRESSIONS),
    _join("yield {}", _EXPRESSIONS),
    st.sampled_from(["global x", "break", "import torch as t", "from . import other", "del x", "pass"]),
    _EXPRESSIONS,
)
_PROGRAMS = st.lists(st.recursive(_SIMPLE, _blocks, max_leaves=10), max_size=5).map("\n".join)


@given(_PROGRAMS)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_any_program(program):
    audited(HEAD + program)


# What grows: the time for twice as much is about twice the time, so that none of these is anywhere near the limit.


def _nested(line: str, last: str):
    """`line`, each time deeper, and `last` inside."""
    return lambda n: "\n".join("    " * i + line.replace("N", str(i)) for i in range(n)) + "\n" + "    " * n + last


GROWING = {
    "a chain of calls": lambda n: "x = x" + ".max(1).values" * n,
    "nested calls": lambda n: "x = " + "f(" * n + "x" + ")" * n,
    "nested checkpoints": lambda n: "x = " + "checkpoint(f, " * n + "x" + ")" * n,
    "nested ternaries": lambda n: "x = " + "(x if x.any() else " * n + "0" + ")" * n,
    "a long sum": lambda n: "x = " + " + ".join(["x.max()"] * n),
    "nested comprehensions": lambda n: "x = " + "[i for i in " * n + "x" + " if i.any()]" * n,
    "nested loops": _nested("for x in x.nonzero():", "x = x + 1"),
    "nested whiles": _nested("while x.any():", "x = x + 1"),
    "nested ifs": _nested("if x.any():", "x = x + 1"),
    "nested functions": _nested("def fN(x):", "return x.any()"),
    "nested lambdas": lambda n: "f = " + "lambda x: " * n + "x.any()",
    "a long elif": lambda n: "x = x.abs()\nif x > 0:\n    pass\n" + "elif x.any():\n    x = x + 1\n" * n,
}


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("size", [15, 80])
def test_nothing_takes_exponential_time(name, size):
    body = "\n".join("    " + line for line in GROWING[name](size).split("\n"))
    audited(f"{HEAD}def g(x, f):\n{body}\n    return x\n")


@pytest.mark.parametrize("count", [300, 3000])
def test_many_functions_that_call_each_other_settle(count):
    """A ring of calls, in which what is learned of one parameter changes the next."""
    text = HEAD + "\n".join(
        f"def f{i}(x, go=False):\n    if go:\n        x = x.exp()\n    return f{(i + 1) % count}(x, x.any())"
        for i in range(count)
    )
    assert audited(text).findings


MANY = {
    "early exits": ("    if k[{0}]:\n        return {0}\n    if x.sum() > {0}:\n        x = x + 1\n", 1500),
    "writes to the argument": ("    x += {0}\n", 3000),
    "tuples of what was before": ("    x = (x, x)\n", 40),
    "dictionaries of what was before": ("    x = {{'a': x, 'b': x}}\n", 40),
    "names": ("    v{0} = x + {0}\n    if k:\n        v{0} = x\n", 1500),
}


@pytest.mark.parametrize("name", MANY)
def test_many_lines_take_time_by_their_number(name):
    line, count = MANY[name]
    body = "".join(line.format(number) for number in range(count))
    audited(f"{HEAD}class M(nn.Module):\n" + textwrap.indent(f"def forward(self, x, k):\n{body}    return x\n", "    "))


def test_what_is_too_deep_is_told_and_hides_nothing_else():
    deep = f"{HEAD}def g(x):\n    if x.any():\n        return x.exp()\n\ndef f(x):\n    return x{'.exp()' * 3000}\n"
    found = audited(deep)
    if any(note.endswith("to be parsed") for note in found.notes):  # by Python 3.12, however deep it may recurse
        limit = sys.getrecursionlimit()
        try:
            sys.setrecursionlimit(100_000)
            with pytest.raises(RecursionError):
                ast.parse(deep)
        finally:
            sys.setrecursionlimit(limit)
        assert not found.findings and found.notes == ["one.py: nested too deeply to be parsed"]
    else:
        assert [one.function for one in found.findings if one.rule == "tensor-branch"] == ["g"]
        assert found.notes == ["one.py: nested too deeply to be followed: f"]


def test_a_long_function():
    body = "".join(f"    y{i} = x[{i}].max()\n    if y{i} > 1:\n        x = x + y{i}\n" for i in range(1500))
    found = audited(f"{HEAD}def f(x: torch.Tensor):\n{body}    return x\n")
    assert len([one for one in found.findings if one.rule == "tensor-branch"]) == 1500


def test_every_file_of_the_standard_library():
    """Nothing raises; what is found there would be a false report: it has no tensors."""
    root = Path(sysconfig.get_path("stdlib"))
    found = audit(root, exclude=["site-packages"])
    assert found.files > 500
    assert not [one for one in found.findings if one.rule == "tensor-branch"]


def test_shuffled_lines_of_real_code():
    """Code that parses no more, or parses as something else."""
    text = Path(audit_source.__code__.co_filename).read_text()
    generator = random.Random(0)
    lines = text.split("\n")
    for _ in range(30):
        first = generator.randrange(len(lines))
        piece = lines[first : first + generator.randrange(1, 40)]
        generator.shuffle(piece)
        audited(HEAD + "\n".join(piece))


def test_another_process_finds_the_same():
    """Nothing hangs on the order of a set, or on an address."""
    code = (
        "import hashlib; from pathlib import Path; from recompute_lab import audit\n"
        f"found = audit({str(Path(audit_source.__code__.co_filename).parents[2])!r}, processes=1)\n"
        "print(len(found.findings), hashlib.sha256(repr(found).encode()).hexdigest())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(said) == 1 and int(said.pop().split()[0]) > 10


def test_the_recursion_limit_is_put_back():
    before = sys.getrecursionlimit()
    audited("x = " + "-" * 3000 + "1")
    audited("def f(:")
    assert sys.getrecursionlimit() == before
