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
# # 05 · BatchNorm, and every other side effect
#
# What a checkpointed segment *returns* can be computed twice without harm. What it *writes* is written twice: a running mean, a
# counter, a cache, a list. Mostly nothing raises, and often even the gradients are right. In this lesson you measure what that does
# to BatchNorm (not quite what is usually told), correct two pieces of folklore, learn to find every write in a forward, and take
# three repairs home.
#
# **You will be able to**
# - say what a doubled update changes, when that helps and when it harms, and derive the momentum that makes up for it;
# - say of any write, from when it is read, what comes of it: a wrong log, wrong gradients, an error, or nothing;
# - repair it: make it idempotent, suppress or replay it, or move the boundary.
#
# **Time** two hours; 75 minutes without exercises 4 to 6. **You need** PyTorch: modules, `backward`, train and eval mode. Lesson
# 04 helps. The outputs are stored: to predict before you see, choose *Edit → Clear Outputs of All Cells* first. The sections build
# on each other: after a restart, go on with *Run → Run All Above Selected Cell*.
#
# **The words.** A *segment* is a part of the model that is checkpointed; the *recomputation* is the second run of its forward,
# during backward, which brings back the *saved tensors* that the first run threw away. *Early stop*: it is left as soon as it has
# them all. The *plain run* is the same training without checkpointing. **Reentrant** and **non-reentrant** (`use_reentrant=True`,
# `=False`) are torch's two implementations. *State* is what outlives a forward: buffers, attributes, globals, random streams. A
# *write*, or *side effect*, is a change that a forward makes to state. It is *idempotent* if a second one leaves what the first one
# left. To *replay* state is to take it back, for the recomputation, to what it was at the segment's entry.
#
# In train mode **BatchNorm** normalises with the mean and variance of the batch at hand. It also writes: its **running statistics**
# follow them, new = (1 − m) · old + m · batch, and `num_batches_tracked` goes up by one. The batch's weight m is what torch calls
# **momentum**. In eval mode it normalises with the running statistics, and writes nothing.

# %% tags=["nbval-ignore-output"]
import platform

import torch

from recompute_lab.instruments.device import device_name, lab_device

device = lab_device()  # the GPU where there is one
print("python", platform.python_version(), "| torch", torch.__version__)
print("threads", torch.get_num_threads(), "| device", device_name(device))

# %%
import inspect
from collections import Counter
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import product
import numpy as np
from recompute_lab import NON_REENTRANT, REENTRANT, writes
from recompute_lab.lessons import batchnorm as lesson, batchnorm_repairs, batchnorm_study
from recompute_lab.lessons import side_effect_repairs as mended, side_effects
from recompute_lab.lessons.writes_exercises import check, hint
from recompute_lab.specimens import unknown_writes as unknown
from recompute_lab.views import batchnorm as draw, side_effects as tables
from recompute_lab.views.style import show

print("ready")

# %% [markdown]
# ## 1 · Twice per step
#
# A small network learns digits. Its segment is twice a convolution, BatchNorm and ReLU. Over the 40 steps the light grows (the
# images become brighter, with more contrast), so that there is something to follow. Three runs start from the same weights and see
# the same batches: plain, and checkpointed by each implementation. (On a GPU these runs convolve there, in a fixed order; the
# situations, the family and the repairs of later sections stay on the CPU.)
#
# **Predict.** After 40 steps: what does `num_batches_tracked` say? Are the gradients of every step the plain run's? And the
# weights?

# %%
train = partial(lesson.train, device=device)
runs = train(steps=40, momentum=0.1)
own = train(steps=40, momentum=1.0, ways=["plain"])["plain"]  # the last batch's own

message = "Statistics of one channel after each step; dots: those of each batch by itself."
show(draw.trajectories(lesson.courses(runs, own)), message)
for name in ("reentrant", "non-reentrant"):
    off = lesson.deviation(runs[name], runs["plain"])
    alike = lesson.trained_alike(runs[name], runs["plain"])
    print(f"{name:<13} counts {off.tracked} batches in {off.expected} steps;", end=" ")
    print(f"equal to plain: training {alike}, statistics {off.worst == 0}")

