"""The strategies run a segment as torch would, and torch's own errors are read into numbers."""

import subprocess
import sys
import traceback
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from saved_hooks import hooked
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint

from recompute_lab.instruments.checkpointing import (
    NO_EARLY_STOP,
    NON_REENTRANT,
    PLAIN,
    REENTRANT,
    STRATEGIES,
    Mismatch,
    Strategy,
    passes,
    released,
    weighted_sum,
)
from recompute_lab.instruments.gradients import divergence
from recompute_lab.instruments.steps import outcome
from recompute_lab.instruments.witness import examine
from recompute_lab.instruments.writes import writes


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def name_of(strategy):
    return getattr(strategy, "name", None)


every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=name_of)


def alternating(*segments):
    """A segment whose first pass is the first of `segments`, the second pass the second, and so on."""
    count = 0

    def segment(x):
        nonlocal count
        count += 1
        return segments[(count - 1) % len(segments)](x)

    return segment


ONE, TWO = (lambda x: x.sin()), (lambda x: x.sin().cos())


@every_strategy
@pytest.mark.parametrize(
    "segment",
    [
        nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.GELU()),
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        lambda x: (x.sin(), x.exp(), 3, None),
        lambda x: x,
    ],
    ids=["dropout", "encoder layer", "tuple", "identity"],
)
def test_pure_segments_agree_bit_for_bit(segment, strategy):
    result = divergence(segment, leaf(2, 3, 4), strategy=strategy)
    assert result.equal, result
    assert "args[0]" in {row.name for row in result.rows}


@every_strategy
def test_keyword_arguments(strategy):
    def segment(x, shift=0, *, scale, debug=False, preserve_rng_state=None):  # the last two are checkpoint's own names
        assert debug == "mine" and preserve_rng_state == 5
        return (x * scale + shift).sin()

    options = {"scale": leaf(3), "debug": "mine", "preserve_rng_state": 5}
    result = divergence(segment, leaf(3), 2, strategy=strategy, **options)
    assert result.equal and {row.name for row in result.rows} == {"args[0]", "kwargs['scale']"}


@every_strategy
@pytest.mark.parametrize("segment", [lambda x: {"y": x.sin()}, lambda x: [x.sin()]], ids=["dict", "list"])
def test_reentrant_cuts_off_nested_outputs_and_divergence_says_so(segment, strategy):
    result = divergence(segment, leaf(3), strategy=strategy)
    assert result.output_equal and result.raised is None
    assert result.missing == (["args[0]"] if strategy is REENTRANT else [])
    assert result.equal is (strategy is not REENTRANT)


@every_strategy
def test_a_partly_nested_output_loses_that_part(strategy):
    result = divergence(lambda x: (x.sin(), {"y": x.exp()}), leaf(3), strategy=strategy)
    assert result.output_equal and result.missing == []
    assert result.equal is (strategy is not REENTRANT)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@every_strategy
def test_an_input_that_does_not_require_grad(strategy):
    result = divergence(nn.Linear(3, 3), torch.randn(2, 3), strategy=strategy)
    assert result.output_equal and result.raised is None
    assert sorted(result.missing) == (["bias", "weight"] if strategy is REENTRANT else [])


@every_strategy
def test_the_strategies_run_what_torch_runs(strategy):
    calls = []
    x = leaf(3)
    strategy(lambda y: (calls.append(torch.is_grad_enabled()), y.sin())[1], x).sum().backward()
    assert calls == {"plain": [True], "reentrant": [False, True]}.get(strategy.name, [True, True])
    assert torch.equal(x.grad, x.cos())


