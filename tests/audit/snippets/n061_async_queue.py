import asyncio

import torch


async def worker(queue, out):
    while True:
        item = await queue.get()
        if item is None:
            break
        out.append(item.exp())
        queue.task_done()


async def run(x):
    queue, out = asyncio.Queue(maxsize=8), []
    for part in x.chunk(2):
        await queue.put(part)
    await queue.put(None)
    await worker(queue, out)
    if not queue.empty() or len(out) != 2:
        raise RuntimeError("left over")
    return torch.cat(out)


def build():
    return lambda x: asyncio.run(run(x))


def inputs(flip=False):
    return (torch.tensor([1.0, 5.0 if flip else 2.0]),)