# %% [markdown]
# (*Training*: the losses and gradients of all steps, and the weights after the last; *equal*: in every bit.) In train mode nobody
# *reads* the running statistics. So the training is the plain run's in every bit, and no comparison of training losses or gradients
# will ever show the fault. The statistics themselves have moved twice per step, both times towards the same batch.
#
# ## 2 · Better or worse?
#
# Evaluation reads them. The story that is usually told: the statistics are corrupted, and evaluation suffers.
#
# **Predict.** The weights are equal, bit for bit. Does the checkpointed run, in eval mode, make more errors on held-out digits than
# the plain one, as many, or fewer?
#
# One run is no evidence. A study (`make studies` repeats it) has 16 seeds, 100 steps, m of 0.01, 0.1 and 0.5, batches of 32 and of
# 4, a learning rate that is constant or decays to zero, a light that is constant or grows. **Predict**, for each m: where is the
# checkpointed run better, where worse? The first figure has the errors, in constant light; the second the difference, checkpointed
# − plain: the mean over the seeds and its 95% confidence interval. Below zero the checkpointed run is the *better* one.

# %%
study, momenta = batchnorm_study.load(), (0.01, 0.1, 0.5)
settings = ("batch 32, rate decays", "batch 4, rate decays")
panels = {f"m = {m}": {name: study.errors(m, name) for name in settings} for m in momenta}
ends = [np.median(each[-1]) for each in panels["m = 0.01"]["batch 32, rate decays"].values()]
message = "Batch 32, m = 0.01, 100 steps: median errors {:.0%} plain, {:.0%} checkpointed."
show(draw.evaluations(study.probes, panels, "errors"), message.format(*ends))
errors = {name: run.evaluations[-1].error for name, run in runs.items()}
fewer = errors["reentrant"] < errors["plain"]
print("in section 1 the checkpointed run makes fewer errors than the plain one:", fewer)

# %%
panels = {f"m = {m}": study.differences(m) for m in momenta}
message = "Below zero the checkpointed run makes fewer errors; hollow: too few seeds to tell."
show(draw.differences(study.probes, panels, "errors: checkpointed − plain"), message)
for m in momenta:
    ends = {
        f"{name}, contrast × {1 + drift:.0f}": row[-1]
        for drift in batchnorm_study.DRIFTS
        for name, row in study.differences(m, drift).items()
    }
    better = [case for case, end in ends.items() if end.high < 0]
    worse = [case for case, end in ends.items() if end.low > 0]
    told = f"better in {len(better)}, worse in {len(worse)} of {len(ends)} cases"
    print(f"m = {m}: after 100 steps {told}")
    for case in worse:
        print(f"   worse: {case}, by {100 * ends[case].mean:.1f} percentage points")

# %% [markdown]
# It mostly *helps*. That is no merit of checkpointing. Two updates towards the same batch go further than one, so **a checkpointed
# run is a plain run with a larger momentum** (with which, section 3 says). And a momentum is a compromise. A batch that lies k
# steps back has the weight m (1 − m)ᵏ, so that the average remembers about 1/m batches. If it remembers many, it lags behind
# weights that move; if it remembers few, and these are small, it is noisy.
#
# - *The statistics lag* (m = 0.01; m = 0.1 early, or at a constant rate): twice is better. After 100 plain steps at m = 0.01 the
#   running mean is still, with a weight of 0.99¹⁰⁰ = 37%, the zero that it started from.
# - *Training has settled* (m = 0.1, batch 32, a rate that has decayed): hardly any difference, less than one percentage point.
# - *Few small batches are remembered* (m = 0.5, batch 4, decayed rate): worse, by two to three percentage points, in each light.
#
# (12 cases: two sizes of batch, two learning rates, three lights: the contrast stays, or becomes two or five times what it was. Where
# nothing is wrong, about one such interval in twenty excludes zero by chance.)
#
# What is always true is something else: **weights that are equal in every bit evaluate differently**, for a switch that should do
# nothing but save memory. Whoever compares a checkpointed run with a plain one compares two momenta as well. If the larger one is
# better for you, ask for it. (One small network, 100 steps: the directions follow from the argument, the sizes are this study's.)
#
# ## 3 · Which momentum makes up for it?
#
# One advice goes: give a checkpointed BatchNorm the momentum √m, since it is applied twice. **Predict**: is that right? Better than
# leaving m as it is? Then derive what is right.
#
# **Exercise 1.** Return the momentum with which `updates` updates in a row, with the same batch, move running statistics as one
# update with m does. The check trains BatchNorms inside one segment and inside two nested ones. Stuck? Run `hint.momentum()` in a
# cell of your own, and again for the next hint.

