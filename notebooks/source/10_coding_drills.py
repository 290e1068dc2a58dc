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
# twelve such steps, of a screen each, after real training code, each wrong for another reason. None of them raises without
# checkpointing.
#
# **You will be able to**
# - read a training step and say, before you run it, what becomes of it under either implementation of checkpointing;
# - repair it so that it does what it is for, changes no bit of the plain run, and can be replayed under both;
# - tell a repair from a way to make the error go away.
#
# **Time** 5 to 15 minutes each, two hours for all; they stand on their own. **You need** PyTorch: modules, `backward`. Lessons 03 and
# 08 help most. The outputs are stored; after a restart, run the first cells, down to the table of words, and go to your drill.
#
# **The words.** A *segment* is a part of the model that is checkpointed. Its *forward* throws away the *saved tensors* that backward
# would need; the *recomputation*, a second run of that forward during backward, brings them back. The *plain run* is the same step without
# checkpointing. **Reentrant** and **non-reentrant** (`use_reentrant=True`, `=False`) are torch's two implementations. *Replayable*: under
# both, gradients and state are the plain run's. *Off by 0.5*: the difference from the plain run's gradient has half that gradient's norm,
# in the worst tensor.

# %% tags=["nbval-ignore-output"]
import platform

import torch

print("python", platform.python_version(), "| torch", torch.__version__)

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
# *Screen* is what a first conversation asks, *onsite* a longer one, *staff* one in which you are expected to see what the obvious repair
# breaks. Within a level the order is the one to go in.
#
# **As a candidate.** Set a clock. Say (a) aloud first, with your reason, for all three runs; only then fill it in. For (b) say what must not
# change before you write: what the step is for, its plain run, the state that it leaves. The checks ask exactly that. A hint costs less than
# silence: `hint.say_jitter()` and `hint.mend_jitter()`, in a cell of your own, and again for the next one.
#
# **As an interviewer.** Give the story and the code, not the title. Listen for the order: what does the second run find otherwise, does that
# change how many tensors are saved or of which shape, who looks. Three questions tell more than a right table: *how would you notice it in a
# run*, *which repair would you refuse in a review*, *what if there were two of these segments*. The fold under each drill has what to
# expect. Whoever says "it is fine without checkpointing" where it is of no use there either (one is like that) has answered another question.
#
# ## How a drill goes
#
# Each is a `Model`. `build` makes its parts, from a seed; `rows` is the batch, [32, 16]. `step(run)` is one training step, forward and backward, in
# which each checkpointed segment is called by `run(segment, *args)`: the plain run calls it, the others give it to `checkpoint`. `power` is the
# mean square, a loss; `Block` is x + down(gelu(up(x))). `look(...)` shows what becomes of any step. One that you know from lesson 05:

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
# The second run counts once more, and scales by another share, twice as large. Reentrant differentiates that run. Non-reentrant keeps the
# forward's graph, in which the share stands as a plain number: no saved tensor, so nothing recomputes it, and the gradients are right. (In lesson
# 05 it stood in front of a layer, which saves what it is given.) What is wrong is the count. The words, of which (a) wants one for each run:

# %%
print(words())

# %% [markdown]
# *No use* is said of the plain run alone; the others are compared with it, whatever its use. For (b) write a subclass, with the methods that you
# change in full. The check runs it: without checkpointing, against the original, whose loss and state it has to have bit for bit where nothing is drawn
# at random; under both implementations, and over four steps by turns, in both orders; then it looks whether it still does what it is for, whether its layers are still
# recomputed, and whether it has left something changed that is not its own. Your class is called as the original is, with `Right` behind it.
# Arguments of a segment are given by position: reentrant takes no others.

# %% [markdown]
# ## Screen
#
# Four faults that one should find on the spot, without running anything.

# %% [markdown]
# ### 1 · Noise as augmentation
#
# *5 minutes · randomness.* An intern ported the augmentation from the data loader, which was written in NumPy, into the model: it runs on the activations now. Checkpointing came a month later.
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
# **What it is for.** In training, each element gets normal noise of its own, of standard deviation `strength`, new in each step. In evaluation there is none.
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
# Both implementations take down torch's default generators at the forward, and put them back for the recomputation. NumPy's stream is
# nobody's: it has moved on, and the second run adds other noise. The loss comes from one noise, the gradients from another. As many tensors
# are saved, of equal shapes, so nobody raises. The plain run is right, and a test of the model alone would be, too. To draw the noise outside
# and to give it as an argument is as good: arguments are kept.
# </details>

# %% [markdown]
# ### 2 · A residual, in place
#
# *5 minutes · arguments.* Somebody saw in a memory profile that the sum makes a new tensor in each layer, and saved it. The plain run gives the same gradients and needs less memory; so the change was merged.
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
# **What it is for.** A stream, updated twice from itself and a position.
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
# Neither the stem's layer nor the first sum in `update` needs the values of `x` for backward, so autograd has no objection to `+=`. A
# checkpointed segment does need them: it is run again from its argument. Both implementations keep it by autograd's own means, which count
# how often a tensor was written to, and so both raise, in words that say nothing of checkpointing. Nothing was saved anyway: what is to be
# run again has to stay. (With `x.data += ...` nobody counts and nobody raises, and even the plain run has lost the position's gradient.)
# </details>

