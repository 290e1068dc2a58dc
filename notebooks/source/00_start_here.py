# %% [markdown]
# # 00 · Start here
#
# Activation checkpointing saves memory by running part of a model's forward twice. It trusts that
# the second run is the first. This course is about what happens when it is not.
#
# **You will be able to**
# - check that your installation is ready;
# - make a checkpointed segment fail because of a difference in the last bits, and repair it;
# - say what checkpointing saves, what it costs, and how many segments to cut a model into;
# - search your own source for the cheapest form of the fault, and say what that search misses;
# - choose a route through the other lessons.
#
# **Time** 30 minutes. **You need** a training step that you have written in PyTorch; nothing about
# checkpointing is assumed. The outputs are stored: to predict before you see, choose *Edit → Clear
# Outputs of All Cells* first. After a restart, go on with *Run → Run All Above Selected Cell*.
#
# ## Is everything there?
#
# The next two cells check the installation. If the first stops with `ModuleNotFoundError`, the lab
# or torch is not installed in the Python that runs this notebook: start it as the README says.

# %% tags=["nbval-ignore-output"]
from recompute_lab.lessons import installation

print("\n".join(installation.problems()) or installation.machine())

# %% [markdown]
# That was your machine. What follows is the same on every machine, and so are all other text
# outputs of this course but a few: measured times, the installed torch's own source and words.

# %%
from recompute_lab.lessons import start_here

check, hint = start_here.check, start_here.hint
idle, firing = start_here.trunk_counts()
print("ready:", not installation.problems())
print(f"the course's model saves {idle} tensors, and {firing} when one guard is true")

# %% [markdown]
# ## One flip in one minute
#
# **The words.** In *forward*, PyTorch keeps the tensors that backward will need: the *saved
# tensors*. With *checkpointing*, a part of the model, a *segment*, keeps only its input. When
# backward comes to that segment, it runs its forward once more: the *recomputation*, which produces
# the tensors that were not kept. Each of the two runs is a *pass*. (Every lesson says its words
# like this; [the glossary](glossary.md) has those of all lessons.)
#
# Here is a segment of six lines. It computes an update, and shortens the rows that are longer than
# a limit. `nudge` stands for arithmetic that does not come out the same twice: in the forward, and
# not in the recomputation, it moves every number by four *units in the last place*, the smallest
# steps that a float32 can make. The noise is staged so that you see what the page says; later
# lessons have the real thing.

# %%
import torch
from torch.utils.checkpoint import CheckpointError, checkpoint

from recompute_lab.instruments.checkpointing import Mismatch
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.instruments.state import same_bits

torch.manual_seed(0)
x = torch.randn(4, 8, requires_grad=True)
limit = x.detach().tanh().norm(dim=-1).max()  # exactly as long as the longest row
nudge = Nudge({1: 4})  # pass 1, the forward: 4 units in the last place away from zero


# %%
def guarded(x):
    update = nudge(x.tanh())
    length = update.detach().norm(dim=-1, keepdim=True)
    if (length > limit).any():  # the guard: nothing to do unless a row is too long
        update = update * (limit / length).clamp(max=1.0)
    return update.sin()


# %% [markdown]
# **Predict.** Forward and backward of this segment, checkpointed: what happens? (a) nothing to
# see, the numbers differ in the last bits only; (b) a gradient that is a little off; (c) an error;
# (d) a warning. Choose, then run.

# %%
def attempt(segment):
    nudge.rewind()  # the next call is pass 1 again
    try:
        checkpoint(nudge.counted(segment), x, use_reentrant=False).sum().backward()
    except CheckpointError as error:
        return Mismatch.of(error)


print(attempt(guarded))

# %% [markdown]
# PyTorch stopped the step: (c). In forward, one row was longer than the limit by a few last bits,
# the guard was true, and the multiplication saved a tensor for backward. In the recomputation that
# row was not longer, the multiplication did not happen, and one saved tensor was missing.
#
# Nothing is wrong with either pass. What is wrong is that **a tensor's value decided which
# operations ran**. Is it the noise alone, or the guard alone? Twenty steps of each kind:

# %%
def repaired(x):
    update = nudge(x.tanh())
    length = update.detach().norm(dim=-1, keepdim=True)
    update = update * (limit / length).clamp(max=1.0)  # always; by 1.0 if nothing is too long
    return update.sin()


for noise in ({}, {1: 4}):
    nudge = Nudge(noise)
    for segment in (guarded, repaired):
        errors = sum(attempt(segment) is not None for _ in range(20))
        kind = "noise" if noise else "no noise"
        print(f"{segment.__name__:8}  {kind:8}  {errors:2} of 20 stopped")

