"""The witness changes nothing of a run, keeps nothing of it alive, and says clearly what it says."""

import functools
import gc
import io
import itertools
import json
import random
import sys
import threading
import warnings
import weakref
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from saved_hooks import hooked
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

from recompute_lab import Cause, Report, Witness, assert_replayable, examine
from recompute_lab.instruments.checkpointing import released
from recompute_lab.instruments.state import equal_values
from recompute_lab.instruments.witness.locate import first_writes
from recompute_lab.instruments.witness.report import VERDICTS, severity

# ---- it leaves no trace ----


class Everything(nn.Module):
    """Draws from every stream, counts, keeps, and normalises; in its pass number `fails_in` it raises `error`."""

    def __init__(self, fails_in: int = 0, error: type[BaseException] = ArithmeticError):
        super().__init__()
        self.fails_in, self.error = fails_in, error
        self.mix, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3)
        self.noise, self.passes, self.kept, self.by_name = torch.Generator().manual_seed(1), 0, [], {}
        self.array = np.ones(4, dtype=np.float32)
        self.mix.register_forward_hook(lambda module, given, output: output * 1.0)
        self.log = io.StringIO()  # which nobody rewinds: it tells how often this ran

    def forward(self, x):
        self.log.write("x")
        self.passes += 1
        h = self.norm(self.drop(self.mix(x)))
        h = h + torch.rand(h.shape, generator=self.noise) * random.random() + float(np.random.rand())
        self.kept.append(h)
        self.by_name[f"pass {self.passes}"] = h.detach()
        self.array *= 1.5
        if self.passes == self.fails_in:
            raise self.error("in the middle")
        return torch.tanh(h) * self.passes


def stand(segment: nn.Module) -> dict[str, object]:
    """All that a run may leave changed: of the segment, and of the process."""
    hooks = [(n, k, len(d)) for n, m in segment.named_modules() for k, d in vars(m).items() if k.endswith("_hooks")]
    return {
        "state_dict": {k: v.clone() for k, v in segment.state_dict().items()},
        "grads": [None if p.grad is None else p.grad.clone() for p in segment.parameters()],
        "parameters": [id(p) for p in segment.parameters()],
        "attributes": (segment.passes, len(segment.kept), list(segment.by_name), segment.array.copy()),
        "values kept": [t.detach().clone() for t in segment.kept],
        "torch": torch.get_rng_state(),
        "NumPy": np.random.get_state(),
        "Python": random.getstate(),
        "generator": segment.noise.get_state(),
        "hooks": hooks,
        "training": [m.training for m in segment.modules()],
        **process(),
    }


def process() -> dict[str, object]:
    return {
        "grad mode": torch.is_grad_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "determinism": torch.get_deterministic_debug_mode(),
        "threads": torch.get_num_threads(),
        "default dtype": str(torch.get_default_dtype()),
        "tracer": sys.gettrace(),
        "profiler": sys.getprofile(),
        "backward": torch.autograd.backward,
        "modes": len(torch.overrides._get_current_function_mode_stack()),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "warnings": len(warnings.filters),
        "saved-tensor hooks": hooked(),
    }


def differing(before: dict, after: dict) -> list[str]:
    return [key for key in before if not equal_values(before[key], after[key])]


def seeded() -> None:
    torch.manual_seed(3), random.seed(3), np.random.seed(3)


def one_step(segment: nn.Module, **options) -> BaseException | None:
    """A checkpointed forward and backward; the error that ended it, which keeps no checkpoint open."""
    seeded()
    x = torch.randn(6, 4, requires_grad=True)
    try:
        checkpoint(segment, x, use_reentrant=False, **options).square().sum().backward()
    except BaseException as error:
        return released(error)
    return None


ENDINGS = [
    pytest.param(0, ArithmeticError, id="success"),
    pytest.param(1, ArithmeticError, id="forward raises"),
    pytest.param(2, ArithmeticError, id="recomputation raises"),
    pytest.param(1, KeyboardInterrupt, id="interrupted in forward"),
    pytest.param(2, KeyboardInterrupt, id="interrupted in recomputation"),
]


@pytest.mark.parametrize(("fails_in", "error"), ENDINGS)
def test_a_watched_step_leaves_behind_what_it_leaves_unwatched(fails_in, error):
    torch.manual_seed(0)
    alone = Everything(fails_in, error)
    torch.manual_seed(0)
    watched = Everything(fails_in, error)
    raised = one_step(alone)
    expected = stand(alone)
    raised_too = one_step(watched, context_fn=Witness().context_fn)
    found = stand(watched)
    expected["parameters"] = found["parameters"]
    assert type(raised) is type(raised_too) is (error if fails_in else type(None))
    assert not differing(expected, found)


