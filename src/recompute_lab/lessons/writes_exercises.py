"""Lesson 05's exercises: a momentum; find every write, repair it in two ways, choose who should repair it how."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import CodeType, FunctionType

import numpy as np
import torch
from torch import nn

from recompute_lab.instruments.checkpointing import NON_REENTRANT, PLAIN, REENTRANT, Strategy, weighted_sum
from recompute_lab.instruments.gradients import divergence
from recompute_lab.instruments.isolation import isolated
from recompute_lab.instruments.state import equal_values
from recompute_lab.instruments.writes import Write, writes
from recompute_lab.lessons import momentum_exercise
from recompute_lab.lessons.exercise import Exercises, Hints, Wrong
from recompute_lab.lessons.side_effect_repairs import Training, train
from recompute_lab.lessons.side_effects import rows, with_context
from recompute_lab.repairs.recomputation import announced
from recompute_lab.specimens import unknown_writes as unknown
from recompute_lab.specimens.counters import CountedOnce
from recompute_lab.specimens.kept_things import CachedAt
from recompute_lab.specimens.layers import Layers
from recompute_lab.specimens.running_state import frozen_in_recomputation
from recompute_lab.specimens.unknown_writes import UNKNOWN, Smoothed, sharpened

check = Exercises()
hint = Hints(check)

BOTH = (REENTRANT, NON_REENTRANT)


check.add(*momentum_exercise.HINTS)(momentum_exercise.momentum)


# --- Find all writes


def short(name: str) -> str:
    """The last part of a name, small: "mean" of "first.mean", "seen" of "first._forward_hooks[0].seen".

    Of `seen["largest"]` the name before the index. A stream may be named by what draws from it: "torch.rand".
    """
    small = re.sub(r"\[[^\[\]]*\]$", "", name.strip()).casefold()
    for stream, pattern in _STREAMS.items():
        if re.match(pattern, small):
            return stream
    return small.rpartition(".")[2]


_STREAMS = {"torch": r"torch\b", "numpy": r"(np|numpy)\b", "python": r"(python|random)\b"}


@check.add(
    "What to look for: self.NAME = or +=, an in-place method or an index on a buffer, append and update, a class's "
    "name before the dot, `global`, a function's own attribute.",
    "What one does not see in forward: a hook registered elsewhere; a default argument that is a list, made once for "
    "all calls; a random stream, which moves on with each draw.",
    "Names: of a variable, attribute or parameter as in the source; of a stream 'torch', 'NumPy' or 'Python'.",
)
def find_all(answer: dict) -> str:
    """`answer[segment]` is a set of names; the instrument says what the segments write."""
    if not isinstance(answer, dict) or set(answer) != set(UNKNOWN):
        raise Wrong(f"answer with a dict, one set of names each for {', '.join(UNKNOWN)}.")
    told, all_found = [], []
    for segment, make in UNKNOWN.items():
        given = answer[segment] if isinstance(answer[segment], str | dict) else _members(answer[segment])
        if isinstance(given, str | dict) or not all(isinstance(name, str) for name in given):
            raise Wrong(f"{segment}: give a set of names, such as {{'mean', 'NumPy'}}.")
        found = {short(write.name): write for write in writes(make(), rows())}
        all_found += found.values()
        names = {short(name): name for name in given}
        told += [_not_written(segment, names[n]) for n in sorted(names.keys() - found.keys())]
        told += [f"{segment}: you missed {_described(found[n])}." for n in sorted(found.keys() - names.keys())]
    if told:
        raise Wrong(" ".join(told))
    same = [short(write.name) for write in all_found if not write.repeated_by]
    return (
        f"all {len(all_found)}, and none that is not there. As in the plain run, in spite of two passes, end "
        f"{' and '.join(same)}: a maximum does not care how often, and torch's stream is replayed."
    )


def _not_written(segment: str, name: str) -> str:
    """Why a name is wrong; a key is told apart from what is not written at all."""
    if f'["{name}"]' in unknown.source(segment):
        return f"{segment}: {name!r} is a key. Name the dict that holds it."
    return f"{segment}: {name!r} is not written."


def _members(given) -> list:
    try:
        return list(given)
    except TypeError:
        raise Wrong("a set of names is needed, such as {'mean', 'NumPy'}.") from None


_ARTICLES = {"attribute": "an attribute", "argument": "an argument", "class attribute": "a class attribute"}


def _described(write: Write) -> str:
    """A write without its name."""
    return f"{_ARTICLES.get(write.kind, f'a {write.kind}')} ({write.told}, {'also' if write.read else 'not'} read)"


# --- Smoothed, repaired in its code and from outside


@check.add(
    "Subclass Smoothed and write forward anew. What must not happen in the recomputation stands under "
    "`if not recomputing():`. What is read afterwards is then what the forward wrote.",
    "Three writes, three guards, or one: mean, calls, history. Nothing else may depend on recomputing().",
)
def guarded(answer: type) -> str:
    """`answer` is a subclass of `Smoothed`, checkpointed with `context_fn=announced`."""
    if not isinstance(answer, type) or not issubclass(answer, Smoothed):
        raise Wrong("give a class: class Repaired(Smoothed), with a forward of its own.")
    if _history(answer()) is None:
        raise Wrong(
            "where is the list? It is looked for as the default of forward's argument history, or as an attribute of "
            "that name: yours has neither."
        )
    plain = train(Smoothed(), PLAIN, look=_smoothed_state)
    for strategy in (PLAIN, *BOTH):
        made = train(answer(), with_context(strategy, announced), look=_smoothed_state)
        where = "without checkpointing" if strategy is PLAIN else strategy.name
        _must_agree(made, plain, _smoothed_state(answer()), where, answer)
    _must_evaluate_alike(answer())
    return "gradients and state are the plain run's over twenty steps, bit for bit, under both implementations."


def _must_evaluate_alike(repaired: Smoothed) -> None:
    """Raises `Wrong` unless a forward in evaluation mode does what `Smoothed`'s does, plain and checkpointed."""
    theirs = _evaluated(Smoothed(), PLAIN)
    for strategy in (PLAIN, *BOTH):
        ours = _evaluated(repaired, with_context(strategy, announced))
        if wrong := [name for name in theirs if not equal_values(ours[name], theirs[name])]:
            differ = f"{' and '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} not what Smoothed gives"
            where = "without a recomputation" if strategy is PLAIN else f"checkpointed ({strategy.name})"
            raise Wrong(
                f"in training all is right. In evaluation mode, {where}, {differ}: what does it do where "
                "self.training is False?"
            )