# %% [markdown]
# It takes both: noise *and* a guard. The repair drops the guard and multiplies always. Is it the
# same function? Compare the two where the guard is true (pass 1) and where it is false (pass 2):

# %%
for number in (1, 2):
    nudge.pass_number = number
    same = same_bits(guarded(x), repaired(x))
    print(f"pass {number}: outputs equal, bit for bit: {same}")

# %% [markdown]
# Where no row is too long, the factor is exactly 1.0, and a finite number times 1.0 is that
# number. (A NaN is another matter: lesson 01.) The guard saved a multiplication and cost the run.
#
# ## Why anyone checkpoints
#
# A model that is trained holds, at the end of forward, all that its layers have saved for
# backward. We count it: the bytes of all tensors that came into being during the step and are
# still alive, each block of memory once. Weights, their gradients, and the input are not counted.
# Here are 36 small layers, each a `Linear` and a `tanh`. We measure in *activations*: one is what
# a layer hands on.

# %%
from torch import nn

from recompute_lab.instruments.memory import footprint
from recompute_lab.instruments.segments import in_segments, root_schedule

stack = nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.Tanh()) for _ in range(36)])
x = torch.randn(512, 128, requires_grad=True)
activation = x.nbytes
plain = footprint(stack, x)
print(f"one activation: {activation // 1024} KiB")
print(f"plain step, after forward: {plain.kept / activation:.0f} activations")
print(f"plain step, peak: {plain.peak / activation:.2f} activations")

# %% [markdown]
# One activation per layer: `tanh` saves its result, and that is the very tensor that the next
# `Linear` saves as its input. The *peak*, the most that is held at once, comes during backward,
# which needs some space to work in.
#
# Now cut the 36 layers into k segments of equal length and checkpoint each. **Predict**: which k
# has the lowest peak: 1, 6, 18 or 36?

# %%
measured = {k: footprint(in_segments, stack, k, x) for k in (1, 2, 3, 4, 6, 9, 12, 18, 36)}
print(" k  after forward   peak  peak - (k + 36/k)")
for k, held in measured.items():
    kept, peak = held.kept / activation, held.peak / activation
    print(f"{k:2}  {kept:13.0f}  {peak:5.2f}  {peak - k - 36 / k:17.2f}")

# %% [markdown]
# After forward, k activations are held: what each segment has handed on. That is not the peak.
# Backward recomputes one segment after the other, and a segment then holds its 36/k activations at
# once. So, for n layers:
#
# > peak = k + n/k + a constant.
#
# The derivative in k is 1 − n/k², which is zero at **k = √n**: for 36 layers, at 6. The last
# column says that the formula fits what was measured, with the same constant every time. Look at k
# = 1, too: one checkpoint around everything holds least after forward, and its peak is the plain
# step's.
#
# That was memory. What does it cost? Count how often a layer's forward runs in one training step:

# %%
from contextlib import ExitStack
from functools import partial

runs = {"plain": stack}
runs |= {f"k = {k}": partial(in_segments, stack, k) for k in (1, 6, 36)}
calls = []
for name, run in runs.items():
    calls.clear()
    with ExitStack() as hooks:  # takes every hook off again, also when the cell is interrupted
        for layer in stack:
            hooks.enter_context(layer.register_forward_pre_hook(lambda *_: calls.append(1)))
        run(x).sum().backward()
    print(f"{name:6}  {len(calls)} forwards of a layer")

# %% [markdown]
# Checkpointed, every layer runs forward twice, in 1, 6 or 36 segments alike. *Folklore*: backward
# costs as much as two forwards, so a step of 3 becomes one of 4, a third more time. The right half
# of the picture is what this machine measured: medians of runs that took turns. Your picture will
# differ.

# %%
from recompute_lab.instruments.timing import seconds
from recompute_lab.views import memory
from recompute_lab.views.style import show

few = (1, 2, 6, 12, 36)
steps = [lambda k=k: in_segments(stack, k, x).sum().backward() for k in few]
base, *rest = seconds(lambda: stack(x).sum().backward(), *steps)
times = {k: time / base for k, time in zip(few, rest, strict=True)}
picture = memory.segments(plain, measured, activation, lambda k: k + 36 / k + 2.25, times)
show(picture, "36 layers: the peak is lowest at 6 segments; any number of them costs time.")

