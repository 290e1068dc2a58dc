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
# **Time** 90 minutes, a third of them for the four stages. **You need** PyTorch: modules, `backward`; a little linear algebra for
# section 4. The outputs are stored: to predict before you see, choose *Edit → Clear Outputs of All Cells* first. The sections build
# on each other: after a restart, go on with *Run → Run All Above Selected Cell*.
#
# **The words.** A *segment* is a part of the model that is checkpointed. Its *forward* throws away the *saved tensors* that backward
# would need; the *recomputation*, a second run of that forward during backward, brings them back. A *random stream* is what random
# numbers come from: torch's default generator, NumPy's, Python's, or a generator somebody made. To *replay* a stream is to take it
# back, for the recomputation, to where it stood at the segment's entry. Dropout multiplies by a *mask*: 0 with probability *p*, else
# 1/(1−p). A mask is *lost* if the recomputation draws another one. The *plain run*, or *baseline*, is the same step without
# checkpointing. **Reentrant** and **non-reentrant** (`use_reentrant=True`, `=False`) are torch's two implementations. What a step comes
# to, as in lesson 03: *fine*; *silent*, wrong gradients without an error; *count*, an error about the number of saved tensors.

# %% tags=["nbval-ignore-output"]
import platform

import numpy
import torch

from recompute_lab.instruments.device import device_name, lab_device

device = lab_device()  # the GPU where there is one
print("python", platform.python_version(), "| torch", torch.__version__, end=" | ")
print("numpy", numpy.__version__)
print("threads", torch.get_num_threads(), "| device", device_name(device))

# %%
import inspect
import itertools
import random
from contextlib import contextmanager
import numpy as np
from torch.autograd.graph import saved_tensors_hooks
from recompute_lab import divergence, passes
from recompute_lab.instruments import own_checkpoint
from recompute_lab.lessons import dropout, dropout_study, streams
from recompute_lab.lessons.streams import check, hint
from recompute_lab.specimens.draws import MaskedLayers, TorchDefault
from recompute_lab.views import dropout as draw
from recompute_lab.views.style import show

print("ready")

# %% [markdown]
# ## 1 · The silent mismatch
#
# The specimen: four residual layers, each with a mask of its own before its tanh. The masks are drawn from torch's default generator,
# as `nn.Dropout` draws them. Both implementations replay that generator by default; `preserve_rng_state=False` switches it off, as
# people do who have read that it saves time. (The masks are drawn on the CPU, also for layers on a GPU: so they are the same
# everywhere. Sections 4 to 8 compute thousands of tiny steps, on the CPU alone.)
#
# **Predict.** Replay is off. Which of the two implementations notices?

# %%
from recompute_lab.lessons.mask_panel import measure, panel
from recompute_lab.views.masks import masks_and_divergence, sentence

print(inspect.getsource(MaskedLayers.forward))
streams.seed_everything(0)
segment, x = MaskedLayers(TorchDefault(device=device)).to(device), streams.rows(device=device)
for strategy in streams.TORCHS:
    result = divergence(segment, x, strategy=strategy)
    wrong = f"{result.outcome}, off by {result.worst:.1f} times their size"
    print(f"{strategy.name:<40} gradients {'equal' if result.equal else wrong}")
both = passes(segment, x, strategy=streams.LOST)
first, second = ([(t.operator, t.shape) for t in p] for p in (both.forward, both.recomputation))
print("both passes save the same number, operators and shapes:", first == second)
without_replay = measure("torch's default", setting=False)
show(masks_and_divergence(without_replay), sentence(without_replay))

# %% [markdown]
# Neither does. Reentrant compares nothing; non-reentrant has, as lesson 03 showed, a check of number, shapes, dtypes and devices. These
# are equal: a mask has one shape, whatever it drops.
#
# ## 2 · Streams that nobody rewinds
#
# Five segments, equal but for where their masks come from: the default streams of torch, NumPy and Python, and two generators that the
# module made for itself. Four ways to checkpoint with torch; then the course's own checkpoint, which you will build in section 3. It
# replays nothing, or torch's stream, or every default stream; the last column is told of the module's generator as well.
#
# **Predict** torch's defaults, which replay (`preserve_rng_state=True`): for which of the five streams are the gradients right?

