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
# # 10 · Coding drills
#
# *This step is wrong under checkpointing. Say what happens, then repair it.* So begins many an interview, and many a Monday. Here are
# twelve such steps, modelled on real training code, none longer than a screen, and each wrong for a reason of its own. Without
# checkpointing none of them raises.
#
# **You will be able to**
# - read a training step and say, before you run it, what becomes of it under either implementation of checkpointing;
# - repair it so that it does what it is for, gives the plain run's loss and state as before, and is right under both;
# - tell a repair from a change that only makes the error go away.
#
# **Time** 5 to 15 minutes each, two hours for all. **You need** PyTorch: modules, `backward`. Lessons 03 and 08 help most. Each drill stands
# on its own: after a restart, run the cells above *Screen*, then go to your drill.
#
# **The words.** A *segment* is a part of the model that is checkpointed. Its *forward* throws away the *saved tensors* that backward
# would need; the *recomputation*, a second run of that forward during backward, brings them back. The *plain run* is the same step without
# checkpointing. **Reentrant** and **non-reentrant** (`use_reentrant=True`, `=False`) are torch's two implementations. The *state* of a step is
# what it leaves changed besides gradients: buffers, counters, logged values. A step is *replayable* if, under both implementations,
# gradients and state are the plain run's. A gradient is *off by 0.5* if it differs from the plain run's by half of that gradient's norm, in the
# worst tensor.

# %% tags=["nbval-ignore-output"]
import platform

import torch

print("python", platform.python_version(), "| torch", torch.__version__)
print("device cpu, GPU or not: errors, kernels and draws are compared as the CPU has them")

# %%
import numpy as np
from torch import nn
from torch.nn.utils import parametrize
from recompute_lab.lessons.drills import check, hint, look, words
from recompute_lab.specimens.drills import Balanced, Jittered, Locked, Probed
from recompute_lab.specimens.drills import Quantised, Recurrent, Repeated, Residual
from recompute_lab.specimens.drills import Routed, Standardised, Translator, Weighed
from recompute_lab.specimens.steps import Block, Model, power

print("ready")

# %% [markdown]
# ## The twelve
#
# | | drill | minutes | topic | level |
# |---|---|---|---|---|
# | 1 | Noise as augmentation | 5 | randomness | screen |
# | 2 | A residual, in place | 5 | arguments | screen |
# | 3 | One block, four depths | 7 | another world | screen |
# | 4 | A mask that both passes agree on | 8 | randomness | screen |
# | 5 | A loss on the side | 10 | state | onsite |
# | 6 | A look at validation | 10 | another world | onsite |
# | 7 | Computed once, and kept | 10 | state | onsite |
# | 8 | What the decoder looks at | 10 | cut off | onsite |
# | 9 | A codebook that follows | 12 | state | onsite |
# | 10 | Two losses, weighed | 12 | cut off | staff |
# | 11 | The best of four experts | 15 | order and rounding | staff |
# | 12 | torch's own cache | 15 | another world | staff |
#
# The topic is the kind of cause, much as lesson 08 sorts them. The levels: *screen*, a first conversation; *onsite*, a longer one; *staff*, one
# in which you are expected to see what the obvious repair breaks. The drills get harder from top to bottom.
#
# **As a candidate.** Set a clock. Say (a) aloud first, with your reason, for all three runs; only then fill it in. For (b) say what must not
# change before you write: what the step is for, its plain run, the state that it leaves. Asking for a hint is better than silence:
# `hint.say_jitter()` and `hint.mend_jitter()`, in a cell of your own, give one for the first drill, and another one each time you call them.
#
# **As an interviewer.** Give the story and the code, not the title and the topic. Listen for three steps: what does the recomputation find
# changed; does that alter the number or the shapes of the saved tensors; and which implementation looks at those. Three questions tell you
# more than a right table: *How would you notice it in a run? Which repair would you refuse in a review? What if there were two of these
# segments?* The fold under each drill says what to expect. One step is of no use without checkpointing, either: whoever calls it fine
# because both passes agree has not asked what it is for.
#
# ## How a drill goes
#
# Each drill is a `Model`. `build` makes its parts, from a seed; `rows` is the batch, [32, 16]. `step(run)` is one training step, forward and
# backward. It calls each segment by `run(segment, *args)`: in the plain run that is a plain call, in the other two a call of `checkpoint`.
# `power`, the mean square, serves as a loss; `Block` is x + down(gelu(up(x))).
#
# In (a) you say what happens in each of the three runs, plain, reentrant and non-reentrant, in one of these words:

# %%
print(words())

# %% [markdown]
# *No use* is said of the plain run only. The other two are compared with the plain run, of use or not.
#
# An example, known from lesson 05: a layer that is switched on slowly, by a share that grows with the number of calls. `look(...)` runs a
# step of any such class. **Predict**: which word for which run?

# %%
class Warmed(Model):
    def build(self):
        self.stem, self.block, self.calls = nn.Linear(16, 16), Block(), 0

    def warmed(self, x):
        self.calls += 1
        return x + min(1.0, self.calls / 100) * self.block(x)

    def step(self, run):
        loss = power(run(self.warmed, self.stem(self.rows)))
        loss.backward()
        return loss.detach()

look(Warmed)

