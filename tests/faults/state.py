"""The segment reads something besides its arguments, and the second pass finds it changed."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import logging
import math
import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrize import register_parametrization, remove_parametrizations

from faults import LOUD, NOT_RUN_AGAIN, REPLAYABLE, SIDE_EFFECT, SILENT, fault

# ---- buffers that the forward itself advances ----


@fault(r"running_mean|BatchNorm", SIDE_EFFECT, SIDE_EFFECT)
def batch_statistics():
    """The running statistics take in the same batch twice: training looks right, evaluation does not."""
    stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.SiLU())
    return stem, (torch.randn(4, 3, 5, 5, requires_grad=True),)


def two_levels(checkpoint, norm, x):
    def inner(h):
        return F.silu(norm(h))

    def outer(h):
        return checkpoint(inner, h) * 2

    return checkpoint(outer, x)


@fault(r"running_mean|num_batches_tracked|BatchNorm", SIDE_EFFECT, SIDE_EFFECT, driver=two_levels)
def batch_statistics_below_two_checkpoints():
    """A checkpoint within a checkpoint: reentrant runs the innermost function once for each level, and once more."""
    return nn.BatchNorm1d(5), (torch.randn(9, 5, requires_grad=True),)


@fault(r"_u\b|_v\b|spectral|power iteration", SILENT, SILENT)
def power_iteration():
    """Each forward of a discriminator improves the estimate of the norm by which it divides its weight."""
    norm = torch.nn.utils.parametrizations.spectral_norm
    critic = nn.Sequential(norm(nn.Linear(16, 24)), nn.Tanh(), norm(nn.Linear(24, 3)), nn.Softplus())
    return critic, (torch.randn(6, 16, requires_grad=True),)


@fault(r"_u\b|_v\b|spectral|power iteration", SILENT, SILENT)
def power_iteration_in_a_hook():
    """The same with the older interface, which does it in a hook before the forward."""
    return nn.Sequential(torch.nn.utils.spectral_norm(nn.Linear(10, 7)), nn.Tanh()), (torch.randn(6, 10),)


class Observed(nn.Module):
    """Rounds to 16 levels between a low and a high that follow the data, as quantisation-aware training does."""

    def __init__(self, width: int):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.register_buffer("low", torch.tensor(-1.0))
        self.register_buffer("high", torch.tensor(1.0))

    def forward(self, x):
        h = self.inner(x)
        with torch.no_grad():
            self.low.lerp_(h.min(), 0.2)
            self.high.lerp_(h.max(), 0.2)
        size = (self.high - self.low) / 15
        rounded = ((h - self.low) / size).round() * size + self.low
        return torch.tanh(h + (rounded - h).detach()) * h


@fault(r"\blow\b|\bhigh\b", SILENT, SILENT)
def quantiser_with_observer():
    """The range moves a second time, and the second pass rounds to other levels."""
    return Observed(6), (torch.randn(7, 6, requires_grad=True),)


class Codebook(nn.Module):
    """The nearest of some vectors, which follow what they are chosen for (a moving average, no gradient)."""

    def __init__(self, codes: int, width: int):
        super().__init__()
        self.encode = nn.Linear(width, width)
        self.register_buffer("vectors", torch.randn(codes, width))

    def forward(self, x):
        h = torch.tanh(self.encode(x))
        nearest = torch.cdist(h, self.vectors).argmin(-1)
        chosen = self.vectors[nearest]
        with torch.no_grad():
            self.vectors.index_copy_(0, nearest, torch.lerp(self.vectors[nearest], h, 0.5))
        return h * (h + (chosen - h).detach())


@fault(r"vectors", SILENT, SILENT)
def codebook_of_moving_averages():
    return Codebook(5, 4), (torch.randn(8, 4, requires_grad=True),)


class WithTeacher(nn.Module):
    """Its target is a slow copy of itself, which each forward draws a little nearer."""

    def __init__(self, width: int):
        super().__init__()
        self.student, self.teacher = nn.Linear(width, width), nn.Linear(width, width).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        return (self.student(x) - self.teacher(x)).square() * self.student(x)


@fault(r"teacher", SILENT, SILENT)
def teacher_updated_in_forward():
    return WithTeacher(5), (torch.randn(6, 5, requires_grad=True),)


# ---- caches and memories ----


class Attending(nn.Module):
    """Attends over everything it was shown so far: right for generation, left on in training."""

    def __init__(self, width: int):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.past = None

    def forward(self, x):
        seen = torch.stack([self.key(x), self.value(x)])
        self.past = seen if self.past is None else torch.cat([self.past, seen], dim=2)
        keys, values = self.past
        return F.softmax(self.query(x) @ keys.mT / math.sqrt(x.shape[-1]), dim=-1) @ values


@fault(r"past", LOUD, SILENT)
def keys_and_values_kept():
    return Attending(6), (torch.randn(2, 3, 6, requires_grad=True),)


class RelativeBias(nn.Module):
    """A learnt bias for each distance, laid out as a matrix and kept by length."""

    def __init__(self, heads: int, farthest: int):
        super().__init__()
        self.bias = nn.Embedding(2 * farthest + 1, heads)
        self.farthest, self.laid_out = farthest, {}

    def forward(self, scores):
        length = scores.shape[-1]
        if length not in self.laid_out:
            place = torch.arange(length)
            apart = (place[:, None] - place).clamp(-self.farthest, self.farthest) + self.farthest
            self.laid_out[length] = torch.exp(self.bias(apart)).permute(2, 0, 1)
        return torch.softmax(scores * self.laid_out[length], dim=-1)


@fault(r"laid_out", LOUD, SILENT)
def bias_laid_out_at_the_first_call():
    """Reentrant makes it without a graph: what is kept is a constant, and the biases are never trained."""
    return RelativeBias(2, 3), (torch.randn(2, 4, 4, requires_grad=True),)


class Ramped(nn.Module):
    """A table of trainable decays, made by a cached method."""

    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor([0.1, 0.2, 0.3]))
        self.ramp = functools.lru_cache(maxsize=4)(self._ramp)

    def _ramp(self, length: int):
        return torch.exp(-torch.arange(length).float()[:, None] * self.rate)

    def forward(self, x):
        return torch.tanh(x * self.ramp(int(x[:, 0].numel())))


@fault(r"ramp.*lru_cache", LOUD, SILENT)
def table_behind_lru_cache():
    """The cache is compiled code's: nothing can look into it, but an empty one can take its place."""
    return Ramped(), (torch.randn(5, 3, requires_grad=True),)


