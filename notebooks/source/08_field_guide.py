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
# # 08 · The field guide
#
# A run has died in backward with a `CheckpointError`, or it goes on and does not learn. The segment is not yours, the model has forty of
# them, and the deadline is tonight. This lesson is for that hour: what you see, which of eight root causes it comes from, and what
# mends it. An instrument, the *witness*, rides along and names the cause; you learn how it proves what it says, and what it cannot see.
#
# **You will be able to**
# - say for a symptom, an error's text or none at all, which root causes are left, and find the one by experiment;
# - read a witness's report, and check its proof by hand: put all back, then leave one thing out;
# - name three kinds of code for which reentrant is right and non-reentrant is not.
#
# **Time** 90 minutes, a third of them for the six unknown segments. **You need** PyTorch: modules, `backward`. If your run has just
# crashed, this is the lesson to begin with; 01, 04 and 05 tell more of single causes. The outputs are stored: to predict before you
# see, choose *Edit → Clear Outputs of All Cells* first. After a restart, go on with *Run → Run All Above Selected Cell*.
#
# **The words.** A *segment* is a part of the model that is checkpointed. Its *forward* throws away the *saved tensors* that backward
# would need; the *recomputation*, a second run of that forward during backward, brings them back; *early stop* leaves it as soon as it
# has them all. The *plain run*, or baseline, is the same step without checkpointing. **Reentrant** and **non-reentrant** (`use_reentrant=True`,
# `=False`) are torch's two implementations. *Loud*: something raises. *Silent*: gradients are wrong or missing, and nothing raises.
# *Side effect*: gradients are right, but something that the forward writes is written twice. *Replayable*: none of these. A *step* is
# what a training loop does once: a forward, a backward, and what stands between. An *operator* is one call of a torch function. *Off by
# 0.5*: the difference from the plain run's gradient has half that gradient's norm, in the worst tensor.

# %% tags=["nbval-ignore-output"]
import platform

import torch

print("python", platform.python_version(), "| torch", torch.__version__)
print("device cpu, GPU or not: errors, kernels and draws are compared as the CPU has them")

# %%
import textwrap
from collections import Counter
from functools import partial
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint
from recompute_lab import Witness, assert_replayable, examine, same_bits
from recompute_lab.instruments.state import Snapshot
from recompute_lab.lessons import field_guide as guide
from recompute_lab.lessons.field_guide import check, hint
from recompute_lab.specimens import other_world, own_arguments
from recompute_lab.specimens.steps import power
from recompute_lab.views import field_guide as draw
from recompute_lab.views.style import show

print("ready")

# %% [markdown]
# ## 1 · One crash, one report
#
# Somebody's attention, in somebody's training step, which gives it a dict with a bias. It has run for weeks; since it is checkpointed,
# it dies in its first backward. torch's advice is to set `debug=True`.
#
# ```python
# # recompute_lab/specimens/own_arguments.py: class Biased
# def forward(self, x: torch.Tensor, extras: dict) -> torch.Tensor:
#     bias = self.take(extras, "bias")
#     scores = self.query(x) @ self.key(x).T / 4
#     if bias is not None:
#         scores = scores + self.slope * bias
#     return x + torch.softmax(scores, dim=1) @ x
#
# def take(self, extras: dict, name: str) -> torch.Tensor | None:
#     return extras.pop(name, None)
# ```
#
# **Predict.** Which line is it? And how many lines does `debug=True` print about this one small segment: 20, 200, or thousands?
#
# The second way is to let a witness ride along: `context_fn=witness.context_fn`, and nothing else. If checkpointing raises, it attaches
# its report to the error, as a note, which Python prints under the message.

# %%
def caught(**way):
    try:
        own_arguments.Popped().step(partial(checkpoint, use_reentrant=False, **way))
    except CheckpointError as error:
        return error

crash = caught(context_fn=Witness().context_fn)
for line in str(crash).splitlines()[:3]:  # newer versions of torch add a full stop and a tip
    print(textwrap.fill(line.removesuffix("."), 96))
print(*crash.__notes__)
with guide.debugging():
    length = len(str(caught(debug=True)).splitlines())
at_least = max(number for number in (1, 10, 100, 1000, 10_000) if number <= length)
print(f"\ndebug=True prints {at_least:,} lines at least")

