import asyncio

import torch
from torch import nn


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    async def score(self, x):
        await asyncio.sleep(0)
        return (x * self.scale).sum()

    async def answer(self, x):
        score = await self.score(x)
        async with asyncio.Lock():
            if score.item() > 0:
                x = x.exp()
        return x


def build():
    judge = Judge()

    def run(x):
        return asyncio.run(judge.answer(x))

    return run


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