# %%
from recompute_lab.views.replays import replays

table = streams.replays(device)
show(replays(table), "By default torch replays its own default generator, and no other stream.")
for stream, row in table.items():
    told = [name for name in ("non-reentrant", "own, every stream") if row[name]]
    print(f"{stream:<18} replayed by {' and by '.join(told) or 'nobody who is not told'}")

# %% [markdown]
# `preserve_rng_state` promises torch's own default generators: that of the CPU, and those of the devices on which the segment's
# *positional arguments* live. A `torch.Generator` of your own, NumPy and Python's `random` are none of them. Nor is the generator of a GPU
# on which no such argument lives (a mask is made there, of arguments on the CPU; it takes a GPU to show that: `make gpu-check`
# does). All of it is silent, under both implementations, with default settings.
#
# A private generator is out of reach even for a checkpoint that tries: from outside, nobody can find all generators. It has to be told.
#
# ## 3 · Build one
#
# You now write a checkpoint. torch offers what it takes: under `saved_tensors_hooks(pack, unpack)`, autograd calls `pack(tensor)` for each
# tensor it wants to save and keeps what that returns; in backward it calls `unpack` with it and expects the tensor back.
#
# **Stage 1: naive.** `pack` keeps a number in the tensor's place: 0, 1, 2, ... Write `unpack`. When it is called first, it runs the segment
# again, under hooks of its own whose `pack` puts each tensor, detached, into the list `filled`, in the forward's order. Each call
# returns the tensor at its place. Mind: during backward gradients are switched off, and nothing is saved; `torch.enable_grad()`
# switches them on.

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
# **Stage 2: torch's stream.** `capture()` is called at the segment's entry and returns the stream's state. The second run takes place
# inside `with replay(state):` and must draw the forward's numbers. When it is over, also by an error, the stream must go on from where it
# stood before it. You need `torch.get_rng_state()` and `torch.set_rng_state(state)`; in `replay`, what stands before a `yield` is done
# on entering the `with`, what stands after it on leaving.

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
# **Stage 3: every stream**: torch's, Python's, NumPy's, and each `torch.Generator` in `generators`. `read` returns all their states, in a form
# that you choose; `write` is given what `read` returned, and sets them. A `replay` as in stage 2 is built around the two.

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
    for generator, state in zip(generators, states[3], strict=True):
        generator.set_state(state)
    ### END SOLUTION


check.every_stream((read, write))

# %% [markdown]
# **Stage 4: compare, both ways.** `saved` (the forward's) and `recomputed` are lists with one entry, (shape, dtype, device), for each tensor
# that the pass saved. Raise an error, of any kind, where they differ, whichever pass saved more.

# %% tags=["solution"]
def compare(saved, recomputed):
    ### BEGIN SOLUTION
    if saved != recomputed:
        raise RuntimeError(f"{len(saved)} tensors or other ones than {len(recomputed)}")
    ### END SOLUTION


check.both_ways(compare)

# %% [markdown]
# That is all there is to it. The course's own checkpoint is these four stages, and what a real one needs besides: arguments of any
# structure, nesting, autocast, backward in parts. Its heart is printed by the second cell below. Find your stages in it: a *slot* stands
# where yours has a number, `fill` collects, `rewound` replays, `compare` is stage 4.
#
# **Predict.** What does replaying cost, per segment: how many bytes are kept, and how much longer does a step take, for a small segment
# (width 16) and a larger one (width 256)?

# %% tags=["nbval-ignore-output"]
from recompute_lab.instruments.timing import seconds

for width in (16, 256):
    layers = MaskedLayers(TorchDefault(device=device), width=width).to(device)
    rows = streams.rows(width, width, device=device)

    def step(stage, layers=layers, rows=rows):
        return lambda: stage(layers, rows).sum().backward()

    # the fastest of 40 runs each, in microseconds: other work on the machine only ever adds
    fastest = seconds(*map(step, streams.STAGES), rounds=40, of=min)
    naive, one, every = (1e6 * time for time in fastest)
    print(f"width {width}: a naive step takes {naive:,.0f} µs;", end=" ")
    print(f"torch's stream {one - naive:+,.0f} µs, every stream {every - naive:+,.0f} µs")

