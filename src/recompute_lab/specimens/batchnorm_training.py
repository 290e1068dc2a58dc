"""The network with BatchNorm learns digits while the light changes; every step, and what eval mode sees, is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from recompute_lab.specimens.batchnorm_net import BatchNormNet
from recompute_lab.specimens.digits import digit_images
from recompute_lab.specimens.threads import threads

HELD_OUT = 500  # of 1,797 digits: the same ones in every run
OPTIMIZERS = {
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
    "adam": lambda parameters, rate: torch.optim.Adam(parameters, lr=rate),
}


@dataclass(frozen=True)
class Settings:
    """A training run but for its way to checkpoint.

    `momentum` is that of the BatchNorms; the optimizer's own is 0.9 for "sgd". Over the `steps` of the run the images
    are changed by `drift`, as in `drifted`. With `decay` the learning rate falls to zero over them, in equal steps.
    `seed` decides weights and the order of images.
    """

    steps: int = 100
    batch: int = 32
    momentum: float | None = 0.1
    drift: float = 0.0
    optimizer: str = "sgd"
    learning_rate: float = 0.05
    decay: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Statistics:
    """What a BatchNorm keeps: running mean and variance, [C], float32, and how many batches it has counted."""

    mean: torch.Tensor
    variance: torch.Tensor
    tracked: int

    @classmethod
    def of(cls, norm: nn.modules.batchnorm._BatchNorm) -> Statistics:
        """A copy of what it keeps as it is now."""
        kept = norm.running_mean, norm.running_var
        return cls(*(tensor.clone().cpu() for tensor in kept), int(norm.num_batches_tracked))


@dataclass(frozen=True)
class Step:
    """One step of training: its loss in nats, all gradients as one digest, and each BatchNorm's statistics after it.

    Equal digests mean gradients that are equal bit for bit.
    """

    number: int
    loss: float
    gradients: str
    statistics: dict[str, Statistics]


@dataclass(frozen=True)
class Evaluation:
    """After `step` steps, in eval mode, on the held-out images as they look then: share of errors, loss in nats."""

    step: int
    error: float
    loss: float


class BatchNormRun:
    """Training of one `BatchNormNet`; `run_segment(segment, x)` says how its segment is run, plainly by default.

    `history` has one `Step` per step taken, `start` the statistics before the first, `evaluations` what was measured.
    One thread is used, whatever torch is set to, and no random stream but the run's own is drawn from. Raises
    ValueError where settings make no run.
    """

    def __init__(
        self,
        settings: Settings = Settings(),  # noqa: B008 - frozen
        run_segment: Callable | None = None,
        device: str | torch.device = "cpu",
    ):
        if settings.optimizer not in OPTIMIZERS:
            raise ValueError(f"an optimizer is one of {', '.join(OPTIMIZERS)}; got {settings.optimizer!r}")
        if settings.steps < 1 or settings.batch < 2:
            raise ValueError(
                f"a run needs a step at least, and two images in a batch; got {settings.steps} and {settings.batch}"
            )
        self.settings, self.run_segment = settings, run_segment
        self.net, self.device = BatchNormNet(settings.momentum, settings.seed).to(device), device
        self.optimizer = OPTIMIZERS[settings.optimizer](self.net.parameters(), settings.learning_rate)
        self.order = torch.Generator().manual_seed(1_000_000 + settings.seed)
        self.train_index, self.test_index = _split()
        self.start = self.statistics()
        self.history: list[Step] = []
        self.evaluations: list[Evaluation] = []

    @property
    def progress(self) -> float:
        """How far the run is, from 0 to 1."""
        return len(self.history) / self.settings.steps

    def statistics(self) -> dict[str, Statistics]:
        """Those of each BatchNorm as they are now, by its name in the segment."""
        return {name: Statistics.of(norm) for name, norm in self.net.norms().items()}

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The next images [batch, 1, 8, 8], as they look at this point of the run, and their labels [batch]."""
        picks = torch.randint(len(self.train_index), (self.settings.batch,), generator=self.order)
        return self._look(self.train_index[picks])

    def step(self) -> Step:
        """One step of training. Raises ValueError where the run is over."""
        if len(self.history) == self.settings.steps:
            raise ValueError(f"the run has its {self.settings.steps} steps; make another one with more")
        if self.settings.decay:
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.learning_rate * (1 - self.progress)
        with threads(1), fixed_convolutions(self.device):
            images, labels = self.batch()
            self.net.train()
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.net(images, self.run_segment), labels)
            loss.backward()
            gradients = digest(p.grad for p in self.net.parameters())
            self.optimizer.step()
        self.history.append(Step(len(self.history) + 1, loss.item(), gradients, self.statistics()))
        return self.history[-1]

    def evaluate(self) -> Evaluation:
        """In eval mode, on all held-out images; nothing of the run changes but `evaluations`."""
        was_training = self.net.training
        with threads(1), torch.no_grad():
            images, labels = self._look(self.test_index)
            logits = self.net.eval()(images)
            error = float((logits.argmax(1) != labels).double().mean())
            measured = Evaluation(len(self.history), error, float(F.cross_entropy(logits, labels)))
        self.net.train(was_training)
        self.evaluations.append(measured)
        return measured

    def train(self, probes: Iterable[int] = (), until: int | None = None) -> BatchNormRun:
        """All steps that are left, or those up to step `until`; the run itself.

        It is evaluated after each number of steps in `probes`, and at the end.
        """
        end = self.settings.steps if until is None else until
        probes = {*probes, end}
        while len(self.history) < end:
            self.step()
            if len(self.history) in probes:
                self.evaluate()
        return self

    def _look(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = digit_images()
        images, labels = images[index].to(self.device), labels[index].to(self.device)
        return drifted(images, self.settings.drift, self.progress), labels


def drifted(images: torch.Tensor, drift: float, progress: float) -> torch.Tensor:
    """The images in a light that grows: at `progress` 1, contrast has risen by `drift` times, brightness by `drift`.

    Values are 0 to 1 at first. With a drift of 1 the contrast doubles over the run, and the values end at 1 to 3.
    """
    change = drift * progress
    return images * (1 + change) + change


def fixed_convolutions(device: str | torch.device) -> AbstractContextManager:
    """Inside, cuDNN convolves in one order and in full precision: runs on a GPU can be compared bit for bit."""
    if torch.device(device).type != "cuda":
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """16 hexadecimal digits that differ where a bit of a tensor does."""
    whole = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        whole.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return whole.hexdigest()


def _split() -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of the digits to learn from, and of those held out: one split for all runs."""
    labels = digit_images()[1]
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return shuffled[HELD_OUT:], shuffled[:HELD_OUT]