# %% [markdown]
# Your times may well be above the dotted line: forward may take more than a third of a plain step,
# every checkpoint has a fixed cost, which shows in layers as small as ours, and whatever else your
# machine does adds to it. This cell does not tell these apart.
#
# ### Does the root hold for a transformer?
#
# √n assumed that a layer keeps as much as it hands on. A transformer block keeps far more:
# queries, keys, values, attention weights, the wide layer of its MLP. Let a block keep *a*
# activations, and a segment hand on *b*. The peak is then k·b + (n/k)·a and a constant, and lowest
# at **k = √(n·a/b)**.

# %%
from recompute_lab.specimens.trunk import Block

blocks = nn.Sequential(*[Block(width=32, heads=4, caps=[]) for _ in range(24)])
tokens = torch.randn(16, 16, 32, requires_grad=True)
activation = tokens.nbytes
plain = footprint(blocks, tokens)
a = plain.kept / activation / 24
print(f"one block keeps {a:.1f} activations")
print(f"root of n: {root_schedule(24):.1f}, root of n a/b: {root_schedule(24, a, 1):.1f}")

# %%
KS = (1, 2, 3, 5, 8, 12, 18, 21, 22, 23, 24)
measured = {k: footprint(in_segments, blocks, k, tokens) for k in KS}
most = {k: held.peak / activation for k, held in measured.items()}
for k in (1, 5, 12, 22, 24):
    print(f"k = {k:2}: peak {most[k]:5.1f} activations")
print("lowest of those measured at k =", min(most, key=most.get))
constant = most[24] - 24 - a
picture = memory.segments(
    plain, measured, activation, lambda k: k + 24 / k * a + constant, log=True
)
show(picture, "24 transformer blocks: lowest at nearly one segment per block, not at five.")

# %% [markdown]
# With five segments, the plain root, the peak is more than twice the lowest. For these blocks it
# is lowest close to one checkpoint around every block. The rule of thumb was not wrong: it is this
# formula with a = b filled in. (Where 24 blocks do not divide into equal segments, the points lie
# a little off the line: a segment holds whole blocks.)
#
# ## The grep on your own source
#
# Before you read on: does your own code hold a guard like the one above? The cheapest search looks
# for a line with `if`, white space, and later one of seven methods with empty parentheses and a
# colon. As a command for a terminal, in the folder to be searched, it is:

# %%
from recompute_lab.instruments.grep import SHELL, grep

print(SHELL)

# %% [markdown]
# The same in Python, on ten lines that are written to a temporary folder. **Predict** how many of
# the ten it finds.

# %%
SAMPLE = """\
if (scale < 1.0).any():
if self.training and x.any():
# if x.any(): this line was here once
message = "if x.all():"
if prices.sum():
if x.norm() > limit:
if x.item() > 0.5:
if torch.any(x):
fires = x.any()
if fires:
"""

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

with TemporaryDirectory() as folder:
    Path(folder, "sample.py").write_text(SAMPLE)
    hits = grep(folder)
print("found:", hits, sep="\n")
lines = {hit.line for hit in hits}
missed = [text for number, text in enumerate(SAMPLE.splitlines(), 1) if number not in lines]
print("walked past:", *missed, sep="\n")

# %% [markdown]
# Of the five it finds, the first is the guard of lesson 01. The second is one as well:
# `self.training` only says when it can strike. The third is a comment and the fourth a string. The
# fifth cannot be judged from the line: `prices` may be a NumPy array, which no checkpoint looks
# at.
#
# Of what it walks past, *all* can be the fault: a method it does not name, a comparison after the
# call, a function instead of a method, and a read on one line with the branch on the next. So: a
# clean result means that **the cheapest form is absent, not the fault**. Lesson 06 has
# a search that reads Python.
#
# Now yours. The path below is a file of this course: its one hit is the guard of lesson 01. Put
# your own folder there, such as `"~/my_project/src"`, and run the cell.

# %%
from recompute_lab.specimens import norm_cap

MY_SOURCE = norm_cap.__file__  # or a path of yours

print(grep(MY_SOURCE))

# %% [markdown]
# A hit that sits in code you checkpoint, directly or through a module around it, deserves a look
# now. (Only `.py` files of a folder are read, not notebooks.)
#
# ## Exercises
#
# Replace each `...` and run the cell. `hint.lengths()`, in a cell of your own, gives a hint, and
# another one each time you call it. Nothing further down depends on your answers.
#
# **1. A better cut.** Six segments of six layers have the lowest peak among the cuts into equal
# segments that we measured. But segments need not be equal. Give a list of lengths, first to last,
# with a lower peak.

# %% tags=["solution"]
lengths = (
    ### BEGIN SOLUTION
    [8, 7, 6, 5, 4, 3, 2, 1]
    ### END SOLUTION
)
check.lengths(lengths)

