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
# # 03 · Loud or silent
#
# The run of lesson 01 was stopped by an error message. That was luck. The same flip of the same kind of branch can pass without a
# word and leave gradients that are wrong by more than their own size. In this lesson you measure which flips are noticed, by
# whom, and what they cost, noticed or not.
#
# **You will be able to**
# - predict, for a branch, the direction of its flip, an implementation and its flags: which error, or none;
# - explain, from the torch that is installed here, why the check of `use_reentrant=False` looks one way only, and close the hole;
# - say why loudness and harm are independent, with a measured example of all four combinations.
#
# **Time** 45 minutes. **You need** PyTorch: modules, `backward`. Lesson 01 helps. The outputs are stored: to predict before you
# see, choose *Edit → Clear Outputs of All Cells* first. The sections build on each other: after a restart, go on with *Run → Run All
# Above Selected Cell*.
#
# **The words.** A *segment* is a part of the model that is checkpointed. Its *forward* throws away the *saved tensors* that backward
# would need; the *recomputation* is a second run of that forward, during backward, which brings them back. A *guard* is a branch that
# decides whether an operation runs at all. A branch *flips* if the two passes decide it differently. *Early stop*: a recomputation
# that has as many tensors as it needs is left at once. The *plain run* is the same step without checkpointing.
# **Reentrant** (`use_reentrant=True`) and **non-reentrant** (`use_reentrant=False`) are torch's two implementations.

# %% tags=["nbval-ignore-output"]
import platform
from functools import partial

import torch

from recompute_lab.instruments.device import device_name, lab_device

device = lab_device()  # the GPU where there is one
print("python", platform.python_version(), "| torch", torch.__version__)
print("threads", torch.get_num_threads(), "| device", device_name(device))

# %%
import inspect
import textwrap
from collections import Counter
from torch import nn
from recompute_lab import NO_EARLY_STOP, NON_REENTRANT, PLAIN, REENTRANT
from recompute_lab import divergence, passes, same_bits
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.lessons import loud_or_silent as lesson
from recompute_lab.lessons.loud_or_silent import check, hint
from recompute_lab.specimens import branches
from recompute_lab.specimens.guards import clip_when_needed
from recompute_lab.views import divergence as draw, outcomes
from recompute_lab.views.style import show

print("ready")

# %% [markdown]
# ## 1 · Three things had to be true
#
# The specimen of this lesson is a segment. Three residual layers compute a *stream*, one vector for each of 32 inputs; one more
# layer makes an *update* from it, as many vectors; and a **branch** asks one question: is any vector of the update longer than
# `limit` times its vector of the stream? Here `limit` is set to the largest such ratio itself, so that the last bits decide. They
# are staged: a `Nudge` moves every element of the update by eight units in the last place, up in one pass and down in the other.
# So the branch says, for instance, *true* in the forward and *false* in the recomputation.
#
# The first branch is the norm cap of lesson 01 with a tanh behind it. `cap_scale` gives a factor for each vector: below 1 where
# the vector is too long, else 1.

# %%
for part in (branches.BranchingSegment, branches.GuardedNormCap, branches.VectorScale):
    print(f"{part.__name__}({part.__base__.__name__})")
    print(inspect.getsource(part.forward))

# %% [markdown]
# **Predict.** The crash needed three things: the branch stands *inside a checkpointed segment*; it decides whether *a tensor is
# saved*; and the implementation *counts*. Take one away at a time. What is left: an error, or wrong gradients, or nothing?

# %%
flip, train = (partial(make, device=device) for make in (lesson.flip, lesson.train))
cap, flag = (flip(b, "true, then false") for b in ("scale per vector", branches.RepairedScale))
for name, case, strategy in (
    ("all three", cap, NON_REENTRANT),
    ("the branch decides a flag only", flag, NON_REENTRANT),
    ("the other implementation", cap, REENTRANT),
):
    print(f"{name:<31} {divergence(case.segment, case.x, strategy=strategy).outcome}")

def outside(_, x):  # not the segment: its layers alone are checkpointed, the branch is not
    update, stream = NON_REENTRANT(cap.model.vectors, x)
    return cap.nudge.counted(lambda u: cap.model.branch(cap.model.noise(u), stream))(update)

equal = all(map(same_bits, cap.gradients(outside), cap.gradients(PLAIN)))
print(f"{'the branch outside the segment':<31} no error; equal, bit for bit: {equal}")

