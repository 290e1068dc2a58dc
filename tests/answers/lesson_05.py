"""Lesson 05, BatchNorm and its family: a momentum, every write, two repairs each of two segments, who chooses which."""

import copy
import math
from contextlib import ExitStack, contextmanager, nullcontext

import numpy as np
import torch
from answers.answers import Answers

from recompute_lab.lessons.writes_exercises import ROLES, check
from recompute_lab.repairs.momentum import momentum_for
from recompute_lab.repairs.recomputation import announced, recomputing
from recompute_lab.repairs.replay import state_replayed
from recompute_lab.repairs.suppress import buffers_spared
from recompute_lab.specimens import unknown_writes as unknown
from recompute_lab.specimens.running_state import frozen_in_recomputation
from recompute_lab.specimens.unknown_writes import Gated, Smoothed, sharpened

EXERCISES = check


def state() -> list:
    """What the segments of the exercises write: globals, attributes of a function and a class, a default argument."""
    return [unknown.TEMPERATURE, sharpened.calls, Gated.opened, list(Smoothed.forward.__defaults__[0])]


# --- find_all

FOUND = {
    "Smoothed": {"mean", "calls", "history"},
    "Gated": {"seen", "opened", "torch"},
    "sharpened": {"TEMPERATURE", "calls", "NumPy"},
}
EVERYTHING = {
    "mean", "calls", "history", "seen", "opened", "torch", "TEMPERATURE", "NumPy", "Python", "first", "second", "x"
}  # fmt: skip


# --- guarded


def smoothed(guard_of_all=lambda: True, guard_of_mean=None):
    """The class with another condition around its writes."""

    class Answer(Smoothed):
        def forward(self, x, history=[]):  # noqa: B006
            h = self.first(x)
            mean = h.mean(0) if self.training else self.mean
            if self.training and (guard_of_mean or guard_of_all)():
                self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
            if self.training and guard_of_all():
                self.calls += 1
            if guard_of_all():
                history.append(float(mean.detach().norm()))
            return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))

    return Answer


class AsAttribute(Smoothed):
    """The list is the module's own, and all writes stand together."""

    def build(self):
        super().build()
        self.history = []

    def forward(self, x):
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean
        if not recomputing():
            self.history.append(float(mean.detach().norm()))
            if self.training:
                self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
                self.calls += 1
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


class InPlace(Smoothed):
    """The buffer is written in place, and the writes stand in a method of their own."""

    def forward(self, x, history=[]):  # noqa: B006
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean.clone()
        if not recomputing():
            self.note(mean.detach(), history)
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))

    def note(self, mean, history):
        if self.training:
            self.mean.lerp_(mean, 0.1)
            self.calls += 1
        history.append(float(mean.norm()))


class ForgetsEvaluation(Smoothed):
    """Right in training, where the check of gradients looks."""

    def forward(self, x, history=[]):  # noqa: B006
        h = self.first(x)
        mean = h.mean(0)
        if not recomputing():
            self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
            self.calls += 1
            history.append(float(mean.detach().norm()))
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


class LogsInTrainingOnly(Smoothed):
    def forward(self, x, history=[]):  # noqa: B006
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean
        if self.training and not recomputing():
            self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
            self.calls += 1
            history.append(float(mean.detach().norm()))
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


class LogsTwiceInEvaluation(Smoothed):
    """Guards what is written in training, and nothing in evaluation mode."""

    def forward(self, x, history=[]):  # noqa: B006
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean
        if not self.training:
            history.append(float(mean.detach().norm()))
        elif not recomputing():
            self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
            self.calls += 1
            history.append(float(mean.detach().norm()))
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


class OnGradMode(Smoothed):
    def forward(self, x, history=[]):  # noqa: B006
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean
        if torch.is_grad_enabled():
            self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
            self.calls += 1
            history.append(float(mean.detach().norm()))
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


class CountsInHalves(Smoothed):
    """Two halves make one."""

    def forward(self, x, history=[]):  # noqa: B006
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean
        if self.training:
            self.mean = torch.lerp(self.mean, mean.detach(), momentum_for(0.1))
            self.calls += 0.5
        if not recomputing():
            history.append(float(mean.detach().norm()))
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