# %% [markdown]
# `extras.pop` takes the bias out of the dict, and checkpointing keeps the dict itself, not a copy: the recomputation is given one
# without a bias. It multiplies once less, and saves a tensor less. (`args[1]` is the segment's second argument, `extras`. At the fifth
# operator, the multiplication by `slope` is missing.)
#
# How to read it. **LOUD** is the verdict on the run that was watched. The line below has both: what was seen of the implementation that ran,
# and what the other one *would be*: here silent, which is worse. Then the causes, the first one to look at first: what differs, by the name
# that the code has for it, with its line; *proven* or *suspected*; what happens; a repair. The effects say what it came to.
#
# ## 2 · How it proves
#
# At the forward's entry the witness takes down all that the segment can reach: weights, buffers, attributes, arguments, closures, globals,
# random streams, torch's switches. At the recomputation's entry it compares. What differs is a *suspect*: much of it may be harmless.
# So it runs the segment again, on the forward's world, with one suspect at a time left as the recomputation found it.
#
# A layer with dropout and a schedule, and what its training loop does after each forward:
#
# ```python
# # recompute_lab/specimens/other_world.py: class Sharpened
# def forward(self, x: torch.Tensor) -> torch.Tensor:
#     weights = torch.softmax(self.dropout(self.scores(x)) / self.temperature, dim=1)
#     return x + weights * self.values(x)
#
# def logged(layer: Sharpened) -> None:
#     """What the loop does after each forward: an evaluation, a schedule, a count."""
#     layer.eval()
#     layer.temperature *= 0.9
#     layer.seen += 32
# ```
#
# **Predict.** Which of the three lines in `logged` have to be undone for the recomputation to do what the forward did?

# %%
torch.manual_seed(0)
layer, x = other_world.Sharpened(), torch.randn(32, 16, requires_grad=True)
forward = Snapshot(layer, x)  # what can be reached, the random streams too, taken down
first = layer(x)
other_world.logged(layer)
recomputation = Snapshot(layer, x)
suspects = forward.changes()
for left in [(), *[(suspect,) for suspect in suspects]]:
    forward.restore(keep=left)
    same = same_bits(layer(x), first)
    print(f"not put back: {', '.join(left) or 'nothing':<18} does what the forward did: {same}")
    recomputation.restore()
forward.restore()

# %%
forward.restore()  # the random streams, too: the same answer whenever this cell is run
*lines, last = str(examine(layer, x, between=other_world.logged)).splitlines()
print(*lines, sep="\n")
how_far = float(last.split()[-4])  # which mask a seed draws is a matter of torch's version
print("reentrant: gradients off by more than a tenth of their size:", how_far > 0.1)

# %% [markdown]
# Six suspects, two causes: dropout's mode and the temperature. `seen` is not read; and a linear layer's mode means nothing to it. With
# everything put back the segment does what the forward did, so there is nothing else: that is the whole proof. `examine` does it
# for you, for one segment: it runs both implementations, and `between` stands for what the caller does before backward. (It takes the
# modes together, as `eval()` sets them; the table shows that dropout's is the one. How far reentrant is off depends on the mask, and
# one seed draws [another mask in another version](versions.md) of torch: so the cell prints a bound.)
#
# Two limits. Where it takes two changes together to do harm, to put back either is enough: leaving out one thing at a time would find none,
# and the witness, which leaves out more and more, names one of the two. And what could not be taken down cannot be put back: section 8.
#
# ## 3 · Eight root causes
#
# By how often they came up in about 110 public failure reports (our count, which no cell shows), though the first is owed to reentrant having been the default for long:
#
# 1. **The segment is cut off from the graph around it**: no gradient finds the way in.
# 2. **The forward writes state** and reads it: a cache, a running estimate, a counter (lesson 05).
# 3. **The recomputation sees another world**: a flag, a hook, the active adapter, a closed context, a closure's variable.
# 4. **The forward changes its own arguments**: a dict, a list, a tensor in place.
# 5. **Randomness that torch does not replay**: NumPy, Python, a generator of one's own (lesson 04).
# 6. **The weights are others**: an optimizer was faster, a shard is no longer gathered.
# 7. **Another kernel, route or rounding** (lessons 01 and 02).
# 8. **The agreement on saved tensors is broken**: what backward may ask for, how often, and how the recomputation is left.
#
# 2 to 6 in one sentence: *what is checkpointed is not a function of its arguments.*
#
# Fourteen faults, by number. 1: *frozen embedding*, *features in a list*. 2: *cache that grows*. 3: *adapter switched*, *closure in a
# loop*. 4: *popped from a dict* (the first section's), *argument in place*. 5: *masks from NumPy*. 6: *weight gathered*, *critic steps
# first*. 7: *kernel chosen outside*. 8: *unpacked twice*, *early stop swallowed*, *tensor on ctx*.
#
# **Predict**, from the list alone: under which numbers is reentrant right and non-reentrant wrong, and under which is it the reverse?
# Which of the fourteen raise under both?