def _evaluated(module: Smoothed, strategy: Strategy) -> dict[str, object]:
    """What forward and backward in evaluation mode return and write, from a state that is given."""
    with isolated(module, rows()) as call:
        module.calls, module.mean = 10, torch.linspace(-1.0, 1.0, 16)
        module.eval()
        length = len(_smoothed_state(module)["history"])
        output = strategy(module, *call.args)
        weighted_sum(output).backward()
        state = _smoothed_state(module)
        return {"its output": output.detach().clone(), **state, "history": len(state["history"]) - length}


@check.add(
    "A context_fn returns two context managers: the forward runs in the first, the recomputation in the second. The "
    "first can take the state down on entering; the second sets it, and on leaving puts back what it found.",
    "state_replayed(module) knows attributes and buffers. The list is a default argument of Smoothed.forward: "
    "Smoothed.forward.__defaults__[0].",
    "In the second one: with state_replayed's own recomputation around the yield, cut the list back to its length "
    "afterwards: del history[length:]. In a finally: early stop leaves by an exception.",
)
def from_outside(answer: Callable) -> str:
    """`answer(module)` returns a `context_fn` for a `Smoothed` whose code nobody touches."""
    if not callable(answer) or isinstance(answer, type):
        raise Wrong("give a function: def context(module), which returns a context_fn.")
    for calls in (1, 2):
        module = Smoothed()
        plain = train(module, PLAIN, calls=calls, look=_smoothed_state)
        for strategy in BOTH:
            where, modes = _where(strategy, calls), []
            context_fn = _context_fn(answer(module), lambda module=module, modes=modes: modes.append(module.training))
            made = train(module, with_context(strategy, context_fn), calls=calls, look=_smoothed_state)
            if False in modes:
                raise Wrong(
                    f"{where}: in the recomputation the module is in evaluation mode. There it computes something "
                    f"else, as BatchNorm does: gradients are off by {_gradient_error(made, plain):.1f} of their size. "
                    "It is not the mode that has to change, but what the second write comes to."
                )
            _must_agree(made, plain, _smoothed_state(module), where, answer)
    return "both implementations, one call before a backward or two, and not a line of it edited."


def _smoothed_state(module: Smoothed) -> dict[str, object]:
    """Copies of what a `Smoothed` writes."""
    return {"calls": module.calls, "history": list(_history(module) or ()), "mean": module.mean.clone()}