# %%
from sys import getsizeof

print(inspect.getsource(own_checkpoint.Frame.recompute))
print("bytes kept per segment: torch", torch.get_rng_state().numel(), end=", ")
print("NumPy", np.random.get_state()[1].nbytes, end=", ")
print("Python about", round(sum(map(getsizeof, random.getstate()[1])), -4))
result = divergence(segment, x, strategy=own_checkpoint.OWN)
print("dropout under it equals the plain run, bit for bit:", result.equal)

# %% [markdown]
# The cost does not depend on the segment's size. torch's stream takes five kilobytes and little time, and that is all that
# `preserve_rng_state=False` saves on a CPU. Every stream costs more, in bytes (each of Python's numbers is an object) and in time. Next to
# a larger segment both are small, and the machine's own ups and downs may hide them: that is what a difference below zero means.
#
# **What is not a fix.** Two proposals are often heard. *"Seed once, at the start of training, and all is reproducible."* *"Switch dropout off
# in the recomputation: then there is no second mask to disagree."*
#
# **Predict** for each: right gradients?

# %%
torch.manual_seed(0)  # once, at the start
result = divergence(segment, x, strategy=streams.LOST)
print("seeded at the start:", result.outcome)
print("\nrelative gradient error of one step of a network, mean of 8 seeds, 2 layers, p = 0.3")
for treatment in ("replayed", "lost", "off"):
    errors = dropout.divergences(0.3, 2, treatment, depth=2)
    print(f"  {treatment:<9} {sum(errors) / len(errors):.1f}")

# %% [markdown]
# Neither is a fix. After one seed at the start, forward and recomputation still draw one after the other from the stream. With dropout
# off, the recomputation has a mask after all: one of ones, and the forward's was another. A fix is what you have built: the state captured
# at the segment's entry, and put in place before its recomputation. (Nor is a seed a promise across versions: seed 0 draws
# [another mask](versions.md) in older versions of torch.)
#
# ## 4 · What a lost mask does on average
#
# Wrong in each step; but does it average out? Take the smallest case: one linear unit, whose loss is the mean of (z·w − y)² over n samples.
# Its inputs are noisy: z is x after dropout, each element by itself. It is x/(1−p) with probability 1−p, else 0: so E[z] = x, E[z²] =
# x²/(1−p), and the variance is E[z²] − x² = p/(1−p) x². The unit is the segment, the loss stands behind it. Backward multiplies two things: the
# residual, which the loss kept from the forward, and the noisy input, which the unit saved and which is computed again:
#
# gradient = 2/n Σ zᴮ (zᴬ·w − y), a sum over the samples, with noise A in the forward and noise B in the recomputation.
#
# - *Replayed*, A = B: E[z (z·w − y)] = E[z zᵀ] w − x y. Off the diagonal E[zᵢ zⱼ] = xᵢ xⱼ; on it the variance is added to xᵢ². So the
#   mean gradient is that of least squares, 2/n Σ x (x·w − y), plus 2 rᵢ wᵢ, with rᵢ = p/(1−p) · mean of xᵢ² over the samples. That is
#   the gradient of a **ridge penalty**, Σ rᵢ wᵢ²: large weights cost.
# - *Lost*, A and B independent: the expectations multiply, E[zᴮ] · E[zᴬ·w − y].
#
# **Predict.** What is left of the penalty if the mask is lost? If dropout is off in the recomputation? And if the **loss stands inside the
# segment**, so that the residual, too, is computed again?

# %%
from recompute_lab.specimens.linear_dropout import expected_gradient, problem
from recompute_lab.specimens.noise import Dropout

case, noise = problem(), Dropout(0.3)
ways = {"ridge": True, "least squares": False}
formulas = {n: expected_gradient(case, noise, penalised) for n, penalised in ways.items()}
draws = dropout.linear_gradients(case, noise)  # 20,000 steps each, through torch's checkpoint
for name, row in dropout.linear_comparisons(case, noise, draws).items():
    near = [n for n, f in formulas.items() if row.estimate.errors_from(f).abs().max() < 3.6]
    variance = row.estimate.variance
    print(f"{name:<18} agrees with: {' and '.join(near):<14} variance {variance:.1f}")