# %% [markdown]
# The recomputation counts one call more, so its share is twice as large. Reentrant differentiates the recomputation: wrong gradients.
# Non-reentrant keeps the forward's graph, in which the share is a plain number and no saved tensor. So it is the forward's share, and the
# gradients are right. (In lesson 05 the share stood in front of a layer, which saves its input.) What is wrong is the count.
#
# In (b) you write a subclass with the methods that you change, in full. It is named like the original, with `Right` at the end. Give a
# segment its arguments by position: reentrant takes no others. The check asks:
#
# - Without checkpointing, are loss and state those of the original, bit for bit? (Where noise is drawn: with the noise off.)
# - Are the gradients and the state right under both implementations, also over four steps that take turns, in both orders?
# - Does the step still do what it is for?
# - Are its layers still recomputed?
# - Does it leave alone what is not its own: seeds, switches, other objects?

# %% [markdown]
# ## Screen
#
# Four faults that you should find by reading, without running anything.

# %% [markdown]
# ### 1 · Noise as augmentation
#
# *5 minutes · randomness.* The data loader added noise to the inputs, in NumPy. An intern moved these lines into the model, so that the noise is added to the activations. Checkpointing was switched on a month later.
#
# ```python
# # recompute_lab/specimens/drills/jitter.py: class Jittered(Model)
# def build(self) -> None:
#     self.stem, self.block, self.strength = nn.Linear(16, 16), Block(), 0.5
#
# def noisy(self, x: Tensor) -> Tensor:
#     if self.training:
#         noise = np.random.standard_normal(x.shape)
#         x = x + self.strength * torch.from_numpy(noise).float()
#     return self.block(x)
#
# def step(self, run: Run = NON_REENTRANT) -> Tensor:
#     loss = power(run(self.noisy, self.stem(self.rows)))
#     loss.backward()
#     return loss.detach()
# ```
#
# **What it is for.** In training, each element gets normal noise of its own, with standard deviation `strength`, drawn anew in each step. In evaluation there is none.
#
# **(a)** Say what happens. **(b)** Repair it.

# %% tags=["solution"]
told = {
    ### BEGIN SOLUTION
    "plain": "right",
    "reentrant": "silent: off",
    "non-reentrant": "silent: off",
    ### STUB
    # "plain": ...,
    # "reentrant": ...,
    # "non-reentrant": ...,
    ### END SOLUTION
}
check.say_jitter(told)

# %% tags=["solution"]
class JitteredRight(Jittered):
    ### BEGIN SOLUTION
    def noisy(self, x):
        if self.training:
            x = x + self.strength * torch.randn_like(x)
        return self.block(x)
    ### STUB
    # ...  # the methods that you change, in full
    ### END SOLUTION


check.mend_jitter(JitteredRight)

# %% [markdown]
# <details><summary>Why (open when you are done)</summary>
#
# Both implementations note the state of torch's default generators in forward, and put it back for the recomputation. Nobody does so for
# NumPy's stream: it has moved on, and the recomputation adds other noise. The loss comes from one noise, the gradients from another. As
# many tensors are saved, of equal shapes, so nothing raises. The plain run is right, so a test without checkpointing passes. Another good
# repair draws the noise outside and gives it as an argument: arguments are kept.
# </details>

# %% [markdown]
# ### 2 · A residual, in place
#
# *5 minutes · arguments.* A memory profile showed that the residual sum makes a new tensor in each layer, so somebody wrote it in place. The plain run gave the same gradients in less memory, and the change was merged.
#
# ```python
# # recompute_lab/specimens/drills/residual.py: class Residual(Model)
# def build(self) -> None:
#     self.stem, self.block = nn.Linear(16, 16), Block()
#     self.position = nn.Parameter(torch.randn(32, 16))
#
# def update(self, x: Tensor) -> Tensor:
#     return self.block(x + self.position)
#
# def step(self, run: Run = NON_REENTRANT) -> Tensor:
#     x = self.stem(self.rows)
#     for _ in range(2):
#         x += run(self.update, x)
#     loss = power(x)
#     loss.backward()
#     return loss.detach()
# ```
#
# **What it is for.** A residual stream is updated twice, each time by a block that sees the stream and an embedding of the position.
#
# **(a)** Say what happens. **(b)** Repair it.

# %% tags=["solution"]
told = {
    ### BEGIN SOLUTION
    "plain": "right",
    "reentrant": "loud: other",
    "non-reentrant": "loud: other",
    ### STUB
    # "plain": ...,
    # "reentrant": ...,
    # "non-reentrant": ...,
    ### END SOLUTION
}
check.say_residual(told)

# %% tags=["solution"]
class ResidualRight(Residual):
    ### BEGIN SOLUTION
    def step(self, run):
        x = self.stem(self.rows)
        for _ in range(2):
            x = x + run(self.update, x)
        loss = power(x)
        loss.backward()
        return loss.detach()
    ### STUB
    # ...  # the methods that you change, in full
    ### END SOLUTION


check.mend_residual(ResidualRight)

# %% [markdown]
# <details><summary>Why (open when you are done)</summary>
#
# Neither the stem nor the sum in `update` needs the values of `x` for backward, so autograd lets `+=` pass. A checkpointed segment does need
# them: it is run again from its argument. Both implementations keep the argument as autograd keeps a saved tensor, and autograd checks
# whether a saved tensor has been written to since. So both raise, in words that do not mention checkpointing. And no memory would be
# saved: the argument of a segment has to stay. (With `x.data += ...` autograd does not see the write, so nothing raises, and even the
# plain run loses the position's gradient.)
# </details>