_STARTED: dict[str, torch.Tensor] = {}


def warm_started(x):
    """A fixed point, from where the last call has ended."""
    h = _STARTED.get("h", torch.zeros_like(x))
    for _ in range(2):
        h = torch.tanh(h * 0.5 + x)
    _STARTED["h"] = h.detach()
    return h


@fault(r"_STARTED", SILENT, SILENT)
def global_dictionary():
    _STARTED.clear()
    return warm_started, (torch.randn(4, 3, requires_grad=True),)


class UntilSettled(nn.Module):
    """Iterates until nothing moves any more, from where it ended last: the number of rounds differs."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.ended_at = None

    def forward(self, x):
        h = torch.zeros_like(x) if self.ended_at is None else self.ended_at
        for _ in range(30):
            before, h = h, torch.tanh(0.3 * self.mix(h) + x)
            if (h - before).abs().max().item() < 1e-3:
                break
        self.ended_at = h.detach()
        return h


@fault(r"ended_at", LOUD, SILENT)
def rounds_until_settled():
    return UntilSettled(4), (torch.randn(5, 4, requires_grad=True),)


def with_history(x, seen=[]):  # noqa: B006, it is the fault
    seen.append(float(x.detach().abs().mean()))
    return torch.tanh(x * sum(seen) / seen[0])


@fault(r"seen", SILENT, SILENT)
def mutable_default_argument():
    with_history.__defaults__[0].clear()
    return with_history, (torch.randn(5, 3, requires_grad=True),)


class Contrasted(nn.Module):
    """Compares with a queue of earlier outputs, and enqueues its own."""

    def __init__(self, width: int):
        super().__init__()
        self.encode = nn.Linear(width, width)
        self.queue = deque([torch.randn(width), torch.randn(width)], maxlen=2)

    def forward(self, x):
        h = F.normalize(self.encode(x), dim=-1)
        scores = h @ torch.stack(tuple(self.queue)).mT
        self.queue.append(h.detach()[0])
        return torch.exp(scores)


@fault(r"queue", SILENT, SILENT)
def queue_of_negatives():
    return Contrasted(5), (torch.randn(6, 5, requires_grad=True),)


_MET: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class Introduced(nn.Module):
    """Adds a bias to whatever it meets for the first time, as a module-wide registry remembers."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = torch.tanh(self.mix(x))
        if self.mix not in _MET:
            _MET[self.mix] = True
            h = torch.sin(h)
        return torch.exp(h)


@fault(r"_MET", LOUD, SILENT)
def weak_registry():
    return Introduced(4), (torch.randn(5, 4, requires_grad=True),)


class Recurrent(nn.Module):
    """Carries what it saw of one microbatch into the next."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(2 * width, width)
        self.register_buffer("carried", torch.zeros(width), persistent=False)

    def forward(self, x):
        h = torch.tanh(self.mix(torch.cat([x, self.carried.expand_as(x)], dim=-1)))
        self.carried = h.detach().mean(0)
        return h


def two_microbatches(checkpoint, segment, first, second):
    return checkpoint(segment, first), checkpoint(segment, second)


@fault(r"carried", SILENT, SILENT, driver=two_microbatches)
def two_forwards_before_backward():
    return Recurrent(4), (torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True))


class Gained(nn.Module):
    """Scales by a gain that is kept in NumPy, and written there in place."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.gain = nn.Linear(width, width), np.ones(width, dtype=np.float32)

    def forward(self, x):
        h = self.mix(x)
        self.gain *= 1 + 0.1 * np.tanh(h.detach().numpy().mean(0))
        return torch.tanh(h * torch.from_numpy(self.gain.copy()))


@fault(r"gain", SILENT, SILENT)
def numpy_array_written_in_place():
    return Gained(4), (torch.randn(6, 4, requires_grad=True),)