def _history(module: Smoothed) -> list | None:
    """The list that it writes: a default argument, or an attribute that it has become; None where there is neither."""
    default = inspect.signature(type(module).forward).parameters.get("history")
    return getattr(module, "history", default.default if default else None)


def _where(strategy: Strategy, calls: int) -> str:
    return f"{strategy.name}, {'one call' if calls == 1 else 'two calls'} before each backward"


def _context_fn(given, look: Callable = lambda: None) -> Callable:
    """A checked context_fn: what it gives is a pair of context managers, or a sentence says what is missing.

    `look()` is called in each recomputation, once its context has been entered.
    """
    if not callable(given):
        raise Wrong(f"a context_fn is a function that returns two context managers; yours is {type(given).__name__}.")

    def checked():
        pair = given()
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(hasattr(c, "__enter__") for c in pair):
            raise Wrong("a context_fn returns two context managers: for the forward, and for its recomputation.")
        return pair[0], _looked_at(pair[1], look)

    return checked


class _looked_at:  # noqa: N801 -- used like a function
    def __init__(self, context, look: Callable):
        self.context, self.look = context, look

    def __enter__(self):
        self.context.__enter__()
        self.look()

    def __exit__(self, *error):
        return self.context.__exit__(*error)


def _must_agree(made: Training, plain: Training, start: dict[str, object], where: str, answer) -> None:
    """Raises `Wrong`, and says what differs, unless a training equals the plain one bit for bit.

    `start` is the state before; `answer` is asked whether it goes by grad mode.
    """
    wrong = [name for name, value in plain.state.items() if not equal_values(made.state[name], value)]
    error, told = _gradient_error(made, plain), []
    for name in wrong:
        now, expected = made.state[name], plain.state[name]
        if equal_values(now, start[name]):
            told.append(f"{name} stays where it was, for good: it is not written in the forward, either")
        elif not isinstance(expected, torch.Tensor) and _brief(now) != _brief(expected):
            told.append(f"{name} ends at {_brief(now)}, in the plain run at {_brief(expected)}")
        elif not error:  # other gradients, and what is tracked of activations is another
            told.append(f"{name} ends elsewhere than in the plain run")
    if error:
        told.append(f"gradients are off by {error:.2g} of their size")
    if told or made.differs_from(plain):
        raise Wrong(f"{where}: {'; '.join(told) or 'the losses differ'}.{_trap(answer)}")


def _gradient_error(made: Training, plain: Training) -> float:
    """The largest relative error of any gradient in the first step that has one."""
    for a, b in zip(made.gradients, plain.gradients, strict=True):
        pairs = [(a[n], b[n]) for n in b if a.get(n) is not None and b[n] is not None]
        if worst := max((float((x - y).norm() / (y.norm() + 1e-12)) for x, y in pairs), default=0.0):
            return worst
    return 0.0


def _brief(value) -> str:
    return f"{len(value)} entries" if isinstance(value, list) else f"{value:.4g}"


def _trap(answer) -> str:
    """A sentence on grad mode, where the answer asks for it; else nothing."""
    if "is_grad_enabled" in _names(answer):
        return (
            " Grad mode does not tell the passes apart: non-reentrant has it on in both, and reentrant has it off in "
            "the forward, on in the recomputation."
        )
    return ""


def _names(answer) -> set[str]:
    """The names that the code of a function, a class's methods, or of several such uses."""
    if isinstance(answer, tuple | list):
        return set().union(*map(_names, answer))
    if isinstance(answer, type):
        return set().union(*[_names(f) for f in vars(answer).values() if isinstance(f, FunctionType)])
    code = answer if isinstance(answer, CodeType) else getattr(inspect.unwrap(answer), "__code__", None)
    if code is None:
        return set()
    return set(code.co_names).union(*[_names(const) for const in code.co_consts if isinstance(const, CodeType)])


# --- sharpened: its writes moved out of the segment, and replayed


class _Sharpened(Layers):
    """The function, or two that take its place, as a module that `train` can run: a factor is all it has to learn."""

    def __init__(self, segment: Callable = sharpened, once: Callable | None = None):
        super().__init__()
        self.segment, self.once = segment, once
        self.original = sharpened  # its state is searched, whatever takes its place

    def build(self) -> None:
        self.factor = nn.Parameter(torch.ones(16))

    def arguments(self, call: int, rows: int) -> tuple:
        if self.once is None:
            return ()
        values = self.once((rows, 16))
        if not isinstance(values, tuple | list):
            raise Wrong("once(shape) returns a tuple: what the segment takes besides x.")
        return tuple(values)

    def forward(self, x: torch.Tensor, *values) -> torch.Tensor:
        return self.segment(x * self.factor, *values)


