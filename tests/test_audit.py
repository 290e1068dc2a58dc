"""The audit's two rules: what it finds, what it stays quiet on, and what it says of each site."""

import textwrap

import pytest

from recompute_lab.instruments.audit.one_file import audit_source
from recompute_lab.instruments.audit.reading import vocabulary as words
from recompute_lab.instruments.audit.sources import Source

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def findings(code: str, rule: str = "tensor-branch", head: str = HEAD, **options):
    """Of the code alone, lines counted from its first."""
    found = audit_source(Source(head + textwrap.dedent(code)), "one.py", "one", **options)
    assert not found.notes, found.notes
    return [one for one in found.findings if one.rule == rule]


def lines(code: str, **options) -> list[int]:
    head = options.get("head", HEAD).count("\n")
    return [one.line - head for one in findings(code, **options)]


# Each marked line is a decision on a tensor's value: "# <-".
FOUND = {
    "any": """
        def f(x):
            if (x < 0).any():  # <-
                x = x.exp()
            return x""",
    "a norm against a number": """
        class M(nn.Module):
            def forward(self, x):
                while x.norm() > 1:  # <-
                    x = x / 2
                return x""",
    "a function": """
        def f(x):
            return x.sin() if torch.any(x > 3) else x  # <-""",
    "torch.equal": """
        def f(a, b):
            assert torch.equal(a, b)  # <-
            return a""",
    "allclose": """
        def f(a, b):
            if not a.allclose(b):  # <-
                raise ValueError("no")
            return a""",
    "bool, int, float": """
        def f(x: torch.Tensor):
            if bool(x.sum() > 0):  # <-
                x = x + 1
            for _ in range(int(x.max())):  # <-
                x = x.tanh()
            if float(x.mean()) > 0.5:  # <-
                x = x.cos()
            return x""",
    "a bare tensor": """
        def f(x, hit: torch.Tensor):
            if hit:  # <-
                return x.exp()
            return x""",
    "item and tolist, lines before": """
        def f(x):
            top = x.max().item()
            doubled = 2 * top
            rows = x.tolist()
            if doubled > 1:  # <-
                x = x.log()
            if rows[0] > 1:  # <-
                x = x.sin()
            return x""",
    "Python's any, max, sorted, sum": """
        def f(xs: list[torch.Tensor]):
            if any(x.mean() > 0 for x in xs):  # <-
                return xs
            top = max(xs)  # <-
            order = sorted(xs)  # <-
            if sum(xs) > 0:  # <-
                return order
            return top""",
    "sizes": """
        def f(x):
            rows = x.nonzero()
            if len(rows):  # <-
                return x.exp()
            kept = x[x > 0]
            if kept.shape[0] == 0:  # <-
                return x
            if torch.unique(x).numel() > 3:  # <-
                return x.sin()
            picked = torch.masked_select(x, x > 1)
            return picked.mean() if picked.size(0) else x  # <-""",
    "a loop over what was found": """
        def f(x, mask: torch.BoolTensor):
            for row in mask.nonzero():  # <-
                x = x + row
            for i in torch.where(mask)[0].tolist():  # <-
                x = x * i
            return x""",
    "tuples and unpacking": """
        def f(x):
            a, (b, c) = 1, (x.sum().item(), 3)
            if b > c:  # <-
                return x.exp()
            values, where = x.max(dim=0)
            if values[0] > 0:  # <-
                return x
            return x * a""",
    "attributes and buffers": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(()))
                self.hot = False

            def note(self, x):
                self.hot = bool(x.max() > 1)

            def forward(self, x):
                self.note(x)
                if self.hot:  # <-
                    x = x.exp()
                if self.seen > 3:  # <-
                    x = x.sin()
                return x""",
    "a named tuple": """
        from collections import namedtuple
        from typing import NamedTuple

        Stats = namedtuple("Stats", "low, high")

        class Routed(NamedTuple):
            tokens: torch.Tensor
            full: bool
            width: int

        def f(x):
            stats = Stats(high=x.max(), low=x.min())
            if stats.high > 1:  # <-
                x = x.tanh()
            low, high = stats
            if low < 0:  # <-
                x = x + 1
            routed = Routed(x, width=x.shape[-1], full=bool(x.sum() > 3))
            if routed.width > 3 and routed[2] < 9:
                x = x * 2
            if routed.full:  # <-
                x = x.exp()
            return x""",
    "keywords in a dictionary": """
        def act(x, go=False, scale=1.0):
            if scale != 1.0:
                x = x * scale
            if go:  # <-
                x = x.exp()
            return x

        def f(x, mask: torch.BoolTensor):
            options = dict(go=bool(mask.any()), scale=2.0)
            return act(x, **options)""",
    "an object's own len and bool": """
        class Selection:
            def __init__(self, mask: torch.BoolTensor):
                self.mask = mask

            def __len__(self):
                return int(self.mask.sum())

        def f(x, mask: torch.BoolTensor):
            chosen = Selection(mask)
            if len(chosen) == 0:  # <-
                return x
            return x.exp() if chosen else x  # <-""",
    "a list that hangs on an object": """
        class History:
            def __init__(self):
                self.losses = []

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.history = History()

            def note(self, x):
                self.history.losses.append(x.mean().item())

            def forward(self, x):
                if self.history.losses[-1] > 2:  # <-
                    x = x.exp()
                return x""",
    "how many rounds there were": """
        def f(x):
            rounds = 0
            while x.norm() > 1:  # <-
                if rounds == 5:
                    break
                x = x / 2
                rounds += 1
            if rounds > 2:  # <-
                x = x.exp()
            return x""",
    "a return, and a keyword": """
        def hot(x, *, above):
            return (x > above).any()

        def act(x, go=False):
            if go:  # <-
                x = x.exp()
            return x

        def f(x):
            if hot(x, above=1):  # <-
                x = x + 1
            return act(x, go=x.sum().item() > 0)""",
    "or, used as a value": """
        def f(x):
            return (x > 0).all() or x.cumsum(0)  # <-""",
    "a filter": """
        def f(xs: list[torch.Tensor]):
            kept = [x for x in xs if x.mean() > 0]  # <-
            if kept:  # <-
                return torch.stack(kept)
            return xs[0]""",
    "match": """
        def f(x, code: torch.Tensor):
            match code.item():  # <-
                case 0:
                    return x.exp()
                case _:
                    return x""",
    "an element of a list": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

            def forward(self, x):
                return self.layers[int(x.argmax())](x)  # <-""",
    "a key of a sort": """
        def f(xs: list[torch.Tensor]):
            xs.sort(key=lambda x: x.sum().item())  # <-
            best = max(xs, key=lambda x: x.mean())  # <-
            return sorted(xs, key=lambda x: x.shape[0])[0] + best""",
    "a function out of a container": """
        TABLE = {0: torch.sin, 1: torch.cos}

        def f(x, functions, k):
            x = functions[k.item()](x)  # <-
            return TABLE.get(int(x.argmax()), torch.tan)(x)  # <-""",
    "a flag that a loop carries": """
        def f(x):
            done = False
            while not done:  # <-
                x = x * 2
                done = (x > 100).all()
            return x""",
    "a flag set behind a branch": """
        def f(x):
            hit = False
            if x.max() > 1:  # <-
                hit = True
            if hit:  # <-
                x = x.exp()
            return x""",
    "a walrus": """
        def f(x):
            if (n := x.count_nonzero()) > 3:  # <-
                return x / n
            return x""",
    "over several lines": """
        def f(x):
            if (  # <-
                x.dim() == 2
                and (x > 0)
                .any()
            ):
                x = x.exp()
            return x""",
    "through NumPy": """
        import numpy as np

        def f(x: torch.Tensor):
            values = x.detach().cpu().numpy()
            if np.any(values > 1):  # <-
                return x.exp()
            return x""",
    "a property": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(()))

            @property
            def large(self):
                return self.scale > 2

            def forward(self, x):
                return x if self.large else x.exp()  # <-""",
    "a closure, a lambda": """
        def f(x):
            hot = x.max() > 1

            def inner(y):
                if hot:  # <-
                    return y.exp()
                return y

            pick = lambda y: y.sin() if y.sum() > 0 else y  # <-
            return pick(inner(x))""",
    "a dictionary's entry": """
        def f(x):
            said = {"n": 3, "hot": (x > 1).any()}
            if said["hot"]:  # <-
                x = x.exp()
            if said["n"] > 2:
                x = x.sin()
            return x""",
    "chained comparison": """
        def f(x: torch.Tensor):
            return x.exp() if 0 < x.sum() < 1 else x  # <-""",
    "a guard before": """
        def f(x, train: bool):
            if train and x.dtype == torch.float16 and x.isinf().any():  # <-
                x = x.clamp(-6e4, 6e4)
            return x""",
    "async, generators, with, try": """
        async def f(x):
            async with thing() as t:
                if x.isnan().any():  # <-
                    return x
            return x

        def g(xs):
            for x in xs:
                try:
                    if x.abs().max() > 3:  # <-
                        yield x.exp()
                except RuntimeError:
                    assert x.isfinite().all()  # <-""",
}

