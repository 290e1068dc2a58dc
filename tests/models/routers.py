"""Mixtures of experts whose router has a loss of its own: does it reach the router under the model's checkpointing?

The router's logits are collected by hooks while the layers run, and a loss that balances the load of the experts is
made of them. What is measured: the gradients of the routers against the plain run's, and against those of the plain
run without that loss.
"""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass

import torch
from models.transformers_blocks import EXPERTS, GROUPED, model_of, words
from models.transformers_blocks import seeded as same
from models.whole import step

ROUTED = {
    "Mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, **GROUPED},
    "Qwen2Moe": {"shared_expert_intermediate_size": 8, **EXPERTS},
    "Qwen3Moe": EXPERTS,
    "Olmoe": EXPERTS,
    "FlexOlmo": EXPERTS,
    "GptOss": {"num_local_experts": 4, "num_experts_per_tok": 2, **GROUPED},
    "Phimoe": {"num_local_experts": 4, **GROUPED},
    "GraniteMoe": {"num_local_experts": 4, **GROUPED},
    "Ernie4_5_Moe": {"moe_num_experts": 4, "moe_k": 2, "moe_layer_start_index": 0, **EXPERTS},
    "MiniMax": {"num_local_experts": 4, "num_experts_per_tok": 2, "block_size": 4, **GROUPED}
    | {"layer_types": ["full_attention", "linear_attention"]},
}


@dataclass
class Routed:
    """Of one model and implementation. `error` is |g - b| / |b| over all routers, b the plain run's gradient. `equal`
    says whether all gradients are the plain run's, bit for bit, `lost` whether they are those of the plain run without
    the routers' loss.
    """

    coefficient: float
    error: float
    equal: bool
    lost: bool


@same
def _model(family: str):
    inputs = words()
    return model_of(family, "ForCausalLM", **ROUTED[family]), inputs | {"labels": inputs["input_ids"].clone()}


def gradients(family: str, use_reentrant: bool | None, balanced: bool = True) -> dict[str, torch.Tensor]:
    """Of one step of the model, with the loss of the routers or without; `use_reentrant` None is the plain run."""
    made = _model(family)
    made[1]["output_router_logits"] = balanced
    outcome = step(functools.partial(copy.deepcopy, made), 0, lambda output: output.loss, use_reentrant)
    if outcome.error:
        raise RuntimeError(outcome.error)
    return {name: g for name, g in outcome.gradients.items() if g is not None}


def measure(family: str) -> dict[str, Routed]:
    plain, without = gradients(family, None), gradients(family, None, balanced=False)
    # A router has one output per expert; the gate of an expert that all share has one.
    routers = [n for n, g in plain.items() if ("gate" in n or "router" in n) and g.dim() == 2 and len(g) == 4]
    found = {}
    for name, use_reentrant in (("reentrant", True), ("non-reentrant", False)):
        theirs = gradients(family, use_reentrant)
        gap = sum(float((theirs[n] - plain[n]).square().sum()) for n in routers)
        size = sum(float(plain[n].square().sum()) for n in routers)
        found[name] = Routed(
            coefficient=_model(family)[0].config.router_aux_loss_coef,
            error=(gap / size) ** 0.5,
            equal=_same(theirs, plain),
            lost=_same(theirs, without),
        )
    return found


def _same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)