# %%
rows, columns = guide.rows(), ("reentrant", "non-reentrant")
silent = [sum(row.cells[i][0] == "silent" for row in rows) for i in range(2)]
message = f"Of {len(rows)}, reentrant is silent in {silent[0]}, non-reentrant in {silent[1]}."
show(draw.outcomes(rows, guide.ROOT_CAUSES, columns), message)
for i, column in enumerate(columns):
    print(f"{column:<14}", dict(sorted(Counter(row.cells[i][0] for row in rows).items())))

# %% [markdown]
# Only reentrant is wrong in the two of number 1: it joins the graph as one operation of its tensor arguments, and what comes in otherwise
# is cut off. Only non-reentrant is wrong in the three of number 8, whose agreement is its own (section 4), and in the one of number 7. Two
# raise under both: *argument in place* and *weight gathered*.
#
# What follows is one page for each: symptom, report, repair. The repaired step is compared with the plain run, bit for bit, under both
# implementations.
#
# ### Root cause 1: cut off
#
# Fine-tuning with a frozen embedding, and a network whose layers take all earlier features as one list.
#
# **Predict.** Who gets no gradient? Who tells you? In the second model, does the `stem`, which is not checkpointed, get the right one?

# %%
for name in ("frozen embedding", "features in a list"):
    print(f"{name}\n{guide.sheet(name)}\n")
lost = guide.found("features in a list")["reentrant"].divergence
right = sum(row.equal for row in lost.rows if "stem" in row.name)
print("of the stem's gradients right:", right, "of 2")

# %% [markdown]
# Reentrant warns where *no* argument requires grad, and goes on: the head learns, the block does not. The stem's gradient is
# wrong, too: what should have come back through the layers is missing. Look into `.grad` after the first backward of a new
# setup: `[n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]` is the shortest test there is.
#
# The report says *suspected*: the witness rides along in a non-reentrant run, and says what reentrant *would be*.
#
# ### Root cause 3: another world
#
# Two tasks, `summarise` and `translate`, with an adapter each, and one backward for both; and a loop over three layers.
#
# ```python
# # recompute_lab/specimens/other_world.py: class TwoTasks
# def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
#     loss = torch.zeros(())
#     for task, rows in zip(self.layer.adapters, self.rows.chunk(2), strict=True):
#         loss = loss + power(self.adapted(run, self.stem(rows), task))
#     loss.backward()
#     return loss.detach()
#
# def adapted(self, run: Run, x: torch.Tensor, task: str) -> torch.Tensor:
#     self.layer.active = task
#     return run(self.layer, x)
#
# # class InALoop
# def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
#     x = self.stem(self.rows)
#     for layer in self.layers:
#         x = run(lambda t: t + torch.tanh(layer(t)), x)
#     loss = power(x)
#     loss.backward()
#     return loss.detach()
# ```
#
# (`run(segment, *args)` is `checkpoint`, by one implementation or the other; `power` is the mean square.)
#
# **Predict.** Which adapter gets a gradient, in each implementation? In the loop, which layers do?

# %%
for name in ("adapter switched", "closure in a loop"):
    print(f"{name}\n{guide.sheet(name)}\n")

# %% [markdown]
# Reentrant recomputes *and builds the graph* in backward: whoever is active then gets all the gradient, the others none. Non-reentrant keeps
# the forward's graph, so each weight gets a gradient, computed from the wrong saved tensors. In the loop, reentrant gives the last layer
# a gradient and the first two none. No check of either sees it: all shapes agree.
#
# Here belong a mode, a hook, a context that has been left, an environment variable. The repair is always the same: make it an argument,
# or let what sets it stand inside of the segment. (Newer versions of torch enter one such context again for you: `with torch.device(...)`,
# under non-reentrant. Older ones do not; `torch_version.replays_default_device()` asks yours.)
#
# ### Root cause 4: its own arguments
#
# You have seen the dict. The second one adds a position to its input *in place*, to save a copy.
#
# ```python
# # recompute_lab/specimens/own_arguments.py: class Positioned
# def forward(self, x: torch.Tensor) -> torch.Tensor:
#     x += self.position
#     return torch.tanh(self.layer(x))
# ```
#
# **Predict.** Without checkpointing autograd has no objection. Does it have one with it, and when?

