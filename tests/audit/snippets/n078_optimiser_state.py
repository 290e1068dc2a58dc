import torch
from torch import nn


class Momentum(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1, momentum=0.9, decay=0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum, decay=decay))

    def updates(self, grads):
        found = []
        for group in self.param_groups:
            momentum, decay = group["momentum"], group["decay"]
            for p, grad in zip(group["params"], grads, strict=True):
                if grad is None:
                    continue
                if grad.is_sparse:
                    raise RuntimeError("no sparse gradients")
                if decay != 0:
                    grad = grad.add(p, alpha=decay)
                state = dict(self.state.get(p, {}))
                if len(state) == 0:
                    state["step"] = 0
                    state["buffer"] = torch.clone(grad)
                if state["step"] > 0 and momentum > 0:
                    grad = state["buffer"] * momentum + grad
                found.append(p - group["lr"] * grad)
        return found


def build():
    torch.manual_seed(0)
    net = nn.Linear(2, 1)
    optimiser = Momentum(net.parameters())

    def run(x):
        grads = torch.autograd.grad(net(x).sum(), list(net.parameters()))
        return optimiser.updates(grads)

    return run


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
