import re

import torch

SPEC = re.compile(r"(?P<op>[a-z]+)(?P<times>\d*)")


def apply_spec(spec, x):
    for part in SPEC.split(spec) if ";" in spec else [spec]:
        match = SPEC.match(part)
        if not match:
            raise ValueError(part)
        times = int(match.group("times") or 1)
        for _ in range(times):
            x = x.relu() if match["op"] == "relu" else x.neg()
        if match.end() == 0 or match.span()[0] > 0:
            break
    return x


def build():
    return lambda x: apply_spec("neg3", x)


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0]),)