# %% [markdown]
# (*count* is the error of lesson 01: fewer tensors in the recomputation. *fine* is no error, and the plain run's gradients up to
# rounding.) Two of the three are repairs: outside of the segment the branch is decided once, and a flag may say what it likes. The
# third, the other implementation, only stops looking. For a cap that happens to be harmless: its two *arms*, what it does on true
# and what on false, agree at the threshold up to rounding. Now for branches whose arms do not.
#
# ## 2 · All of it
#
# Five branches ask the same question, and each does something else with the answer:
#
# - **scale per vector**: the cap above; it multiplies by one scale per vector (shape 32 × 1);
# - **scale of full shape**: the same cap, its scales spread to the update's shape first (32 × 16);
# - **gate**: multiply by a learned gate if a vector is too long;
# - **route**: one of two experts, equally built;
# - **early exit**: leave before the last layer.

# %%
for branch in (branches.Gate, branches.Route, branches.EarlyExit):
    print(branch.__name__)
    print(inspect.getsource(branch.forward))

# %% [markdown]
# Each can flip in two directions: ten flips. There are two implementations, early stop on or off, and torch's `determinism_check`
# ("default" compares shape, dtype and device of each recomputed tensor; "none" does not): eight ways to run each flip. All 80 are
# run, and the gradients are compared with the plain run's. *Off by 1.0* means: where it is worst, among the parameters and the
# input, the difference is as large as the right gradient.
#
# **Predict**, for `use_reentrant=False` with its defaults: which of the ten flips raise? Of those that do not, which are harmless?
# Start with the gate: one direction makes the recomputation save *less*, the other makes it save *more*.

# %%
cells = list(lesson.matrix(device=device))
show(outcomes.matrix(cells), "Ten flips, eight ways to run each: who notices, what it costs.")

name = "non-reentrant, early stop on, check default"
for case, _, result in (cell for cell in cells if cell[1].name == name):
    off = "" if result.raised else f", gradients off by {result.worst:.1f}"
    print(f"{case.branch:<20} {case.direction:<17} {result.outcome}{off}")

# %% [markdown]
# *metadata* is an error too: a recomputed tensor has another shape. So is *more*: one tensor too many. *silent* is no error, and wrong
# gradients.
#
# Read the picture by columns, then by rows. First the columns, counted:

# %%
def told(*beginnings):
    chosen = [r.outcome for _, s, r in cells if s.name.startswith(beginnings)]
    return dict(sorted(Counter(chosen).items()))

print("reentrant, whatever the flags:", told("reentrant"))
for flags in ("on, check default", "off, check default", "on, check none"):
    print(f"non-reentrant, early stop {flags}:", told(f"non-reentrant, early stop {flags}"))

# %% [markdown]
# - The reentrant implementation raises nowhere, and its flags change nothing: torch takes them and does not use them.
# - The other one raises at five of ten flips, at eight with early stop off. A *route* is never noticed: equally many tensors, of
#   equal shapes.
# - `determinism_check="none"` drops the comparison of shapes and keeps the count: one more flip becomes silent.
# - An *early exit* that only the forward takes is right, exactly because early stop cuts off what the recomputation does too much.
#   With early stop off the same harmless flip raises.
#
# ## 3 · The check looks one way
#
# Now the case that ought to worry: *scale of full shape*, false, then true. It is lesson 01's cap but for the shape of its scale, in
# the implementation that counts, with all defaults. No error, and gradients off by 1.0.
#
# It does not take a norm cap. In lesson 01's exercises stood a guard that clamps x to a bound if any element is past it; here it
# stands in front of a tanh. The bound is set to the largest element, so that the last bits decide; the guard says false in the
# forward and true in the recomputation.
#
# **Predict.** tanh saves its result y, since its derivative is 1 − y²; clamp saves its input. The forward saves the one, the
# recomputation wants to save both. What will backward of tanh get?

# %%
print(inspect.getsource(clip_when_needed))

