# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 04 · Dropout, and a checkpoint of your own
#
# A checkpointed segment with dropout draws its mask twice. If the two masks differ, the loss is that of one network and the
# gradients belong to another. Nothing raises: all shapes are right and all values finite. In this lesson you see it happen, find the
# random streams that nobody rewinds, build a checkpoint that does, and work out what a lost mask does to the gradient *on average*.
#
# **You will be able to**
# - say who replays which random stream, and who does not;
# - build a checkpoint in four stages, on the hooks that torch's own is built on;
# - derive what a lost mask does to the expected gradient, and judge three claims that are often made about it.
#
# **Time** 60 minutes, half of them for the four stages. **You need** PyTorch: modules, `backward`; a little linear algebra for
# section 4. The outputs are stored: to predict before you see, choose *Edit → Clear Outputs of All Cells* first. The sections build
# on each other: after a restart, go on with *Run → Run All Above Selected Cell*.
#
# **The words.** A *segment* is a part of the model that is checkpointed. Its *forward* throws away the *saved tensors* that backward
# would need; the *recomputation*, a second run of that forward during backward, brings them back. A *random stream* is what random
# numbers come from: torch's default generator, NumPy's, Python's, or a generator somebody made. To *replay* a stream is to take it
# back, for the recomputation, to where it stood at the segment's entry. A mask is *lost* if the recomputation draws another one.

# %% tags=["nbval-ignore-output"]
import platform

import numpy
import torch

print("python", platform.python_version(), "| torch", torch.__version__, "| numpy", numpy.__version__)
print("threads", torch.get_num_threads(), "| CUDA", torch.cuda.is_available())

# %%
import inspect
import itertools
import random
from contextlib import contextmanager
import numpy as np
from torch.autograd.graph import saved_tensors_hooks
from recompute_lab import NON_REENTRANT, REENTRANT, divergence, passes
from recompute_lab.lessons import streams as lesson
from recompute_lab.lessons.streams import check, hint
from recompute_lab.specimens.draws import DRAWS, MaskedLayers, TorchDefault
from recompute_lab.views.replays import replays
from recompute_lab.views.style import show

print("ready")

# %% [markdown]
# ## 1 · The silent mismatch
#
# The specimen: residual layers, each multiplied by a mask of its own before a tanh. The mask is drawn from torch's default generator,
# as `nn.Dropout` draws it. Both implementations replay that generator by default; `preserve_rng_state=False` switches it off, as
# people do who have read that it saves time.
#
# **Predict.** Which of the two implementations notices?

# %%
print(inspect.getsource(MaskedLayers.forward))

segment, x = MaskedLayers(TorchDefault(p=0.5)), lesson.rows()
for strategy in lesson.TORCHS:
    result = divergence(segment, x, strategy=strategy)
    told = "equal, bit for bit" if result.equal else f"{result.outcome}, off by {result.worst:.1f} times their size"
    print(f"{strategy.name:<40} gradients {told}")

# %%
lost = lesson.masks(TorchDefault(p=0.5), lesson.NON_REENTRANT_LOST)
show(
    draw.masks(lost.forward, lost.recomputation),
    "Forward and recomputation multiply by different masks: about half of the places differ at p = 0.5.",
)
print(f"places that differ: {lost.differ:.0%}")
both = passes(segment, x, strategy=lesson.NON_REENTRANT_LOST)
shapes = [[(row.operator, row.shape) for row in ledger] for ledger in (both.forward, both.recomputation)]
print("saved tensors of both passes agree in number, operator and shape:", shapes[0] == shapes[1])

# %% [markdown]
# Neither does. There is nothing to notice: a mask has one shape, whatever it drops. The check of lesson 03 compares numbers of tensors,
# shapes, dtypes and devices.
#
# ## 2 · Streams that nobody rewinds
#
# Five segments, equal but for where their mask comes from. Four ways to checkpoint with torch; then the course's own checkpoint, which
# you will build in section 3, in three stages: it replays nothing, torch's streams, or every stream of the process; and once more,
# told of the generator.
#
# **Predict** the column of torch's defaults (`preserve_rng_state=True`): for which of the five streams are the gradients right?