few = {name: gradients[:1000] for name, gradients in draws.items()}  # so that bars show
few = dropout.linear_comparisons(case, noise, few)
message = "A lost mask takes the penalty away; with the loss inside the segment it is back."
show(draw.expected_gradients(few, *formulas.values()), message)

# %% [markdown]
# *Lost*: E[zᴮ] = x and E[zᴬ·w − y] = x·w − y, so least squares is all that is left. *Off*: zᴮ is x itself, and the same is left. The
# penalty came from one mask meeting itself. A lost mask hardly makes the gradient noisier (the variance, summed over the weights): it makes
# dropout **stop regularising, and keep the noise**. (Of 25 right comparisons the largest exceeds 3.6 standard errors by chance less than
# once in a hundred times.)
#
# With the loss inside the segment nothing shows: residual and input come from one recomputation and have one mask, B. It is an ordinary
# dropout step; only the loss that was reported belongs to another mask. *Where the boundary is drawn decides.*
#
# ## 5 · More layers, larger p
#
# A network of 16 residual layers, each a segment of its own; some of them have dropout, and their masks are lost. The error of one step
# at its initial weights is |g − b| / |b|: b is the gradient of the plain run, g the one with lost masks.
#
# **Predict.** How does it grow with the number of layers that have dropout, and with p? (Marks: means of 8 seeds. Bars: from the smallest to
# the largest.)

# %%
ps, layers = (0.05, 0.1, 0.3, 0.5), (1, 2, 4, 8, 16)
curves = {p: {k: dropout.divergences(p, k) for k in layers} for p in ps}  # 8 seeds each
message = "The error grows with both; at p = 0.05 and one layer it is almost a tenth."
show(draw.divergence_by_layers(curves), message)
means = {(p, k): sum(e) / len(e) for p, row in curves.items() for k, e in row.items()}
by_layers = all(means[p, 1] < means[p, 4] < means[p, 16] for p in ps)
by_p = all(means[0.05, k] < means[0.1, k] < means[0.5, k] for k in layers)
print(f"grows with the number of layers: {by_layers}; with p: {by_p}")

# %% [markdown]
# Even at p = 0.05 two masks differ at 2p(1−p) of the places, almost one in ten. Over the layers the errors add up, but more slowly than
# their number: with 16 layers instead of one, the error is three to five times as large. (Independent errors would add up to four times.)
#
# **A draw that decides the graph.** In *layer drop* (stochastic depth) a draw decides whether a whole layer runs. A lost draw then changes
# not a mask but the number of saved tensors.
#
# **Predict**, from lesson 03: the recomputation runs *fewer* layers than the forward; or *more*; or *as many*, but others. Which raise
# under `use_reentrant=False`? (200 steps of eight such layers in one segment, replay off.)

# %%
from recompute_lab.specimens.layer_drop import DroppedLayer

print(inspect.getsource(DroppedLayer.forward))
outcomes = dropout.layer_drop_outcomes(seeds=range(200))
for relation in ("the same", "fewer", "more", "others, as many"):
    found = {outcome: n for (r, outcome), n in outcomes.items() if r == relation}
    print(f"the recomputation runs {relation:<16} {dict(sorted(found.items()))}")

# %% [markdown]
# One direction raises, the other is silent: *early stop* leaves the recomputation as soon as it has as many tensors as the forward saved.
# As many layers, but others, save tensors of the same shapes: silent, too. (*Fine* is luck: the same layers were drawn, or the extra ones
# come behind all that ran in the forward and are cut off.)
#
# ## 6 · Does it matter in training?
#
# A study, run beforehand (`make studies` repeats it: some minutes): a residual network on 300 digits, 400 steps, p of 0.1, 0.3 and 0.5, 2 and 8
# layers, all with dropout, each a segment; **16 seeds**; *baseline*, *replayed*, *lost*, *off*, and *lost* with the loss inside. Its
# settings were fixed before the first run. Held-out loss and accuracy are those of 1,497 other digits, with dropout off. The *scale of the
# logits* is their standard deviation there.
#
# **Predict.** Where do you expect to see damage: in the held-out loss, the accuracy, the scale of the logits? At which p?
#
# The first figure has the course of the runs. The second has the differences to the baseline at step 400, seed by seed: their mean and its 95%
# confidence interval.