def test_experiments_were_made_in_that_step():
    """Otherwise the test above would show little."""
    segment, witness = Everything(), Witness()
    one_step(segment, context_fn=witness.context_fn)
    assert len(segment.log.getvalue()) > 4
    assert any(cause.proven for cause in witness.report().causes)


def test_no_experiments_without_leave():
    segment, witness = Everything(), Witness(prove=False)
    one_step(segment, context_fn=witness.context_fn)
    assert len(segment.log.getvalue()) == 2
    assert {"passes", "kept", "by_name"} <= {cause.name for cause in witness.report().causes}


def test_without_experiments_wrong_gradients_are_not_called_right():
    segment, witness = Everything(), Witness(prove=False)
    one_step(segment, context_fn=witness.context_fn)
    assert witness.report().verdict == "silent"


@pytest.mark.parametrize(("fails_in", "error"), ENDINGS)
def test_an_examination_leaves_everything_as_it_was(fails_in, error):
    seeded()
    segment, x = Everything(fails_in, error), torch.randn(6, 4, requires_grad=True)
    segment.mix.weight.grad = torch.full((4, 4), 7.0)
    before = stand(segment)
    try:
        examine(segment, x)
    except (ArithmeticError, KeyboardInterrupt):
        pass
    assert not differing(before, stand(segment))
    assert x.grad is None


def test_switches_of_the_caller_stay_where_they_are():
    segment, witness = Everything(), Witness()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_num_threads(2)
    try:
        before = process()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = process()
            output = checkpoint(segment, torch.randn(6, 4), use_reentrant=False, context_fn=witness.context_fn)
            assert not differing(inside, process())
        output.float().sum().backward()
        assert not differing(before, process())
        with torch.no_grad():
            examine(segment, torch.randn(6, 4))
            assert not torch.is_grad_enabled()
        examine(segment, torch.randn(6, 4))
        assert not differing(before, process())
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(1)


def test_a_tracer_of_somebody_elses_goes_on():
    """As coverage tools and debuggers set one."""
    called = []

    def tracer(frame, event, argument):
        called.append(frame.f_code.co_name)
        return None

    segment, witness, before = Everything(), Witness(), sys.gettrace()
    sys.settrace(tracer)
    try:
        one_step(segment, context_fn=witness.context_fn)
        still = sys.gettrace()
    finally:
        sys.settrace(before)
    assert still is tracer and "forward" in called
    assert any(cause.where.startswith("test_witness.py:") for cause in witness.report().causes)


def test_lines_are_found_where_a_value_changes():
    seen = {"n": 0}

    def run():
        unrelated = 1
        seen["n"] = 5
        return unrelated

    line = run.__code__.co_firstlineno + 2
    assert first_writes(run, {"n": lambda: seen["n"]}) == {"n": f"test_witness.py:{line}"}


def test_after_an_interruption_no_experiments_are_made():
    """Whoever presses the keys wants it to end."""
    alone, watched = Everything(2, KeyboardInterrupt), Everything(2, KeyboardInterrupt)
    one_step(alone)
    one_step(watched, context_fn=Witness().context_fn)
    assert watched.log.getvalue() == alone.log.getvalue()


# ---- reports ----


class Switching(nn.Module):
    """Takes another layer in every second pass, which saves one tensor less."""

    def __init__(self):
        super().__init__()
        self.mix, self.passes = nn.Linear(4, 4), 0

    def forward(self, x):
        self.passes += 1
        h = self.mix(x)
        return torch.tanh(torch.exp(h)) if self.passes % 2 else torch.tanh(h)


def test_the_explanation_comes_with_the_error():
    witness = Witness()
    error = one_step(Switching(), context_fn=witness.context_fn)
    assert isinstance(error, CheckpointError)
    assert error.__notes__ == [str(witness.report())]
    assert "passes at test_witness.py:" in error.__notes__[0] and "[proven" in error.__notes__[0]
    assert witness.report().non_reentrant == "loud"


def test_json_says_the_same():
    report = examine(Everything(), torch.randn(6, 4, requires_grad=True))
    said = json.loads(report.to_json())
    assert said["verdict"] == report.verdict and said["segment"] == "Everything"
    assert (said["reentrant"], said["non_reentrant"]) == (report.reentrant, report.non_reentrant)
    assert said["effect"] == report.effect and said["notes"] == report.notes
    again = [Cause(**{**cause, "under": tuple(cause["under"])}) for cause in said["causes"]]
    assert again == report.causes and again