nudge = Nudge({1: -8, 2: +8})  # down in the forward, up in the recomputation
x = torch.randn(32, 16, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
bound = x.abs().max().item()
guarded = nudge.counted(lambda x: torch.tanh(clip_when_needed(nudge(x), bound)))

both = passes(guarded, x)
print("torch raised:", both.error)
for name, ledger in (("forward", both.forward), ("recomputation", both.recomputation)):
    print(f"{name:<14} saved {[row.operator for row in ledger]}, {ledger.ended}")
print(f"gradients off by {divergence(guarded, x).worst:.0f} times their size")

# %% [markdown]
# The question itself saves three tensors, the same in both passes. The fourth place, or *slot*, was waiting for tanh's result. The
# recomputation filled it with what *clamp* keeps: its input x. The shapes agree. As soon as the slot was full, early stop left the
# segment; tanh did not even run. Backward then computed 1 − x² in place of 1 − y².
#
# The count is compared afterwards, and it agrees: four and four. A recomputation that wants to save *more* is cut off at the
# forward's count, so it can never be found to have saved more. Here is where that stands, in the torch that is installed (the
# forward's slots are its `weak_holders`), and below it what is compared of each tensor:

# %% tags=["nbval-ignore-output"]
from torch.utils import checkpoint as torch_checkpoint
from recompute_lab.instruments import torch_version

source = inspect.getsource(torch_checkpoint._recomputation_hook).splitlines()
stop = next(i for i, line in enumerate(source) if "raise _StopRecomputationError" in line)
more = next(i for i, line in enumerate(source) if "trying to save more" in line)
for title, end in (("with early stop on:", stop), ("with it off:", more)):
    start = max(i for i in range(end) if source[i].lstrip().startswith("if "))
    if end == more:
        start = max(i for i in range(end) if "recomp_idx >=" in source[i])
    print(title, *source[start : end + 2], sep="\n", end="\n\n")
print(inspect.getsource(torch_checkpoint._default_meta_extractor))
print("checkpoint(..., early_stop=False) is taken by:", torch_version.early_stop_argument())

# %%
steps = {"clip, then tanh": (guarded, x)}
for branch in ("scale of full shape", "gate"):
    case = flip(branch, "false, then true")
    steps[branch] = (case.segment, case.x)
for name, step in steps.items():
    on, off = (divergence(*step, strategy=s).outcome for s in (NON_REENTRANT, NO_EARLY_STOP))
    print(f"{name:<20} early stop on: {on}, off: {off}")

# %% [markdown]
# `torch.utils.checkpoint.set_checkpoint_early_stop(False)`, a context manager, closes the hole: the recomputation runs to its end, and
# a tensor too many raises. What it cannot see are values: shape, dtype and device are all that `_default_meta_extractor` hands over.
#
# Newer versions of torch have an argument for it, too: `checkpoint(..., early_stop=False)`; where both are given, the context manager
# decides. An older one does not know the argument and hands it on to the segment, among the segment's own: a `TypeError`, or, if the segment
# takes any keyword, *nothing*, and the hole stays open. The last line of that cell says which yours does. The context manager works in all.
#
# What does that cost? Early stop spares whatever stands behind the last saved tensor. **Predict** the ratio of a step's time, off /
# on, for a segment that ends in a tanh, and for one that ends in a wide linear layer (which saves its *input*).

# %% tags=["nbval-ignore-output"]
from recompute_lab.instruments.timing import seconds

rows = torch.randn(512, 64).to(device).requires_grad_()
ends_in = nn.ModuleDict({
    "a tanh": nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.Tanh()),
    "a wide linear": nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 2048)),
}).to(device)
for name, segment in ends_in.items():
    def step(strategy, segment=segment):
        return lambda: strategy(segment, rows).sum().backward()

    plain, on, off = seconds(*map(step, (PLAIN, NON_REENTRANT, NO_EARLY_STOP)), rounds=31)
    print(f"ends in {name:<14} off / on: {off / on:.2f}   (on / plain: {on / plain:.2f})")

# %%
def ends_of(layer, strategy, segment):
    ended = []
    with layer.register_forward_hook(lambda *_: ended.append(1)):
        strategy(segment, rows).sum().backward()
    return len(ended)

for name, segment in ends_in.items():
    on, off = (ends_of(segment[-1], s, segment) for s in (NON_REENTRANT, NO_EARLY_STOP))
    print(f"{name:<14} ran to its end {on} x in a step; with early stop off {off} x")

# %% [markdown]
# A wide last layer has saved its input before it multiplies, so early stop spares the multiplication; tanh has to be computed first,
# since its result is what is saved, and there is nothing left to spare. (It was left on its way out, which is why its hook did not
# run.) Closing the hole costs what stands behind the last saved tensor: here next to nothing in one case; in the other, where this
# was written, between a third of a step and three quarters. And it is still only a count: it says *that* something flipped. The repair
# is the one of lesson 01.
#
# ## 4 · Whose gradients are these?
#
# **Predict.** A flip goes unnoticed and the gradients are wrong. Are they the right gradients of *some* network, say of the one
# that the recomputation ran?