QUIET = {
    "a tensor in a set or a dictionary, found by its hash": """
        def f(xs: list[torch.Tensor], names: dict[torch.Tensor, str], done: set[torch.Tensor]):
            seen, index = set(), {}
            for x in xs:
                if x in seen or x in done or x in names:
                    continue
                seen.add(x)
                if x not in index:
                    index[x] = len(index)
                index[x] = names.get(x, "none")
            if len(seen) != len(set(xs)):
                return xs
            return index""",
    "isinstance, before what stands behind it": """
        def f(x: torch.Tensor, options):
            value = x if options is None else options
            if isinstance(value, (list, tuple)) and value and isinstance(value[0], str):
                return x.exp()
            return x""",
    "comments and strings": """
        def f(x):
            # if (x > 0).any(): we used to
            say = "if x.max():"
            return x.exp() if say else x""",
    "shapes and kinds": """
        def f(x):
            if x.shape[0] > 2 and x.dim() == 2 and x.size(1) and x.numel():
                x = x.exp()
            if x.dtype == torch.float16 or x.is_cuda or x.requires_grad or x.is_floating_point():
                x = x.float()
            if len(x) > 3 or x.ndim > 1 or max(x.shape[0], 2) > 3:
                x = x.sin()
            return x""",
    "None, isinstance, training": """
        class M(nn.Module):
            def forward(self, x, mask: torch.Tensor | None = None):
                if mask is not None and self.training and isinstance(x, torch.Tensor):
                    x = x * mask
                return x if mask is None else x + 1""",
    "configuration": """
        class M(nn.Module):
            def __init__(self, config, p=0.1):
                super().__init__()
                self.p, self.config, self.layers = p, config, nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])

            def forward(self, x, causal: bool = True, steps=3):
                if self.p > 0 and self.config.scale != 1.0 and causal:
                    x = x.exp()
                for i, layer in enumerate(self.layers):
                    if i % 2 == 0 and i < steps:
                        x = layer(x)
                return x""",
    "NumPy": """
        import numpy as np

        def f(x: torch.Tensor, p: float):
            draw = np.random.rand(3)
            if draw.max() > p or (draw > 0.5).any() or np.any(draw < 0):
                x = x.exp()
            return x""",
    "Python numbers and lists": """
        def f(x, widths=(2, 2)):
            if sum(widths) == x.shape[-1] and any(w > 1 for w in widths):
                x = x.exp()
            kept = []
            for w in widths:
                kept.append(x * w)
            if kept and len(kept) > 1:
                x = kept[0]
            return x""",
    "objects with an any of their own": """
        class Options:
            def any(self):
                return True

        def f(x, options=Options()):
            if options.any():
                x = x.exp()
            return x""",
    "a branch in the graph": """
        def f(x):
            x = torch.where(x > 0, x.exp(), x)
            return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,))""",
    "a read that decides nothing": """
        class M(nn.Module):
            def forward(self, x):
                self.last = x.mean().item()
                print(f"mean {x.mean():.2f}")
                return x""",
    "a name in a dictionary": """
        def f(tensors: dict[str, torch.Tensor], name):
            if name in tensors and tensors:
                return tensors[name].exp()
            return [n for n in tensors if n not in ("a", "b")]""",
    "settings of torch": """
        def f(x):
            if torch.is_grad_enabled() and torch.cuda.is_available() and torch.get_num_threads() > 1:
                x = x.exp()
            if torch.are_deterministic_algorithms_enabled() or x.device.type == "cuda":
                x = x.sin()
            return x.clamp(max=torch.finfo(x.dtype).max)""",
    "a count of calls": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.calls = 0

            def forward(self, x):
                self.calls += 1
                return x.exp() if self.calls > 3 else x""",
    "text and paths": """
        from pathlib import Path

        def f(path: str, x):
            parts = path.split("/")
            if parts[0].isdigit() and int(parts[0]) > 3 and Path(path).exists():
                x = x.exp()
            return x""",
}


@pytest.mark.parametrize("form", FOUND)
def test_a_decision_on_a_tensors_value_is_found_at_its_line(form):
    code = textwrap.dedent(FOUND[form])
    marked = [number for number, line in enumerate(code.split("\n"), 1) if "# <-" in line]
    assert sorted(set(lines(code))) == marked


@pytest.mark.parametrize("form", QUIET)
def test_what_is_settled_without_a_tensor_is_left_alone(form):
    assert lines(QUIET[form]) == []


# What it decides.


@pytest.mark.parametrize(
    ("body", "decides"),
    [
        ("x = x.exp()", "graph"),
        ("return x", "graph"),
        ("raise ValueError('no')", "raise"),
        ("print('hot')", "telemetry"),
        ("self.count += 1", "telemetry"),
        ("self.level += 1", "state"),
        ("self.seen.add_(1)", "state"),
        ("self.count += 1; x = x.exp()", "graph"),
        ("logger.warning('hot'); raise ValueError", "raise"),
    ],
)
def test_what_a_branch_decides_is_named(body, decides):
    code = f"""
    class M(nn.Module):
        def forward(self, x):
            if x.max() > 1:
                {body}
            return x * self.level
    """
    assert [one.decides for one in findings(code)][:1] == [decides]


def test_an_assertion_only_raises():
    (one,) = findings("def f(x):\n    assert x.isfinite().all()\n    return x")
    assert one.decides == "raise" and "_assert_async" in one.suggestion


# The guard.


@pytest.mark.parametrize(
    ("code", "guard"),
    [
        ("def f(x, on: bool):\n    if on and x.any():\n        x = x.exp()\n    return x", "on"),
        ("def f(x, on: bool):\n    if x.any() and on:\n        x = x.exp()\n    return x", None),
        ("def f(x, on: bool):\n    if on:\n        if x.any():\n            x = x.exp()\n    return x", "on"),
        ("def f(x, on: bool):\n    if not on:\n        return x\n    if x.any():\n        x = x.exp()", "on"),
        ("def f(x, off: bool):\n    if off:\n        return x\n    return x.exp() if x.any() else x", "not off"),
        ("def f(x, on: bool):\n    if not on or x.any():\n        x = x.exp()\n    return x", "on"),
        ("def f(x, m=None):\n    if m is not None and x.any():\n        x = x.exp()\n    return x", "m is not None"),
        ("def f(x, m=None):\n    if m is not None:\n        if x.any():\n            x = x.exp()\n    return x", None),
    ],
)  # fmt: skip
def test_the_condition_that_is_settled_first_is_named(code, guard):
    (one,) = findings(code)
    assert one.guard == guard


def test_the_line_of_the_read_is_beside_that_of_the_decision():
    (one,) = findings(
        "def f(x):\n    hit = (x > 0).any().item()\n    y = x + 1\n    if hit:\n        y = y.exp()\n    return y"
    )
    assert (one.read_line, one.line) == (5, 7) and "read in line 5" in one.message
    # A bare tensor is read where it is decided on.
    (one,) = findings(
        "def f(x):\n    hit = (x > 0).any()\n    y = x + 1\n    if hit:\n        y = y.exp()\n    return y"
    )
    assert (one.read_line, one.line) == (7, 7)


# What to write instead: suggestions that are code run, and change nothing.


@pytest.mark.parametrize(
    "body",
    [
        "if (x > 1).any():\n    x = x * 0.5",
        "if (x < 0).any():\n    x = x.clamp(min=0)",
        "if (x > 1).any():\n    x *= 0.5",
        "if x.sum() > 0:\n    x = x.sin()\nelse:\n    x = x.cos()",
        "x = x.sin() if (x > 1).all() else x.cos()",
        "if not (x > 1).any():\n    x = x.sin()",
        "if x.sum().item() > 0 and (x > 1).any():\n    x = x.sin()",
        "if not 0 <= x.min() <= x.max() <= 1:\n    x = x.sin()",
        "if torch.equal(x, x.abs()) or x.allclose(x * 2, atol=1.0):\n    x = x.sin()",
        "if any(r > 1 for r in x):\n    x = x.sin()",
        "if float(x.sum().detach()) < 0:\n    pass\nelse:\n    x = x.sin()",
        "if torch.isnan(x).any():\n    return x.cos()\nreturn x.sin()",
        "if x.mean() > 0:\n    return x.cos()\nelse:\n    return x.sin()",
        "return (x > 1).any() * x.sum() or x.mean()",
    ],
)
def test_a_suggestion_that_is_code_gives_the_same_bits(body):
    import torch

    code = "def f(x):\n" + textwrap.indent(body, "    ") + "\n    return x\n"
    one = findings(code)[0]
    said = one.suggestion.split("always ")[-1].split(";")[0].removeprefix("evaluate both sides: ")
    if not said.startswith(("x =", "return")):
        said = f"x = {said}"
    scope = {"torch": torch}
    exec(HEAD + code, scope)
    exec(HEAD + f"def g(x):\n    {said}\n    return x\n", scope)
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(5, generator=generator) * (1 if seed % 2 else 0.2)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        ours, theirs = scope["f"](a * 1), scope["g"](b * 1)
        assert ours.equal(theirs)
        assert torch.autograd.grad(ours.sum(), a)[0].equal(torch.autograd.grad(theirs.sum(), b)[0])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("assert (x > 0).all()", "torch._assert_async((x > 0).all())"),
        ("if x.max() > 3:\n    raise ValueError", "torch._assert_async(~(x.max() > 3))"),
        ("n = int((x > 3).sum())\nassert n == 0", "torch._assert_async(n == 0), without int(...) in line 5,"),
        ("while x.norm() > 1:\n    x = x / 2", "x = torch.where(x.norm() > 1, the next x, x)"),
        ("for i in range(int(x.sum())):\n    x = x / 2", "torch.where(i < x.sum().long(), new, old)"),
        ("x = out[x.argmax().item()](x)", "all of out, and choose: torch.where(x.argmax() == its place or key"),
        ("out = [o for o in out if o.abs().sum() > 0]", "each as torch.where(o.abs().sum() > 0, o, 0.0)"),
        ("if x.max() > y:\n    y.copy_(x.max())", "always y.copy_(torch.where(x.max() > y, x.max(), y))"),
        ("if x.max() > y:\n    y.mul_(2)", "always y.copy_(torch.where(x.max() > y, y.mul(2), y))"),
        (
            "if x.max() > 3:\n    t = x.sin()\n    x = t + 1\nreturn x",
            "x = torch.where(x.max() > 3, the new x, the old",
        ),
        ("for o in out:\n    if o.sum() > 0:\n        break", "no break"),
        ("for o in out:\n    if o.sum() > 0:\n        continue", "no continue"),
        ("if x.sum() > 0:\n    return f(x / 2, out, masks)\nreturn x", "as many levels"),
        ("if x.sum() > 0:\n    out = [o + 1 for o in out]\nreturn out", "its elements one by one"),
    ],
)
def test_a_suggestion_names_what_stands_there(body, said):
    code = "def f(x, out, masks, y=None):\n" + textwrap.indent(body, "    ")
    assert any(said in one.suggestion for one in findings(code)), [one.suggestion for one in findings(code)]


def test_a_condition_that_cannot_be_kept_as_a_tensor_is_not_quoted():
    for test in ("len(x.nonzero()) > 3", "x.nonzero().shape[0]", "np.any(x.numpy())", "4 in x.tolist()"):
        (one,) = findings(f"import numpy as np\ndef f(x):\n    if {test}:\n        x = x.sin()\n    return x")
        assert "torch.where(condition, x.sin(), x)" in one.suggestion, one.suggestion


def test_an_arm_that_may_overflow_is_warned_of():
    (one,) = findings("def f(x):\n    if (x > 0).any():\n        x = x.log()\n    return x")
    assert "NaN" in one.suggestion


def _suggested(body: str) -> str:
    (one,) = findings("def f(x, out, masks, y=None):\n" + textwrap.indent(body, "    "))
    return one.suggestion


def test_torch_where_is_suggested_for_tensors_alone():
    """Not for tuples, nor for what a caller asks with an `if`, nor where an arm has another shape."""
    assert "as many elements" in _suggested("return out + (x,) if x.sum() > 0 else out")
    assert "as many elements" in _suggested("out = () if x.sum() > 0 else None\nreturn out")
    assert "decides further down" in _suggested("if x.sum() > 0:\n    return False\nreturn True")
    assert "same shape" in _suggested("if x.sum() > 0:\n    x = x.abs().unsqueeze(0)\nreturn x")
    assert "same shape" in _suggested("if x.sum() > 0:\n    x = x[:2]\nreturn x")
    assert "torch.where(x.sum() > 0, x * x[0].unsqueeze(0), x)" in _suggested(
        "if x.sum() > 0:\n    x = x * x[0].unsqueeze(0)\nreturn x"
    )


def test_functions_of_torch_that_read_no_tensor_are_no_reads():
    assert not findings(
        "def f(x):\n    if torch._has_compatible_shallow_copy_type(x, x):\n        x = x.exp()\n    return x"
    )


def test_a_guard_is_said_plainly():
    (one,) = findings("def f(x, y):\n    if x.shape[0] != 3:\n        return x\n    return x.exp() if x.any() else x")
    assert one.guard == "x.shape[0] == 3"
    (one,) = findings("def f(x, n: int):\n    if n < 3:\n        return x\n    return x.exp() if x.any() else x")
    assert one.guard == "not n < 3", "with a NaN it is not n >= 3"


def test_the_context_of_an_autograd_function_does_not_outlast_the_call():
    code = """
    class F(torch.autograd.Function):
        @staticmethod
        def forward(self, x):
            self.group = 1
            return x
    """
    assert not findings(code, "lasting-write")


# The second rule.

WRITES = {
    "an attribute": ("self.last = x.mean()", True),
    "a count": ("self.calls += 1", True),
    "a buffer, in place": ("self.seen.add_(1)", True),
    "an element": ("self.table['a'] = x", True),
    "a container": ("self.found.append(x)", True),
    "out=": ("torch.add(x, 1, out=self.seen)", True),
    "setattr": ("setattr(self, 'last', x)", True),
    "a global": ("global total\n        total = total + 1", True),
    "a list of the module's": ("LOG.append(x)", True),
    "a default that is mutable": ("kept.append(x)", True),
    "the caller's tensor": ("x.mul_(2)", True),
    "batch norm": ("x = self.norm(x)", True),
    "a local list": ("mine = []\n        mine.append(x)", False),
    "a local tensor in place": ("y = x + 1\n        y.add_(1)", False),
    "a local name": ("y = x + 1", False),
    "a method that only sounds so": ("x = self.linear(x)", False),
    "the caller's tensor, before the name is another": ("x.mul_(2)\n        x = x + 1", True),
    "a name that is not the caller's any more": ("x = x + 1\n        x.mul_(2)", False),
    "a default, made where there was none": ("kept = [] if kept is None else kept\n        kept.append(x)", False),
    "the caller's list, unless there was none": (
        "if kept is None:\n            kept = []\n        kept.append(x)",
        True,
    ),
    "another name for what lasts": ("mine = self.table\n        mine['a'] = x", True),
    "a class": ("M.calls = 1", True),
    "the environment": ("torch.backends.cudnn.benchmark = True", True),
    "a buffer registered": ("self.register_buffer('late', x)", True),
    "in place, by a function": ("torch.relu_(x)", True),
    "in place, by a keyword": ("F.relu(x, inplace=True)", True),
    "an iterator": ("next(self.count)", True),
    "no gradient needed": ("x.requires_grad_()", False),
    "in the forward alone": ("if not recomputing():\n            self.calls += 1", False),
    "in the recomputation alone": ("if recomputing():\n            self.calls += 1", True),
    "keyword arguments, packed for this call": ("options.pop('a', None)", False),
}


@pytest.mark.parametrize("form", WRITES)
def test_a_lasting_write_in_a_forward_is_found(form):
    body, found = WRITES[form]
    code = f"""
LOG = []
total = 0

class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.found, self.table, self.calls = [], {{}}, 0
        self.norm, self.linear = nn.BatchNorm1d(2), nn.Linear(2, 2)

    def forward(self, x, kept=[], **options):
        {body}
        return x
"""
    assert bool(findings(code, "lasting-write")) == found


def test_a_write_in_what_a_forward_calls_counts_and_one_in_init_does_not():
    code = """
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def reset(self):
            self.calls = 0

        def _note(self):
            self.calls += 1

        def forward(self, x):
            self._note()
            return x
    """
    assert [one.function for one in findings(code, "lasting-write")] == ["M._note"]


# Sizes that decide nothing.


def test_a_size_alone_is_reported_only_when_asked_for():
    code = "def f(x):\n    return x[x > 0].sum()"
    assert not findings(code)
    (one,) = findings(code, sizes=True)
    assert one.decides == "shape"


# Known misses: where the floor ends. Each is a branch on a tensor's value that no finding names.

MISSED = {
    "a number of unknown origin": "def f(x, code):\n    return x.exp() if code in (0, 2) else x",
    "a function of another file": "from other import hot\n\ndef f(x):\n    return x.exp() if hot(x) else x",
    "dispatch through a registry": """
        CHECKS = {}

        def register(check):
            CHECKS[check.__name__] = check
            return check

        @register
        def hot(x):
            return x.max() > 1

        def f(x):
            return x.exp() if CHECKS["hot"](x) else x""",
    "a number that a loop counts": """
        def f(x):
            n = 0
            while x.max() > 1:  # <-
                x, n = x / 2, n + 1
            return x.exp() if n > 3 else x""",
    "an exception as a branch": """
        def f(x):
            try:
                [0][int(x.sum())]
            except IndexError:
                x = x.exp()
            return x""",
}


@pytest.mark.parametrize("form", MISSED)
def test_known_misses_are_missed(form):
    """If one of these is found one day: move it up, and take it out of what the audit says it cannot see."""
    code = textwrap.dedent(MISSED[form])
    marked = [number for number, line in enumerate(code.split("\n"), 1) if "# <-" in line]
    assert lines(code) == marked


# The vocabulary is torch's.


def test_every_name_is_torchs():
    import torch

    tensor = set(dir(torch.Tensor))
    assert words.TENSOR_METHODS <= tensor, words.TENSOR_METHODS - tensor
    assert words.META_ATTRIBUTES - {"is_hpu", "is_npu", "names"} <= tensor
    assert words.META_METHODS - tensor <= {"has_names"}
    assert words.META_FUNCTIONS - set(dir(torch)) <= {"save"}
    for name in words.PAIR_LAYERS:
        assert hasattr(torch.nn, name)


def test_no_method_that_others_have_as_well_is_taken_for_a_tensors():
    import numpy
    import torch

    others = set().union(*map(dir, (numpy.ndarray, str, list, dict, set, int, float, bytes, torch.nn.Module)))
    assert not words.TENSOR_METHODS & others