class Tags(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.open, self.seen = [], set()
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_escapes_what_it_is_given():
    wild = "<script>alert('&')</script>"
    report = Report(wild, effect=[wild], notes=[wild], causes=[Cause(wild, wild, True, wild, wild)])
    page = report._repr_html_()
    assert "<script" not in page and page.count("&lt;script&gt;") == 7
    assert "script" not in Tags(page).seen
    assert Tags(examine(Everything(), torch.randn(6, 4))._repr_html_()).seen >= {"table", "td"}
    assert "table" not in Tags(Report("fine")._repr_html_()).seen


def test_a_crowded_report_keeps_its_size():
    long = "a_name_that_does_not_end_" * 12
    causes = [Cause(f"{n} {long}", f"{long}.py:1", True, long + " word" * 80, long) for n in range(9)]
    for count in range(10):
        text = str(Report(long, "silent", "loud", causes[:count], effect=[long] * 5, notes=[long] * 5))
        lines = text.splitlines()
        assert len(lines) <= 15 and max(map(len, lines)) <= 100
        assert count < 3 or "more" in text


def test_silent_is_the_worst_verdict():
    assert [v for v in VERDICTS if severity(v) == max(map(severity, VERDICTS))] == ["silent"]
    assert Report("x", reentrant="silent", non_reentrant="loud").verdict == "silent"
    assert Report("x", reentrant="replayable", non_reentrant="side effect").verdict == "side effect"


# ---- whose segments are watched ----


class Ticking(nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.mix, self.name = nn.Linear(4, 4), name
        setattr(self, name, 0)

    def forward(self, x):
        setattr(self, self.name, getattr(self, self.name) + 1)
        return torch.tanh(self.mix(x) * getattr(self, self.name))


def test_one_witness_for_many_segments():
    witness, clean = Witness(), nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    segments = Ticking("early"), clean, Ticking("late")
    x = torch.randn(3, 4, requires_grad=True)
    for segment in segments:
        x = checkpoint(segment, x, use_reentrant=False, context_fn=witness.context_fn)
    x.sum().backward()
    found = [(report.segment, [cause.name for cause in report.causes]) for report in witness.reports]
    assert found == [("Ticking", ["late"]), ("Sequential", []), ("Ticking", ["early"])]  # backward goes the other way
    assert [report.verdict for report in witness.reports] == ["silent", "replayable", "silent"]
    assert witness.report().verdict == "silent"


def test_segments_are_called_by_their_names():
    witness = Witness()

    def attend(x):
        return torch.tanh(x)

    model = Ticking("n")
    for segment in (attend, functools.partial(attend), model.forward, lambda x: torch.sin(x)):
        x = torch.randn(3, 4, requires_grad=True)
        checkpoint(segment, x, use_reentrant=False, context_fn=witness.context_fn).sum().backward()
    assert [report.segment for report in witness.reports[:3]] == ["attend", "attend", "Ticking"]
    assert "lambda" in witness.reports[3].segment


class Trainer:
    """Passes on whatever it is given to checkpoint with, as training libraries do."""

    def __init__(self, model: nn.Module, checkpointing: dict):
        self.model = model
        self.checkpoint = functools.partial(checkpoint, **checkpointing)

    def step(self, x, **named):
        output = self.checkpoint(self.model.__call__, x, **named)
        output[0].sum().backward()


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.calls = nn.Linear(4, 4), 0

    def forward(self, x, *, mask=None, scale: float = 1.0):
        self.calls += 1
        h = self.mix(x) * (scale + self.calls)
        return torch.softmax(h.masked_fill(mask, -1e4), dim=-1), mask


def test_a_trainer_that_passes_keywords_on():
    witness = Witness()
    trainer = Trainer(Named(), {"use_reentrant": False, "context_fn": witness.context_fn})
    trainer.step(torch.randn(3, 4, requires_grad=True), mask=torch.zeros(3, 4, dtype=torch.bool), scale=2.0)
    (report,) = witness.reports
    assert report.segment == "Named" and report.causes[0].name == "calls" and report.causes[0].proven


def test_a_checkpoint_in_a_checkpoint():
    """Both are watched; each is told its own, and neither takes the other's work for the segment's."""
    witness, norm = Witness(), nn.BatchNorm1d(4)
    watched = functools.partial(checkpoint, use_reentrant=False, context_fn=witness.context_fn)

    def inner(h):
        return torch.tanh(norm(h))

    def outer(h):
        return watched(inner, torch.exp(h)).square()

    watched(outer, torch.randn(6, 4, requires_grad=True)).sum().backward()
    assert int(norm.num_batches_tracked) == 3  # forward, recomputation of the outer, recomputation of the inner
    by_name = {report.segment: report for report in witness.reports}
    assert set(by_name) == {"inner", "outer"}
    for report in by_name.values():
        assert report.verdict == "side effect" and "running_mean" in report.causes[0].name


def test_deeply_nested_checkpoints_are_not_run_without_end():
    """An experiment in an experiment in an experiment would take the segment 1, 10, 100 times."""
    runs = io.StringIO()
    witness, norm = Witness(), nn.BatchNorm1d(4)

    def function(h):
        runs.write("x")
        return torch.tanh(norm(h))

    for _ in range(4):
        function = functools.partial(
            lambda h, below: checkpoint(below, h, use_reentrant=False, context_fn=witness.context_fn), below=function
        )
    function(torch.randn(6, 4, requires_grad=True)).sum().backward()
    assert len(runs.getvalue()) < 100
    assert witness.report().verdict == "side effect"


def test_several_backwards_through_one_graph():
    witness, segment = Witness(), Ticking("n")
    output = checkpoint(segment, torch.randn(3, 4), use_reentrant=False, context_fn=witness.context_fn)
    for _ in range(3):
        output.sum().backward(retain_graph=True)
    (report,) = witness.reports
    assert segment.n == 4
    assert "3 times" in str(report) or "n" in report.causes[0].name
    assert report.verdict == "silent"


def test_without_state_several_backwards_are_nothing_to_report():
    witness, segment = Witness(), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
    x = torch.randn(3, 4, requires_grad=True)
    output = checkpoint(segment, x, use_reentrant=False, context_fn=witness.context_fn)
    for _ in range(3):
        output.sum().backward(retain_graph=True)
    assert not witness.report().causes and witness.report().verdict == "replayable"


def test_a_step_after_the_other():
    """A repaired run is silent again; an unrepaired one is not examined without end."""
    witness, segment = Witness(), Ticking("n")
    for _ in range(20):
        output = checkpoint(segment, torch.randn(3, 4), use_reentrant=False, context_fn=witness.context_fn)
        output.sum().backward()
    assert len(witness.reports) == 20
    assert all(report.causes and report.causes[0].name == "n" for report in witness.reports)


def test_two_threads_at_once():
    witness, errors = Witness(), []

    def train(name):
        try:
            for _ in range(3):
                output = checkpoint(
                    Ticking(name), torch.randn(3, 4), use_reentrant=False, context_fn=witness.context_fn
                )
                output.sum().backward()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=(name,)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(witness.reports) == 6
    assert {report.causes[0].name for report in witness.reports} == {"left", "right"}


# ---- memory ----


class Remembered(nn.Module):
    """Gives weak references to its input and to its activations away."""

    def __init__(self, ticking: bool):
        super().__init__()
        self.mix, self.ticks, self.ticking, self.seen = nn.Linear(4, 4), 1, ticking, io.StringIO()
        self.seen.tensors = []  # on an object of Python's own, which is not put back

    def forward(self, x):
        self.ticks += self.ticking
        h = torch.exp(self.mix(x))
        self.seen.tensors += weakref.ref(x), weakref.ref(h)
        return torch.tanh(h) * self.ticks


def alive(segment: Remembered) -> list[torch.Tensor]:
    gc.collect()
    return [tensor for reference in segment.seen.tensors if (tensor := reference()) is not None]


@pytest.mark.parametrize("ticking", [False, True])
def test_what_has_been_reported_is_let_go(ticking):
    witness, segment = Witness(), Remembered(ticking)
    output = checkpoint(
        segment, torch.randn(3, 4, requires_grad=True), use_reentrant=False, context_fn=witness.context_fn
    )
    output.sum().backward()
    del output
    assert bool(witness.report().causes) == ticking
    assert len(segment.seen.tensors) >= 4 and not alive(segment)


def test_activations_are_not_kept_between_the_passes():
    """Or checkpointing would save nothing under a witness."""
    witness, segment = Witness(), Remembered(False)
    x = torch.randn(3, 4, requires_grad=True)
    output = checkpoint(segment, x, use_reentrant=False, context_fn=witness.context_fn)
    assert [tensor is x for tensor in alive(segment)] == [True]
    del output


def test_a_graph_that_is_thrown_away_takes_its_call_along():
    witness, segment = Witness(), Remembered(False)
    x = torch.randn(3, 4)
    gone = weakref.ref(x)
    output = checkpoint(segment, x, use_reentrant=False, context_fn=witness.context_fn)
    del x, output
    gc.collect()
    assert gone() is None and not witness.reports


# ---- a test for somebody's suite ----


def test_assert_replayable_passes():
    assert_replayable(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), torch.randn(3, 4, requires_grad=True))


def test_assert_replayable_fails_with_the_report():
    with pytest.raises(AssertionError, match=r"(?s)Switching: SILENT.*1\. passes at test_witness.py:\d+ \[proven\]"):
        assert_replayable(Switching(), torch.randn(3, 4, requires_grad=True))


def test_assert_replayable_of_one_implementation():
    """The input requires no grad: only reentrant is at fault."""
    segment, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(3, 4)
    assert_replayable(segment, x, implementations=("non-reentrant",))
    with pytest.raises(AssertionError, match="frozen"):
        assert_replayable(segment, x)
    with pytest.raises(AssertionError, match="frozen"):
        assert_replayable(segment, x, implementations=("reentrant",))


def test_assert_replayable_with_something_in_between():
    segment = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
    with pytest.raises(AssertionError, match="training"):
        assert_replayable(segment, torch.randn(3, 4, requires_grad=True), between=lambda segment: segment.eval())
    assert segment.training


def test_between_may_take_less():
    segment, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(3, 4, requires_grad=True)
    given = []
    between = [
        lambda: given.append(0),
        lambda segment: given.append(1),
        lambda segment, args: given.append(len(args)),
        lambda segment, args, output: given.append(tuple(output.shape)),
    ]
    for function in between:
        assert examine(segment, x, between=function).verdict == "replayable"
    assert set(given) == {0, 1, (3, 4)}


# ---- wrong uses ----


def test_the_contexts_are_made_by_torch():
    with pytest.raises(RuntimeError, match="context_fn=witness.context_fn"):
        Witness().context_fn()


def test_there_has_to_be_a_backward():
    witness = Witness()
    with pytest.raises(RuntimeError, match=r"call `backward\(\)`"):
        witness.report()
    checkpoint(nn.Linear(4, 4), torch.randn(3, 4), use_reentrant=False, context_fn=witness.context_fn)
    with pytest.raises(RuntimeError, match=r"call `backward\(\)`"):
        witness.report()


def test_reentrant_takes_no_witness():
    """torch itself says so."""
    with pytest.raises(ValueError, match="context_fn"):
        checkpoint(nn.Linear(4, 4), torch.randn(3, 4), use_reentrant=True, context_fn=Witness().context_fn)


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda: examine(3, torch.randn(2)), TypeError, "a segment is a callable"),
        (
            lambda: examine(torch.tanh, torch.randn(2, requires_grad=True), between=3),
            TypeError,
            "`between` is a function",
        ),
        (lambda: examine(nn.LazyLinear(4), torch.randn(2, 4)), ValueError, "no values yet"),
        (lambda: examine(nn.Linear(4, 4), torch.randn(2, 4), loss=lambda output: output), ValueError, "one number"),
        (lambda: examine(nn.Linear(4, 4), torch.randn(2, 3)), RuntimeError, "shapes"),
        (
            lambda: assert_replayable(torch.tanh, torch.randn(2, requires_grad=True), implementations=("both",)),
            ValueError,
            "'reentrant' and 'non-reentrant'; got 'both'",
        ),
    ],
    ids=["no segment", "no function", "lazy", "loss", "the segment's own error", "implementation"],
)
def test_wrong_uses_are_told(wrong, error, says):
    with pytest.raises(error, match=says):
        wrong()