# %%
for branch, direction in (("gate", "false, then true"), ("route", "false, then true")):
    case = flip(branch, direction)
    other = flip(branch, "true, then false")  # its forward is what our recomputation ran
    for strategy in (REENTRANT, NON_REENTRANT):
        equal = all(map(same_bits, case.gradients(strategy), other.gradients(PLAIN)))
        print(f"{branch:<6} {strategy.name:<14} gradients of the recomputed network: {equal}")

# %% [markdown]
# The reentrant implementation differentiates the second network, all of it: the gradients belong to a network that did not
# produce the loss, but they belong together. Under the non-reentrant one the graph is the forward's and the tensors in it are the
# recomputation's: the gradients are those of neither network. Layer by layer (`args[0]` is x, the segment's input):

# %%
chosen = {
    "scale per vector, reentrant": ("scale per vector", REENTRANT),
    "scale of full shape, non-reentrant": ("scale of full shape", NON_REENTRANT),
    "gate, non-reentrant": ("gate", NON_REENTRANT),
    "route, reentrant": ("route", REENTRANT),
    "early exit, reentrant": ("early exit", REENTRANT),
}
found = {}
for name, (branch, strategy) in chosen.items():
    case = flip(branch, "false, then true")
    found[name] = r = divergence(case.segment, case.x, strategy=strategy)
    off = sum(row.error > 0.1 for row in r.rows)
    told = f"{off} off by more than 10%, {len(r.missing)} missing, {len(r.unexpected)} extra"
    print(f"{name:<34} {told}")
show(draw.per_layer(found), "Four are off by their size in every layer, one by rounding only.")

# %% [markdown]
# ## 5 · Loudness and harm are independent
#
# Each of the ten flips, under both implementations with their defaults, has a place in the next picture: was it noticed, and how far
# are the gradients off? (A run that raised has no gradients. Its harm is taken from the reentrant implementation: what the same flip
# costs where nobody looks. For *scale per vector, false, then true* that is kind: with `determinism_check="none"` it cost 1.0 above.)
#
# **Predict.** Which corners will be empty, if any: loud and harmful, loud and harmless, silent and harmful, silent and harmless?

# %%
points = lesson.loudness(cells)
show(outcomes.loudness(points), "All corners are filled: noticed and harmful are two things.")
names = ("silent", "loud"), ("harmless", "harmful")
corners = Counter(f"{names[0][p.loud]} and {names[1][p.error > 1e-5]}" for p in points)
for corner, number in sorted(corners.items()):
    print(f"{corner}: {number}")
caps = [point for point in points if "scale" in point.label]
print("corners with the norm cap:", len({(p.loud, p.error > 1e-5) for p in caps}))

# %% [markdown]
# The norm cap alone stands in three corners. It is *loud and harmless* where it killed the run of lesson 01; *silent and harmless*
# under the reentrant implementation; and *silent and harmful*, under the implementation that counts, where its scale has the
# update's shape. There a scale, which is 1 or some ulps less, lands in the slot of tanh's result y, so 1 − y² is all but zero: hence
# the 1.0. A cap's flip is harmless only as long as every tensor gets into the slot that is its own.
#
# ## 6 · Over a training run
#
# A digit classifier is built around the segment and trained for 40 steps; in every step the branch stands on its threshold and flips.
# Each run is compared with a plain one: same weights to start from, same batches, same answers of the branch in the forward. From
# the second step on, what the errors did to the weights counts as well.
#
# **Predict.** Which of the runs will you recognise by its loss: does it rise, stall, become NaN?

# %%
runs = (
    ("scale per vector", "false, then true", REENTRANT),
    ("scale of full shape", "false, then true", NON_REENTRANT),
    ("gate", "false, then true", NON_REENTRANT),
    ("route", "false, then true", NON_REENTRANT),
    ("early exit", "true, then false", REENTRANT),
)
pairs = {f"{b}, {s.name}": (train(b, d, s), train(b, d)) for b, d, s in runs}
show(
    draw.over_steps({name: run.distances(plain) for name, (run, plain) in pairs.items()}),
    "One stays at rounding, three are wrong by their size at once, the gate's error grows.",
)
for name, (run, plain) in pairs.items():
    falls, near = run.loss < run.losses[0], run.loss < 1.1 * plain.loss  # means of five steps
    print(f"{name:<34} finite: {run.finite}, loss falls: {falls}, as far as plain: {near}")

