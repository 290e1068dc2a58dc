"""The two passes take different routes: other operators, other rows, another expert."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional as F

from faults import LOUD, MADE_ONCE, SILENT, fault


class Routed(nn.Module):
    """Each token goes to the expert with the best score; the scores are nearly tied, and jittered."""

    def __init__(self, width: int, experts: int, jitter):
        super().__init__()
        self.score = nn.Linear(width, experts, bias=False)
        nn.init.uniform_(self.score.weight, -1e-3, 1e-3)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))
        self.jitter = jitter

    def forward(self, tokens):
        scores = self.score(tokens)
        best = (scores + 1e-2 * self.drawn(scores.shape)).argmax(dim=-1)
        output = tokens.new_zeros(tokens.shape)
        for number, expert in enumerate(self.experts):
            (mine,) = torch.nonzero(best == number, as_tuple=True)
            share = F.softmax(scores, dim=-1)[mine, number]
            output = output.index_put((mine,), F.silu(expert(tokens[mine])) * share[:, None])
        return output

    def drawn(self, shape):
        return torch.rand(shape, generator=self.jitter)


@fault(r"jitter|rout|nonzero", LOUD, SILENT)
def tokens_that_change_their_expert():
    """Stands for scores that differ in their last bits, as atomic additions on a GPU make them."""
    return Routed(6, 3, torch.Generator().manual_seed(2)), (torch.randn(24, 6, requires_grad=True),)


class Unrepeatable(Routed):
    """The jitter depends on how often the process has asked: state that cannot be reached."""

    def drawn(self, shape):
        return torch.rand(shape, generator=torch.Generator().manual_seed(next(self.jitter)))


@fault(r"rout|nonzero|argmax|whole numbers|repeat", LOUD, SILENT, proven=False, missed={"examined verdict": MADE_ONCE})
def routes_of_a_kernel_that_does_not_repeat_itself():
    return Unrepeatable(6, 3, itertools.count()), (torch.randn(24, 6, requires_grad=True),)


class BestOf(nn.Module):
    """Works on the `most` rows with the best scores, which a generator of its own jitters."""

    def __init__(self, width: int, most: int, order):
        super().__init__()
        self.score, self.mix, self.most, self.order = nn.Linear(width, 1), nn.Linear(width, width), most, order
        self.ties = torch.Generator().manual_seed(4)

    def forward(self, x):
        scores = self.score(x).squeeze(-1)
        rows = self.order(scores + torch.rand(scores.shape, generator=self.ties), self.most)
        return torch.tanh(self.mix(x[rows])) * torch.sigmoid(scores[rows])[:, None]


def by_topk(scores, most):
    return scores.topk(most).indices


def by_sorting(scores, most):
    return torch.sort(scores, descending=True).indices[:most]


@fault(r"\bties\b|topk|rout", SILENT, SILENT)
def best_rows_by_topk():
    """As many rows as before, and others: no shape tells."""
    return BestOf(4, 5, by_topk), (torch.randn(16, 4, requires_grad=True),)


@fault(r"\bties\b|sort|rout", SILENT, SILENT)
def best_rows_by_sorting():
    return BestOf(4, 5, by_sorting), (torch.randn(16, 4, requires_grad=True),)


class Selected(nn.Module):
    """Of each pair of rows one, by a mask: always the same number of rows."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.coin = nn.Linear(width, width), torch.Generator().manual_seed(6)

    def forward(self, x):
        heads = torch.rand(x.shape[0] // 2, generator=self.coin) < 0.5
        chosen = torch.stack([heads, ~heads], dim=1).reshape(-1)
        return torch.tanh(self.mix(x[chosen]))


@fault(r"\bcoin\b|mask|rout", SILENT, SILENT)
def other_rows_in_equal_number():
    return Selected(4), (torch.randn(16, 4, requires_grad=True),)


class Guarded(nn.Module):
    """Scales down where the sum, which differs from pass to pass, is over a limit."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.noise = nn.Linear(width, width), itertools.count(1)

    def forward(self, x):
        h = self.mix(x)
        size = h.norm() * (1.5 if next(self.noise) % 2 else 0.5)
        if size.item() > h.norm().item():
            h = torch.tanh(h) * 0.1
        return torch.exp(h)


@fault(r"item|mul|norm|tanh|repeat", LOUD, SILENT, proven=False)
def guard_on_a_sum_that_does_not_repeat_itself():
    return Guarded(4), (torch.randn(5, 4, requires_grad=True),)


class Exiting(nn.Module):
    """Leaves after the first block where the first is confident enough, by a measure that does not repeat itself."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.second, self.tries = nn.Linear(width, width), nn.Linear(width, width), itertools.count()

    def forward(self, x):
        h = F.silu(self.first(x))
        confidence = torch.sigmoid(h.detach().mean() + (5.0 if next(self.tries) % 2 else -5.0))
        if confidence.item() > 0.5:
            return h
        return F.silu(self.second(h))


@fault(r"item|repeat", LOUD, SILENT, proven=False)
def early_exit_by_item():
    return Exiting(4), (torch.randn(5, 4, requires_grad=True),)