def _sharpened_state(module: nn.Module | None = None) -> dict[str, object]:
    _, key, position, *_ = np.random.get_state()
    stream = torch.tensor([*key.tolist(), position])
    return {"TEMPERATURE": unknown.TEMPERATURE, "calls": sharpened.calls, "NumPy's stream": stream}


@check.add(
    "once(shape) is called for each call of the segment, outside of it: there all three writes belong. What the "
    "segment needs of them it gets as arguments: the temperature and the noise.",
    "The state stays where it is: `import recompute_lab.specimens.unknown_writes as unknown`, then "
    "unknown.TEMPERATURE = ... and unknown.sharpened.calls += 1.",
)
def moved_out(answer: tuple[Callable, Callable]) -> str:
    """`once(shape)`, called outside, returns a tuple; `segment(x, *values)` is what is checkpointed."""
    if not isinstance(answer, tuple | list) or len(answer) != 2 or not all(map(callable, answer)):
        raise Wrong("give both functions, as a pair: (once, segment).")
    once, segment = answer
    for calls in (1, 2):
        plain = train(_Sharpened(), PLAIN, calls=calls, look=_sharpened_state)
        for strategy in (PLAIN, *BOTH):
            made = train(_Sharpened(segment, once), strategy, calls=calls, look=_sharpened_state)
            where = "without checkpointing" if strategy is PLAIN else _where(strategy, calls)
            _must_agree(made, plain, _sharpened_state(), where, answer)
    return "a segment that only returns: it needs no context, no flag, and nobody who remembers either."


@check.add(
    "Take the temperature, the number of calls and NumPy's state down in the first context manager, on entering; set "
    "them in the second one, and on leaving put back what you found.",
    "np.random.get_state(), np.random.set_state(state). The two share a variable of context().",
    "What is put back stands in a finally: early stop, too, leaves the recomputation by an exception.",
)
def replayed(answer: Callable) -> str:
    """`answer()` is a `context_fn` for `sharpened`, whose code nobody touches."""
    if not callable(answer) or isinstance(answer, type):
        raise Wrong("give a function: def context(), which returns two context managers.")
    context_fn = _context_fn(answer)
    for calls in (1, 2):
        plain = train(_Sharpened(), PLAIN, calls=calls, look=_sharpened_state)
        for strategy in BOTH:
            made = train(_Sharpened(), with_context(strategy, context_fn), calls=calls, look=_sharpened_state)
            _must_agree(made, plain, _sharpened_state(), _where(strategy, calls), answer)
    return "a global, a function's attribute, a stream: to replay is one thing, whatever the state is kept in."


# --- Who should choose which repair

REPAIRS = {
    "guard": "if not recomputing(): around the write, in the code",
    "replay": "context_fn=state_replayed(module), in the call of checkpoint",
    "return": "return what was written, and let the caller write it, outside the segment",
    "idempotent": "write so that a second time does nothing: to a place the caller names, or from a committed state",
    "outside": "leave the layer that writes out of the checkpointed segments",
    "leave": "leave it as it is, and divide what is logged by two",
    "eval": "module.eval() in the recomputation",
    "grad mode": "if torch.is_grad_enabled(): around the write",
}
REASONS = {
    "whoever": "it is right whoever checkpoints it, whether they announce the recomputation or not",
    "no edit": "it changes no line of the library",
    "same run": "gradients, the names in the state dict and the signatures stay those of the run",
    "shortest": "it is the fewest characters",
    "memory": "it needs the least memory",
}
ROLES = {
    "author": "writes a layer whose running state is read in training; others put it into segments of their own",
    "user": "uses such a layer, cannot edit the library, and calls checkpoint in their own code",
    "tomorrow": "has a run of three weeks that goes on tomorrow, with a counter in it that is logged and not read",
}
_DEFENSIBLE = {
    "author": {"return": ("whoever",), "idempotent": ("whoever",)},
    "user": {
        "replay": ("no edit", "same run"),
        "outside": ("no edit", "same run"),
        "idempotent": ("no edit", "whoever", "same run"),
    },
    "tomorrow": {
        "leave": ("same run", "no edit"),
        "replay": ("same run", "no edit"),
        "guard": ("same run",),
        "outside": ("same run", "no edit"),
    },
}