# %%
table = lesson.replays()
show(replays(table), "By default torch replays its own default generators, and no other stream.")
for stream, row in table.items():
    right = [name for name in ("reentrant", "non-reentrant", "own, every stream", "own, told of the generator") if row[name]]
    print(f"{stream:<18} right under: {'; '.join(right)}")

# %% [markdown]
# `preserve_rng_state` promises torch's own default generators: that of the CPU, and those of the devices that the *arguments* live on. A
# `torch.Generator` of your own, NumPy and Python's `random` are none of them. Nor is the generator of a GPU on which no argument lives (a
# mask that is made on the GPU from arguments on the CPU; it takes a GPU to show that, so it is not shown here). All of it is silent, under both
# implementations, with default settings.
#
# A private generator is out of reach even for a checkpoint that tries: from outside, nobody can find all generators. It has to be told.
#
# ## 3 · Build one
#
# You now write a checkpoint. torch offers what it takes: under `saved_tensors_hooks(pack, unpack)`, autograd calls `pack(tensor)` for each
# tensor it wants to save and keeps what that returns; in backward it calls `unpack` with it and expects the tensor back.
#
# **Stage 1: naive.** `pack` keeps a number in the tensor's place: 0, 1, 2, ... At the first `unpack`, run the segment again and collect
# what *that* run saves, in a list; its tensors stand in the same order.

# %% tags=["solution"]
def my_checkpoint(segment, x):
    places, filled = itertools.count(), []

    def unpack(place):
        ### BEGIN SOLUTION
        if not filled:
            collect = saved_tensors_hooks(lambda t: filled.append(t.detach()), lambda _: None)
            with torch.enable_grad(), collect:
                segment(x)
        return filled[place]
        ### END SOLUTION

    with saved_tensors_hooks(lambda tensor: next(places), unpack):
        return segment(x)

check.naive(my_checkpoint)

# %% [markdown]
# **Stage 2: torch's stream.** `capture()` is called at the segment's entry; the second run takes place inside `with replay(state):`. Its
# numbers must be the forward's; and when it is over, the stream must go on from where it stood.

# %% tags=["solution"]
def capture():
    ### BEGIN SOLUTION
    return torch.get_rng_state()
    ### END SOLUTION


@contextmanager
def replay(state):
    ### BEGIN SOLUTION
    now = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(now)
    ### END SOLUTION


check.torch_stream((capture, replay))

# %% [markdown]
# **Stage 3: every stream**: torch's, Python's, NumPy's, and the `torch.Generator`s in the list `generators`. `read` returns the states of
# all; `write` sets them.

# %% tags=["solution"]
def read(generators):
    ### BEGIN SOLUTION
    own = [generator.get_state() for generator in generators]
    return torch.get_rng_state(), random.getstate(), np.random.get_state(), own
    ### END SOLUTION


def write(states, generators):
    ### BEGIN SOLUTION
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])
    for generator, state in zip(generators, states[3]):
        generator.set_state(state)
    ### END SOLUTION


check.every_stream((read, write))

# %% [markdown]
# **Stage 4: compare, both ways.** `saved` and `recomputed` list, for each pass, the shape, dtype and device of every tensor that was
# saved. Raise an error where the passes differ, whichever of them saved more.

# %% tags=["solution"]
def compare(saved, recomputed):
    ### BEGIN SOLUTION
    if saved != recomputed:
        raise RuntimeError(f"{len(saved)} tensors saved, {len(recomputed)} recomputed, or of other shapes")
    ### END SOLUTION


check.both_ways(compare)

# %% [markdown]
# That is all there is to it. The course's own checkpoint is these four stages and what a real one needs besides: arguments of any structure,
# nesting, autocast, backward in parts. Its core, as installed:

# %%
from recompute_lab.instruments import own_checkpoint

print(inspect.getsource(own_checkpoint.Frame.recompute))
own = own_checkpoint.OwnCheckpoint(generators=())
print("dropout under it equals the plain run:", divergence(segment, x, strategy=own).equal)
