import asyncio

import torch


async def peak(x):
    await asyncio.sleep(0)
    return x.max().item()


async def serve(x):
    top = await peak(x)
    if top > 1.0:
        x = x / top
    return x


def build():
    return lambda x: asyncio.run(serve(x))


def inputs(flip=False):
    return (torch.tensor([0.5, 4.0 if flip else 0.7]),)