# %% tags=["solution"]
def momentum(m, updates):
    ### BEGIN SOLUTION
    return 1 - (1 - m) ** (1 / updates)
    ### END SOLUTION


check.momentum(momentum)

# %%
recipes = {m: lesson.recipes(momentum=m, steps=20, device=device) for m in momenta}
message = "How far the statistics are from the plain run's, with three momenta, for m = 0.1."
show(draw.deviations(recipes[0.1]), message)
for m, rows in recipes.items():
    right = [name for name, row in rows.items() if row.worst < 1e-5]
    worse = rows["sqrt(m)"].worst > rows["m"].worst
    print(f"m = {m}: right up to rounding: {', '.join(right)}; sqrt(m) worse than m: {worse}")
larger = train(momentum=0.19, ways=["plain"])["plain"]
twin = lesson.deviation(runs["reentrant"], larger).worst < 1e-5
print("section 1's checkpointed run is a plain run with 0.19, up to rounding:", twin)

# %% [markdown]
# What counts is the share that is *kept*. One update keeps 1 − m of the old value, k updates with m′ keep (1 − m′)ᵏ. The two must
# be equal: m′ = 1 − (1 − m)^(1/k), for two updates **1 − √(1 − m)**, 0.051 for 0.1. Mean and variance are averages of the batches'
# own, so one formula serves both. √m is 0.32: three times the weight, and that twice. It is worse than no repair, at each m. And
# the same count tells what a checkpointed run is: a plain one with the momentum 1 − (1 − m)², 0.19 for 0.1.
#
# Where does the square root come from? The tutorial *Checkpointing for PyTorch models* (repository `prigoyal/pytorch_memonger`)
# gives it, with a derivation; but its "momentum = 0.9" is the weight of the *old* value, as in Keras. For a share that is kept the
# square root is right. torch's momentum is the other share. (That the advice spread from there is our inference. Forum thread
# 188421 asks about the "nth_root(m)" of a tutorial; thread 17738 has the right formula.)
#
# **When does the formula hold?** It assumes that each batch is counted exactly twice, both times in a row. Eight situations; in
# each the checkpointed BatchNorm is given 1 − √(1 − m):
#
# - a forward, its backward; two forwards, then two backwards; the same, of two kinds of images (real and fake, say); two kinds, and
#   one backward of the sum of their losses;
# - the BatchNorm is also used outside a checkpoint; a second forward has no backward; one forward goes backward twice;
# - it stands behind the last saved tensor, and only watches: it keeps statistics for a log.
#
# **Predict**: in which are the statistics right? And when are they right with `momentum=None`, with which torch averages all batches
# alike: new = old + (batch − old) / number of batches? After each backward; between a forward and its backward; in a run that was
# plain at first and is checkpointed from then on; or the reverse?

# %%
found = lesson.situations()
right = [name for name, row in found.items() if row.worst < 1e-5]
counted = [name for name, row in found.items() if row.tracked == row.expected]
message = f"Of {len(found)}, right up to rounding: {len(right)}; counter right: {len(counted)}."
show(draw.deviations(found), message)
print("right up to rounding:", right, "\ncounter right:       ", counted)
none = lesson.cumulative()
for when, off in {
    "after each backward": none.later,
    "between a forward and its backward": none.between,
    "plain, then resumed checkpointed": none.resumed,
    "checkpointed, then resumed plain": none.back,
}.items():
    print(f"momentum None, {when + ':':<36}right up to rounding {off.worst < 1e-5}")

