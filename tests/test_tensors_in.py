"""The tensors in a segment's output, whatever it is made of."""

from dataclasses import dataclass

import torch

from recompute_lab import divergence, examine
from recompute_lab.instruments.checkpointing import REENTRANT
from recompute_lab.instruments.isolation import tensors_in


@dataclass
class Pair:
    first: object
    second: object = None


def test_dataclasses_are_looked_into():
    a, b, c = torch.zeros(1), torch.ones(1), torch.ones(2)
    assert tensors_in({"k": [Pair(a, Pair((b, 3), "text")), c], "kind": Pair}) == [a, b, c]


def test_a_dataclass_that_holds_itself_ends():
    ring = Pair(torch.zeros(1))
    ring.second = ring
    assert len(tensors_in(ring)) == 1


def test_outputs_in_a_dataclass_are_cut_off_by_reentrant_and_the_witness_says_so():
    layer, x = torch.nn.Linear(4, 4), torch.randn(3, 4, requires_grad=True)

    def segment(x):
        return Pair(torch.tanh(layer(x)))

    assert divergence(segment, x).equal
    assert divergence(segment, x, strategy=REENTRANT).missing
    report = examine(segment, x)
    assert (report.reentrant, report.non_reentrant) == ("silent", "replayable")
    assert "nested outputs" in report.causes[0].name