# %%
print(guide.sheet("argument in place"))

# %% [markdown]
# Both raise, each in its own words. Non-reentrant raises before the second run: the argument that it keeps has another version, and
# autograd's own guard is what saves you. The witness has nothing to say, since no second run begins. Reentrant raises in the second
# run: there its input is a leaf, and `x +=` on a leaf is forbidden. (A list, a dict, an iterator, or `x.data` have no version.)
#
# ### Root cause 6: the weights are others
#
# A weight that is whole only while somebody has gathered it. And an adversarial pair, whose critic takes its step between the
# generator's forward and its backward.
#
# ```python
# # recompute_lab/specimens/swapped_weights.py: class Gathered
# def through(self, run: Run, x: torch.Tensor) -> torch.Tensor:
#     with self.sharded.gathered():
#         return run(self.sharded, x)
#
# # class Adversarial
# def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
#     optimizer = torch.optim.SGD(self.critic.parameters(), lr=0.5)
#     fake = self.generator(self.rows)
#     loss = -self.judge(run(self.critic, fake)).mean()
#     self.critics_turn(optimizer, fake.detach())
#     self.generators_turn(loss)
#     return loss.detach()
# ```
#
# (The critic's turn ends with `optimizer.step()`; the generator's is `loss.backward()`.)
#
# **Predict.** The second one is a mistake that everybody has made once. What does the plain run say to it? What does checkpointing?

# %%
for name in ("weight gathered", "critic steps first"):
    print(f"{name}\n{guide.sheet(name)}\n")

# %% [markdown]
# The first raises an error of the forward's own, about shapes, in the middle of backward: read the traceback from below until
# you find your own `forward`; it is the recomputation. The second is the one to remember: **checkpointing takes a safety net away.**
# The plain run has saved the critic's weights and refuses; a checkpointed segment has saved none, and computes with what it finds.
#
# ### Root cause 7: another kernel. And 2 and 5, in short
#
# `with sdpa_kernel(SDPBackend.MATH):` around the forward, and backward outside of it. Both kernels compute the same attention. The two
# root causes that have lessons of their own come after it, one page each.
#
# **Predict** for the first: who raises, and why does the other one not?

# %%
for name in ("kernel chosen outside", "cache that grows", "masks from NumPy"):
    print(f"{name}\n{guide.sheet(name)}\n")

# %% [markdown]
# Reentrant recomputes and goes backward through the same second run: another kernel, the same function. Non-reentrant needs what the *forward's*
# graph has asked for, and another kernel saves other tensors. Here the choice is a switch, so it could be put back, and is proven. Where two
# runs from one state differ (a race, lesson 01), the report says that instead, and names the first value that came out otherwise.
#
# ## 4 · Where reentrant is the right one
#
# Non-reentrant rests on an agreement: each saved tensor is handed out *once*; the recomputation may be left by an *exception*; what is recomputed is
# what went through *save_for_backward*. Three pieces of ordinary code do not keep it.
#
# ```python
# # recompute_lab/specimens/saved_protocol.py: class Swish, x * sigmoid(x)
# @staticmethod
# def backward(ctx, gradient):
#     gate = ctx.saved_tensors[1]
#     return gradient * gate * (1 + ctx.saved_tensors[0] * (1 - gate))
#
# # class WithFallback
# def forward(self, x: torch.Tensor) -> torch.Tensor:
#     h = self.up(x)
#     try:
#         return fused_gelu(h)
#     except Exception:
#         return h * 0.5 * (1 + torch.erf(h / 2**0.5))
#
# # class Gate, x * sigmoid(x)
# @staticmethod
# def forward(ctx, x, space):
#     torch.sigmoid(x, out=space)
#     ctx.save_for_backward(x)
#     ctx.gate = space
#     return x * space
#
# @staticmethod
# def backward(ctx, gradient):
#     (x,) = ctx.saved_tensors
#     return gradient * ctx.gate * (1 + x * (1 - ctx.gate)), None
# ```
#
# **Predict** for each: loud or silent? (Of the third there are two layers. They share two workspaces, and each call takes the next one in
# turn: that is `space`.)