# %% [markdown]
# - *Two forwards, then two backwards* (real and fake images in a discriminator; two views of an image): the updates come in the
#   order A B A B, or A B B A. A is written again after B, and weighs more than it should; that shows little if A and B are alike,
#   more if they are of two kinds.
# - *Also used outside a checkpoint*; *a forward without a backward*: such a batch is counted once, with a momentum for two.
# - *Backward twice* (`retain_graph=True`): each backward recomputes, so that is three updates.
# - *Behind the last saved tensor*: early stop leaves the recomputation before it. It is counted once, right without a repair, by
#   luck, and wrong with one.
#
# The counter is doubled whatever the momentum. With `None` the doubling cancels up to rounding, as every batch stands twice in an
# average of all; but only after backward, and only if all of the run was checkpointed, or nothing.
#
# **Nesting.** "At most twice" is folklore, too. **Predict**: how many updates per step if a segment contains the segment that
# contains the BatchNorm? With one more around that? And does it matter whether an outer segment has another layer behind the inner
# one?

# %%
curves = {
    "reentrant": lesson.updates_by_depth(REENTRANT),
    "non-reentrant, a layer behind each": lesson.updates_by_depth(NON_REENTRANT, behind=True),
    "non-reentrant, nothing behind": lesson.updates_by_depth(NON_REENTRANT),
}
message = "Updates per step, by how many segments are nested around the BatchNorm."
show(draw.updates(curves), message)
for name, by_depth in curves.items():
    print(f"{name:<34} {list(by_depth.values())} updates per step, 0 to 4 segments deep")

# %% [markdown]
# Under the reentrant implementation every segment runs all of its inside again: d segments, d + 1 updates. The non-reentrant one
# stops early: an outer segment that saves nothing behind the inner one is left before the inner one starts. It adds an update only
# where it does save something there. So the exponent of the formula depends on layers that have nothing to do with BatchNorm.
#
# The formula is right where it holds, and it holds on conditions that nobody checks. Section 5 has repairs without any.
#
# ## 4 · The family
#
# BatchNorm is one of many: every forward that does something besides returning. Fifteen small segments: counters, moving averages,
# a cache of keys and values, a table that the first call builds, a queue of features, an observer of ranges (quantisation),
# spectral norm, a loss that is collected in a list (a router's balance loss, which the training loop adds), forward hooks; a
# statistic of each sample by itself; and a last value that is overwritten. Three of them keep the same moving average and differ in
# when they read it: never in training, before the write, after it:
#
# ```python
# # recompute_lab/specimens/running_state.py: class ScaleLogged
# def forward(self, x: torch.Tensor) -> torch.Tensor:
#     h = self.first(x)
#     if not self.training:
#         return self.second(torch.tanh(h / self.scale))
#     self.scale = self.averaged(h)
#     return self.second(torch.tanh(h / h.std()))
#
# # class ScaleRead
# def forward(self, x: torch.Tensor) -> torch.Tensor:
#     h = self.first(x)
#     scaled = h / self.scale
#     self.scale = self.averaged(h)
#     return self.second(torch.tanh(scaled))
#
# # class ScaleWritten
# def forward(self, x: torch.Tensor) -> torch.Tensor:
#     h = self.first(x)
#     self.scale = self.averaged(h)
#     return self.second(torch.tanh(h / self.scale))
# ```
#
# **Predict**, for the three: is the state right after a step, are the gradients? Which of the fifteen will raise, and under which
# implementation: in which does the *number* or the *shape* of the saved tensors depend on state? (*Written*: how often, counted in
# plain forwards. *Off by*: the largest relative error of a gradient, in one step. *1 missing*: one parameter gets no gradient.)

# %%
cells = side_effects.symptoms()
verdicts = {one.name: side_effects.verdict(one) for one in side_effects.FAMILY}
message = "How often the state is written, and what the gradients are, in fifteen segments."
show(tables.symptoms(cells, verdicts), message)
for way, verdict in product(("reentrant", "non-reentrant"), side_effects.VERDICTS):
    row = [c for c in cells if c.strategy == way and verdicts[c.specimen] == verdict]
    outcomes = dict(sorted(Counter(c.outcome for c in row).items()))
    print(f"{way:<13} {verdict:<14} {outcomes}, state wrong: {sum(c.state_wrong for c in row)}")