# %% [markdown]
# **2. Without the if.** Write a segment that computes what this one does, with the same gradients,
# in which no value decides what runs. Hints: `hint.unconditional()`.
#
# ```python
# def guarded_clamp(x):
#     if (x.abs() > 1.0).any():
#         x = x.clamp(-1.0, 1.0)
#     return x.sin()
# ```

# %% tags=["solution"]
def unconditional(x):
    ### BEGIN SOLUTION
    x = x.clamp(-1.0, 1.0)
    return x.sin()
    ### END SOLUTION


check.unconditional(unconditional)

# %% [markdown]
# **3. You are the grep.** Which of these six lines does it find? Hints: `hint.found()`.
#
# ```
# A   if update.norm() > limit:
# B   # if gate.any(): leave out the expert
# C   if gate.any(dim=-1):
# D   elif overflow.item():
# E   while error.max():
# F   if self.training and bad.any():
# ```

# %% tags=["solution"]
found = (  # the letters, as in "AB"
    ### BEGIN SOLUTION
    "BDF"
    ### END SOLUTION
)
check.found(found)

# %% [markdown]
# ## The map
#
# | | lesson | what you can do afterwards |
# |---|---|---|
# | 00 | start here | see one flip, say what checkpointing saves, choose a route |
# | 01 | [the crash](01_the_crash.ipynb) | say why 162 became 161, repair the guard, change no bit |
# | 02 | [the threshold](02_the_threshold.ipynb) | say why a run lives for a thousand steps and then dies |
# | 03 | [loud or silent](03_loud_or_silent.ipynb) | predict what raises, what stays silent, and what that costs |
# | 04 | [dropout](04_dropout.ipynb) | replay random numbers, and find those that nobody replays |
# | 05 | [BatchNorm and its family](05_batchnorm.ipynb) | find every write in a forward, and choose a repair |
# | 06 | [audit your source](06_audit_your_source.ipynb) | find the branches that the grep walks past, and rank them |
# | 07 | [the quiet version](07_quiet_version.ipynb) | check an evaluation against itself, and write it down |
# | 08 | [field guide](08_field_guide.ipynb) | diagnose a segment you have never seen |
# | 09 | [interview cards](09_interview_cards.ipynb) | answer out loud, and come back to what was weak |
# | 10 | [coding drills](10_coding_drills.ipynb) | say what a wrong segment does, then repair it |
#
# Every word of the course is in the [glossary](glossary.md). Four routes; each lesson can be opened
# without having run another.
# - **Your run has just crashed**: 08 first, then the lesson of its root cause.
# - **Alone**: in order. Choose an answer at every *predict* before you run the cell.
# - **For an interview**: 00, 01, 03, 04, 05, then 09 and 10.
# - **As a workshop**: [agendas](workshop.md) for 90 minutes, half a day and a day, with the questions
#   to ask. The solved notebooks are in `solutions`.
#
# ### Where you stand
#
# A check that you pass in JupyterLab, and a card that you grade, is noted in a file of your own,
# `notebooks/my/progress.jsonl`; `make reset` makes the exercises unsolved again and leaves that file
# alone. Run this cell again whenever you want to know:

# %%
from recompute_lab.lessons.overview import overview

print(overview())

# %% [markdown]
# ## Recap
#
# Answer aloud, then unfold.
#
# <details><summary>1. A checkpointed segment stops: fewer tensors in the recomputation than in
# forward. What kind of line do you look for?</summary>
#
# One in which a tensor's value decides whether an operation runs, behind arithmetic that need not
# come out the same twice. Each of the two alone did no harm: 0 of 20.
# </details>
#
# <details><summary>2. Someone checkpoints the whole model as one segment. What have they
# saved?</summary>
#
# Memory after forward, and none at the peak: the recomputation holds everything at once. In time
# they pay a second forward all the same.
# </details>
#
# <details><summary>3. When is √n the best number of segments?</summary>
#
# Among cuts into equal segments, if a layer keeps as much as it hands on. In general k·b + (n/k)·a
# is least at √(n·a/b).
# </details>
#
# ## References
#
# - PyTorch, `torch.utils.checkpoint`: the documentation of `checkpoint` and
#   `checkpoint_sequential`; the source of `_CheckpointFrame.check_recomputed_tensors_match`, which
#   counted for us.
# - T. Chen, B. Xu, C. Zhang, C. Guestrin, *Training Deep Nets with Sublinear Memory Cost*, 2016,
#   arXiv:1604.06174: the square root.
# - PyTorch, `torch.autograd.graph.saved_tensors_hooks`: how anyone can see what is saved for
#   backward.