# %% [markdown]
# ### 3 · One block, four depths
#
# *7 minutes · another world.* A transformer with shared weights: one block, used four times. A library's wrapper calls `layer`, so the author left its signature alone and told it the depth by an attribute.
#
# ```python
# # recompute_lab/specimens/drills/depth.py: class Repeated(Model)
# def build(self) -> None:
#     self.stem, self.block = nn.Linear(16, 16), Block()
#     self.depths, self.depth = nn.Parameter(torch.randn(4, 16)), 0
#
# def layer(self, x: Tensor) -> Tensor:
#     return self.block(x + self.depths[self.depth])
#
# def step(self, run: Run = NON_REENTRANT) -> Tensor:
#     x = self.stem(self.rows)
#     for depth in range(4):
#         self.depth = depth
#         x = run(self.layer, x)
#     loss = power(x)
#     loss.backward()
#     return loss.detach()
# ```
#
# **What it is for.** Each of the four passes through the block has an embedding of its own.
#
# **(a)** Say what happens. **(b)** Repair it.

# %% tags=["solution"]
told = {
    ### BEGIN SOLUTION
    "plain": "right",
    "reentrant": "silent: off",
    "non-reentrant": "silent: off",
    ### STUB
    # "plain": ...,
    # "reentrant": ...,
    # "non-reentrant": ...,
    ### END SOLUTION
}
check.say_depth(told)

# %% tags=["solution"]
class RepeatedRight(Repeated):
    ### BEGIN SOLUTION
    def layer(self, x, depth):
        return self.block(x + self.depths[depth])

    def step(self, run):
        x = self.stem(self.rows)
        for depth in range(4):
            x = run(self.layer, x, depth)
        loss = power(x)
        loss.backward()
        return loss.detach()
    ### STUB
    # ...  # the methods that you change, in full
    ### END SOLUTION


check.mend_depth(RepeatedRight)

# %% [markdown]
# <details><summary>Why (open when you are done)</summary>
#
# In backward the loop is over, and `self.depth` is 3 for all four recomputations. Reentrant builds its graph in the second run: row 3 of the
# embedding gets all the gradient, rows 0 to 2 get zeros (not `None`, since the embedding is one parameter). Non-reentrant keeps the
# forward's graph, so each row gets *a* gradient, but computed from the wrong saved tensors; only the last row's is right. A closure over the
# loop's variable would do the same. Whatever a segment reads must be one of its arguments, or be unchanged when backward runs.
# </details>

# %% [markdown]
# ### 4 · A mask that both passes agree on
#
# *8 minutes · randomness.* Dropout in a recurrent cell needs one mask for a whole sequence, but here each segment drew one of its own. So somebody seeded the generator before the draw. After that the segments shared a mask, the checkpointed run agreed with the plain one to the last bit, and the ticket was closed.
#
# ```python
# # recompute_lab/specimens/drills/locked.py: class Locked(Model)
# def build(self) -> None:
#     self.stem, self.inner, self.outer = (nn.Linear(16, 16) for _ in range(3))
#     self.start, self.p = nn.Parameter(torch.randn(4, 16)), 0.25
#
# def mask(self, h: Tensor) -> Tensor:
#     if not self.training:
#         return torch.ones_like(h)
#     torch.manual_seed(1234)
#     return (torch.rand(h.shape) >= self.p) / (1 - self.p)
#
# def some(self, h: Tensor, inputs: Tensor) -> Tensor:
#     return self.through(h, inputs, self.mask(h))
#
# def through(self, h: Tensor, inputs: Tensor, mask: Tensor) -> Tensor:
#     for x in inputs:
#         h = torch.tanh(self.inner(x) + self.outer(h * mask))
#     return h
#
# def step(self, run: Run = NON_REENTRANT) -> Tensor:
#     h, inputs = self.start, self.stem(self.rows).view(8, 4, 16)
#     for part in inputs.chunk(2):
#         h = run(self.some, h, part)
#     loss = power(h)
#     loss.backward()
#     return loss.detach()
# ```
#
# **What it is for.** In training, each sequence keeps one mask from its first vector to its last, in both segments; in the next training step it has another one. A share `p` is dropped, the rest is scaled up. In evaluation there is no mask.
#
# **(a)** Say what happens. **(b)** Repair it.

# %% tags=["solution"]
told = {
    ### BEGIN SOLUTION
    "plain": "no use",
    "reentrant": "right",
    "non-reentrant": "right",
    ### STUB
    # "plain": ...,
    # "reentrant": ...,
    # "non-reentrant": ...,
    ### END SOLUTION
}
check.say_locked(told)

# %% tags=["solution"]
class LockedRight(Locked):
    ### BEGIN SOLUTION
    def mask(self, h):
        return nn.functional.dropout(torch.ones_like(h), self.p, self.training)

    def step(self, run):
        h, inputs = self.start, self.stem(self.rows).view(8, 4, 16)
        mask = self.mask(h)
        for part in inputs.chunk(2):
            h = run(self.through, h, part, mask)
        loss = power(h)
        loss.backward()
        return loss.detach()
    ### STUB
    # ...  # the methods that you change, in full
    ### END SOLUTION


check.mend_locked(LockedRight)

# %% [markdown]
# <details><summary>Why (open when you are done)</summary>
#
# The step is replayable. But the seed is the same in every step, so the same places are dropped for good: that is not dropout, but a smaller
# network. It is also everybody's generator that is seeded: whatever draws after it, such as the next layer's dropout or a shuffle, draws the
# same numbers in every step, too. Take the seed away, and the two segments draw a mask each: the fault that the seed was meant to mend. What two
# segments share, their caller has to make. *To agree is not the aim; to agree on the right thing is.*
# </details>