# ---- counters and switches of the segment's own ----


class WarmingUp(nn.Module):
    """Its first calls take the plain path, the later ones the one with the gate."""

    def __init__(self, width: int, calls: int = 1):
        super().__init__()
        self.plain, self.gated = nn.Linear(width, width), nn.Linear(width, width)
        self.seen, self.calls = 0, calls

    def forward(self, x):
        chosen = self.plain if self.seen < self.calls else self.gated
        self.seen += 1
        return torch.sigmoid(chosen(x))


@fault(r"seen", SILENT, SILENT)
def warm_up_counted_in_forward():
    return WarmingUp(5), (torch.randn(4, 5, requires_grad=True),)


class LoadBalanced(nn.Module):
    """Keeps how much each expert was asked: the first call sets the count, the others add."""

    def __init__(self, width: int, experts: int):
        super().__init__()
        self.score, self.load = nn.Linear(width, experts), None

    def forward(self, x):
        share = F.softmax(self.score(x), dim=-1)
        asked = share.detach().sum(0)
        self.load = asked if self.load is None else self.load + asked
        return share.square()


@fault(r"load", SIDE_EFFECT, SIDE_EFFECT)
def load_counted_twice():
    return LoadBalanced(4, 3), (torch.randn(6, 4, requires_grad=True),)


class OneMore(nn.Module):
    """An operator more in one of its passes: `when` "first" or "later", `place` "early" or "late"."""

    def __init__(self, when: str, place: str):
        super().__init__()
        self.mix, self.when, self.place, self.passes = nn.Linear(4, 4), when, place, 0

    def forward(self, x):
        self.passes += 1
        more = (self.passes == 1) == (self.when == "first")
        h = self.mix(x)
        if more and self.place == "early":
            h = torch.cos(h)
        h = torch.sigmoid(h)
        return torch.cos(h) if more and self.place == "late" else h


@fault(r"passes|early.stop", LOUD, SILENT)
def one_operator_less_in_the_recomputation():
    return OneMore("first", "early"), (torch.randn(3, 4, requires_grad=True),)


@fault(r"passes|early.stop", SILENT, SILENT)
def one_operator_more_in_the_recomputation():
    """Early stop ends the recomputation when it has as many tensors as the forward: nobody counts the rest."""
    return OneMore("later", "early"), (torch.randn(3, 4, requires_grad=True),)


@fault(r"passes|early.stop", LOUD, SILENT)
def last_operator_missing_in_the_recomputation():
    return OneMore("first", "late"), (torch.randn(3, 4, requires_grad=True),)


@fault(r"passes|early.stop", SIDE_EFFECT, SILENT)
def one_operator_more_after_the_last_saved_tensor():
    """Early stop leaves before it: the gradients are right, and only the count is off."""
    return OneMore("later", "late"), (torch.randn(3, 4, requires_grad=True),)


class Throttled(nn.Module):
    """Applies its penalty at every second call, all instances together."""

    calls = 0

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        Throttled.calls += 1
        h = self.mix(x)
        return torch.tanh(h * (2.0 if Throttled.calls % 2 else 1.0))


@fault(r"calls", SILENT, SILENT)
def counter_of_the_class():
    Throttled.calls = 0
    return Throttled(4), (torch.randn(3, 4, requires_grad=True),)


class Ticker:
    __slots__ = ("ticks",)

    def __init__(self):
        self.ticks = 0

    def tick(self) -> int:
        self.ticks += 1
        return self.ticks


