import asyncio
import time

import torch


async def produce(queue, batches):
    for batch in batches:
        await queue.put(batch)
    await queue.put(None)


async def consume(queue, most=3, seconds=60.0):
    total, step, began = None, 0, time.monotonic()
    while (batch := await queue.get()) is not None:
        if step >= most or time.monotonic() - began > seconds:
            break
        total = batch if total is None else total + batch
        step += 1
    return total


def build():
    async def main(x):
        queue = asyncio.Queue()
        _, total = await asyncio.gather(produce(queue, [x, x * 2]), consume(queue))
        return total

    return lambda x: asyncio.run(main(x))


def inputs(flip=False):
    return (torch.full((2,), -1.0 if flip else 1.0),)