def test_early_stop_leaves_out_the_rest():
    reached = []

    def segment(x):
        y = x.sin()
        reached.append("end")
        return y + 1

    for strategy in (NON_REENTRANT, NO_EARLY_STOP):
        strategy(segment, leaf(2)).sum().backward()
    assert len(reached) == 1 + 2


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("preserve", [True, False])
def test_preserve_rng_state_replays_the_mask_or_loses_it(reentrant, preserve):
    strategy = Strategy("", reentrant, preserve_rng_state=preserve)
    result = divergence(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), leaf(4, 8), strategy=strategy)
    assert result.outcome == ("fine" if preserve else "silent") and result.output_equal


def test_context_fn_enters_one_context_per_pass():
    entered = []

    @contextmanager
    def enter(name):
        entered.append(name)
        yield

    strategy = Strategy("", False, context_fn=lambda: (enter("forward"), enter("recomputation")))
    strategy(TWO, leaf(3)).sum().backward()
    assert entered == ["forward", "recomputation"]
    with pytest.raises(ValueError, match="context_fn"):
        Strategy("", True, context_fn=strategy.context_fn)(TWO, leaf(3))


# Passes


@pytest.mark.parametrize(
    ("strategy", "counts"),
    [(PLAIN, [2]), (REENTRANT, [0, 2]), (NON_REENTRANT, [2, 2]), (NO_EARLY_STOP, [2, 2])],
    ids=name_of,
)
def test_passes_shows_each_pass(strategy, counts):
    result = passes(TWO, leaf(3), strategy=strategy)
    assert [len(ledger) for ledger in result.ledgers] == counts
    assert (result.recomputation is None) is (strategy is PLAIN)
    assert result.error is None and result.mismatch is None


@pytest.mark.parametrize("strategy", [NON_REENTRANT, NO_EARLY_STOP], ids=name_of)
def test_what_saves_nothing_is_not_run_again(strategy):
    result = passes(lambda x: x + 1, leaf(3), strategy=strategy)
    assert (len(result.forward), result.recomputation) == (0, None)


def test_passes_takes_keyword_arguments():
    assert len(passes(lambda x, *, by: x * by, leaf(2), by=leaf(2)).recomputation) == 2


@every_strategy
def test_what_the_forward_raises_passes_through(strategy):
    with pytest.raises(ZeroDivisionError):
        passes(lambda x: 1 / 0, leaf(2), strategy=strategy)


@pytest.mark.parametrize("strategy", STRATEGIES[1:], ids=name_of)
@pytest.mark.parametrize("error", [ValueError, TypeError, RuntimeError])
def test_what_the_recomputation_raises_is_kept(strategy, error):
    def fail(x):
        x = x.exp()
        raise error("second time")

    result = passes(alternating(TWO, fail), leaf(2), strategy=strategy)
    assert type(result.error) is error
    assert result.mismatch == Mismatch("other")
    assert (result.recomputation.ended, len(result.recomputation)) == (f"raised {error.__name__}", 1)


@pytest.mark.parametrize("output", [None, 3, torch.ones(2), {"a": []}], ids=str)
def test_what_cannot_be_differentiated_is_said(output):
    with pytest.raises(ValueError, match="nothing to differentiate"):
        passes(lambda x: output, leaf(2))


# Torch's errors


@pytest.mark.parametrize(
    ("first", "second", "strategy", "expected"),
    [
        (TWO, ONE, NON_REENTRANT, Mismatch("count", 2, 1)),
        (TWO, ONE, NO_EARLY_STOP, Mismatch("count", 2, 1)),
        (ONE, TWO, NON_REENTRANT, None),
        (ONE, TWO, NO_EARLY_STOP, Mismatch("more")),
        (ONE, lambda x: x.double().sin(), NON_REENTRANT, Mismatch("metadata")),
        (ONE, lambda x: x.repeat(2).sin(), NO_EARLY_STOP, Mismatch("metadata")),
        (ONE, lambda x: x.exp(), NON_REENTRANT, None),
        (TWO, ONE, REENTRANT, None),
    ],
)
def test_a_mismatch_is_read_from_the_installed_torch(first, second, strategy, expected):
    result = passes(alternating(first, second), leaf(3), strategy=strategy)
    assert result.mismatch == expected
    assert result.error is None or isinstance(result.error, CheckpointError)