def test_an_implementation_by_its_name_alone():
    """A string is taken for the names that it is made of, if nobody looks."""
    with pytest.raises((TypeError, ValueError), match="implementations"):
        assert_replayable(torch.tanh, torch.randn(2, requires_grad=True), implementations="reentrant")


def test_what_needs_no_gradient_is_run_once():
    report = examine(torch.tanh, torch.randn(3))
    assert report.verdict == "replayable" and "requires no grad" in report.notes[0]
    with torch.no_grad():
        report = examine(Switching(), torch.randn(3, 4, requires_grad=True))
    assert report.verdict == "replayable" and "grad mode is off" in report.notes[0]


# ---- segments that are hard to look at ----


class Tight:
    __slots__ = ("n", "owner")


class Difficult(nn.Module):
    """Cycles, members that raise when asked, or that cannot be copied, compared or pickled."""

    def __init__(self):
        super().__init__()
        self.mix, self.passes = nn.Linear(4, 4), 0
        self.me, self.ring = [self], {}
        self.ring["ring"] = self.ring
        self.lock, self.lines, self.gone = threading.Lock(), (n for n in range(3)), weakref.ref(self.mix)
        self.tight = Tight()
        self.tight.owner = self
        self.file = io.BytesIO(b"x")
        self.touchy = Touchy()

    @property
    def trap(self):
        raise RuntimeError("do not ask")

    def __getstate__(self):
        raise TypeError("cannot be pickled")

    def __deepcopy__(self, memo):
        raise TypeError("cannot be copied")

    def forward(self, x):
        self.passes += 1
        return torch.tanh(self.mix(x) * self.passes)