# %%
study = dropout_study.load()
curves = {
    f"p = {p}": {
        f"{depth} layers": {
            way: study.curve(p, depth, way, "test_loss")
            for way in ("replayed", "baseline", "lost", "off")
        }
        for depth in (2, 8)
    }
    for p in (0.1, 0.3, 0.5)
}
message = "Replayed runs are the baseline's; lost and off part from it, more as p grows."
show(draw.training_curves(study.probes, curves, "held-out loss"), message)
print("replayed equals the baseline in every stored digit:", study.same("replayed", "baseline"))

# %%
ways = ("lost", "off", "lost, loss inside")
final = {
    "held-out loss": study.differences("test_loss", ways),
    "held-out accuracy": study.differences("test_accuracy", ways),
    "scale of logits": study.differences("logit_scale", ways),
}
message = "Held-out loss: worse with p. Accuracy: at p = 0.5 only. Logits: larger always."
show(draw.paired_differences(final), message)
for title, rows in final.items():
    clear = {way: sum(row[way].excludes_zero for row in rows.values()) for way in ways}
    print(f"{title:<18} interval excludes zero, of {len(rows)}: {clear}")

# %% [markdown]
# Read it honestly. At p = 0.1 little but the logits shows. Where nothing is wrong, of 18 such intervals about one excludes zero by chance;
# *loss inside* has one. From p = 0.3 on the held-out loss is worse; the accuracy suffers at 0.5 only, by about one percent. The clearest
# sign, in all six settings, is one that hardly anybody logs: **the logits are larger**, as one expects when a penalty on the weights is
# gone. And no run raised or diverged: the curves of *lost* look like a little overfitting.
#
# ## 7 · Three claims, judged
#
# 1. *"Every step adds a mismatch term that does not average to a useful direction."*
# 2. *"Training is noisier, slower, or reaches a worse plateau."*
# 3. *"Switching dropout off in the recomputation biases the gradient in the opposite direction."*
#
# **Judge** before you run. Opposite to what? (Gradients: the initial network, 2 layers, p = 0.3. *Bias*: the mean gradient minus the right one's
# mean. *Noise*: how far single gradients stray from their mean. Training loss: on the 300 digits, dropout off; *worse* or *better* where
# the 95% interval of the difference to the baseline excludes zero.)

# %%
from recompute_lab.instruments.directions import Direction, mean_cosine

gradients = dropout.network_gradients(p=0.3, trained=0)  # 128 draws, at the initial weights
base, lost, off = (gradients[name] for name in ("baseline", "lost", "off"))
useful = all(mean_cosine(g, base) > 0.9 for g in (lost, off))
print("1: mean gradients, lost and off: cosine with the right one above 0.9:", useful)
noisy, less, right = (Direction.of(g, base).spread for g in (lost, off, base))
print(f"2: noise, against the right one's: lost {noisy / right:.1f}, off {less / right:.1f}")
for step in (20, 70, 400):
    rows = study.differences("train_loss", ("lost", "off"), study.probes.index(step)).values()
    for way in ("lost", "off"):
        worse = sum(r[way].low > 0 for r in rows), sum(r[way].high < 0 for r in rows)
        print(f"   training loss at step {step:>3}, {way:<4}: (worse, better) in {worse} of 6")
print("3: biases of lost and off point one way:", mean_cosine(lost - base, off - base) > 0.9)
print("   opposite to the gradient (cosine below -0.9):", mean_cosine(off - base, base) < -0.9)