# %% [markdown]
# (*fine*, *silent*, and the kinds of error, *count* and *metadata*, are those of lesson 03. The one of nine that is read and whose
# state is right is the table: built once, then found.) **When is it read?** decides.
#
# - *Only written*, or read in evaluation only, as BatchNorm's statistics: the state is wrong, the gradients are right. With one
#   exception: the **collected loss**. What it writes is part of the graph. Under the reentrant implementation the forward's term
#   was computed with gradients switched off, and what the balance loss should tell the router is lost.
# - *Also read*: the recomputation reads what the forward has written. The gradients are wrong. It raises only where the state
#   decides how many tensors are saved or what shape they have: the cache, and the table, which the recomputation finds and does not
#   build.
# - *Harmless*: a statistic of the sample itself (as in LayerNorm), since nothing is written; and a value that comes from the
#   segment's input alone and is overwritten, not added to. A second time, it puts there what is there: idempotent.
#
# **Where does it stand?** A counter, in a segment of two linear layers with a tanh between them. **Predict** what it shows after
# one step if it counts at the top, in the middle, behind the last layer; under both implementations, and without early stop.

# %%
counts = side_effects.placement()
saved = {place: side_effects.saved_tensors(place) for place in counts}
operators = saved["at the top"][0]
message = "What the counter shows, by where it stands, and by how the segment is run."
show(tables.placement(counts, operators, {p: n for p, (_, n) in saved.items()}), message)
print("counted in one step:", ", ".join(counts["at the top"]))
for place, row in counts.items():
    print(f"   {place:<28} {', '.join(map(str, row.values()))}")

# %% [markdown]
# With early stop the recomputation is left at the last saved tensor, and does not reach what stands behind it. One more operation
# there that saves something, another implementation, another version of torch: and the luck ends.
#
# ## 5 · Three repairs
#
# They are in `recompute_lab/repairs`: torch and the standard library alone, each small enough to copy. This is how they are called:
#
# ```python
# # 1: make it idempotent; call once.commit() when the backward of a step is done
# once = Idempotent(block)
# # 2: suppress the second write, or replay the state; the last line is for the implementation that takes no context_fn
# checkpoint(block, x, use_reentrant=False, context_fn=buffers_spared(block))
# checkpoint(block, x, use_reentrant=False, context_fn=state_replayed(block))
# checkpoint(for_reentrant(block, buffers_spared(block)), x, use_reentrant=True)
# # 3: move the boundary: BatchNorms run once, between the segments
# x = checkpointed_between(layers, x)
# ```
#
# 1. **Idempotent.** Every forward starts from the state of the last `commit()`: run it as often as you like. Commit after each
#    backward; if several batches make a step, not after the step: what is not committed is undone by the next forward. (`.data`
#    writes without telling autograd, which would otherwise refuse a backward whose saved tensor has changed.)
# 2. **Suppress or replay.** `context_fn` gives two context managers, for the forward and for its recomputation. In the second one
#    writes go to copies, which are thrown away; or the state of the entry is put in place, and afterwards what was there. Code of
#    your own can ask `recomputing()`, if `context_fn=announced`. The reentrant implementation takes no `context_fn`;
#    `for_reentrant` counts calls. In nested segments every checkpoint has to be told, the outer ones, too.
# 3. **Move the boundary.** What must run once does not belong into what runs twice. The price is memory: what the layers between
#    the segments save for backward is kept.
#
# **Predict**: which of them leave the plain run's statistics in every bit, under both implementations, and three segments deep?

# %%
from recompute_lab.repairs import suppress
from recompute_lab.repairs.idempotent import Idempotent
from recompute_lab.repairs.recomputation import for_reentrant, recomputing
from recompute_lab.repairs.replay import state_replayed

for part in (Idempotent.commit, Idempotent._rewind, suppress._Spared, for_reentrant):
    print(inspect.getsource(part))
ways = tuple(product(("reentrant", "non-reentrant"), (1, 3)))
print(f"{'20 steps':<18}", *(f"{way} × {depth}".ljust(18) for way, depth in ways))
for repair, row in batchnorm_repairs.repairs(ways).items():
    told = (f"{off.tracked} {'equal' if off.worst == 0 else 'OFF'}" for off in row.values())
    print(f"{repair:<18}", *(f"{cell:<18}" for cell in told))

# %% [markdown]
# All of them, in every bit, counter included (× 3: inside three nested segments; unrepaired and non-reentrant they count 40 there,
# too, since nothing stands behind the inner ones: section 3).
#
# **What is often tried instead**, and **predict** which of it works: switch `track_running_stats` off in the recomputation; put the
# module into `eval()` there; ask `torch.is_grad_enabled()` before writing.