class EveryOtherTime(Smoothed):
    """Takes each second forward for a recomputation."""

    forwards = 0

    def forward(self, x, history=[]):  # noqa: B006
        self.forwards += 1
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean
        if self.forwards % 2:
            if self.training:
                self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
                self.calls += 1
            history.append(float(mean.detach().norm()))
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


class WithoutHistory(Smoothed):
    def forward(self, x):
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean
        if self.training and not recomputing():
            self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
            self.calls += 1
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


class OtherList(Smoothed):
    """Writes the list of the original, which its own forward no longer has."""

    def forward(self, x, history=None):
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean
        if not recomputing():
            if self.training:
                self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
                self.calls += 1
            Smoothed.forward.__defaults__[0].append(float(mean.detach().norm()))
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


class Uncentred(Smoothed):
    def forward(self, x, history=[]):  # noqa: B006
        return super().forward(x, history) * 1.5


# --- from_outside


def replaying(module):
    """state_replayed, and the list that it does not find."""
    inner, history = state_replayed(module), Smoothed.forward.__defaults__[0]

    def context_fn():
        forward, again = inner()

        @contextmanager
        def recomputation():
            length = len(history)
            try:
                with again:
                    yield
            finally:
                del history[length:]

        return forward, recomputation()

    return context_fn


class ByHand:
    """All three taken down at the segment's entry and set for the second run, in a class of its own."""

    def __init__(self, module):
        self.module, self.entry = module, self.read(module)

    @staticmethod
    def read(module):
        return module.mean.clone(), module.calls, list(Smoothed.forward.__defaults__[0])

    def write(self, values):
        self.module.mean, self.module.calls = values[:2]
        Smoothed.forward.__defaults__[0][:] = values[2]

    def __enter__(self):
        self.found = self.read(self.module)
        self.write(self.entry)

    def __exit__(self, *error):
        self.write(self.found)


class ByStateDict(ByHand):
    """Writes the weights as well, which backward still needs as they are."""

    @staticmethod
    def read(module):
        return copy.deepcopy(module.state_dict()), module.calls, list(Smoothed.forward.__defaults__[0])

    def write(self, values):
        self.module.load_state_dict(values[0])
        self.module.calls = values[1]
        Smoothed.forward.__defaults__[0][:] = values[2]


def another_list(module):
    """The recomputation gets a list of its own, to be thrown away."""
    replayed = state_replayed(module)

    @contextmanager
    def thrown_away():
        Smoothed.forward.__defaults__, kept = ([],), Smoothed.forward.__defaults__
        try:
            yield
        finally:
            Smoothed.forward.__defaults__ = kept

    def context_fn():
        forward, again = replayed()

        @contextmanager
        def both():
            with ExitStack() as stack:
                stack.enter_context(again)
                stack.enter_context(thrown_away())
                yield

        return [forward, both()]

    return context_fn


def put_back(module):
    """Undoes the second write, but lets the recomputation read what the first has written."""
    history = Smoothed.forward.__defaults__[0]

    @contextmanager
    def recomputation():
        found = module.mean, module.calls, len(history)
        try:
            yield
        finally:
            module.mean, module.calls = found[:2]
            del history[found[2] :]

    return lambda: (nullcontext(), recomputation())


def cleared(module):
    """The list is emptied where only the recomputation's entry should go."""
    inner = state_replayed(module)

    def context_fn():
        forward, again = inner()

        @contextmanager
        def recomputation():
            try:
                with again:
                    yield
            finally:
                Smoothed.forward.__defaults__[0].clear()

        return forward, recomputation()

    return context_fn


def without_finally(module):
    inner, history = state_replayed(module), Smoothed.forward.__defaults__[0]

    def context_fn():
        forward, again = inner()

        @contextmanager
        def recomputation():
            length = len(history)
            with again:
                yield
            del history[length:]

        return forward, recomputation()

    return context_fn


# --- moved_out


def once(shape):
    unknown.TEMPERATURE = max(1.0, 0.99 * unknown.TEMPERATURE)
    sharpened.calls += 1
    return unknown.TEMPERATURE, torch.from_numpy(np.random.standard_normal(shape)).float()


def segment(x, temperature, noise):
    return x * torch.softmax((x + 0.1 * noise) / temperature, dim=1)