# %% [markdown]
# ## Onsite
#
# Five faults that take a second look. Who writes what, and when? And does it have a graph?

# %% [markdown]
# ### 5 · A loss on the side
#
# *10 minutes · state.* A mixture of experts, adapted from a library in which layers have one output. So the balance loss, which keeps the experts equally busy, could not be returned: the layers add it to an attribute, and the training loop picks it up.
#
# ```python
# # recompute_lab/specimens/drills/balance.py: class Balanced(Model)
# def build(self) -> None:
#     self.stem, self.router = nn.Linear(16, 16), nn.Linear(16, 2)
#     self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
#     self.balance = torch.zeros(())
#
# def mixed(self, x: Tensor) -> Tensor:
#     shares = torch.softmax(self.router(x), dim=1)
#     self.balance = self.balance + shares.mean(0).square().sum()
#     return self.experts(x, shares)
#
# def experts(self, x: Tensor, shares: Tensor) -> Tensor:
#     first, second = torch.tanh(self.first(x)), torch.tanh(self.second(x))
#     return x + shares[:, :1] * first + shares[:, 1:] * second
#
# def step(self, run: Run = NON_REENTRANT) -> Tensor:
#     self.balance = torch.zeros(())
#     y = [run(self.mixed, self.stem(rows)) for rows in self.rows.chunk(2)]
#     loss = power(torch.cat(y)) + self.balance
#     loss.backward()
#     self.logged = float(self.balance.detach())
#     return loss.detach()
# ```
#
# **What it is for.** The balance loss of both micro-batches is part of the loss, trains the router, and is logged.
#
# **(a)** Say what happens. **(b)** Repair it.

# %% tags=["solution"]
told = {
    ### BEGIN SOLUTION
    "plain": "right",
    "reentrant": "silent: off",
    "non-reentrant": "side effect",
    ### STUB
    # "plain": ...,
    # "reentrant": ...,
    # "non-reentrant": ...,
    ### END SOLUTION
}
check.say_balance(told)

# %% tags=["solution"]
class BalancedRight(Balanced):
    ### BEGIN SOLUTION
    def mixed(self, x):
        shares = torch.softmax(self.router(x), dim=1)
        return self.experts(x, shares), shares.mean(0).square().sum()

    def step(self, run):
        pairs = [run(self.mixed, self.stem(rows)) for rows in self.rows.chunk(2)]
        balance = sum(term for _, term in pairs)
        loss = power(torch.cat([y for y, _ in pairs])) + balance
        loss.backward()
        self.logged = float(balance.detach())
        return loss.detach()
    ### STUB
    # ...  # the methods that you change, in full
    ### END SOLUTION


check.mend_balance(BalancedRight)

# %% [markdown]
# <details><summary>Why (open when you are done)</summary>
#
# Non-reentrant: the loss is made from the forward's terms, with their graph, so the gradients are right. The recomputation adds both terms
# once more, so what is logged after backward is twice as much: about 2 where it should be about 1. Somebody will look for the fault in the
# experts. Reentrant's forward runs without gradients: the terms *are* in the loss, but as constants, and the router learns nothing from
# them. The loss of the step is the same in both. What leaves a segment by `return` has a graph, and leaves once.
# </details>

# %% [markdown]
# ### 6 · A look at validation
#
# *10 minutes · another world.* A pretrained encoder is fine-tuned with its normalisation frozen, as its authors recommend. A colleague wanted the validation loss of each step on the dashboard, and called `validated` as soon as the training loss was known.
#
# ```python
# # recompute_lab/specimens/drills/probe.py: class Probed(Model)
# def build(self) -> None:
#     self.stem, self.norm = nn.Linear(16, 16), nn.BatchNorm1d(16)
#     first, last = nn.Linear(16, 16), nn.Linear(16, 16)
#     self.encoder = nn.Sequential(first, self.norm, nn.Tanh(), last)
#     self.norm.running_mean.normal_()
#     self.norm.running_var.uniform_(0.5, 2.0)
#     self.unseen = torch.randn(32, 16)
#
# @torch.no_grad()
# def validated(self) -> Tensor:
#     self.eval()
#     value = power(self.encoder(self.stem(self.unseen)))
#     self.train()
#     return value
#
# def step(self, run: Run = NON_REENTRANT) -> Tensor:
#     self.train()
#     self.norm.eval()
#     loss = power(run(self.encoder, self.stem(self.rows)))
#     self.validation = self.validated()
#     loss.backward()
#     return loss.detach()
# ```
#
# **What it is for.** `norm` uses its pretrained statistics, and leaves them alone. `validation` is the loss on unseen rows, with the weights of the step's beginning, in evaluation mode.
#
# **(a)** Say what happens. **(b)** Repair it.

# %% tags=["solution"]
told = {
    ### BEGIN SOLUTION
    "plain": "right",
    "reentrant": "silent: off",
    "non-reentrant": "loud: metadata",
    ### STUB
    # "plain": ...,
    # "reentrant": ...,
    # "non-reentrant": ...,
    ### END SOLUTION
}
check.say_probe(told)