# %%
for name, row in batchnorm_repairs.attempts().items():
    print(name)
    for way, result in row.items():
        gradients = {"fine": "right", "silent": f"off by {result.worst:.0f} times their size"}
        state = "wrong" if result.changed else "right"
        told = f"gradients {gradients.get(result.outcome)}, statistics {state}"
        print(f"   {way:<13} {f'raises ({result.outcome})' if result.raised else told}")

# %% [markdown]
# - *Switched off*: BatchNorm then does not save its two running statistics, and non-reentrant checkpointing counts saved tensors.
#   The reentrant one does not count, and there it works.
# - *`eval()`*: the recomputation normalises with other numbers. It is another network.
# - *Grad mode* tells the passes apart under the reentrant implementation only (off, then on); under the other it is on in both. And
#   a forward that has no backward, in train mode under `no_grad`, is never counted. (A library has shipped it: FairScale, issue
#   1035.)
#
# A fourth, *momentum 0* for good, makes both passes agree: on statistics that never leave their start.
#
# **Which repair for which order?** The moving average of section 4: only written; read, then written; written, then read. A
# condition in the code (`if not recomputing():` before the write), writes to copies, or replay. **Predict** the table: what is
# right in all bits after five steps? Then again with two calls of the segment before one backward. And which of section 4's fifteen
# does replay not mend?

# %%
words = {0: "right", 1: "state wrong", 3: "GRADIENTS WRONG"}
for calls in (1, 2):
    head = f"{calls} call{'s' * (calls - 1)}, 1 backward"
    print(f"{head:<21}", *map("{:<17}".format, mended.REPAIRS))
    for order, row in mended.repairs_by_order(calls=calls).items():
        print(order.ljust(21), *(f"{words[len(differs)]:<17}" for differs in row.values()))
    print()
for way in (REENTRANT, NON_REENTRANT):
    left = [one.name for one in side_effects.FAMILY if mended.replayed(one, way)]
    print(f"{way.name}, not mended by replay: {', '.join(left)}")

# %% [markdown]
# Not to write is enough for what is only written. *Read, then written*: the recomputation has read the wrong value before it comes
# to the write; no condition there helps, it needs the entry's state. *Written, then read*: a condition in the code is right, since
# what is read is what the forward wrote, so long as no other call has written in between. A copy that is written again is one
# update too far. **Replay is right in every row.** Of the family it mends all but three. The state of the two hooks hangs on a
# function, where `state_replayed` does not look. And the collected loss, under the reentrant implementation, lacks a graph, which
# no value brings back: return the term instead. (Each of the fifteen has a repair beside it, in `specimens`.)
#
# That is lesson 04 again. A random stream is state that is read and then written by each draw; what torch does for its own
# generator, `state_replayed` does for buffers and attributes (for what they hold directly: tensors, numbers, lists, dicts; not NumPy
# arrays, nor lists in lists). *State is a stream: rewind what is read, or do not let it move.*
#
# ## 6 · The review question
#
# *What does this forward do other than return a value?* It is the question to ask of any code that is going to be checkpointed.
#
# **Exercise 2.** Find all writes in three segments, by reading. Give names as they stand in the source: of a variable, an
# attribute, a parameter, a class attribute its last part; of a random stream "torch", "NumPy" or "Python".

# %% tags=["solution"]
for name in unknown.UNKNOWN:
    print(unknown.source(name))
found = {
    ### BEGIN SOLUTION
    "Smoothed": {"mean", "calls", "history"},
    "Gated": {"seen", "opened", "torch"},
    "sharpened": {"TEMPERATURE", "calls", "NumPy"},
    ### STUB
    # "Smoothed": ...,
    # "Gated": ...,
    # "sharpened": ...,
    ### END SOLUTION
}
check.find_all(found)

# %% [markdown]
# A tool asks the same question of any segment of yours. `writes(segment, x)` runs it plainly, lists all that it changed, and finds
# out by running it again, once for each write with that one write left standing, what is *also read*; at last it runs both
# implementations. It leaves all state as it was. The columns: what kind of thing, its name, what became of it, whether a forward
# that finds it changed computes something else, and whether the implementations, one or both, leave it otherwise than the plain run
# does.
#
# **Predict** the table for section 1's segment. Then for `tally` in the next cell: what will it say?