class Touchy:
    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("do not compare")

    def __bool__(self):
        raise RuntimeError("do not test")

    def __repr__(self):
        raise RuntimeError("do not print")

    def __len__(self):
        raise RuntimeError("do not measure")

    def __getattr__(self, name):
        raise RuntimeError("do not ask")


def test_members_that_are_hard_to_look_at():
    witness = Witness()
    assert one_step(Difficult(), context_fn=witness.context_fn) is None
    report = witness.report()
    assert report.causes[0].name == "passes" and report.causes[0].proven and not report.notes
    assert examine(Difficult(), torch.randn(3, 4, requires_grad=True)).causes[0].name == "passes"


class Settling(nn.Module):
    """Its first three passes take another way, counted where nobody looks: as something that is compiled on demand."""

    def __init__(self):
        super().__init__()
        self.mix, self.counted = nn.Linear(4, 4), itertools.count()

    def forward(self, x):
        h = self.mix(x)
        return torch.tanh(torch.sin(h) if next(self.counted) in (0, 2) else torch.cos(h))


def test_what_settles_is_no_race():
    """Runs that agree under deterministic kernels show a race only where they go on to differ without."""
    witness = Witness()
    one_step(Settling(), context_fn=witness.context_fn)
    cause = witness.report().causes[0]
    assert cause.name.startswith("sin in forward, cos in recomputation") and not cause.proven
    assert "race" not in str(witness.report())