# %% tags=["solution"]
class ProbedRight(Probed):
    ### BEGIN SOLUTION
    def step(self, run):
        self.train()
        self.norm.eval()
        loss = power(run(self.encoder, self.stem(self.rows)))
        loss.backward()
        self.validation = self.validated()
        return loss.detach()
    ### STUB
    # ...  # the methods that you change, in full
    ### END SOLUTION


check.mend_probe(ProbedRight)

# %% [markdown]
# <details><summary>Why (open when you are done)</summary>
#
# `self.train()` puts *every* module into training mode, `norm` too, which had been in evaluation mode. So in the recomputation `norm`
# normalises by the batch. Reentrant computes the gradients of that other network, and moves the pretrained statistics. Non-reentrant notices,
# but only because BatchNorm in training mode saves two tensors of shape [16] for backward, the batch's mean and the inverse of its
# deviation, where in evaluation mode it saves two empty ones. The solution only moves a line. A context manager that puts each module's own
# mode back is more robust.
# </details>

# %% [markdown]
# ### 7 · Computed once, and kept
#
# *10 minutes · state.* A layer standardises its weight: each row is centred and scaled. The batch goes through in four parts, with one backward for all. A profile showed that the same weight was standardised four times, so it is kept for the rest of the step. That was before checkpointing.
#
# ```python
# # recompute_lab/specimens/drills/memo.py: class Standardised(Model)
# def build(self) -> None:
#     self.stem, self.out = nn.Linear(16, 16), nn.Linear(16, 16)
#     self.weight, self.kept = nn.Parameter(torch.randn(16, 16)), None
#
# def standardised(self) -> Tensor:
#     centred = self.weight - self.weight.mean(1, keepdim=True)
#     return centred / centred.norm(dim=1, keepdim=True)
#
# def layer(self, x: Tensor) -> Tensor:
#     if self.kept is None:
#         self.kept = self.standardised()
#     return self.out(torch.tanh(x @ self.kept.T))
#
# def step(self, run: Run = NON_REENTRANT) -> Tensor:
#     self.kept = None
#     y = [run(self.layer, self.stem(rows)) for rows in self.rows.chunk(4)]
#     loss = power(torch.cat(y))
#     loss.backward()
#     return loss.detach()
# ```
#
# **What it is for.** The weight is standardised once in a step, and anew in the next, when the optimizer has changed it.
#
# **(a)** Say what happens. **(b)** Repair it.

# %% tags=["solution"]
told = {
    ### BEGIN SOLUTION
    "plain": "right",
    "reentrant": "silent: missing",
    "non-reentrant": "loud: count",
    ### STUB
    # "plain": ...,
    # "reentrant": ...,
    # "non-reentrant": ...,
    ### END SOLUTION
}
check.say_memo(told)

# %% tags=["solution"]
class StandardisedRight(Standardised):
    ### BEGIN SOLUTION
    def layer(self, x, weight):
        return self.out(torch.tanh(x @ weight.T))

    def step(self, run):
        weight = self.standardised()
        y = [run(self.layer, self.stem(rows), weight) for rows in self.rows.chunk(4)]
        loss = power(torch.cat(y))
        loss.backward()
        return loss.detach()
    ### STUB
    # ...  # the methods that you change, in full
    ### END SOLUTION


check.mend_memo(StandardisedRight)

# %% [markdown]
# <details><summary>Why (open when you are done)</summary>
#
# The first segment makes the weight. Its recomputation finds it made, so it saves fewer tensors, and non-reentrant raises. Reentrant's
# forward runs without gradients, so the weight that it keeps has no graph; every recomputation finds that one, and `self.weight` gets no
# gradient at all. (Look for `.grad is None` after the first backward of a new setup.) To make the weight outside and leave it in
# `self.kept` is only half a repair: each of reentrant's four backwards goes through its graph, and the second one raises, as in drill 8.
# Given as an argument, it is right under both.
# </details>

# %% [markdown]
# ### 8 · What the decoder looks at
#
# *10 minutes · cut off.* A decoder attends to the encoder's output in every layer. Its layers came from a decoder-only model, and their signature has no place for that output. So it is left in an attribute, where all layers find it.
#
# ```python
# # recompute_lab/specimens/drills/memory.py: class Translator(Model)
# def build(self) -> None:
#     self.stem, self.encoder = nn.Linear(16, 16), nn.Linear(16, 16)
#     self.queries = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
#     self.source = torch.randn(24, 16)
#
# def layer(self, x: Tensor, depth: int) -> Tensor:
#     return self.looking(x, self.memory, depth)
#
# def looking(self, x: Tensor, memory: Tensor, depth: int) -> Tensor:
#     scores = self.queries[depth](x) @ memory.T / 4
#     return x + torch.softmax(scores, dim=1) @ memory
#
# def step(self, run: Run = NON_REENTRANT) -> Tensor:
#     self.memory = torch.tanh(self.encoder(self.source))
#     x = self.stem(self.rows)
#     for depth in range(2):
#         x = run(self.layer, x, depth)
#     loss = power(x)
#     loss.backward()
#     return loss.detach()
# ```
#
# **What it is for.** The source is encoded once, both layers attend to it, and the encoder learns from both.
#
# **(a)** Say what happens. **(b)** Repair it.

# %% tags=["solution"]
told = {
    ### BEGIN SOLUTION
    "plain": "right",
    "reentrant": "loud: other",
    "non-reentrant": "right",
    ### STUB
    # "plain": ...,
    # "reentrant": ...,
    # "non-reentrant": ...,
    ### END SOLUTION
}
check.say_memory(told)