# %%
from recompute_lab.specimens.batchnorm_training import fixed_convolutions

torch.manual_seed(0)
images = torch.randn(8, 16, 4, 4).to(device).requires_grad_()
with fixed_convolutions(device):
    print(writes(runs["plain"].net.segment, images), "\n")
print(writes(unknown.Gated(), side_effects.rows()), "\n")
counted = bytearray(1)

def tally(x):
    counted[0] += 1
    return torch.tanh(x)

print(writes(tally, side_effects.rows()), "| calls were made:", counted[0] > 0)

# %% [markdown]
# Not everything that is written twice ends up different: a largest value (`seen`) does not care how often it is asked, and torch's
# stream is replayed. And the tool does not see everything: what lies in a `bytearray`, in files, on a screen, in objects of compiled
# libraries, in another process. "Nothing but its value" means: nothing that it can reach.
#
# ## 7 · Try it
#
# Momentum, drift, implementation and repair, on the network of section 1. (*Spared*: written to copies.) Which repairs leave the
# plain run's statistics? What does `None` need? A warning: with √m the repaired run may evaluate *better* than the plain one, while
# its statistics are the most wrong of all (section 2 said why). **A better number is no evidence of a repair.** (By keyboard: Tab
# to a list, Alt + ↓ opens it.)

# %%
from IPython.display import display
from recompute_lab.lessons.batchnorm_panel import measure, panel
from recompute_lab.views.batchnorm_panel import courses, sentence

display(panel())
case = measure()
show(courses(case), sentence(case).partition(" Errors")[0])

# %% [markdown]
# ## Exercises
#
# Two of the segments that you have reviewed, two repairs each. The checks train them for 20 steps, plain and checkpointed, and
# compare bit for bit.
#
# **3. In the code.** Subclass `Smoothed` and write its forward anew. It will be checkpointed with `context_fn=announced`, so that
# `recomputing()` tells.
#
# **4. From outside.** Now nobody may touch `Smoothed`. Write a function that returns a `context_fn` for a module.
# `state_replayed(module)` is one, and does most of it: call it in yours, and you have both of its context managers. What it does not
# find is the list: a default argument is made once for all calls, `Smoothed.forward.__defaults__[0]`. What is to be undone has to be
# undone when the recomputation is left by an error, too: early stop is one.

# %% tags=["solution"]
class Once(unknown.Smoothed):
    def forward(self, x, history=[]):
        ### BEGIN SOLUTION
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean
        if not recomputing():
            if self.training:
                self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
                self.calls += 1
            history.append(float(mean.detach().norm()))
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))
        ### END SOLUTION


check.guarded(Once)

# %% tags=["solution"]
def context(module):
    ### BEGIN SOLUTION
    history, replayed = unknown.Smoothed.forward.__defaults__[0], state_replayed(module)
    def context_fn():
        forward, again = replayed()
        @contextmanager
        def shortened():
            length = len(history)
            try:
                with again:
                    yield
            finally:
                del history[length:]
        return forward, shortened()
    return context_fn
    ### END SOLUTION
check.from_outside(context)

# %% [markdown]
# **5. Move the boundary.** Split `sharpened` into `once(shape)`, which is called outside, before each call of the segment, and
# returns a tuple; and `segment(x, *values)`, which is checkpointed and only returns. The state stays where it is:
# `unknown.TEMPERATURE` and `unknown.sharpened.calls`.
#
# **6. Replay.** Write a `context_fn` for `sharpened` as it is. Its state lies in a global, in a function's attribute and in NumPy's
# stream: `unknown.read()` returns all three, `unknown.write(state)` sets them. A `context_fn` is called at the segment's entry,
# before the forward; the second context manager that it returns has to put the entry's state in place, and on leaving, also by an
# error, what it found. (Lesson 04, stage 2.)

# %% tags=["solution"]
def once(shape):
    ### BEGIN SOLUTION
    unknown.TEMPERATURE = max(1.0, 0.99 * unknown.TEMPERATURE)
    unknown.sharpened.calls += 1
    return unknown.TEMPERATURE, torch.from_numpy(np.random.standard_normal(shape)).float()
    ### END SOLUTION

