"""The network with dropout learns digits: few images to learn from, many held out; all replicas in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from recompute_lab.specimens.digits import digit_sequences
from recompute_lab.specimens.dropout_net import DropoutNet, cross_entropy, plain
from recompute_lab.specimens.noise import noise_off


@dataclass(frozen=True)
class Settings:
    """A training run but for its dropout, seeds and way to checkpoint. AdamW with torch's defaults otherwise."""

    steps: int = 400
    batch: int = 50
    train_images: int = 300
    learning_rate: float = 2e-3
    width: int = 64


@dataclass(frozen=True)
class Measured:
    """What one replica knew after `step` steps, dropout off: mean cross-entropy in nats, and the share it got right.

    `logit_scale` is the standard deviation of its held-out logits. `reported_loss` is what the run itself would have
    logged: the mean loss of the forwards since the last measurement, with their masks, each just before its step.
    """

    step: int
    train_loss: float
    test_loss: float
    train_accuracy: float
    test_accuracy: float
    logit_scale: float
    reported_loss: float


class DropoutRun:
    """Training of one network per seed. A seed decides weights, which images are learned from, and their order.

    `run` and `segment` say what is checkpointed and how, as in `DropoutNet.losses`. torch's generator is seeded anew
    for each step, so that the forward of a step draws the same masks whatever recomputations drew before; these masks
    belong to the list of seeds, not to each alone. Outside `step` the generator is left as it stands.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        p: float,
        depth: int,
        run: Callable = plain,
        segment: str = "block",
        settings: Settings = Settings(),  # noqa: B008 - frozen
    ):
        self.settings, self.run, self.segment = settings, run, segment
        self.net = DropoutNet(seeds, p, depth, width=settings.width)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=settings.learning_rate)
        self.orders = [torch.Generator().manual_seed(1_000_000 + seed) for seed in seeds]
        shuffled = torch.stack([torch.randperm(1797, generator=order) for order in self.orders])
        self.train_index, self.test_index = shuffled.split([settings.train_images, 1797 - settings.train_images], 1)
        self.steps = 0
        self.reported: list[torch.Tensor] = []

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The next images [S, B, 64] and labels [S, B]: drawn from each replica's own, with replacement."""
        size = (self.settings.batch,)
        picks = torch.stack([torch.randint(self.settings.train_images, size, generator=g) for g in self.orders])
        return _digits(self.train_index.gather(1, picks))

    def step(self) -> torch.Tensor:
        """One step of training; the losses, [S], of the forward with its masks."""
        images, labels = self.batch()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.steps)
            losses = self.net.losses(images, labels, self.run, self.segment)
            self.optimizer.zero_grad()
            losses.sum().backward()  # a replica's gradient is that of its own loss
        self.optimizer.step()
        self.steps += 1
        self.reported.append(losses.detach())
        return losses.detach()

    def measure(self) -> list[Measured]:
        """Each replica on all it learns from and all that is held out. Raises ValueError where no step was taken."""
        if not self.reported:
            raise ValueError("nothing was learned since the last measurement: take a step first")
        columns = []
        with torch.no_grad(), noise_off():
            for index in (self.train_index, self.test_index):
                images, labels = _digits(index)
                logits = self.net(images)
                right = (logits.argmax(-1) == labels).double().mean(1)
                columns.append((cross_entropy(logits, labels).tolist(), right.tolist()))
        (train_loss, train_right), (test_loss, test_right) = columns
        scale = logits.flatten(1).std(1).tolist()  # of the held-out ones, which came last
        reported = torch.stack(self.reported).mean(0).tolist()
        self.reported.clear()
        numbers = zip(train_loss, test_loss, train_right, test_right, scale, reported, strict=True)
        return [Measured(self.steps, *row) for row in numbers]

    def train(self, probes: Sequence[int]) -> list[list[Measured]]:
        """Up to the last of `probes`, step numbers in ascending order; per probe, what each replica then knows."""
        measured = []
        for probe in probes:
            while self.steps < probe:
                self.step()
            measured.append(self.measure())
        return measured


def _digits(index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Images [S, N, 64] and labels [S, N] of the digits with these numbers, [S, N]."""
    patches, labels = digit_sequences()
    return patches.flatten(1)[index], labels[index]
