"""A router sends each row to one of several experts."""

import logging

import torch
from torch import nn

log = logging.getLogger(__name__)


class Experts(nn.Module):
    """[rows, places, width] to the same. `load` counts the rows that each expert has been sent."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.gate = nn.Linear(config.width, config.experts)
        self.experts = nn.ModuleList(nn.Linear(config.width, config.width) for _ in range(config.experts))
        self.register_buffer("load", torch.zeros(config.experts, dtype=torch.long))

    def forward(self, x):
        scores = self.gate(x.mean(1))
        if self.config.switches.check_scores and torch.isnan(scores).any():
            raise ValueError("the router's scores are no numbers: lower the learning rate")
        choice = scores.argmax(-1)
        sent = torch.bincount(choice, minlength=len(self.experts))
        self.load += sent
        if self.config.switches.log_idle and (sent == 0).sum() > len(self.experts) // 2:
            log.info("more than half of the experts are idle")
        result = torch.zeros_like(x)
        for number in sent.nonzero().flatten():
            rows = choice == number
            result[rows] = self.experts[number](x[rows])
        return result * scores.softmax(-1).amax(-1)[:, None, None]