# %%
for name in ("unpacked twice", "early stop swallowed", "tensor on ctx"):
    print(f"{name}\n{guide.sheet(name)}\n")

# %% [markdown]
# Early stop is an exception, and `except Exception` catches it: the fallback runs in the middle of backward. (torch then trips over a
# state that it does not expect: an AssertionError, in older versions without a word, in newer ones with *early_stop is set*. In older
# ones there is a second trap in an `except`: while you hold the error of a checkpointed *forward* that failed, whatever else you compute
# counts as part of that segment. To try again with a smaller batch, leave the `except` first. [Versions](versions.md) has both.)
#
# The third is silent: an
# attribute of `ctx` is neither freed nor recomputed, and so reads what was last written into its memory. Under reentrant the
# gradients of all three are right, since there the second run makes a graph, and a `ctx`, of its own. All three should be mended all the same;
# but if they are in a library of somebody else's, `use_reentrant=True` is an answer, as it is for a kernel that is chosen at random.
#
# ## 5 · From symptom to root cause
#
# The chart asks what can be *tried*, in this order: who is wrong, then one treatment at a time. It has an executable form,
# `recompute_lab.instruments.root_cause`, which answers each question by an experiment; below it is asked about all fourteen.

# %%
message = "Who is wrong? Then treat one thing at a time, and see what makes the step right."
show(draw.chart(guide.STEPS, guide.ROOT_CAUSES, guide.SEEN), message)
print(guide.chart_in_words(), "\n")
for _, seen, causes in guide.SYMPTOMS:
    print(f"{seen:<56} {', '.join(map(str, causes))}")
agree = [guide.charted(one).number == one.cause for one in guide.EVERYTHING]
print("\nthe chart leads to the root cause in", sum(agree), "of", len(agree))

# %% [markdown]
# The error's text is a first hint only: a different number of tensors can come from six of the eight. *Who is wrong* says more. That takes
# the plain run: one step without checkpointing, from the same weights, batch and seeds, whose gradients you compare.
#
# ## 6 · Riding along
#
# One witness can watch all segments of a model, for as long as you like. It copies what a segment can reach (up to 64 MiB), compares what
# both passes saved, and runs a segment some more times only where something differed. Three blocks, twenty steps; the one in the middle comes in over its first hundred calls.
#
# **Predict.** How many reports are there, and how many of them are silent?

# %%
from recompute_lab.specimens.counters import WarmedUp
from recompute_lab.specimens.steps import Block

torch.manual_seed(0)
blocks, witness = nn.ModuleList([Block(), WarmedUp(), Block()]), Witness()
optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
for _ in range(20):
    h = x
    for block in blocks:
        h = checkpoint(block, h, use_reentrant=False, context_fn=witness.context_fn)
    optimizer.zero_grad()
    power(h).backward()
    optimizer.step()
print(dict(Counter(report.non_reentrant for report in witness.reports)))
print("\n".join(str(witness.report()).splitlines()[:6]))

# %% [markdown]
# Sixty reports, of which every third is a block that computes something else the second time, and nothing in the run would have told. Better
# than to find it in a run is a test that does not let it in: `assert_replayable`, in a test suite, on each block with an input of its own.

# %%
def test_every_block_can_be_replayed(block):
    assert_replayable(block, torch.randn(32, 16, requires_grad=True))

for block in blocks:
    try:
        test_every_block_can_be_replayed(block)
        print(f"{type(block).__name__:<10} passes")
    except AssertionError as failure:
        print(f"{type(block).__name__:<10} fails: {str(failure).splitlines()[2].strip()}")

# %% [markdown]
# ## 7 · Two public models
#
# From the `transformers` package (`make lab` installs it), tiny and with random weights; nothing is downloaded. **Mixtral** is a mixture of experts; its loss has a term that
# keeps the experts' load balanced, made of what the routers have put out. Hooks in the layers collect that on the way. The layers are
# checkpointed by the model itself. **Wav2Vec2** masks some of its frames at random, as augmentation. Say it is one segment of a larger model.
#
# **Predict.** Mixtral under reentrant: is its loss right? Does the balance term have a graph? Wav2Vec2: does dropout's rule, that
# torch's stream is replayed, hold for its masks?

