"""A training run that a crash can stop, and that can be taken back to any of its last steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import CheckpointError

from recompute_lab.specimens.digits import digit_sequences
from recompute_lab.specimens.norm_cap import GuardedNormCap, ratios
from recompute_lab.specimens.threads import threads
from recompute_lab.specimens.trunk import DigitClassifier, Trunk, exact


def _copied(state: dict) -> dict:
    """A copy of nested containers and of the tensors in them; five times as fast as `copy.deepcopy`."""
    return tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, state)


@dataclass(frozen=True)
class Step:
    """One step: how many of the batch's vectors the cap shortened, and how many were above nine tenths of it.

    `mean` and `largest` are those of the vectors' ratios, as a share of the cap. `gradient` is the norm of all
    gradients; a step that crashed in backward has none, and it is NaN.
    """

    number: int
    capped: int
    near: int
    mean: float = math.nan
    largest: float = math.nan
    loss: float = math.nan
    gradient: float = math.nan


class DigitRun:
    """Train `DigitClassifier` on the digits with AdamW, one call of `step` at a time.

    `run_trunk(trunk, stream)` says how the trunk is run: plainly by default. `noise` enters the norm caps. `history`
    has one `Step` per step begun, the one that crashed included; it is counted in the forward, outside the segment's
    own code. `states` holds the state before each of the last `keep` steps; `load` takes one of them. A step uses one
    thread, which is faster for a model this small; only the noise is given as many as torch is set to, since threads
    are what it is made of.
    """

    def __init__(
        self,
        cap: Callable[[float], nn.Module] = GuardedNormCap,
        noise: Callable = exact,
        run_trunk: Callable | None = None,
        *,
        limit: float = 1.2,
        seed: int = 0,
        learning_rate: float = 4e-3,
        batch: int = 32,
        blocks: int = 8,
        keep: int = 10,
        device: str | torch.device = "cpu",
    ):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = DigitClassifier(Trunk(cap, limit, noise=self._noisy, blocks=blocks)).to(device)
        self.noise, self.run_trunk = noise, run_trunk
        self._threads: int | None = None
        self.patches, self.labels = (data.to(device) for data in digit_sequences())
        self.batch = batch
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate)
        self.order = torch.Generator().manual_seed(seed)
        self.history: list[Step] = []
        self.states: deque[dict] = deque(maxlen=keep)
        self._seen: list[tuple] = []
        self.model.trunk.blocks[0].caps[0].register_forward_pre_hook(self._count)

    @property
    def trunk(self) -> Trunk:
        return self.model.trunk

    def step(self) -> float:
        """One step of training; the loss. A `CheckpointError` passes through and leaves the weights as they were."""
        if self.states.maxlen:
            self.states.append(self.state())
        self._seen.clear()
        self.optimizer.zero_grad()
        self._threads = torch.get_num_threads()
        value = gradient = math.nan
        try:
            with threads(1):
                loss = F.cross_entropy(*self.forward())
                value = loss.item()
                loss.backward()
                gradient = float(torch.stack([p.grad.norm() for p in self.model.parameters()]).norm())
                self.optimizer.step()
        finally:
            self._threads = None
            if self._seen:
                self.history.append(Step(len(self.history), *self._seen[0], value, gradient))
        return value

    def trunk_input(self) -> torch.Tensor:
        """The stream that enters the trunk in the next step: [batch, 16, width], a part of the graph. Takes no step."""
        order = self.order.get_state()
        taken = []
        handle = self.trunk.register_forward_pre_hook(lambda module, arguments: taken.append(arguments[0]))
        try:
            self.forward()
        finally:
            handle.remove()
            self.order.set_state(order)
        return taken[0]

    def forward(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and labels of the next batch."""
        index = torch.randint(0, len(self.labels), (self.batch,), generator=self.order).to(self.labels.device)
        return self.model(self.patches[index], self.run_trunk), self.labels[index]

    def train(self, steps: int) -> CheckpointError | None:
        """Up to `steps` steps; the error that ended them, or None."""
        for _ in range(steps):
            try:
                self.step()
            except CheckpointError as error:
                return error
        return None

    def state(self) -> dict:
        """A copy of weights, optimizer state, data order and history."""
        return _copied(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "order": self.order.get_state(),
                "history": self.history,
            }
        )

    def load(self, state: dict) -> None:
        """Go back to a state that `state` or `states` gave."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(_copied(state["optimizer"]))
        self.order.set_state(state["order"])
        self.history = list(state["history"])

    def _noisy(self, tensor: torch.Tensor) -> torch.Tensor:
        with threads(self._threads or torch.get_num_threads()):
            return self.noise(tensor)

    def _count(self, cap: nn.Module, arguments: tuple) -> None:
        if self._seen:  # the forward's count is the one that is kept; this is a recomputation
            return
        lengths = ratios(*arguments)
        capped, near = (int((cap.limit * f / lengths < 1).sum()) for f in (1.0, 0.9))  # as `cap_scale` divides
        of_the_cap = lengths / cap.limit
        self._seen.append((capped, near, float(of_the_cap.mean()), float(of_the_cap.max())))
