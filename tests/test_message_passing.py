"""The message-passing layer sums what it should, in an order that only the deterministic switch fixes."""

import os

import pytest
import torch

from recompute_lab.instruments.nondeterminism import disagreements
from recompute_lab.specimens.message_passing import MessagePassing
from recompute_lab.specimens.norm_cap import RepairedNormCap

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def test_each_node_gets_the_sum_of_its_messages():
    layer = MessagePassing(nodes=8, edges=64, width=4).double()
    x = torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = x.clone()
    for source, target in zip(layer.source, layer.target, strict=True):
        expected[target] = expected[target] + layer.message(x[source])
    torch.testing.assert_close(layer(x), expected)


def test_the_cap_holds():
    layer = MessagePassing(RepairedNormCap(0.5), nodes=8, edges=64, width=4)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    assert ((layer(x) - x).norm(dim=-1) <= 0.5 * x.norm(dim=-1) * 1.001).all()


def test_nothing_varies_with_one_thread():
    layer, x = MessagePassing(), torch.randn(256, 16)
    assert disagreements(lambda: layer(x).detach()) == 0


def test_nothing_varies_under_the_deterministic_switch(two_threads):
    layer, x = MessagePassing(), torch.randn(256, 16)
    torch.use_deterministic_algorithms(True)
    try:
        assert disagreements(lambda: layer(x).detach()) == 0
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.skipif(CORES < 2, reason="one core: nothing can race")
def test_the_sum_really_varies_where_threads_race(two_threads):
    layer, x = MessagePassing(), torch.randn(256, 16)
    assert any(disagreements(lambda: layer(x).detach()) for _ in range(10))