class Ticking(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix, self.ticker = nn.Linear(width, width), Ticker()

    def forward(self, x):
        return torch.tanh(self.mix(x) / self.ticker.tick())


@fault(r"ticker.ticks", SILENT, SILENT)
def counter_in_slots():
    return Ticking(4), (torch.randn(3, 4, requires_grad=True),)


@fault(r"calls", SILENT, SILENT)
def counter_in_a_closure():
    calls = 0

    def decayed(x):
        nonlocal calls
        calls += 1
        return torch.tanh(x * 0.5**calls)

    return decayed, (torch.randn(3, 4, requires_grad=True),)


@fault(r"history", SILENT, SILENT)
def list_in_a_closure():
    mix, history = nn.Linear(4, 4), [1.0]

    def smoothed(x):
        h = mix(x)
        history.append(0.9 * history[-1] + 0.1 * float(h.detach().square().mean()))
        return torch.tanh(h / history[-1])

    return smoothed, (torch.randn(3, 4, requires_grad=True),)


def with_counters(x, counters):
    counters["n"] += 1
    return torch.sigmoid(x * counters["n"])


@fault(r"counters", SILENT, SILENT)
def state_bound_by_partial():
    return functools.partial(with_counters, counters={"n": 0}), (torch.randn(4, 3, requires_grad=True),)


class Scheduled(nn.Module):
    """Takes its widths from an iterator, one a call."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.schedule = nn.Linear(width, width), itertools.cycle([1.0, 0.25, 4.0])

    def forward(self, x):
        return torch.tanh(self.mix(x) * next(self.schedule))


@fault(
    r"schedule|repeat",
    SILENT,
    SILENT,
    proven=False,
)
def iterator_that_moves_on():
    """An iterator cannot be copied or put back."""
    return Scheduled(4), (torch.randn(3, 4, requires_grad=True),)


class Gated(nn.Module):
    """Leaves early where the signal is below a level that follows it."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.second, self.level = nn.Linear(width, width), nn.Linear(width, width), 0.0

    def forward(self, x):
        h = torch.tanh(self.first(x))
        strength = h.square().mean().item()
        if strength < self.level:
            return h
        self.level = 2 * strength
        return torch.tanh(self.second(h))


@fault(r"level", LOUD, SILENT)
def early_return_by_a_moving_level():
    return Gated(4), (torch.randn(3, 4, requires_grad=True),)


class Hooking(nn.Module):
    """Asks for a child's output by a hook, and forgets to remove it: each pass adds one."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        self.mix.register_forward_hook(lambda module, given, output: output * 1.5)
        return torch.tanh(self.mix(x))


@fault(r"hook", SILENT, SILENT)
def hook_registered_in_forward():
    return Hooking(4), (torch.randn(3, 4, requires_grad=True),)


def collected(checkpoint, router, x):
    output = checkpoint(router, x)
    return output, sum(router.penalties)


class Balanced(nn.Module):
    """Hands its balance loss out through a list on itself."""

    def __init__(self, width: int, experts: int):
        super().__init__()
        self.score, self.mix, self.penalties = nn.Linear(width, experts), nn.Linear(width, width), []

    def forward(self, x):
        share = F.softmax(self.score(x), dim=-1)
        self.penalties.append(share.mean(0).square().sum() * share.shape[-1])
        return self.mix(x) * share.amax(-1, keepdim=True)


@fault(r"penalties", SIDE_EFFECT, SILENT, driver=collected)
def balance_loss_on_the_side():
    """Doubled in both; a constant in reentrant, whose forward records no graph."""
    return Balanced(4, 3), (torch.randn(6, 4, requires_grad=True),)


def a_backward_for_each_loss(output, segment):
    for part in output.unbind(-1):
        part.sum().backward(retain_graph=True)


class Counting(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix, self.forwards = nn.Linear(width, width), 0

    def forward(self, x):
        self.forwards += 1
        return torch.tanh(self.mix(x)).square()


@fault(
    r"backward.*times|recomputed.*times|times.*backward|count", SIDE_EFFECT, SIDE_EFFECT,
    backward=a_backward_for_each_loss,
)  # fmt: skip
def backward_for_each_loss():
    """Every backward through the graph runs the segment again."""
    return Counting(3), (torch.randn(4, 3, requires_grad=True),)


def looked_at(segment, args, output):
    getattr(output.grad_fn, "_saved_self", None)


@fault(
    r"recomputed.*times|times.*backward|forwards", SIDE_EFFECT, SIDE_EFFECT, between=looked_at,
)  # fmt: skip
def saved_tensor_looked_at():
    """A debugger or a graph plotter that reads a saved tensor starts a recomputation."""
    return Counting(3), (torch.randn(4, 3, requires_grad=True),)


# ---- what the caller changes between the passes ----


class LowRank(nn.Module):
    """A frozen layer and, added to it, the low-rank correction of one of several tasks."""

    def __init__(self, width: int, tasks: tuple[str, ...]):
        super().__init__()
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.down = nn.ModuleDict({task: nn.Linear(width, 2, bias=False) for task in tasks})
        self.up = nn.ModuleDict({task: nn.Linear(2, width, bias=False) for task in tasks})
        self.task, self.scale = tasks[0], 1.0

    @contextlib.contextmanager
    def using(self, task: str):
        before, self.task = self.task, task
        try:
            yield
        finally:
            self.task = before

    def forward(self, x):
        return torch.tanh(self.frozen(x) + self.scale * self.up[self.task](self.down[self.task](x)))


def each_task_in_turn(checkpoint, segment, first, second):
    outputs = []
    for task, x in (("summaries", first), ("titles", second)):
        with segment.using(task):
            outputs.append(checkpoint(segment, x))
    return outputs


@fault(r"\btask", SILENT, SILENT, driver=each_task_in_turn)
def adapter_of_a_context_that_ended():
    return LowRank(5, ("summaries", "titles")), (torch.randn(3, 5, requires_grad=True), torch.randn(3, 5))


def another_task(segment, args, output):
    segment.task = "titles"


@fault(r"\btask", SILENT, SILENT, between=another_task)
def adapter_switched_before_backward():
    return LowRank(5, ("summaries", "titles")), (torch.randn(3, 5, requires_grad=True),)


def annealed(segment, args, output):
    segment.scale *= 0.5


@fault(r"scale", SILENT, SILENT, between=annealed)
def adapter_scale_annealed():
    return LowRank(5, ("only",)), (torch.randn(3, 5, requires_grad=True),)


def a_quick_metric(segment, args, output):
    segment.eval()


@fault(r"training|eval", LOUD, SILENT, between=a_quick_metric)
def evaluation_before_backward_with_dropout():
    head = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 2))
    return head, (torch.randn(6, 5, requires_grad=True),)


@fault(r"training|eval", LOUD, SILENT, between=a_quick_metric)
def evaluation_before_backward_with_batchnorm():
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8)), (torch.randn(6, 5, requires_grad=True),)


def statistics_frozen(segment, args, output):
    segment[1].eval()


@fault(r"training|eval", LOUD, SILENT, between=statistics_frozen)
def batchnorm_frozen_before_backward():
    """Fine-tuning freezes the statistics, one step too early."""
    return nn.Sequential(nn.Conv1d(3, 4, 1), nn.BatchNorm1d(4), nn.ReLU()), (torch.randn(6, 3, 5, requires_grad=True),)


def averaged_weights(segment, args, output):
    with torch.no_grad():
        for parameter in segment.parameters():
            parameter.lerp_(torch.zeros_like(parameter), 0.4)


@fault(r"weight.*in place|in place.*weight|parameter", SILENT, SILENT, between=averaged_weights)
def averaged_weights_before_backward():
    """Without checkpointing autograd refuses; a checkpointed segment saves no weights, and takes what is there."""
    return nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2)), (torch.randn(5, 4, requires_grad=True),)


def an_optimiser_step(segment, args, output):
    output[:, 0].sum().backward(retain_graph=True)
    torch.optim.SGD(segment.parameters(), lr=0.5).step()


@fault(r"weight.*in place|in place.*weight|parameter", SILENT, SILENT, between=an_optimiser_step)
def optimiser_step_between_two_losses():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)), (torch.randn(5, 4, requires_grad=True),)


def weights_loaded(segment, args, output):
    segment.load_state_dict({name: value * 0.7 for name, value in segment.state_dict().items()})


@fault(r"weight.*in place|in place.*weight|parameter", SILENT, SILENT, between=weights_loaded)
def checkpoint_file_loaded_before_backward():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)), (torch.randn(5, 4, requires_grad=True),)


def weights_exchanged(segment, args, output):
    for parameter in segment.parameters():
        parameter.data = parameter.data * 0.5


@fault(r"weight|parameter", SILENT, SILENT, between=weights_exchanged)
def weights_exchanged_by_data():
    """Autograd does not see it either: the plain run goes on with the memory that it kept."""
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)), (torch.randn(5, 4, requires_grad=True),)


def weight_replaced(segment, args, output):
    segment[2].weight = nn.Parameter(torch.randn(2, 6))


@fault(r"weight|parameter", SILENT, SILENT, between=weight_replaced)
def parameter_replaced_before_backward():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)), (torch.randn(5, 4, requires_grad=True),)


class Pruned(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.register_buffer("kept", torch.ones(width, width))

    def forward(self, x):
        return torch.tanh(F.linear(x, self.mix.weight * self.kept, self.mix.bias))


def pruned(segment, args, output):
    segment.kept[::2] = 0.0


@fault(r"kept", SILENT, SILENT, between=pruned)
def mask_pruned_before_backward():
    return Pruned(4), (torch.randn(3, 4, requires_grad=True),)


class Stack(nn.Module):
    def __init__(self, width: int, depth: int):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = torch.tanh(block(x))
        return x


def a_block_less(segment, args, output):
    del segment.blocks[-1]


@fault(r"blocks", LOUD, SILENT, between=a_block_less)
def block_dropped_before_backward():
    return Stack(4, 3), (torch.randn(3, 4, requires_grad=True),)


@dataclass
class Settings:
    window: int = 3
    mixed: bool = True


class Windowed(nn.Module):
    def __init__(self, width: int, settings: Settings):
        super().__init__()
        self.mix, self.settings = nn.Linear(width, width), settings

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.settings.mixed):
            h = self.mix(x)
        place = torch.arange(x.shape[0])
        near = (place[:, None] - place).abs() < self.settings.window
        return torch.softmax(h.float() @ h.float().mT + torch.where(near, 0.0, -1e4), dim=-1) @ x


def curriculum(segment, args, output):
    segment.settings.window = 1


@fault(r"window", SILENT, SILENT, between=curriculum)
def settings_changed_before_backward():
    return Windowed(4, Settings()), (torch.randn(6, 4, requires_grad=True),)


def full_precision(segment, args, output):
    segment.settings.mixed = False


@fault(r"mixed", LOUD, SILENT, between=full_precision)
def precision_switched_before_backward():
    return Windowed(4, Settings()), (torch.randn(6, 4, requires_grad=True),)


def doubles(segment, args, output):
    torch.set_default_dtype(torch.float64)


class Positioned(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = torch.tanh(self.mix(x))
        return h * torch.linspace(0, 1, x.shape[0])[:, None]


@fault(r"default dtype", LOUD, REPLAYABLE, between=doubles, missed={"watched reentrant": "reentrant is right by luck"})
def default_dtype_changed_before_backward():
    """Reentrant compares nothing, and the gradients are those of a double: right."""
    return Positioned(4), (torch.randn(6, 4, requires_grad=True),)


GLOBAL = SimpleNamespace(sharpness=1.0)


def sharpened(x):
    return torch.softmax(x * GLOBAL.sharpness, dim=-1)


def sharper(segment, args, output):
    GLOBAL.sharpness = 3.0


@fault(r"sharpness", SILENT, SILENT, between=sharper)
def global_settings_changed_before_backward():
    GLOBAL.sharpness = 1.0
    return sharpened, (torch.randn(3, 4, requires_grad=True),)


_TEMPERATURE = contextvars.ContextVar("temperature", default=1.0)


def tempered(x):
    return torch.softmax(x / _TEMPERATURE.get(), dim=-1)


def at_a_temperature(checkpoint, segment, x):
    token = _TEMPERATURE.set(0.25)
    try:
        return checkpoint(segment, x)
    finally:
        _TEMPERATURE.reset(token)


@fault(r"temperature", SILENT, SILENT, driver=at_a_temperature)
def context_variable_reset():
    return tempered, (torch.randn(3, 4, requires_grad=True),)


_LOCAL = threading.local()


def locally_scaled(x):
    return torch.tanh(x * getattr(_LOCAL, "factor", 1.0))


def scaled_for_the_forward(checkpoint, segment, x):
    _LOCAL.factor = 3.0
    try:
        return checkpoint(segment, x)
    finally:
        del _LOCAL.factor


@fault(r"_LOCAL.factor", SILENT, SILENT, driver=scaled_for_the_forward)
def thread_local_removed():
    return locally_scaled, (torch.randn(3, 4, requires_grad=True),)


def by_environment(x):
    return F.gelu(x, approximate="tanh" if os.environ.get("FAULTS_FAST_GELU") else "none") * x


def environment_for_the_forward(checkpoint, segment, x):
    os.environ["FAULTS_FAST_GELU"] = "1"
    try:
        return checkpoint(segment, x)
    finally:
        del os.environ["FAULTS_FAST_GELU"]


@fault(r"environ.FAULTS_FAST_GELU", SILENT, SILENT, driver=environment_for_the_forward)
def environment_variable_removed():
    return by_environment, (torch.randn(3, 4, requires_grad=True),)


def in_a_loop(checkpoint, stages, x):
    for stage in stages:
        x = checkpoint(lambda h: torch.sigmoid(stage(h)), x)  # noqa: B023, it is the fault
    return x


@fault(r"stage", SILENT, SILENT, driver=in_a_loop)
def loop_variable_looked_up_late():
    """Every recomputation runs the last stage, which gets all the gradient."""
    return nn.ModuleList(nn.Linear(5, 5) for _ in range(3)), (torch.randn(4, 5, requires_grad=True),)


@fault(r"stage", LOUD, LOUD, driver=in_a_loop)
def loop_variable_looked_up_late_sizes_differ():
    sizes = ((5, 8), (8, 3), (3, 6))
    return nn.ModuleList(nn.Linear(*size) for size in sizes), (torch.randn(4, 5, requires_grad=True),)


def staged(checkpoint, mix, x):
    """One buffer for the mask of each microbatch, filled anew."""
    mask = torch.empty(x.shape[0], 1)
    outputs = []
    for number in range(2):
        mask.copy_(torch.arange(x.shape[0])[:, None] % 2 == number)
        outputs.append(checkpoint(lambda h: torch.tanh(mix(h)) * mask, x))
    return outputs


def staged_plainly(checkpoint, mix, x):
    if checkpoint.use_reentrant is not None:
        return staged(checkpoint, mix, x)
    masks = [(torch.arange(x.shape[0])[:, None] % 2 == number).float() for number in range(2)]
    return [checkpoint(lambda h, mask=mask: torch.tanh(mix(h)) * mask, x) for mask in masks]


@fault(r"mask", SILENT, SILENT, driver=staged_plainly)
def captured_buffer_filled_anew():
    """The plain run, in which autograd refuses it, is given masks of its own."""
    return nn.Linear(4, 4), (torch.randn(6, 4, requires_grad=True),)


class Masked(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x, mask):
        return torch.softmax(self.mix(x).masked_fill(mask, -1e4), dim=-1)


def mask_changed_by_the_caller(checkpoint, segment, x):
    mask = torch.zeros(x.shape, dtype=torch.bool)
    mask[:, 0] = True
    output = checkpoint(segment, x, mask=mask.clone() if checkpoint.use_reentrant is None else mask)
    mask.logical_not_()
    return output


@fault(r"mask", SILENT, SILENT, driver=mask_changed_by_the_caller)
def keyword_tensor_changed_in_place():
    """A keyword argument is not saved as the others are: no version is compared."""
    return Masked(4), (torch.randn(3, 4, requires_grad=True),)


def next_batch(segment, args, output):
    args[1].copy_(torch.ones_like(args[1]))


class Conditioned(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x, condition):
        return torch.tanh(self.mix(x) + condition)


@fault(
    r"args\[1\]|in.?place",
    LOUD,
    LOUD,
    between=next_batch,
    missed={"watched": NOT_RUN_AGAIN, "watched verdict": NOT_RUN_AGAIN},
)
def input_buffer_filled_anew():
    """Arguments are saved with their version: torch raises."""
    return Conditioned(4), (torch.randn(3, 4, requires_grad=True), torch.randn(3, 4))


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(6, 6)


def twice_under_autocast(checkpoint, model, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            x = checkpoint(lambda h: torch.sigmoid(model.mix(h)), x)
    return x.float()


@fault(
    r"autocast|cache",
    REPLAYABLE,
    SILENT,
    driver=twice_under_autocast,
    missed={"watched reentrant": "a rounding of reentrant's, which sums in low precision"},
)
def cast_of_a_shared_weight():
    """The second call finds the low-precision copy of the weight made; its recomputation makes it again. Reentrant adds
    up the weight's gradient in low precision: a rounding.
    """
    return Shared(), (torch.randn(4, 6, requires_grad=True),)


def saturated(x):
    return torch.tanh(x)


def rectified(x):
    return F.silu(x)


activation = saturated


def activated(x):
    return activation(2 * x)


def another_activation(segment, args, output):
    global activation
    activation = rectified


@fault(r"activation", SILENT, SILENT, between=another_activation)
def name_of_a_function_reassigned():
    global activation
    activation = saturated
    return activated, (torch.randn(3, 4, requires_grad=True),)


class OfUnitLength(nn.Module):
    def forward(self, weight):
        return weight / weight.norm()


def parametrization_removed(segment, args, output):
    remove_parametrizations(segment, "weight", leave_parametrized=False)


@fault(r"weight|parametri|__class__", LOUD, SILENT, between=parametrization_removed)
def weight_exported_before_backward():
    mix = nn.Linear(4, 4)
    register_parametrization(mix, "weight", OfUnitLength())
    return mix, (torch.randn(3, 4, requires_grad=True),)


class QuasiRandom(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix, self.points = nn.Linear(width, width), torch.quasirandom.SobolEngine(width, scramble=True, seed=1)

    def forward(self, x):
        return torch.tanh(self.mix(x)) * (1 + self.points.draw(len(x)))


@fault(r"points", SILENT, SILENT)
def quasi_random_points():
    return QuasiRandom(4), (torch.randn(3, 4, requires_grad=True),)


def weight_cut_to_its_shard(segment, args, output):
    segment.weight.data = segment.weight.data[:2].clone()


@fault(r"weight", LOUD, LOUD, between=weight_cut_to_its_shard)
def weight_no_longer_gathered():
    return nn.Linear(4, 4), (torch.randn(3, 4, requires_grad=True),)


class CountedLast(nn.Module):
    """Counts after its last operator: early stop does not come there, reentrant does."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.steps = nn.Linear(width, width), 0

    def forward(self, x):
        y = torch.tanh(self.mix(x))
        self.steps += 1
        return y


@fault(r"steps", REPLAYABLE, SIDE_EFFECT)
def counter_after_the_last_operator():
    return CountedLast(4), (torch.randn(3, 4, requires_grad=True),)


class Decaying(nn.Module):
    """Writes a parameter past autograd, through `.data`, and reads it nowhere."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.level = nn.Linear(width, width), nn.Parameter(torch.ones(width))

    def forward(self, x):
        h = torch.tanh(self.mix(x))
        self.level.data.mul_(0.9)
        return torch.exp(h)


@fault(r"level", SIDE_EFFECT, SIDE_EFFECT)
def parameter_written_through_data():
    return Decaying(4), (torch.randn(3, 4, requires_grad=True),)


class CompiledCounting(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix, self.passes = nn.Linear(width, width), torch.zeros(())
        self.wave = torch.compile(lambda h, passes: torch.sin(h * passes).exp(), backend="eager")

    def forward(self, x):
        self.passes += 1
        return self.wave(self.mix(x), self.passes)


@fault(r"passes", SILENT, SILENT)
def counter_given_to_a_compiled_part():
    return CompiledCounting(4), (torch.randn(3, 4, requires_grad=True),)


_PASSES = contextvars.ContextVar("passes_so_far")


class CountedInContext(nn.Module):
    """The variable is not set before the first forward: to undo it, it has to be unset."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        passes = _PASSES.get(1)
        _PASSES.set(passes + 1)
        return torch.tanh(self.mix(x) * passes)


@fault(r"passes_so_far", SILENT, SILENT)
def context_variable_counted_up():
    return CountedInContext(4), (torch.randn(3, 4, requires_grad=True),)


def freezes_the_first_layer(segment, arguments, output):
    segment[0].requires_grad_(False)


@fault(r"frozen.*0\.(weight|bias)", LOUD, REPLAYABLE, between=freezes_the_first_layer)
def layer_frozen_before_backward():
    """The recomputation saves no input for its weight. Reentrant's backward does not ask for it either."""
    blocks = nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh()
    return nn.Sequential(*blocks), (torch.randn(3, 4, requires_grad=True),)


_LOG = logging.getLogger(__name__)


class WarnedOnce(nn.Module):
    """Clamps its first batch, and notes that it has; where, is the logger."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = self.mix(x)
        if not hasattr(_LOG, "warned"):
            _LOG.warned = True
            h = h.clamp(-0.1, 0.1)
        return torch.exp(h)


@fault(r"_LOG.warned", LOUD, SILENT)
def attribute_of_a_logger():
    vars(_LOG).pop("warned", None)
    return WarnedOnce(4), (torch.randn(5, 4, requires_grad=True),)


class ByLevel(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = torch.tanh(self.mix(x))
        return h.clamp(-0.1, 0.1) if _LOG.isEnabledFor(logging.DEBUG) else h


def logs_more(checkpoint, segment, x):
    level = _LOG.level
    _LOG.setLevel(logging.DEBUG)
    try:
        return checkpoint(segment, x)
    finally:
        _LOG.setLevel(level)


@fault(r"_LOG.level", LOUD, SILENT, driver=logs_more)
def level_of_a_logger():
    return ByLevel(4), (torch.randn(5, 4, requires_grad=True),)


class PositionsCached(nn.Module):
    """A method behind a cache that all modules of the class have in common."""

    def __init__(self, rows: int, width: int):
        super().__init__()
        self.mix, self.positions = nn.Linear(width, width), nn.Embedding(rows, width)

    @functools.cache  # noqa: B019, the fault
    def looked_up(self, rows: int):
        return self.positions(torch.arange(rows)) * 2

    def forward(self, x):
        return torch.tanh(self.mix(x) + self.looked_up(x.shape[0]))


@fault(r"PositionsCached.looked_up.*lru_cache", LOUD, SILENT)
def method_behind_a_cache():
    PositionsCached.looked_up.cache_clear()
    return PositionsCached(9, 4), (torch.randn(5, 4, requires_grad=True),)


_POOL = weakref.WeakValueDictionary()


class Workspace:
    """What several blocks share for as long as one of them holds it."""


class Pooled(nn.Module):
    """The block that makes the workspace scales by two."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.held = nn.Linear(width, width), []

    def forward(self, x):
        h = torch.tanh(self.mix(x))
        if "workspace" not in _POOL:
            self.held.append(Workspace())
            _POOL["workspace"] = self.held[-1]
            h = h * 2
        return torch.exp(h)


@fault(r"_POOL", SILENT, SILENT)
def weak_pool():
    _POOL.clear()
    return Pooled(4), (torch.randn(5, 4, requires_grad=True),)


@fault(r"^running statistics", SIDE_EFFECT, SIDE_EFFECT)
def statistics_of_instances():
    """InstanceNorm can keep them, too; they are not BatchNorm's."""
    norm = nn.InstanceNorm1d(4, track_running_stats=True)
    return nn.Sequential(nn.Conv1d(3, 4, 3), norm, nn.GELU()), (torch.randn(2, 3, 7, requires_grad=True),)


class WorkspaceCached(nn.Module):
    """Adds to a piece of memory that a static method behind a cache hands out."""

    @staticmethod
    @functools.lru_cache(maxsize=8)
    def memory(rows: int, width: int):
        return torch.zeros(rows, width)

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return torch.tanh(self.mix(x) + self.memory(*x.shape).add_(0.5))


@fault(r"WorkspaceCached.memory", SILENT, SILENT)
def memory_behind_a_cache():
    WorkspaceCached.memory.cache_clear()
    return WorkspaceCached(4), (torch.randn(5, 4, requires_grad=True),)


@fault(r"WorkspaceCached.memory", SILENT, SILENT)
def memory_in_a_warm_cache():
    WorkspaceCached.memory.cache_clear()
    WorkspaceCached.memory(5, 4)
    return WorkspaceCached(4), (torch.randn(5, 4, requires_grad=True),)


class Greeting(nn.Module):
    """Doubles what a layer gives when it is met for the first time."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.met = nn.Linear(width, width), weakref.WeakSet()

    def forward(self, x):
        h = torch.tanh(self.mix(x))
        h = h if self.mix in self.met else 2 * h
        self.met.add(self.mix)
        return torch.exp(h)


@fault(r"met", SILENT, SILENT)
def weak_set():
    return Greeting(4), (torch.randn(5, 4, requires_grad=True),)


class SelfFreezing(nn.Module):
    """Trains its first layer in its first forward only."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        y = torch.tanh(self.second(torch.tanh(self.first(x))))
        self.first.requires_grad_(False)
        return torch.exp(y)


@fault(r"^frozen.*first", LOUD, REPLAYABLE)
def frozen_by_its_own_forward():
    return SelfFreezing(4), (torch.randn(5, 4, requires_grad=True),)


class Doubling(nn.Module):
    """A hook that doubles once, and removes itself."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.handle = self.mix.register_forward_hook(self.once)

    def once(self, module, inputs, output):
        self.handle.remove()
        return output * 2

    def forward(self, x):
        return torch.tanh(self.mix(x))


@fault(r"mix._forward_hooks", SILENT, SILENT)
def hook_that_removes_itself():
    return Doubling(4), (torch.randn(5, 4, requires_grad=True),)


@functools.lru_cache(maxsize=2)
def scale_at(step: int) -> float:
    return 1 / step


class ScaledByStep(nn.Module):
    """Its counter decides, in a factor that is applied last; that the factors are cached does no harm."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.step = nn.Linear(width, width), 0

    def forward(self, x):
        self.step += 1
        return torch.tanh(self.mix(x)) * scale_at(self.step)


@fault(r"^step$", SIDE_EFFECT, SILENT)
def factor_of_the_step():
    """The last product saves nothing: early stop does not come to it."""
    scale_at.cache_clear()
    return ScaledByStep(4), (torch.randn(3, 4, requires_grad=True),)