def once_in_other_words(shape):
    unknown.TEMPERATURE = 0.99 * unknown.TEMPERATURE if 0.99 * unknown.TEMPERATURE > 1 else 1.0
    sharpened.calls = sharpened.calls + 1
    return [torch.tensor(np.random.standard_normal(shape), dtype=torch.float32) * 0.1, unknown.TEMPERATURE]


def segment_in_other_words(x, *values):
    return torch.nn.functional.softmax(torch.add(x, values[0]).div(values[1]), -1).mul(x)


def once_without_counting(shape):
    unknown.TEMPERATURE = max(1.0, 0.99 * unknown.TEMPERATURE)
    return unknown.TEMPERATURE, torch.from_numpy(np.random.standard_normal(shape)).float()


def once_of_torchs_noise(shape):
    unknown.TEMPERATURE = max(1.0, 0.99 * unknown.TEMPERATURE)
    sharpened.calls += 1
    return unknown.TEMPERATURE, torch.randn(shape, generator=torch.Generator().manual_seed(0))


def once_of_noise(shape):
    return once(shape)[1:]


def reads_the_global(x, noise):
    return segment(x, unknown.TEMPERATURE, noise)


def quiet(x, temperature, noise):
    return x * torch.softmax(x / temperature, dim=1)


def drawing(x, temperature, noise):
    return segment(x, temperature, torch.from_numpy(np.random.standard_normal(x.shape)).float())


# --- replayed


def replay(finally_too=True, entry_too=True):
    def context():
        entry = []

        @contextmanager
        def forward():
            entry.append(unknown.read())
            yield

        @contextmanager
        def recomputation():
            now = unknown.read()
            if entry_too:
                unknown.write(entry[0])
            try:
                yield
            except BaseException:
                if finally_too:
                    unknown.write(now)
                raise
            unknown.write(now)

        return forward(), recomputation()

    return context


def at_the_entry():
    entry = unknown.read()

    @contextmanager
    def again():
        with ExitStack() as stack:
            stack.callback(unknown.write, unknown.read())
            unknown.write(entry)
            yield

    return nullcontext(), again()


def not_put_back():
    entry = unknown.read()

    @contextmanager
    def again():
        unknown.write(entry)
        yield

    return nullcontext(), again()


def without_the_stream():
    entry = unknown.read()

    @contextmanager
    def again():
        now = unknown.read()
        unknown.write((*entry[:2], now[2]))
        try:
            yield
        finally:
            unknown.write(now)

    return nullcontext(), again()


# --- who_chooses

GOOD = {"author": ("return", "whoever"), "user": ("replay", "no edit"), "tomorrow": ("leave", "same run")}