def test_a_mismatch_is_read_with_torchs_debugging_on():
    from torch.utils.checkpoint import set_checkpoint_debug_enabled

    with set_checkpoint_debug_enabled(True), pytest.raises(CheckpointError) as caught:
        checkpoint(alternating(TWO, ONE), leaf(3), use_reentrant=False).sum().backward()
    assert Mismatch.of(caught.value).kind in ("count", "other")


def test_a_mismatch_in_words():
    assert str(Mismatch("count", 5, 4)) == "5 tensors saved in forward, 4 in recomputation"
    assert [str(Mismatch(kind)) for kind in ("metadata", "more", "other")] == [
        "a recomputed tensor has other metadata", "more tensors in recomputation", "another error"
    ]  # fmt: skip
    assert Mismatch.of(ValueError("unrelated")) == Mismatch("other")


# The loss


def test_weighted_sum_gives_every_element_its_own_weight():
    x, y = leaf(2, 3), leaf(4)
    weighted_sum({"a": [x], "b": (y, 3, torch.ones(2, dtype=torch.int64))}).backward()
    for t in (x, y):
        assert len(set(t.grad.flatten().tolist())) == t.numel() and (t.grad >= 0.5).all() and (t.grad <= 1.5).all()


@pytest.mark.parametrize(
    "tensor",
    [leaf(0), leaf(()), torch.randn(2, dtype=torch.complex64, requires_grad=True).conj(), leaf(2).half()],
)
def test_weighted_sum_takes_any_tensor(tensor):
    assert weighted_sum(tensor).shape == ()


# Import


def test_import_is_light():
    code = (
        "import sys, recompute_lab, recompute_lab.instruments.checkpointing, recompute_lab.instruments.gradients, "
        "recompute_lab.instruments.nondeterminism, recompute_lab.specimens.trunk, recompute_lab.specimens.digits, "
        "recompute_lab.lessons.exercise; "
        "print([m for m in ('matplotlib', 'ipywidgets', 'IPython', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# An error that is kept


def failing(x):
    raise ArithmeticError("in the forward of a checkpoint")


def refusing(x):
    """Right in a plain run; fails in a checkpoint's forward."""
    files = {frame.f_code.co_filename for frame, _ in traceback.walk_stack(sys._getframe())}
    return failing(x) if torch.utils.checkpoint.__file__ in files else x.sin()


class Refused:
    def step(self, run):
        loss = run(refusing, leaf(3)).sum()
        loss.backward()
        return loss.detach()


@pytest.mark.parametrize(
    "instrument",
    [
        lambda: divergence(refusing, leaf(3)).raised,
        lambda: writes(refusing, leaf(3)).refused["non-reentrant"],
        lambda: examine(refusing, leaf(3)),
        lambda: outcome(Refused, partial(checkpoint, use_reentrant=False)).divergence.raised,
        lambda: passes(partial(NON_REENTRANT, alternating(torch.sin, failing)), leaf(3)).error,  # the inner one's
    ],
    ids=["divergence", "writes", "examine", "outcome", "passes"],
)
def test_a_forward_that_failed_is_over_though_its_error_is_kept(instrument):
    found = instrument()
    assert found is not None and not hooked()


def test_an_error_that_is_released_keeps_its_lines_and_the_segments_variables():
    def segment(x):
        mine = "kept"
        try:
            return NON_REENTRANT(refusing, x)
        except ArithmeticError:
            raise ValueError(mine) from None

    with pytest.raises(ValueError) as failed:
        NON_REENTRANT(segment, leaf(3))
    error = released(failed.value)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert frames[-1].f_code.co_name == "segment" and frames[-1].f_locals["mine"] == "kept"
    assert not hooked(), "neither the outer segment's nor the inner one's"
