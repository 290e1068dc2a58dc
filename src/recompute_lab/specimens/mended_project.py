"""The small project's sites, repaired: one of each kind, and, for one, a repair that only looks like one."""

from __future__ import annotations

import torch

from recompute_lab.repairs.recomputation import recomputing
from recompute_lab.specimens.small_project.caps import NormCap, cap_scale
from recompute_lab.specimens.small_project.experts import Experts


class AlwaysCapped(NormCap):
    """Graph: the operation always runs. Where no vector is too long, every scale is 1.0."""

    def forward(self, update, stream):
        return update * cap_scale(update, stream, self.limit).unsqueeze(-1)


def padding_always_filled(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    """Graph: an empty mask fills nothing. What `Mixer.spread` does where `padded`: [rows, places, width]."""
    return x.masked_fill(padding.unsqueeze(-1), 0.0)


def poisoned(x: torch.Tensor) -> torch.Tensor:
    """Looks like a repair: `torch.where` computes both arms, and 0 / 0 is NaN in the one that it does not choose."""
    deviation = x.std()
    return torch.where(deviation > 0, x / deviation, x)


def standardised(x: torch.Tensor) -> torch.Tensor:
    """Graph: the argument is made safe first. x / 1.0 is x."""
    deviation = x.std()
    return x / torch.where(deviation > 0, deviation, 1.0)


def every_bend(x: torch.Tensor) -> torch.Tensor:
    """An index into a table of functions: all of them run, and `torch.where` chooses. What `Block.bent` does.

    The argument of sin is made safe, since sin of an infinity is NaN. NaN in x comes out as NaN; `int` would raise.
    """
    reach = (3 * x.abs().amax()).clamp(max=2).trunc()
    sine = torch.sin(torch.where(reach == 1, x, 0.0))
    return torch.where(reach == 0, torch.tanh(x), torch.where(reach == 1, sine, torch.erf(x)))


class EveryExpert(Experts):
    """Rounds, an index, an exception and a count: no value decides how often the loop runs, or for whom.

    The index into the list of experts goes by the loop's own number. The scores are checked where they are: on a GPU
    nothing waits for that. The load is counted in the forward alone, for a checkpoint whose recomputation is announced.
    """

    def forward(self, x):
        scores = self.gate(x.mean(1))
        torch._assert_async(~torch.isnan(scores).any(), "the router's scores are no numbers")
        return self.dispatched(x, scores.argmax(-1), scores.softmax(-1).amax(-1))

    def dispatched(self, x, choice, weights):
        if not recomputing():
            self.load += torch.bincount(choice, minlength=len(self.experts))
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = choice == number
            result[rows] = expert(x[rows])
        return result * weights[:, None, None]


class ChoiceFromOutside(EveryExpert):
    """The route is decided between segments, where it is decided once, and given to this one as an argument.

    The weight goes by the choice as well: a maximum would choose anew.
    """

    def choose(self, x):
        with torch.no_grad():
            return self.gate(x.mean(1)).argmax(-1)

    def forward(self, x, choice):
        shares = self.gate(x.mean(1)).softmax(-1)
        return self.dispatched(x, choice, shares.gather(1, choice[:, None]).squeeze(1))