ANSWERS = {
    "momentum": Answers(
        right=[
            (momentum_for,),
            (lambda m, updates: 1 - (1 - m) ** (1 / updates),),
            (lambda m, updates: torch.tensor(1 - math.exp(math.log1p(-m) / updates)),),
            (lambda m, updates=2: np.float64(-np.expm1(np.log1p(-m) / updates)),),
        ],
        wrong=[
            ((lambda m, updates: math.sqrt(m),), "the root of m, the weight"),
            ((lambda m, updates: m ** (1 / updates),), "2 updates per step: with momentum 0.316"),
            ((lambda m, updates: m / 2,), "Near, and nearer the smaller m is"),
            ((lambda m, updates: m / updates,), "with momentum 0.05"),
            ((lambda m, updates: 1 - (1 - m) ** 2,), "That is the way back"),
            ((lambda m, updates: 1 - (1 - m) ** updates,), "with momentum 0.19"),
            ((lambda m, updates: 0.0,), "nothing is ever written"),
            ((lambda m, updates: m,), "That is m itself"),
            ((lambda m, updates: math.sqrt(1 - m),), "the share to keep"),
            ((lambda m, updates: 1 - math.sqrt(1 - m),), "m = 0.1, 3 updates per step"),
            ((lambda m, updates: 1 - math.sqrt(1 - m),), "right for two updates"),
            ((lambda m, updates: 0.3,), "What share of the old value do the updates keep"),
            ((0.05,), "give a function"),
            ((lambda m, updates: "0.05",), "momentum(0.1, 2) gave '0.05'; a number was expected"),
            ((lambda m, updates: True,), "a number was expected"),
            ((lambda m, updates: torch.ones(2),), "a number was expected"),
            ((lambda m, updates: -0.1,), "from 0 to 1"),
            ((lambda m, updates: math.nan,), "from 0 to 1"),
            ((lambda m: m,), "your answer raised TypeError"),
        ],
    ),
    "find_all": Answers(
        right=[
            (FOUND,),
            ({**FOUND, "Gated": ["first._forward_hooks[0].seen", "Gated.opened", "Torch"]},),
            ({**FOUND, "Gated": ['seen["largest"]', "opened", "torch.rand"]},),
            ({**FOUND, "sharpened": ("unknown.TEMPERATURE", "sharpened.calls", "np.random")},),
            ({name: (one for one in names) for name, names in FOUND.items()},),
        ],
        wrong=[
            (({**FOUND, "Smoothed": {"mean", "calls"}},), "Smoothed: you missed a list (0 → 1 entries, not read)"),
            (({**FOUND, "Smoothed": {"mean", "history"}},), "you missed an attribute (0 → 1, also read)"),
            (({**FOUND, "Smoothed": {"calls", "history"}},), "you missed a buffer ([16] changed, not read)"),
            (({**FOUND, "Gated": {"opened", "torch"}},), "Gated: you missed a dict (0 → 1 entries, not read)"),
            (({**FOUND, "Gated": {"seen", "torch"}},), "Gated: you missed a class attribute"),
            (({**FOUND, "Gated": {"seen", "opened"}},), "you missed a random stream (drawn from, also read)"),
            (({**FOUND, "sharpened": {"calls", "NumPy"}},), "sharpened: you missed a global (2 → 1.98, also read)"),
            (({**FOUND, "sharpened": {"TEMPERATURE", "calls"}},), "sharpened: you missed a random stream"),
            (({**FOUND, "Gated": {"seen", "opened", "torch", "position"}},), "Gated: 'position' is not written."),
            (({**FOUND, "Gated": {"largest", "opened", "torch"}},), "'largest' is a key. Name the dict that holds it."),
            ((dict.fromkeys(FOUND, EVERYTHING),), "is not written"),
            ((dict.fromkeys(FOUND, set()),), "you missed"),
            (({},), "one set of names each for Smoothed, Gated, sharpened"),
            (([],), "answer with a dict, one set of names each"),
            (({**FOUND, "Gated": "seen"},), "Gated: give a set of names"),
            (({**FOUND, "Gated": {1}},), "Gated: give a set of names"),
            (({**FOUND, "Gated": 1},), "a set of names is needed"),
        ],
    ),
    "guarded": Answers(
        right=[(smoothed(lambda: not recomputing()),), (AsAttribute,), (InPlace,)],
        wrong=[
            ((Smoothed,), "calls ends at 40, in the plain run at 20"),
            ((smoothed(lambda: not recomputing(), lambda: True),), "mean ends elsewhere than in the plain run"),
            ((OnGradMode,), "non-reentrant has it on in both, and reentrant has it off"),
            (
                (smoothed(lambda: not recomputing(), lambda: False),),
                "without checkpointing: mean stays where it was, for good",
            ),
            (
                (smoothed(lambda: not recomputing(), lambda: not torch.is_grad_enabled()),),
                "without checkpointing: mean stays where it was, for good",
            ),
            ((ForgetsEvaluation,), "In evaluation mode, without a recomputation, its output and calls and"),
            ((LogsInTrainingOnly,), "history is not what Smoothed gives"),
            ((LogsTwiceInEvaluation,), "In evaluation mode, checkpointed"),
            ((CountsInHalves,), "without checkpointing: "),
            ((EveryOtherTime,), "without checkpointing: "),
            ((WithoutHistory,), "where is the list?"),
            ((OtherList,), "where is the list?"),
            ((Uncentred,), "gradients are off"),
            ((smoothed,), "give a class"),
            ((torch.nn.Linear,), "give a class"),
        ],
    ),
    "from_outside": Answers(
        right=[(replaying,), (lambda module: lambda: (nullcontext(), ByHand(module)),), (another_list,)],
        wrong=[
            ((state_replayed,), "history ends at 40 entries, in the plain run at 20"),
            ((frozen_in_recomputation,), "evaluation mode. There it computes something else, as BatchNorm does"),
            ((buffers_spared,), "calls ends at 40, in the plain run at 20"),
            ((lambda module: announced,), "calls ends at 40, in the plain run at 20"),
            ((put_back,), "gradients are off"),
            ((cleared,), "history"),
            ((without_finally,), "non-reentrant, one call before each backward: history ends at"),
            ((lambda module: 3,), "a context_fn is a function that returns two context managers; yours is int"),
            ((lambda module: lambda: None,), "two context managers: for the forward"),
            ((lambda module: lambda: (nullcontext(),),), "two context managers: for the forward"),
            ((lambda module: state_replayed(module)(),), "a context_fn is a function"),
            ((lambda module: lambda: (nullcontext(), ByStateDict(module)),), "your answer raised RuntimeError"),
            ((Smoothed,), "def context(module)"),
        ],
    ),
    "moved_out": Answers(
        right=[((once, segment),), ([once, segment],), ((once_in_other_words, segment_in_other_words),)],
        wrong=[
            (((once_without_counting, segment),), "calls stays where it was, for good"),
            (((once_of_torchs_noise, segment),), "NumPy's stream stays where it was"),
            (((once, quiet),), "gradients are off"),
            (((once, drawing),), "without checkpointing: "),
            (((once_of_noise, reads_the_global),), "two calls before each backward: gradients are off"),
            (((lambda shape: (), lambda x: sharpened(x)),), "calls ends at 40, in the plain run at 20"),
            (((once, lambda x, *values: sharpened(x)),), "without checkpointing: "),
            (((lambda shape: 3, segment),), "returns a tuple"),
            (((lambda shape: once(shape)[1], segment),), "returns a tuple"),
            ((once,), "as a pair"),
        ],
    ),
    "replayed": Answers(
        right=[(replay(),), (at_the_entry,), (lambda: list(at_the_entry()),)],
        wrong=[
            ((replay(finally_too=False),), "non-reentrant, two calls before each backward"),
            ((replay(entry_too=False),), "gradients are off"),
            ((announced,), "calls ends at 40, in the plain run at 20"),
            ((not_put_back,), "ends at"),
            ((without_the_stream,), "gradients are off"),
            ((lambda: (1, 2),), "two context managers"),
            ((lambda: at_the_entry()[1],), "two context managers"),
            ((3,), "def context()"),
        ],
    ),
    "who_chooses": Answers(
        right=[
            (GOOD,),
            ({**GOOD, "author": ("idempotent", "whoever")},),
            ({**GOOD, "user": ("outside", "no edit")},),
            ({**GOOD, "user": ("idempotent", "no edit")},),
            ({**GOOD, "user": ("idempotent", "same run")},),
            ({**GOOD, "tomorrow": ("replay", "same run")},),
            ({**GOOD, "tomorrow": ("guard", "same run")},),
            ({**GOOD, "tomorrow": ("outside", "same run")},),
            ({**GOOD, "author": ["Return", "WHOEVER"]},),
        ],
        wrong=[
            (({**GOOD, "author": ("guard", "whoever")},), "counts 2 calls per step"),
            (({**GOOD, "author": ("replay", "whoever")},), "counts 2 calls per step"),
            (({**GOOD, "author": ("outside", "no edit")},), "for others to say"),
            (({**GOOD, "author": ("leave", "shortest")},), "gradients are wrong"),
            (({**GOOD, "author": ("return", "no edit")},), "can be defended, but not with"),
            (({**GOOD, "user": ("guard", "whoever")},), "cannot make"),
            (({**GOOD, "user": ("return", "whoever")},), "cannot make"),
            (({**GOOD, "user": ("replay", "shortest")},), "Characters are not what goes wrong"),
            (({**GOOD, "tomorrow": ("return", "whoever")},), "keys, values"),
            (({**GOOD, "tomorrow": ("idempotent", "whoever")},), "a risk for this one"),
            ((dict.fromkeys(ROLES, ("eval", "memory")),), "non-reentrant: raises, metadata"),
            (({**GOOD, "user": ("grad mode", "no edit")},), "reentrant off, then on; non-reentrant on, then on"),
            ((dict.fromkeys(ROLES, ("guard", "whoever")),), "author: it is right for those who announce"),
            (({**GOOD, "user": ("pray", "no edit")},), "is none of"),
            (({**GOOD, "user": ("replay", "why not")},), "is none of"),
            (({**GOOD, "user": (["replay"], "no edit")},), "is none of"),
            (({**GOOD, "user": "replay"},), "a pair"),
            (({},), "author, user, tomorrow"),
        ],
    ),
}