# %% tags=["solution"]
class TranslatorRight(Translator):
    ### BEGIN SOLUTION
    def step(self, run):
        memory = torch.tanh(self.encoder(self.source))
        x = self.stem(self.rows)
        for depth in range(2):
            x = run(self.looking, x, memory, depth)
        loss = power(x)
        loss.backward()
        return loss.detach()
    ### STUB
    # ...  # the methods that you change, in full
    ### END SOLUTION


check.mend_memory(TranslatorRight)

# %% [markdown]
# <details><summary>Why (open when you are done)</summary>
#
# `memory` is a tensor with a graph behind it. Non-reentrant keeps the forward's graph, in which `memory` has its place. Reentrant runs a
# backward of its own for each segment. It cuts off a segment's arguments from the graph before them, and nothing else. `memory` is no
# argument, so the first of these backwards goes on into the encoder, and frees its graph. The second one raises *Trying to backward through
# the graph a second time*. With a single decoder layer it would be right, by luck. `retain_graph=True` does not help: it does not reach the
# inner backward. As an argument, `memory` gets the sum of both layers' gradients, and one backward goes on into the encoder.
# </details>

# %% [markdown]
# ### 9 · A codebook that follows
#
# *12 minutes · state.* A tokeniser for images replaces each vector by the nearest of eight codes. In the paper's listing the codes are updated right after the look-up, and so they are here. The authors trained without checkpointing.
#
# ```python
# # recompute_lab/specimens/drills/codebook.py: class Quantised(Model)
# def build(self) -> None:
#     self.stem, self.encoder, self.decoder = (nn.Linear(16, 16) for _ in range(3))
#     self.register_buffer("codes", 0.5 * torch.randn(8, 16))
#
# def quantised(self, x: Tensor) -> tuple[Tensor, Tensor]:
#     z = self.encoder(x)
#     nearest = self.nearest(z.detach())
#     code = self.codes[nearest]
#     if self.training:
#         self.follow(z.detach(), nearest)
#     return self.decoder(z + (code - z).detach()), power(z - code)
#
# def nearest(self, z: Tensor) -> Tensor:
#     return (z[:, None] - self.codes).square().sum(2).argmin(1)
#
# def follow(self, z: Tensor, nearest: Tensor) -> None:
#     chosen = one_hot(nearest, 8).float()
#     counts = chosen.sum(0)[:, None]
#     means = chosen.T @ z / counts.clamp(min=1)
#     self.codes.lerp_(torch.where(counts > 0, means, self.codes), 0.2)
#
# def step(self, run: Run = NON_REENTRANT) -> Tensor:
#     y, commitment = run(self.quantised, self.stem(self.rows))
#     loss = power(y - self.rows) + commitment
#     loss.backward()
#     return loss.detach()
# ```
#
# **What it is for.** In training, after the look-up, each code moves towards the mean of the rows that chose it, once in a step. In evaluation the codes stay.
#
# **(a)** Say what happens. **(b)** Repair it.

# %% tags=["solution"]
told = {
    ### BEGIN SOLUTION
    "plain": "right",
    "reentrant": "silent: off",
    "non-reentrant": "silent: off",
    ### STUB
    # "plain": ...,
    # "reentrant": ...,
    # "non-reentrant": ...,
    ### END SOLUTION
}
check.say_codebook(told)

# %% tags=["solution"]
class QuantisedRight(Quantised):
    ### BEGIN SOLUTION
    def follow(self, z, nearest):
        self.due = z, nearest  # noted twice, the same: that does no harm

    def step(self, run):
        loss = super().step(run)
        if self.training:
            super().follow(*self.due)
        return loss
    ### STUB
    # ...  # the methods that you change, in full
    ### END SOLUTION


check.mend_codebook(QuantisedRight)

# %% [markdown]
# <details><summary>Why (open when you are done)</summary>
#
# The forward reads the codes and then moves them. So the recomputation reads what the forward wrote: other codes, perhaps other neighbours,
# and a wrong gradient under both. Then it moves the codes a second time. The state is *read, then written*: a guard that skips the second
# write comes too late, since the wrong value has been read by then. The write has to leave the segment, and to wait until backward is over.
# The solution notes what to write and writes it in `step`; to return `z` and `nearest` instead does the same. A buffer that is only written,
# such as BatchNorm's, would have been a side effect alone.
# </details>

# %% [markdown]
# ## Staff
#
# Three faults between parts that are right by themselves, and whose obvious repair makes things worse.

# %% [markdown]
# ### 10 · Two losses, weighed
#
# *12 minutes · cut off.* An image decoder is trained with two losses: to be near the image, and to please a critic. As in the paper, they are weighed by the lengths of their gradients at the last layer. Now the decoder, last layer included, is checkpointed.
#
# ```python
# # recompute_lab/specimens/drills/adaptive.py: class Weighed(Model)
# def build(self) -> None:
#     self.stem, self.block, self.last = nn.Linear(16, 16), Block(), nn.Linear(16, 16)
#     self.critic = nn.Linear(16, 1).requires_grad_(False)
#
# def decoder(self, x: Tensor) -> Tensor:
#     return self.last(self.block(x))
#
# def length(self, loss: Tensor) -> Tensor:
#     """Of the loss's gradient at the last layer."""
#     weight = self.last.weight
#     return torch.autograd.grad(loss, weight, retain_graph=True)[0].norm()
#
# def step(self, run: Run = NON_REENTRANT) -> Tensor:
#     y = run(self.decoder, self.stem(self.rows))
#     near, displeased = power(y - self.rows), -self.critic(y).mean()
#     self.share = self.length(near) / (self.length(displeased) + 1e-4)
#     loss = near + self.share * displeased
#     loss.backward()
#     return loss.detach()
# ```
#
# **What it is for.** `share` is the length of the first loss's gradient at the last layer, divided by that of the second, anew in each step.
#
# **(a)** Say what happens. **(b)** Repair it.