class Replacing(nn.Module):
    """Puts a touchy object where another was, in each pass."""

    def __init__(self):
        super().__init__()
        self.mix, self.touchy = nn.Linear(4, 4), None

    def forward(self, x):
        self.touchy = Touchy()
        return torch.tanh(self.mix(x))


def test_an_object_that_cannot_be_compared():
    witness = Witness()
    assert one_step(Replacing(), context_fn=witness.context_fn) is None
    assert not any("failed" in note for note in witness.report().notes)
    assert witness.report().verdict == "replayable"  # the new one is made like the old one


class Large(nn.Module):
    """A table of 400 kB that each pass writes to and reads."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(4, 4)
        self.register_buffer("table", torch.zeros(100_000))

    def forward(self, x):
        self.table += 1.0
        return torch.tanh(self.mix(x) + self.table[:4])


def test_beyond_most_bytes_it_can_tell_and_not_prove():
    proven, told = Witness(), Witness(most_bytes=10_000)
    for witness in (proven, told):
        one_step(Large(), context_fn=witness.context_fn)
    assert proven.report().causes[0].name == "table" and proven.report().causes[0].proven
    assert told.report().causes[0].name == "table"
    assert "most_bytes" in told.report().notes[0]


def test_beyond_most_bytes_wrong_gradients_are_not_called_right():
    witness = Witness(most_bytes=10_000)
    one_step(Large(), context_fn=witness.context_fn)
    assert witness.report().verdict == "silent" and not witness.report().causes[0].proven


def test_large_state_that_is_only_read_takes_no_copy():
    """What is copied is what fits; the rest is known by a number."""
    witness, segment = Witness(most_bytes=10_000), nn.Sequential(nn.Linear(4, 40_000), nn.Tanh(), nn.Linear(40_000, 4))
    assert one_step(segment, context_fn=witness.context_fn) is None
    assert witness.report().verdict == "replayable" and not witness.report().causes


def test_a_long_segment_is_logged_once():
    """As many entries as operators: nothing grows faster than the segment."""
    operators = 20_000

    def long(x):
        for _ in range(operators // 2):
            x = torch.sin(x) * 1.0
        return x

    witness, calls = Witness(), []
    conclude = witness._conclude
    witness._conclude = lambda call, error: (calls.append(call), conclude(call, error))
    one_step(long, context_fn=witness.context_fn)
    (call,) = calls
    assert len(call.forward.operators) == operators
    assert operators - 2 <= len(call.recomputation.operators) <= operators  # but for early stop
    assert witness.report().verdict == "replayable"


def test_a_segment_that_returns_a_captured_tensor():
    """Under reentrant, the backward of its recomputation comes back to the segment itself."""
    captured = torch.randn(3, 4, requires_grad=True).exp()

    def segment(x):
        return torch.tanh(x) * captured, captured

    report = examine(segment, torch.randn(3, 4, requires_grad=True))
    assert report.non_reentrant == "replayable"


class Recorded(nn.Module):
    """Keeps what it returned, and returns the last one in place of the new."""

    def __init__(self):
        super().__init__()
        self.mix, self.last = nn.Linear(4, 4), None

    def forward(self, x):
        h = torch.tanh(self.mix(x))
        if self.last is None:
            self.last = h
        return self.last * 1.0


def test_a_segment_that_returns_what_it_kept():
    """The kept tensor's graph is the one that is being recomputed."""
    report = examine(Recorded(), torch.randn(3, 4, requires_grad=True))
    assert report.verdict != "replayable" and "last" in report.causes[0].name
    witness = Witness()
    one_step(Recorded(), context_fn=witness.context_fn)
    assert "last" in witness.report().causes[0].name