# %% [markdown]
# ### 3 · One block, four depths
#
# *7 minutes · another world.* A weight-sharing transformer: one block, four times. The author wanted to leave the block's signature alone, since a library's wrapper calls it, and told it its depth by an attribute.
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
# embedding gets all the gradient, rows 0 to 2 get zeros (not `None`: it is one parameter). Non-reentrant keeps the forward's graph, so each
# row gets *a* gradient, computed from the wrong saved tensors; only the last one is right. A closure over the loop's variable would do the
# same. What a segment reads must be an argument of it, or be the same when backward runs.
# </details>

# %% [markdown]
# ### 4 · A mask that both passes agree on
#
# *8 minutes · randomness.* Dropout in a recurrent cell wants one mask for a whole sequence. With checkpointing the masks of the two passes differed, so somebody seeded the generator in front of the draw. The checkpointed run agreed with the plain one, to the last bit, and the ticket was closed.
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
# **What it is for.** In training, each sequence keeps one mask from its first step to its last, in both segments; in the next step of training it has another one. A share `p` is dropped, the rest is scaled up. In evaluation there is no mask.
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
# Replayable it is. But the seed is the same in every step, so that the same columns are missing for good: not dropout, but a smaller network.
# And it seeds the generator of everybody: whatever draws after it, the next layer's dropout or a shuffle, draws the same in every step, too.
# Take the seed away, and the two segments draw a mask each: the fault that the seed had hidden. What two segments share, their caller makes.
# *To agree is not the aim; to agree on the right thing is.*
# </details>

# %% [markdown]
# ## Onsite
#
# Five that take a second look: who writes what, when, and does it have a graph?

# %% [markdown]
# ### 5 · A loss on the side
#
# *10 minutes · state.* A mixture of experts, adapted from a library in which layers have one output. The balance loss could not be returned, so the layers add it to an attribute, and the trainer picks it up.
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
# **What it is for.** The balance loss of both micro-batches is in the loss, teaches the router, and is logged.
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
# once more, and what is logged after backward is twice as much: about 2 where it should be about 1, and an afternoon is spent on the experts.
# Reentrant's forward runs without gradients, so that the term *is* in the loss, as a constant; the router is not told. The loss curve looks
# the same in both. What leaves a segment by `return` has a graph, and leaves once.
# </details>

# %% [markdown]
# ### 6 · A look at validation
#
# *10 minutes · another world.* A pretrained encoder is fine-tuned with its normalisation frozen, as its authors recommend. A colleague wanted to see the validation loss of each step on the dashboard and added three lines, where the loss was at hand.
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
# `self.train()` puts back what the model's mode was, not what each module's was: when backward runs, `norm` is in training mode. It then
# normalises by the batch. Reentrant computes gradients of that other network, and moves the pretrained statistics. Non-reentrant notices, but
# only since BatchNorm saves the batch's mean and deviation for backward, [16] each, and in evaluation mode two empty tensors in their place.
# The repair above only moves a line. More robust is a context manager that puts each module's own flag back.
# </details>

# %% [markdown]
# ### 7 · Computed once, and kept
#
# *10 minutes · state.* Weight standardisation, four micro-batches, one backward. The profiler showed the same weight standardised four times, so it is kept for the rest of the step. That was before checkpointing, too.
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
# The first segment makes the weight. Its recomputation finds it there, does not standardise, and saves fewer tensors: non-reentrant counts.
# Reentrant's forward runs without gradients, so what it keeps has no graph; every recomputation finds it, and `weight` gets no gradient at
# all. (Look for `.grad is None` after the first backward of a new setup.) To make it outside and leave it in `self.kept` is only half a
# repair: each of reentrant's four backwards goes through its graph, and the second one raises, see drill 8. As an argument it is right under
# both.
# </details>

# %% [markdown]
# ### 8 · What the decoder looks at
#
# *10 minutes · cut off.* A decoder looks at the encoder's output in every layer. The layers' signature came from a decoder-only model, so the output is left where all layers find it.
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
# **What it is for.** The source is encoded once; both layers look at it; the encoder learns from both.
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
# `memory` is a tensor with a graph behind it. Non-reentrant keeps the forward's graph, in which it is in its place. Reentrant runs a backward
# of its own for each segment, through everything that the second run has touched; what is no argument is not cut off, so the first of these
# goes on into the encoder, and frees its graph. The second one raises *Trying to backward through the graph a second time*. With a single
# decoder layer it is right, by luck, and `retain_graph=True` does not reach the inner backward. As an argument, `memory` gets both layers'
# gradients added up outside.
# </details>