# %% tags=["solution"]
told = {
    ### BEGIN SOLUTION
    "plain": "right",
    "reentrant": "loud: other",
    "non-reentrant": "right",
    ### STUB
    # "plain": ...,
    # "reentrant": ...,
    # "non-reentrant": ...,
    ### END SOLUTION
}
check.say_adaptive(told)

# %% tags=["solution"]
class WeighedRight(Weighed):
    ### BEGIN SOLUTION
    def step(self, run):
        y = self.last(run(self.block, self.stem(self.rows)))
        near, displeased = power(y - self.rows), -self.critic(y).mean()
        self.share = self.length(near) / (self.length(displeased) + 1e-4)
        loss = near + self.share * displeased
        loss.backward()
        return loss.detach()
    ### STUB
    # ...  # the methods that you change, in full
    ### END SOLUTION


check.mend_adaptive(WeighedRight)

# %% [markdown]
# <details><summary>Why (open when you are done)</summary>
#
# Seen from outside, a reentrant segment is one operation on its tensor arguments. `last.weight` is none of them, so it is not in the graph
# that `autograd.grad` goes through, and the error says that it *appears to not have been used*. The message advises `allow_unused=True`. That
# gives `None`, and to take `None` for a gradient of zero is a silent fault. Non-reentrant keeps the forward's graph, and is right. But it
# recomputes the block for each of the three backward passes, so the block runs four times in a step. With the last layer outside of the
# segment nothing is recomputed for the two lengths, and the block runs twice, under both.
# </details>

# %% [markdown]
# ### 11 · The best of four experts
#
# *15 minutes · order and rounding.* The routing of a switch transformer: each row goes to the expert with the highest score. On the team's GPUs the scores' last bits depend on the order of additions. Training crashes about once a day.
#
# ```python
# # recompute_lab/specimens/drills/route.py: class Routed(Model)
# def build(self) -> None:
#     self.stem, self.router = nn.Linear(16, 16), nn.Linear(16, 4)
#     self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
#     self.rounded = nn.Identity()
#
# def routed(self, x: Tensor) -> Tensor:
#     scores = self.rounded(self.router(x))
#     return self.sent(x, scores, scores.argmax(1))
#
# def sent(self, x: Tensor, scores: Tensor, route: Tensor) -> Tensor:
#     y = torch.zeros_like(x)
#     for number, expert in enumerate(self.experts):
#         rows = (route == number).nonzero().flatten()
#         y = y.index_add(0, rows, torch.tanh(expert(x[rows])))
#     return x + y * torch.softmax(scores, 1).gather(1, route[:, None])
#
# def step(self, run: Run = NON_REENTRANT) -> Tensor:
#     loss = power(run(self.routed, self.stem(self.rows)))
#     loss.backward()
#     return loss.detach()
# ```
#
# **What it is for.** Each row has one expert, each expert sees its own rows only, and the router learns through the softmax. `rounded` stands for a kernel that cannot be made reproducible. The check puts one row on a tie and lets `rounded` change the last bits between its calls, in either direction. So keep its call.
#
# **(a)** Say what happens. **(b)** Repair it.

# %% tags=["solution"]
told = {
    ### BEGIN SOLUTION
    "plain": "right",
    "reentrant": "silent: off",
    "non-reentrant": "loud: metadata",
    ### STUB
    # "plain": ...,
    # "reentrant": ...,
    # "non-reentrant": ...,
    ### END SOLUTION
}
check.say_route(told)

# %% tags=["solution"]
class RoutedRight(Routed):
    ### BEGIN SOLUTION
    def step(self, run):
        x = self.stem(self.rows)
        scores = self.rounded(self.router(x))
        loss = power(run(self.sent, x, scores, scores.argmax(1)))
        loss.backward()
        return loss.detach()
    ### STUB
    # ...  # the methods that you change, in full
    ### END SOLUTION


check.mend_route(RoutedRight)

# %% [markdown]
# <details><summary>Why (open when you are done)</summary>
#
# One row changes its expert between the passes. Each expert still runs, so as many tensors are saved; but one expert has a row more, another
# one a row less. Non-reentrant raises in both directions. (A guard that flips it sees in one direction only: lesson 03.) Reentrant
# differentiates the second route, with the loss of the first. The tempting repair is dangerous: run all experts on all rows, and the shapes
# agree, the error goes away, and the wrong gradients stay. A decision that may come out differently has to be made once, and handed to
# both passes.
# </details>