# %% [markdown]
# Every run's loss falls, and every gradient is finite. A loss that falls is no evidence that gradients are right: the layers around
# the segment still learn, and a wrong direction is often downhill. Four of the five fall less far than their plain run, but who
# trains only one run does not know how far it ought to fall. Only a comparison shows it. (These are 40 steps of one small model with
# a flip in each; how a large run with a rare flip fares is not shown here.)
#
# ## 7 · Try it
#
# Choose a branch, a direction and the switches. The strip shows which tensor the recomputation put into each slot of the forward's.
# (By keyboard: Tab to a list, Alt + ↓ opens it.)

# %%
from recompute_lab.lessons.flip_panel import measure, panel
from recompute_lab.views.slots import sentence, slots

flips = panel()
flips

# %%
case = measure("scale of full shape", "false, then true")
show(slots(case), sentence(case))

yours = flips.direction.value
try:
    flips.direction.value = "true, then false"  # a cell can move the panel, too
    print("\n" + textwrap.fill(flips.message, 96))
finally:
    flips.direction.value = yours

# %% [markdown]
# ## Exercises
#
# Each check says what it expected, what came, and where to look. For a hint, run `hint.predict()` in a cell of your own, and once
# more for the next one.
#
# **1.** Three new segments, called with x (32 × 16), w (16 × 16) and `hit`, which flips. What comes of each under
# `use_reentrant=False` and its defaults: "count", "metadata", "silent" or "fine"?

# %%
for function in lesson.NEW_SEGMENTS.values():
    print(inspect.getsource(function))

# %% tags=["solution"]
prediction = {
    ### BEGIN SOLUTION
    ("twice_if", "true, then false"): "silent",
    ("twice_if", "false, then true"): "silent",
    ("relu_if", "true, then false"): "count",
    ("relu_if", "false, then true"): "metadata",
    ("sine_if", "true, then false"): "count",
    ("sine_if", "false, then true"): "fine",
    ### STUB
    # ("twice_if", "true, then false"): ...,
    # ("twice_if", "false, then true"): ...,
    # ("relu_if", "true, then false"): ...,
    # ("relu_if", "false, then true"): ...,
    # ("sine_if", "true, then false"): ...,
    # ("sine_if", "false, then true"): ...,
    ### END SOLUTION
}
check.predict(prediction)

# %% [markdown]
# **2.** Write a segment whose flip nobody notices under `use_reentrant=False`, and whose gradients are off by more than a tenth. `hit` is
# False in the forward and True in the recomputation.

# %% tags=["solution"]
def my_segment(x, hit):
    ### BEGIN SOLUTION
    if hit:
        x = x * torch.full_like(x, 0.5)
    return torch.tanh(x)
    ### END SOLUTION


check.silent_flip(my_segment)

# %% [markdown]
# **3.** Four flips that the defaults of `use_reentrant=False` let pass. Which switch makes each one loud: "early stop off",
# "check none", "reentrant", or "nothing"?

# %% tags=["solution"]
switch = {
    ### BEGIN SOLUTION
    "scale of full shape: false, then true": "early stop off",
    "gate: false, then true": "early stop off",
    "route: true, then false": "nothing",
    "early exit: true, then false": "early stop off",
    ### STUB
    # "scale of full shape: false, then true": ...,
    # "gate: false, then true": ...,
    # "route: true, then false": ...,
    # "early exit: true, then false": ...,
    ### END SOLUTION
}
check.loud_by(switch)

# %% [markdown]
# ## Recap
#
# Answer aloud, then open.
#
# <details><summary>Your run has used <code>use_reentrant=False</code> for a month without an error. What does that prove about its branches?</summary>
#
# That no recomputation saved fewer tensors or other shapes than its forward. Nothing about one that wanted to save more (early stop
# cuts it off), and nothing about values: a route between two equal experts is never noticed.
# </details>
#
# <details><summary>Somebody proposes <code>use_reentrant=True</code>, since "it does not crash". What do you answer?</summary>
#
# It does not compare anything. For a cap, whose arms agree at the threshold, the price is rounding. For a gate, a route or an exit it
# is the gradient of another network, in every step that flips.
# </details>
#
# <details><summary>From lesson 01: how do you repair a guard without changing a bit of the result?</summary>
#
# Run the operation always, in a form that is the identity where the condition would have been false. That works where the arms agree
# at the threshold; a route has to be decided once, outside of the segment.
# </details>
#
# ## References
#
# - The installed source: `torch/utils/checkpoint.py`, `_recomputation_hook`, `_checkpoint_hook`, `CheckpointFunction`.
# - PyTorch documentation: `torch.utils.checkpoint`, with `set_checkpoint_early_stop` and `determinism_check`.