def test_a_lazy_layer_is_watched_in_its_first_step():
    """The experiments take its values away and give them back."""
    witness, segment = Witness(), nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 4))
    for _ in range(2):
        assert one_step(segment, context_fn=witness.context_fn) is None
        assert type(segment[0]) is nn.Linear and type(segment[0].weight) is nn.Parameter
        assert segment[0].weight.grad is not None and segment[0].weight.any()
    assert [report.verdict for report in witness.reports] == ["replayable"] * 2
    assert not any(report.causes for report in witness.reports)


def test_a_lazy_layer_before_dropout():
    """The first forward draws weights, then a mask; the recomputation draws the mask from where the weights were."""
    witness, made = Witness(), []
    for options in ({}, {"context_fn": witness.context_fn}):
        made.append(nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 4)))
        seeded()
        x = torch.randn(6, 4, requires_grad=True)
        (checkpoint(made[-1], x, use_reentrant=False, **options) if options else made[-1](x)).square().sum().backward()
    plain, watched = (model[0].weight.grad for model in made)
    assert not torch.allclose(plain, watched)
    report = witness.report()
    assert (report.non_reentrant, report.reentrant) == ("silent", "silent")
    (cause,) = report.causes
    assert cause.proven and cause.name.startswith("lazy layers")


def test_a_lazy_layer_does_not_hide_what_is_at_fault():
    """That the first forward makes it changes what runs, and not what comes of it."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.passes = nn.LazyLinear(4), 0

        def forward(self, x):
            self.passes += 1
            return torch.tanh(self.mix(x) * self.passes)

    witness = Witness()
    one_step(Counting(), context_fn=witness.context_fn)
    assert [cause.name for cause in witness.report().causes] == ["passes"]


class Graded(nn.Module):
    """Clips where there is a file of that name."""

    def __init__(self, path):
        super().__init__()
        self.mix, self.path = nn.Linear(4, 4), path

    def forward(self, x):
        h = self.mix(x)
        return torch.tanh(h.clamp(-0.1, 0.1) if self.path.exists() else h)


def test_what_cannot_be_put_back_is_not_taken_for_grad_mode(tmp_path):
    """A file stays where it is: each run that is compared finds it as the one before has left it."""
    path = tmp_path / "clip"
    report = examine(Graded(path), torch.randn(6, 4, requires_grad=True), between=path.touch)
    assert report.verdict == "silent"
    assert all("cannot be put back" in cause.name and not cause.proven for cause in report.causes)


class Skipping(nn.Module):
    """Two layers, each left out with probability 0.3, by NumPy: [N, 4] -> [N, 4]."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            if np.random.random() > 0.3:
                x = torch.tanh(layer(x))
        return x


@pytest.mark.parametrize("learns", [True, False])
def test_a_draw_that_leaves_everything_out_is_not_taken_for_a_replay(learns):
    """At this seed the first forward runs no layer: nothing is saved, and nothing is run again."""
    seed = next(s for s in range(100) if (np.random.RandomState(s).random_sample(2) <= 0.3).all())
    np.random.seed(seed)
    before = np.random.get_state()[1].copy()
    report = examine(Skipping(), torch.randn(3, 4, requires_grad=learns))
    assert report.non_reentrant in ("loud", "silent") and "numpy random stream" in report.causes[0].name
    assert (np.random.get_state()[1] == before).all()