def segment(x, *values):
    ### BEGIN SOLUTION
    temperature, noise = values
    return x * torch.softmax((x + 0.1 * noise) / temperature, dim=1)
    ### END SOLUTION

check.moved_out((once, segment))

# %% tags=["solution"]
def rewinding():
    ### BEGIN SOLUTION
    entry = unknown.read()

    @contextmanager
    def again():
        now = unknown.read()
        unknown.write(entry)
        try:
            yield
        finally:
            unknown.write(now)

    return nullcontext(), again()
    ### END SOLUTION

check.replayed(rewinding)

# %% [markdown]
# **7. Who repairs it how?** Three people meet a write that happens twice. Choose for each a repair, and the reason that carries it.
# Several answers can be defended; some cannot, whatever the reason.

# %% tags=["solution"]
import textwrap
from recompute_lab.lessons.writes_exercises import REASONS, REPAIRS, ROLES

for choices in (ROLES, REPAIRS, REASONS):
    for name, told in choices.items():
        print(textwrap.fill(f"{name:<10} {told}", 94, subsequent_indent=" " * 11))
    print()
choice = {
    ### BEGIN SOLUTION
    "author": ("idempotent", "whoever"),
    "user": ("replay", "no edit"),
    "tomorrow": ("leave", "same run"),
    ### STUB
    # "author": (..., ...),
    # "user": (..., ...),
    # "tomorrow": (..., ...),
    ### END SOLUTION
}
check.who_chooses(choice)

# %% [markdown]
# ## Recap
#
# Answer aloud, then open.
#
# <details><summary>A network with BatchNorm is trained once plainly, once checkpointed. What is equal, what differs, and is that bad?</summary>
#
# Losses, gradients and weights are equal bit for bit; the running statistics are those of the momentum 1 − (1 − m)², and the
# counter is doubled. So the same weights evaluate differently: better where statistics lag, worse where few small batches are
# remembered, hardly at all once training has settled. What is lost in any case is that the two can be compared.
# </details>
#
# <details><summary>A layer writes a moving average in its forward. When are the gradients wrong, and which repair is right without knowing more?</summary>
#
# If a forward in train mode also reads it: before the write or after. To replay the state of the segment's entry is right in each
# order; not to write in the recomputation helps only for what is not read, or read after the write with no other call in between.
# </details>
#
# <details><summary>From lesson 03: why does non-reentrant checkpointing not notice any of this, but for a cache and a table?</summary>
#
# It compares number, shapes, dtypes and devices of the saved tensors, and no values. State that only changes values passes.
# </details>
#
# <details><summary>From lesson 02: you count the vectors near the cap, as an early warning. Where does the counter stand, and why does the
# loss not do?</summary>
#
# Outside of the segment: inside, it adds in both passes. (One that assigns is idempotent, and right as long as the passes agree.) The loss
# does not look at the threshold: until a vector is capped, a run that will die and its twin with a higher cap have the same loss, bit for
# bit.
# </details>
#
# **What was not shown**: more than one process (SyncBatchNorm averages over them in each forward, so twice; DDP sends buffers
# around), a GPU, a compiled segment, large networks and long runs.
#
# ## References
#
# - PyTorch documentation: `torch.nn.BatchNorm2d` (note on `momentum`); `torch.utils.checkpoint` (`context_fn`).
# - The installed source: `torch/nn/modules/batchnorm.py`, `_BatchNorm.forward`; `torch/utils/checkpoint.py`,
#   `_checkpoint_without_reentrant_generator`.
# - FairScale, `fairscale/nn/checkpoint/checkpoint_utils.py`, `patch_batchnorm`, and its issue 1035.
# - PyTorch issue 96136, "`torch.utils.checkpoint` should avoid updating BatchNorm statistics twice"; discuss.pytorch.org, threads
#   17738 and 188421.
# - `prigoyal/pytorch_memonger`, *Checkpointing for PyTorch models*, section "Batch Normalization layer": the square root, and its
#   derivation.
# - S. Ioffe, C. Szegedy, "Batch Normalization", *ICML* 2015: algorithm 2, what evaluation reads.