# %%
from recompute_lab.instruments.steps import IMPLEMENTATIONS, outcomes
from recompute_lab.specimens.public_models import Mixtral, Wav2Vec2, Wav2Vec2Told

for share in (1.0, 0.001):
    for name, result in outcomes(partial(Mixtral, share)).items():
        model = Mixtral(share)
        model.step(IMPLEMENTATIONS[name])
        graph, loss = model.output.aux_loss.requires_grad, result.loss_off < 1e-5
        routers = max(r.error for r in result.divergence.rows if "mlp.gate" in r.name)
        print(f"factor {share:<5} {name:<13} loss right: {loss},", end=" ")
        print(f"balance term has a graph: {graph}, routers off by {routers:.1f}")
ridden = guide.worst_of(guide.watched(Mixtral))
print("the witness, riding along: reentrant would be", ridden.reentrant, end=":\n   ")
print(ridden.causes[0].name)

# %%
for kind in (Wav2Vec2, Wav2Vec2Told):
    result = outcomes(kind)["non-reentrant"]
    errors = {row.name: row.error for row in result.divergence.rows}
    right = max(errors["model.masked_spec_embed"], result.loss_off) < 1e-5
    told = [c.name for c in guide.worst_of(guide.watched(kind)).causes if c.proven]
    proven = ", ".join(told) or "nothing"
    print(f"{kind.__name__:<12} right: {right}; the witness proves: {proven}")

# %% [markdown]
# Mixtral's loss is right (to five digits), the term is *in* it, and reaches no router: reentrant's forward runs without gradients, so
# what a hook collects there has no graph. The witness saw a tensor with a history stay behind where no `return` had put it. With the
# default factor, 0.001, the gradients of the routers are off by a fifth; nothing shows but that some day the experts are used
# unequally. It is root cause 1 by a side door: what leaves a segment otherwise than by `return`. The repair: `use_reentrant=False`.
#
# Wav2Vec2 draws its masks with NumPy, which nobody rewinds: root cause 5. The repair is an argument that the model already has:
# `mask_time_indices`, drawn outside.
#
# ## Exercises
#
# **1.** Six training steps that are right without checkpointing. Read them, and say for each: the root cause's number; a name for what
# differs (a word of the source, or what Python calls the thing); the verdicts under reentrant and under non-reentrant: "right", "silent" or "loud". Each cause
# occurs once at most. Hints: `hint.diagnose()` in a cell of your own, and again for the next one.

# %%
from recompute_lab.specimens.unknown_segments import UNKNOWN, Scaled, Steered, source, steering

for letter in UNKNOWN:
    print(f"# {letter}\n\n{source(letter)}\n")

# %% tags=["solution"]
answer = {
    ### BEGIN SOLUTION
    "A": (1, "Chosen", "silent", "right"),
    "B": (3, "hook", "silent", "loud"),
    "C": (4, "scales", "silent", "silent"),
    "D": (6, "weights", "silent", "loud"),
    "E": (7, "is_grad_enabled", "silent", "right"),
    "F": (8, "Exception", "right", "loud"),
    ### STUB
    # "A": (..., ..., ..., ...),
    # "B": (..., ..., ..., ...),
    # "C": (..., ..., ..., ...),
    # "D": (..., ..., ..., ...),
    # "E": (..., ..., ..., ...),
    # "F": (..., ..., ..., ...),
    ### END SOLUTION
}
check.diagnose(answer)

# %% [markdown]
# Then with the witness, which rides along in each of the six. **Predict:** which one can it not put a name to? (*Right*: both of its
# verdicts are those that were measured.)

# %%
print("   right  reentrant   non-reentrant  names")
for letter in UNKNOWN:
    told = guide.told_of(letter)
    named = guide.shortened(told.causes[0].name, 46) if told.causes else "nothing"
    right = guide.seen_by_the_witness(letter)
    print(f"{letter}  {right!s:<6} {told.reentrant:<11} {told.non_reentrant:<14} {named}")
examined = examine(UNKNOWN["E"]().thrifty, x)
print(f"E, examined: reentrant {examined.reentrant}, {examined.causes[0].name}")