# %% [markdown]
# ### 9 · A codebook that follows
#
# *12 minutes · state.* A tokeniser for images. The update of its codebook stood in the paper's listing behind the look-up, and so it does here. Its authors trained without checkpointing.
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
# **What it is for.** In training, after the look-up, each code moves towards the mean of the rows that chose it, once in a step. In evaluation the codes rest.
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
# The forward reads the codes and then moves them, so the second run reads what the first one wrote: other codes, perhaps other neighbours, a
# wrong gradient under both. Then it moves them again, twice as far as the paper says. *Read, then written*: a guard that skips the second
# write comes too late, since the wrong value is read by then. Out of the segment with the write, and behind backward. The solution defers it;
# to return `z` and `nearest`, and to let `step` follow, is the same and easier to read. A buffer that is only written, such as BatchNorm's,
# would have been a side effect alone.
# </details>

# %% [markdown]
# ## Staff
#
# Three in which an agreement between parts is broken, and the obvious repair makes it worse.

# %% [markdown]
# ### 10 · Two losses, weighed
#
# *12 minutes · cut off.* An image decoder with two losses. The paper weighs them by their gradients at the last layer, and its code was written with all activations in memory. Now the decoder, last layer included, is checkpointed.
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
# **What it is for.** `share` is the quotient of both gradients' lengths at the last layer, anew in each step.
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
# To the outside a reentrant segment is one operation of its tensor arguments. `last.weight` is none of them, so it is not in the graph that
# `autograd.grad` looks through, and it *appears to not have been used*. The advice in the message, `allow_unused=True`, gives `None`, and who
# counts that as no gradient has a silent fault. Non-reentrant keeps the forward's graph, and is right; but it recomputes the block for each
# of the three backward passes: it runs four times in a step. With the last layer outside of the segment, nothing is recomputed to answer the
# question, and the block runs twice, under both.
# </details>

# %% [markdown]
# ### 11 · The best of four experts
#
# *15 minutes · order and rounding.* A switch transformer's routing: each row goes to the expert with the highest score. On a GPU the scores' last bits depend on the order of additions. It crashes about once a day.
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
# **What it is for.** Each row has one expert, each expert sees its own rows only, and the router learns through the softmax. `rounded` stands for the kernel that nobody can make reproducible: the check puts one row on a tie there, and lets the last bits decide, in both directions.
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
# One row changes its expert between the passes. Each expert still runs, so as many tensors are saved; but two of them have a row more, or
# less. Non-reentrant raises, in both directions, unlike a guard (lesson 03), which it sees in one direction only. Reentrant differentiates
# the second route, with the loss of the first. The tempting repair is dangerous: to run all experts on all rows makes the shapes agree, the
# error goes away, and the wrong gradients stay. A decision whose inputs may come out otherwise has to be made once, and handed to both
# passes.
# </details>

# %% [markdown]
# ### 12 · torch's own cache
#
# *15 minutes · another world.* A recurrent weight with rows of length 1, by torch's own parametrization. The documentation says that in a loop it should be computed once, inside of `parametrize.cached()`; so the forward was wrapped in it. Checkpointing came last.
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
# **What it is for.** The weight's rows have length 1 (`UnitRows` divides each by its norm), and it is computed from its parameters once for each segment and pass at most.
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
# The forward of the first segment computes the weight, the second one finds it. Backward runs when the cache is closed, and each
# recomputation computes the weight in every step of its loop. Reentrant differentiates just that: the same numbers, more often, and right.
# Non-reentrant wants the tensors that the forward saved, in their order, and gets those of a parametrization in between. To keep backward
# inside of `with` makes it worse: the second run then finds a cache that the first one has filled; reentrant has filled it without a graph,
# and the weight's parameter gets no gradient. A cache must be as empty and as open for both passes: it belongs into the segment. (Or compute
# the weight outside, and give it as an argument.)
# </details>

# %% [markdown]
# ## Recap
#
# Answer aloud, then open.
#
# <details><summary>A colleague's repair makes the CheckpointError go away. Which three questions do you ask in the review?</summary>
#
# Are the gradients the plain run's, or do only the shapes agree now (drill 11)? Does the step still do what it is for, in training, over more
# than one step (drill 4)? Is the state that it leaves the plain run's, once (drills 5 and 9)?
# </details>
#
# <details><summary>A segment reads a tensor that is no argument of it. When is that harmless, and when not?</summary>
#
# Harmless: it is a leaf, a parameter or a buffer, and the same when backward runs. Not: its value has changed (drills 3 and 9); it has a graph
# behind it, under reentrant, and there is more than one segment (drill 8); it was made in one of the two passes (drills 7 and 12).
# </details>
#
# <details><summary>From lesson 03: in drill 11 non-reentrant notices the flip in both directions, and a guard's flip in one. Why?</summary>
#
# A guard decides how many tensors are saved, and a recomputation that wants to save more is cut off at the forward's count. A route leaves the
# count as it is, and changes shapes: those are compared, tensor by tensor, whatever the direction.
# </details>
#
# <details><summary>From lesson 08: the witness calls one cause proven and another suspected. What may you say of each in a review?</summary>
#
# Proven: with this put back before the recomputation, and all else as it ran, both passes agree; so it is the cause. Suspected: it differed, or it is
# known to do this, and nobody could put it back. That is a place to look, and no reason to merge a repair.
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
