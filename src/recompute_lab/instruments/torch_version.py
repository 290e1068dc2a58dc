"""What differs between versions of torch: asked of the installed one by trying it, never read off its number.

Each function tries one thing on a few numbers and leaves nothing behind. `notebooks/versions.md` has their answers for
the versions that the course is run with, and what follows from them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

OLDEST, NEWEST = (2, 6), (2, 14)  # what every test and every output of the course is compared on


def not_tested(version: str | None = None) -> str:
    """A few lines about a torch that is older or newer than any the course is run with; "" for one in between.

    `version` is the installed one's, unless given. One without leading numbers (a build of somebody's own) gives "".
    """
    version = torch.__version__ if version is None else version
    release = tuple(map(int, re.findall(r"\d+", re.match(r"(\d+\.\d+)?", version)[0])))
    if not release or OLDEST <= release <= NEWEST:
        return ""
    if release < OLDEST:
        return f"torch {version} is too old for this course: {_dotted(OLDEST)} is needed."
    return (
        f"torch {version} is newer than any that this course was run with (up to {_dotted(NEWEST)}). Go on;\n"
        "where what you see and what the text says differ, what you see is right (versions.md has what is known).\n"
        f"For what is stored here, to the digit: pip install 'torch<{NEWEST[0]}.{NEWEST[1] + 1}'"
    )


# --- What torch says


def message_length() -> int:
    """How many characters a `CheckpointError` has: its two counts, and in newer versions a long tip."""
    return len(str(_caught(_saves_once_only())))


def implementation_not_chosen() -> str:
    """What `checkpoint` does without `use_reentrant`: which implementation it takes, and what it says about that."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            y = checkpoint(torch.sin, _leaf())
        except Exception as error:
            return f"raises {type(error).__name__}"
    taken = "reentrant" if "CheckpointFunction" in type(y.grad_fn).__name__ else "non-reentrant"
    promised = [match[1] for warning in said if (match := re.search(r"(\d+\.\d+)[^.]*exception", str(warning.message)))]
    return f"{taken}, and warns: an exception from {promised[0]} on" if promised else taken


def swallowed_stop_says() -> str:
    """The error's text where a segment's `except Exception` has caught early stop; "" for an error without a text."""
    weight = torch.ones((), requires_grad=True)

    def with_fallback(x):
        x = x * weight
        try:
            return x.sin()
        except Exception:
            return x.cos().exp()

    return str(_caught(with_fallback))


# --- What `checkpoint` takes


def early_stop_argument() -> str:
    """Who gets `checkpoint(..., early_stop=False)`: "checkpoint", or "the segment", among its own arguments."""
    got = {}

    def segment(x, **others):
        got.update(others)
        return x.sin()

    checkpoint(segment, _leaf(), use_reentrant=False, early_stop=False)
    return "the segment" if "early_stop" in got else "checkpoint"


def makes_a_decorator() -> bool:
    """Whether `checkpoint(use_reentrant=False)`, without a function, is a decorator."""
    try:
        return callable(checkpoint(use_reentrant=False))
    except TypeError:
        return False


# --- What it does


def clamp_gradient_on_bound() -> float:
    """The gradient of `x.clamp(-1, 1)` where x is exactly 1."""
    x = _leaf()
    x.clamp(-1.0, 1.0).backward()
    return x.grad.item()


def mask_from_seed_0() -> str:
    """Which of twenty places a `dropout` with p = 0.5 keeps (1) after `torch.manual_seed(0)`, on the CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kept = torch.nn.functional.dropout(torch.ones(20, device="cpu"), 0.5) > 0
    return "".join(str(int(place)) for place in kept)


def replays_default_device() -> bool:
    """Whether a recomputation makes its tensors under the `with torch.device(...)` around its forward alone."""
    devices = []

    def segment(x):
        devices.append(torch.empty(0).device)
        return x.sin()

    checkpoint(torch.sin, _leaf(), use_reentrant=False)  # a process's first one imports much, which meta may disturb
    with torch.device("meta"):
        y = checkpoint(segment, _leaf("cpu"), use_reentrant=False)
    y.backward()
    return devices[0] == devices[1]


def failed_forward_lingers() -> bool:
    """Whether, in the `except` around a segment whose forward has failed, all else is still part of that segment.

    What is saved for backward there then comes back by running the failed segment again, and raises its error.
    """

    def failing(x):
        raise _Failed

    try:
        checkpoint(failing, _leaf(), use_reentrant=False)
    except _Failed:
        try:
            _leaf().sin().backward()
        except _Failed:
            return True
    return False


def inner_checkpoint_saves() -> int:
    """How many tensors an outer segment is counted for a checkpoint inside of it, with one tensor as its argument."""
    saved = []
    with saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        checkpoint(torch.sin, _leaf(), use_reentrant=False)
    return len(saved)


def policy_is_asked_again() -> bool:
    """Whether selective checkpointing asks its policy in the recomputation, too."""
    asked = []
    y = _selective(lambda *_, **__: asked.append(1) or CheckpointPolicy.MUST_SAVE)
    in_forward = len(asked)
    y.backward()
    return len(asked) > in_forward


def policy_warns_beside_hooks() -> bool:
    """Whether selective checkpointing warns that what it keeps passes by `saved_tensors_hooks` (`save_on_cpu`)."""
    with warnings.catch_warnings(record=True) as said, saved_tensors_hooks(lambda t: t, lambda t: t):
        warnings.simplefilter("always")
        _selective(lambda *_, **__: CheckpointPolicy.MUST_SAVE)
    return any("saved_tensors_hooks" in str(warning.message) for warning in said)


QUESTIONS: tuple[Callable[[], object], ...] = (
    message_length,
    implementation_not_chosen,
    swallowed_stop_says,
    early_stop_argument,
    makes_a_decorator,
    clamp_gradient_on_bound,
    mask_from_seed_0,
    replays_default_device,
    failed_forward_lingers,
    inner_checkpoint_saves,
    policy_is_asked_again,
    policy_warns_beside_hooks,
)


def shown(answer: object) -> str:
    """An answer as the table has it."""
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if isinstance(answer, int | float):
        return f"{answer:,g}"
    return answer or "nothing"


def report() -> str:
    """All answers of the installed torch, a line each."""
    answers = [f"{question.__name__:<26} {shown(question())}" for question in QUESTIONS]
    return "\n".join([f"torch {torch.__version__}", *answers])


class _Failed(Exception):
    """What a failing segment raises here, so that nothing else is taken for it."""


def _leaf(device: str | None = None) -> torch.Tensor:
    return torch.ones((), requires_grad=True, device=device)


def _saves_once_only() -> Callable:
    passes = iter((True, False))
    return lambda x: x.sin() if next(passes) else x + 1


def _caught(segment: Callable) -> Exception:
    """The error of a checkpointed step of a segment that is known to raise one."""
    try:
        checkpoint(segment, _leaf(), use_reentrant=False).backward()
    except (CheckpointError, AssertionError) as error:
        return error
    raise RuntimeError("a checkpoint that had to raise did not: this torch does not do what the course says of it")


def _selective(policy: Callable) -> torch.Tensor:
    contexts = partial(create_selective_checkpoint_contexts, policy)
    return checkpoint(lambda x: x.sin().exp(), _leaf(), use_reentrant=False, context_fn=contexts)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