# %% [markdown]
# ## 8 · What the witness cannot see
#
# - **What would happen under reentrant, beyond what it can tell without running it**: it rides along in non-reentrant. Where a segment's
#   code asks whether gradients are recorded, as E's does, it runs the forward once more without; what the caller makes of an output it
#   does not know. `examine` runs both.
# - **What cannot be copied**, C: it sees that another value was saved, and names the line; an iterator cannot be taken back, nor can open files,
#   another process, or what a compiled library keeps for itself. So nothing is proven.
# - **An error before the second run begins**: no report (`x += position`, above).
# - **A plain run that is wrong.** That two passes agree does not say that either is right.
# - **What it may not do**: in a process group of several ranks it runs no experiments, and only suspects; of state beyond 64 MiB it
#   can tell that it changed, not prove that it matters.
#
# *Not found* is not *not there*. The last word has the comparison with the plain run.
#
# ## Exercises, continued
#
# **2.** Repair B. Write its step anew: still checkpointed by `run(segment, *args)`, right under both implementations, and without a trace
# of steering afterwards. Return `loss.detach()`.
#
# **3.** Repair C in the same way, in the cell after it. `self.deep(x, scales)` takes an iterator.

# %% tags=["solution"]
class SteeredRight(Steered):
    def step(self, run):
        ### BEGIN SOLUTION
        def steered(x):
            with steering(self.block.up, self.gain):
                return self.block(x)

        loss = power(run(steered, self.stem(self.rows)))
        loss.backward()
        return loss.detach()
        ### END SOLUTION


check.repair_steered(SteeredRight)

# %% tags=["solution"]
class ScaledRight(Scaled):
    def step(self, run):
        ### BEGIN SOLUTION
        scales = [0.5**depth for depth in range(3)]
        loss = power(run(lambda x: self.deep(x, iter(scales)), self.stem(self.rows)))
        loss.backward()
        return loss.detach()
        ### END SOLUTION


check.repair_scaled(ScaledRight)

# %% [markdown]
# ## Recap
#
# Answer aloud, then open.
#
# <details><summary>A checkpointed run has a loss that falls, and a block that does not learn. What do you look at first?</summary>
#
# Which parameters have `.grad` None, and which implementation it is. Under reentrant: does any argument of the block require grad, is each
# tensor an argument or an output of its own, and does anything leave the block otherwise than by `return`?
# </details>
#
# <details><summary>How can a difference between the two passes be proven to be the cause?</summary>
#
# Put everything that differed back and run the segment: it must do what the forward did. Then leave one thing at a time as the recomputation
# found it: what can be left so without a difference is no cause. What has to be put back is one.
# </details>
#
# <details><summary>From lesson 03: a recomputation saves one tensor more than the forward. What does non-reentrant say, and why is that no
# comfort for a diagnosis by error messages?</summary>
#
# Nothing, with early stop on: it leaves as soon as it has as many as the forward saved. So the same fault is loud or silent by the direction
# in which it goes, and the absence of an error says nothing.
# </details>
#
# <details><summary>From lesson 06: an audit reports a guard as <em>not seen</em> inside a checkpoint. May it be crossed off?</summary>
#
# No: <em>not seen</em> is not <em>no</em>. A table of classes or a registry leaves no trace in the text. Log the reads of some training steps:
# the run shows whether the line is reached in a forward and in a recomputation.
# </details>
#
# <details><summary>From lesson 07: an evaluation agrees with itself under deterministic algorithms. Is its number free of rounding?</summary>
#
# No. On this machine, with this build, it is a function of weights and inputs. A branch on a last bit is still there: other kernels may give
# another number. Nudge the value that is asked about by a few ulps, and see whether the number moves.
# </details>
#
# **Not shown**: several processes (a block that is used twice, under data-parallel training and reentrant, marks its gradients ready twice),
# compiled segments, pipelines that run forward and backward in different threads, GPUs.
#
# ## References
#
# - PyTorch documentation: `torch.utils.checkpoint` (the list of differences between the implementations; `debug`, `early_stop`, `context_fn`).
# - PyTorch documentation: `torch.autograd.graph.saved_tensors_hooks`; *Extending PyTorch* (`save_for_backward`, what belongs on `ctx`).
# - T. Chen, B. Xu, C. Zhang, C. Guestrin, "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174, 2016.
# - A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", *IEEE TSE* 28(2), 2002: leave out what is not needed.
