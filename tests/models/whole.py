"""Whole public models, with the checkpointing that they bring along: what becomes of their gradients?

The same comparison as that of the blocks, by no instrument of the lab; and a witness that rides along.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

from models.independent import SEEDS, Comparison, Outcome, bounded, compared, loss_of, seeded, state_of, worst
from models.transformers_blocks import seeded as same
from torch import nn
from torch.utils.checkpoint import checkpoint


def switched_on(model: nn.Module, use_reentrant: bool | None, **options) -> nn.Module:
    """The model's own checkpointing, layer by layer; a recomputation that never ends raises. With `use_reentrant` None
    the layers are called and not checkpointed.
    """
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": bool(use_reentrant)})
    if not model.training:
        raise ValueError("checkpointing is for training: call model.train()")
    for part in model.modules():
        if hasattr(part, "_gradient_checkpointing_func"):
            part._gradient_checkpointing_func = functools.partial(_bounded, use_reentrant=use_reentrant, **options)
    return model


def _bounded(segment: Callable, *args, use_reentrant: bool | None, **options):
    if use_reentrant is None:
        return segment(*args)
    return checkpoint(bounded(segment) if use_reentrant else segment, *args, use_reentrant=use_reentrant, **options)


def step(
    fresh: Callable[[], tuple[nn.Module, dict]], seed: int, loss: Callable = loss_of, use_reentrant=None, **options
) -> Outcome:
    """One forward and backward of a model; `use_reentrant` None is the plain run."""
    model, inputs = fresh()
    switched_on(model, use_reentrant, **options)
    seeded(seed)
    try:
        loss(model(**inputs)).backward()
    except Exception as error:
        return Outcome(error=f"{type(error).__name__}: {error}")
    gradients = {name: None if p.grad is None else p.grad.detach() for name, p in model.named_parameters()}
    return Outcome(gradients, state_of(model))


def compare_whole(
    make: Callable, loss: Callable = loss_of, seeds: tuple[int, ...] = SEEDS[:3]
) -> dict[str, Comparison]:
    """For each implementation the worst of several seeds, against the model without checkpointing."""
    made = same(make)()
    fresh = functools.partial(copy.deepcopy, made)
    plain = {seed: step(fresh, seed, loss) for seed in seeds}
    for outcome in plain.values():
        if outcome.error:
            raise RuntimeError(f"the plain run fails: {outcome.error}")
    return {
        name: worst([compared(plain[seed], step(fresh, seed, loss, use_reentrant=reentrant)) for seed in seeds], seeds)
        for name, reentrant in (("reentrant", True), ("non-reentrant", False))
    }