# %% [markdown]
# ### 12 · torch's own cache
#
# *15 minutes · another world.* A recurrent weight whose rows have length 1, by torch's own parametrization: each access computes the weight from its parameter. For a loop, torch's documentation recommends to compute it once, inside of `parametrize.cached()`, so the forward was wrapped in that. Checkpointing came last.
#
# ```python
# # recompute_lab/specimens/drills/recurrent.py: class Recurrent(Model)
# def build(self) -> None:
#     self.stem, self.inner = nn.Linear(16, 16), nn.Linear(16, 16)
#     self.outer = nn.Linear(16, 16, bias=False)
#     parametrize.register_parametrization(self.outer, "weight", UnitRows())
#     self.start = nn.Parameter(torch.randn(4, 16))
#
# def some(self, h: Tensor, inputs: Tensor) -> Tensor:
#     for x in inputs:
#         h = torch.tanh(self.inner(x) + self.outer(h))
#     return h
#
# def step(self, run: Run = NON_REENTRANT) -> Tensor:
#     h, inputs = self.start, self.stem(self.rows).view(8, 4, 16)
#     with parametrize.cached():
#         for part in inputs.chunk(2):
#             h = run(self.some, h, part)
#     loss = power(h)
#     loss.backward()
#     return loss.detach()
# ```
#
# **What it is for.** The weight's rows have length 1 (`UnitRows` divides each by its norm). In each pass through a segment the weight is computed at most once.
#
# **(a)** Say what happens. **(b)** Repair it.

# %% tags=["solution"]
told = {
    ### BEGIN SOLUTION
    "plain": "right",
    "reentrant": "right",
    "non-reentrant": "loud: metadata",
    ### STUB
    # "plain": ...,
    # "reentrant": ...,
    # "non-reentrant": ...,
    ### END SOLUTION
}
check.say_recurrent(told)

# %% tags=["solution"]
class RecurrentRight(Recurrent):
    ### BEGIN SOLUTION
    def some(self, h, inputs):
        with parametrize.cached():
            return super().some(h, inputs)

    def step(self, run):
        h, inputs = self.start, self.stem(self.rows).view(8, 4, 16)
        for part in inputs.chunk(2):
            h = run(self.some, h, part)
        loss = power(h)
        loss.backward()
        return loss.detach()
    ### STUB
    # ...  # the methods that you change, in full
    ### END SOLUTION


check.mend_recurrent(RecurrentRight)

# %% [markdown]
# <details><summary>Why (open when you are done)</summary>
#
# The forward of the first segment computes the weight; the second segment finds it in the cache. Backward runs after the cache is closed, so
# each recomputation computes the weight anew at every turn of its loop. Reentrant differentiates that: the same numbers, more often, and
# right. Non-reentrant expects the tensors that the forward saved, in their order, and finds those of a parametrization in between. To move
# backward into the `with` makes it worse: the recomputation then finds a cache that the forward has filled. Reentrant's forward has filled
# it without a graph, and the weight's parameter gets no gradient. Both passes must begin with the same cache, and the simplest is an empty
# one of their own: it belongs in the segment. (Or compute the weight outside, and give it as an argument.)
# </details>

# %% [markdown]
# ## Recap
#
# Answer aloud, then open.
#
# <details><summary>A colleague's repair makes the CheckpointError go away. Which three questions do you ask in the review?</summary>
#
# Are the gradients the plain run's, or do only the shapes agree (drill 11)? Does the step still do what it is for, over more than one step of
# training (drill 4)? Does it leave the plain run's state, with nothing written twice (drills 5 and 9)?
# </details>
#
# <details><summary>A segment reads a tensor that is no argument of it. When is that harmless, and when not?</summary>
#
# Harmless, if it is a parameter or a buffer, and unchanged when backward runs. Not, if its value has changed (drills 3 and 9); if it has a
# graph behind it and more than one segment reads it, under reentrant (drill 8); or if one pass makes it and the other finds it made (drills
# 7 and 12).
# </details>
#
# <details><summary>From lesson 03: in drill 11 non-reentrant notices the flip in both directions, and a guard's flip in one. Why?</summary>
#
# A guard decides how many tensors are saved, and early stop ends a recomputation that would save more at the forward's count. A route leaves
# the count as it is, and changes shapes. Those are compared, tensor by tensor, whatever the direction.
# </details>
#
# <details><summary>From lesson 08: the witness calls one cause proven and another suspected. What may you say of each in a review?</summary>
#
# Proven: with this put back for the recomputation, both passes agree, and without it they do not. So it is the cause. Suspected: it differed,
# or is known to do this, and nobody could put it back. That is a place to look, and no reason to merge a repair.
# </details>
#
# **Not shown**: devices and streams, several processes, compiled segments, `determinism_check="none"`.
#
# ## References
#
# - PyTorch documentation: `torch.utils.checkpoint`; `torch.nn.utils.parametrize.cached`; `torch.autograd.grad`.
# - M. Dehghani et al., "Universal Transformers", *ICLR* 2019 (drill 3).
# - Y. Gal, Z. Ghahramani, "A Theoretically Grounded Application of Dropout in Recurrent Neural Networks", *NeurIPS* 2016 (drill 4).
# - N. Shazeer et al., "Outrageously Large Neural Networks", *ICLR* 2017, section 4 (drill 5).
# - S. Qiao et al., "Micro-Batch Training with Batch-Channel Normalization and Weight Standardization", arXiv 1903.10520, 2019 (drill 7).
# - A. van den Oord et al., "Neural Discrete Representation Learning", *NeurIPS* 2017, appendix A.1 (drill 9).
# - P. Esser, R. Rombach, B. Ommer, "Taming Transformers for High-Resolution Image Synthesis", *CVPR* 2021, equation 7 (drill 10).
# - W. Fedus, B. Zoph, N. Shazeer, "Switch Transformers", *JMLR* 23, 2022, section 2.1 (drill 11).