@check.add(
    "Who can change the layer's code? Who can change the call of checkpoint? Who can change neither without a risk to "
    "something that runs?",
    "An author does not know who will checkpoint the layer, and how. What is right without being told anything?",
    "A run that goes on must find its state dict, and its curve should not bend tomorrow for a reason of yesterday's.",
)
def who_chooses(answer: dict) -> str:
    """`answer[role] = (repair, reason)`, of REPAIRS and REASONS; several can be defended."""
    if not isinstance(answer, dict) or set(answer) != set(ROLES):
        raise Wrong(f"answer for {', '.join(ROLES)}.")
    for role, given in answer.items():
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise Wrong(f"{role}: give a pair, (repair, reason).")
        for said, choices in zip(given, (REPAIRS, REASONS), strict=True):
            if not isinstance(said, str) or said.casefold() not in choices:
                raise Wrong(f"{role}: {said!r} is none of {', '.join(map(repr, choices))}.")
        repair, reason = map(str.casefold, given)
        if repair not in _DEFENSIBLE[role]:
            raise Wrong(f"{role}: {_objection(role, repair)}")
        if reason not in _DEFENSIBLE[role][repair]:
            raise Wrong(
                f"{role}: {repair!r} can be defended, but not with {reason!r}: {REASONS[reason]}. {_WHY_NOT[reason]}"
            )
    return (
        "all three can be defended. Who owns the code makes it pure or idempotent; who owns the call replays; who owns "
        "a run changes as little as is right."
    )


_WHY_NOT = {
    "whoever": "It depends on how checkpoint is called here, and around here.",
    "no edit": "It does: lines of the layer's own code. What counts is what it is right for.",
    "same run": "There is no run yet; what counts is what the layer does in anybody's.",
    "shortest": "Characters are not what goes wrong.",
    "memory": "A few bytes of state; what counts is what is right.",
}


def _objection(role: str, repair: str) -> str:
    """Why not, with what is measured where it can be."""
    if repair == "eval":
        return (
            f"in evaluation mode BatchNorm normalises with its running statistics: the recomputation is of another "
            f"function, or saves other tensors ({_batchnorm_in_eval()})."
        )
    if repair == "grad mode":
        return (
            "grad mode does not tell the passes apart: non-reentrant has it on in both, reentrant has it off in the "
            f"forward. Measured: {_grad_modes()}."
        )
    if role == "author" and repair in ("guard", "replay"):
        return (
            "it is right for those who announce the recomputation, and an author cannot know who does. Without it, a "
            f"guarded counter counts {_counted_unannounced()} calls per step, silently."
        )
    if role == "author" and repair == "outside":
        return "where the segments begin and end is for others to say."
    if repair == "leave":
        return "what is written is read in training: gradients are wrong, and no division brings them back."
    if role == "tomorrow" and repair == "idempotent":
        return (
            "it needs a commit() in the training loop, or other code in the layer: right for the next run, a risk for "
            "this one."
        )
    if role == "tomorrow":
        return (
            f"it changes the signature, or the names in the state dict ({', '.join(dict(CachedAt().named_buffers()))} "
            "of a cache that was a list, for example): right for the next run, a risk for this one."
        )
    return "that is a change of the library's code, which they cannot make."


def _counted_unannounced() -> int:
    module = CountedOnce()
    weighted_sum(NON_REENTRANT(module, rows())).backward()
    return module.calls


def _grad_modes() -> str:
    def modes_under(strategy: Strategy) -> list[bool]:
        modes = []

        def segment(x):
            modes.append(torch.is_grad_enabled())
            return torch.sin(x)

        weighted_sum(strategy(segment, rows())).backward()
        return modes

    words = {True: "on", False: "off"}
    return "; ".join(f"{s.name} {', then '.join(words[mode] for mode in modes_under(s))}" for s in BOTH)


def _batchnorm_in_eval() -> str:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(16, 16, bias=False), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 16))
    found = []
    for strategy in BOTH:
        result = divergence(module, rows(), strategy=with_context(strategy, frozen_in_recomputation(module)))
        off = f"off by {result.worst:.1f} of their size"
        found.append(f"{strategy.name}: " + (f"raises, {result.outcome}" if result.raised else f"gradients {off}"))
    return "; ".join(found)