# %% [markdown]
# 1. **Half right.** The mismatch, wrong minus right gradient, does not average to zero: in the linear unit it averages to minus the
#    penalty's gradient. But with it the step still *is* useful: it descends another objective (cosine above 0.9 with the right mean here).
# 2. **Partly.** Noisier: no, and *off* is quieter. Slower: *lost*, for a while (step 70); *off* is even faster at first (step 20); at step 400 it is
#    still worse in two settings of six, better in none. A worse plateau: in the held-out loss from p = 0.3 on, in the accuracy at 0.5 only.
# 3. **No.** *Lost* and *off* are biased in the same direction, and that is not opposite to the gradient. They differ in their noise.
#
# ## 8 · Try it
#
# The panel starts with a generator that torch does not replay. Which setting replays it? For NumPy's default stream, which is the first
# stage that does? At which p is nothing lost, with no replay at all? (By keyboard: Tab to a list, Alt + ↓ opens it.)

# %%
from IPython.display import display

display(panel())
chosen = measure("a torch.Generator")
show(masks_and_divergence(chosen), sentence(chosen))

# %% [markdown]
# ## Exercises
#
# You have done the first four on the way: the stages. Hints: `hint.repair_generator()` in a cell of your own, and again for the next hint.
#
# **5.** This module owns a generator, and torch does not replay that. Write another `mask` for it: with fresh noise in every step and the same
# noise in both passes, under torch's defaults.

# %% tags=["solution"]
print(inspect.getsource(streams.Noisy))

def mask(self, shape):
    ### BEGIN SOLUTION
    return (torch.rand(shape) >= 0.5) * 2.0
    ### END SOLUTION


check.repair_generator(mask)

# %% [markdown]
# **6.** Another noise in the linear unit of section 4: each input is multiplied by a number of its own from N(1, s²). Return two expected
# gradients, as a pair: with the noise replayed, and with it lost. x is n × d, y has n targets, w has d weights; no sampling is needed.

# %% tags=["solution"]
def gaussian(x, y, w, s):
    ### BEGIN SOLUTION
    least_squares = 2 / len(y) * x.T @ (x @ w - y)
    return least_squares + 2 * s**2 * x.square().mean(0) * w, least_squares
    ### END SOLUTION


check.expected_gradients(gaussian)

# %% [markdown]
# **7.** Four cases, which the cell prints. Give for each what is seen and why: (symptom, mechanism). Symptoms: "right", "silent", "count" (an error
# about the number of saved tensors). Mechanisms: "replayed", "replay switched off", "a stream that nobody rewinds", "the draw decides
# the graph".

# %% tags=["solution"]
for name, (told, *_) in streams.CASES.items():
    print(f"{name}: {told}")
diagnosis = {
    ### BEGIN SOLUTION
    "A": ("right", "replayed"),
    "B": ("silent", "replay switched off"),
    "C": ("silent", "a stream that nobody rewinds"),
    "D": ("count", "the draw decides the graph"),
    ### STUB
    # "A": (..., ...),
    # "B": (..., ...),
    # "C": (..., ...),
    # "D": (..., ...),
    ### END SOLUTION
}
check.diagnose(diagnosis)

# %% [markdown]
# ## Recap
#
# Answer aloud, then open.
#
# <details><summary>Why does checkpointing around a stochastic layer corrupt training, and what keeps it from doing so?</summary>
#
# The loss comes from one mask, the saved tensors from another: gradients of no step that was taken. Both implementations replay torch's own
# default generators; a stream of any other kind is nobody's, unless you restore its state before the recomputation.
# </details>
#
# <details><summary>The mask is lost in every step, yet the run learns. What is missing?</summary>
#
# On average, the penalty: dropout's regularising effect. What remains is the gradient of the loss without it, with the noise. It shows in the
# size of the logits and in the held-out loss, in the accuracy only at p = 0.5; with the loss inside the segment it does not show at all.
# </details>
#
# <details><summary>From lesson 03: a lost draw makes the recomputation run one layer more. What does torch say?</summary>
#
# Nothing, with early stop on: it leaves the recomputation at the forward's count. One layer fewer raises.
# </details>
#
# ## References
#
# - PyTorch documentation: `torch.utils.checkpoint` (`preserve_rng_state`); `torch.autograd.graph.saved_tensors_hooks`.
# - N. Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", *JMLR* 15, 2014: section 9.1, the penalty.
# - S. Wager, S. Wang, P. Liang, "Dropout Training as Adaptive Regularization", *NeurIPS* 2013.
# - G. Huang et al., "Deep Networks with Stochastic Depth", *ECCV* 2016.