def test_a_file_of_the_users_may_be_called_module(tmp_path):
    """torch's module.py, through which every layer is called, is passed over; another one of that name is not."""
    path = tmp_path / "module.py"
    path.write_text("def counted(x):\n    number = len(seen)\n    seen.append(number)\n    return x.sin()\n")
    namespace = {"seen": [], "__name__": "elsewhere"}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    (cause,) = examine(namespace["counted"], torch.randn(3, requires_grad=True)).causes
    assert (cause.name, cause.where) == ("seen", "module.py:3")


def test_a_counter_that_is_read_for_the_statistics_alone_does_no_harm():
    """With momentum None, BatchNorm reads its counter; what it returns does not depend on it."""
    witness, x = Witness(), torch.randn(8, 4, requires_grad=True)
    norm = nn.BatchNorm1d(4, momentum=None)
    for _ in range(2):
        checkpoint(norm, x, use_reentrant=False, context_fn=witness.context_fn).square().sum().backward()
    assert {report.non_reentrant for report in witness.reports} == {"side effect"}


class LeavingOut(nn.Module):
    """With probability 0.7 its output is cut off from all parameters; Python draws."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(4, 4)

    def forward(self, x):
        return x * 1.0 if random.random() < 0.7 else torch.tanh(self.mix(x))


@pytest.mark.parametrize("seed", range(3))
def test_draws_after_which_nothing_needs_a_gradient_are_passed_over(seed):
    random.seed(seed)
    report = examine(LeavingOut(), torch.randn(3, 4))
    assert report.reentrant == "silent" and "frozen input" in " ".join(cause.name for cause in report.causes)


class SeldomLeftOut(nn.Module):
    """A block with BatchNorm that is left out with probability 1/2; Python draws."""

    def __init__(self):
        super().__init__()
        self.mix, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return x if random.random() < 0.5 else x + self.norm(torch.tanh(self.mix(x)))


def test_what_is_seen_at_every_seed_does_not_hide_the_draw():
    """Its statistics are written twice whatever is drawn; that the draw breaks it shows at none of the first seeds."""
    random.seed(0)
    report = examine(SeldomLeftOut(), torch.randn(6, 4, requires_grad=True))
    assert report.non_reentrant == "loud" and "python random stream" in report.causes[0].name


def test_a_compiled_part_computes_what_it_computes_unwatched():
    """Compiled code is made of the operators alone, in the first watched step as in later ones."""
    torch.compiler.reset()
    mix, wave = nn.Linear(4, 4), torch.compile(lambda h: torch.sin(h).exp(), backend="eager")
    x, witness = torch.randn(3, 4, requires_grad=True), Witness()
    (expected,) = torch.autograd.grad(mix(x).sin().exp().sum(), x)
    for _ in range(3):
        output = checkpoint(lambda h: wave(mix(h)), x, use_reentrant=False, context_fn=witness.context_fn)
        (gradient,) = torch.autograd.grad(output.sum(), x)
        assert torch.equal(gradient, expected)
    assert {report.non_reentrant for report in witness.reports} == {"replayable"}


class Ramped(nn.Module):
    """Keeps a ramp for each length behind a cache of functools."""

    def __init__(self):
        super().__init__()
        self.slope, self.ramp = nn.Parameter(torch.ones(4)), functools.lru_cache(maxsize=2)(self.made)

    def made(self, length: int) -> torch.Tensor:
        return torch.sigmoid(torch.arange(length)[:, None] * self.slope)

    def forward(self, x):
        return torch.sin(x * self.ramp(x.shape[0]))


@pytest.mark.parametrize("filled", [False, True])
def test_an_examination_leaves_a_cache_as_it_was(filled):
    segment, x = Ramped(), torch.randn(3, 4, requires_grad=True)
    ramp = segment.ramp
    held = ramp(3) if filled else None
    assert examine(segment, x).verdict == ("replayable" if filled else "silent")
    assert segment.ramp is ramp and ramp.cache_info().currsize == filled
    assert not filled or ramp(3) is held


def test_a_watched_step_leaves_a_cache_as_its_forward_filled_it():
    """The experiments are made with another one in its place: what it holds is part of the caller's graph."""
    segment, x, witness = Ramped(), torch.randn(3, 4, requires_grad=True), Witness()
    ramp = segment.ramp
    output = checkpoint(segment, x, use_reentrant=False, context_fn=witness.context_fn)
    held = ramp(3)
    with pytest.raises(CheckpointError):
        output.sum().backward()
    assert witness.report().causes[0].proven and "lru_cache" in witness.report().causes[0].name
    assert segment.ramp is ramp and ramp(3) is held and ramp.cache_info().misses == 1
