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

print("python", platform.python_version(), "| torch", torch.__version__, end=" | ")
print("numpy", numpy.__version__)
print("threads", torch.get_num_threads(), "| CUDA", torch.cuda.is_available())

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
# The specimen: residual layers, each multiplied by a mask of its own before a tanh. The mask is drawn from torch's default generator,
# as `nn.Dropout` draws it. Both implementations replay that generator by default; `preserve_rng_state=False` switches it off, as
# people do who have read that it saves time.
#
# **Predict.** Which of the two implementations notices?

# %%
print(inspect.getsource(MaskedLayers.forward))
streams.seed_everything(0)
segment, x = MaskedLayers(TorchDefault(p=0.5)), streams.rows()
for strategy in streams.TORCHS:
    result = divergence(segment, x, strategy=strategy)
    wrong = f"{result.outcome}, off by {result.worst:.1f} times their size"
    print(f"{strategy.name:<40} gradients {'equal' if result.equal else wrong}")

both = passes(segment, x, strategy=streams.NON_REENTRANT_LOST)
first, second = ([(t.operator, t.shape) for t in p] for p in (both.forward, both.recomputation))
print("both passes save the same number, operators and shapes:", first == second)
masks = dropout.masks("lost")
show(draw.two_masks(*masks), "The passes keep different units: half of the places differ.")

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
from recompute_lab.views.replays import replays

table = streams.replays()
show(replays(table), "By default torch replays its own default generator, and no other stream.")
for stream, row in table.items():
    told = [name for name in ("non-reentrant", "own, every stream") if row[name]]
    print(f"{stream:<18} replayed by {' and by '.join(told) or 'nobody who is not told'}")

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
    for generator, state in zip(generators, states[3], strict=True):
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
        raise RuntimeError(f"{len(saved)} tensors or other ones than {len(recomputed)}")
    ### END SOLUTION


check.both_ways(compare)

# %% [markdown]
# That is all there is to it. The course's own checkpoint is these four stages, and what a real one needs besides: arguments of any
# structure, nesting, autocast, backward in parts. The heart of it is the function printed below.
#
# **Predict.** What does replaying cost, per segment: how many bytes are kept, and how much longer does a step take?

# %% tags=["nbval-ignore-output"]
from recompute_lab.instruments.timing import seconds

for width in (16, 256):
    layers, rows = MaskedLayers(TorchDefault(), width=width), streams.rows(width, width)

    def step(stage, layers=layers, rows=rows):
        return lambda: stage(layers, rows).sum().backward()

    naive, one, every = seconds(*map(step, streams.STAGES), rounds=31)
    print(f"width {width}, time of a step against the naive one:", end=" ")
    print(f"torch's stream {one / naive:.2f}, every stream {every / naive:.2f}")

# %%
print(inspect.getsource(own_checkpoint.Frame.recompute))
print("bytes kept per segment: torch", torch.get_rng_state().numel(), end=", ")
print("NumPy", np.random.get_state()[1].nbytes, end=", ")
print("Python", len(random.getstate()[1]), "numbers")
result = divergence(segment, x, strategy=own_checkpoint.OWN)
print("dropout under it equals the plain run, bit for bit:", result.equal)

# %% [markdown]
# torch's stream is five kilobytes and some microseconds per segment, whatever its size: that is what `preserve_rng_state=False` saves.
# All streams are some thirty kilobytes (each of Python's numbers is an object) and some tenths of a millisecond: visible for a tiny
# segment, lost in the arithmetic of a large one.
#
# **What is not a fix.** Two proposals are often heard. *"Seed once at the start of training":* the forward and the recomputation still draw one
# after the other from one stream. *"Switch dropout off in the recomputation":* then there is no second mask to disagree.
#
# **Predict** for each: right gradients?

# %%
torch.manual_seed(0)  # once, at the start
result = divergence(segment, x, strategy=streams.NON_REENTRANT_LOST)
print("seeded at the start:", result.outcome)
print("\nrelative gradient error of one step of a network, mean of 8 seeds, 2 layers, p = 0.3")
for treatment in ("replayed", "lost", "off"):
    errors = dropout.divergences(0.3, 2, treatment, depth=2)
    print(f"  {treatment:<9} {sum(errors) / len(errors):.1f}")

# %% [markdown]
# Neither is. What is: the state captured at the segment's entry and put in place before its recomputation, which is what you have built.
#
# ## 4 · What a lost mask does on average
#
# Wrong in each step; but does it average out? Take the smallest case: one linear unit with squared loss, its inputs noisy, z = noisy(x)
# with mean x. Backward multiplies two things: the residual, which comes from the loss, and the noisy input, which was saved:
#
# gradient = 2/n Σ zᴮ (zᴬ·w − y)  with noise A in the forward, noise B in the recomputation.
#
# - *Replayed*, A = B: E[z zᵀ] = x xᵀ + the variance of z on the diagonal. Dropout's variance is p/(1−p) x². So the mean gradient is that of
#   least squares plus a **ridge penalty**, Σ rᵢ wᵢ² with rᵢ = p/(1−p) · mean of xᵢ².
# - *Lost*, A and B independent: the expectations multiply, E[zᴮ] · E[zᴬ·w − y].
#
# **Predict.** What is left of the penalty if the mask is lost? If dropout is off in the recomputation? And if the **loss stands inside the
# segment**, so that the residual, too, is computed again?

# %%
from recompute_lab.specimens.linear_dropout import expected_gradient, problem
from recompute_lab.specimens.noise import Dropout

case, noise = problem(), Dropout(0.3)
ridge, least_squares = (expected_gradient(case, noise, penalty) for penalty in (True, False))
draws = dropout.linear_gradients(case, noise)  # 20,000 steps each, through torch's checkpoint
compared = dropout.linear_comparisons(case, noise, draws)
for name, row in compared.items():
    on = [row.estimate.errors_from(f).abs().max() < 3.6 for f in (ridge, least_squares)]
    told = "ridge" * on[0] + "least squares" * on[1]
    print(f"{name:<18} agrees with: {told:<14} variance {row.estimate.variance:.1f}")
few = dropout.linear_comparisons(case, noise, {name: g[:1000] for name, g in draws.items()})
message = "A lost mask takes the penalty away; with the loss inside the segment it is back."
show(draw.expected_gradients(few, ridge, least_squares), message)

# %% [markdown]
# Two masks that know nothing of each other: the expectations multiply, and the penalty was the part that did not factor. A lost mask does
# not make dropout noisier, to speak of: it makes dropout **stop regularising, and keep the noise**. (3.6 standard errors are what chance
# allows the largest of 25 comparisons.)
#
# With the loss inside the segment nothing shows: residual and input come from one recomputation and have one mask, B. It is an ordinary
# dropout step; only the loss that was reported belongs to another mask. *Where the boundary is drawn decides.*
#
# ## 5 · More layers, larger p
#
# **Predict.** How does the error of one step grow with the number of layers that have dropout, and with p?

# %%
ps, layers = (0.05, 0.1, 0.3, 0.5), (1, 2, 4, 8, 16)
curves = {p: {k: dropout.divergences(p, k) for k in layers} for p in ps}  # 8 seeds each
message = "The error grows with both; at p = 0.05 and one layer it is already some percent."
show(draw.divergence_by_layers(curves), message)
means = {(p, k): sum(e) / len(e) for p, row in curves.items() for k, e in row.items()}
by_layers = all(means[p, 1] < means[p, 4] < means[p, 16] for p in ps)
by_p = all(means[0.05, k] < means[0.1, k] < means[0.5, k] for k in layers)
print(f"grows with the number of layers: {by_layers}; with p: {by_p}")

# %% [markdown]
# **A draw that decides the graph.** In *layer drop* (stochastic depth) a draw decides whether a whole layer runs. A lost draw then changes
# not a mask but the number of saved tensors.
#
# **Predict**, from lesson 03: the recomputation runs *fewer* layers than the forward; or *more*; or *as many*, but others. Which raise?

# %%
from recompute_lab.specimens.layer_drop import DroppedLayer

print(inspect.getsource(DroppedLayer.forward))
outcomes = dropout.layer_drop_outcomes(seeds=range(200))
for relation in ("the same", "fewer", "more", "others, as many"):
    found = {outcome: n for (r, outcome), n in outcomes.items() if r == relation}
    print(f"the recomputation runs {relation:<16} {dict(sorted(found.items()))}")

# %% [markdown]
# One direction raises, the other is silent: early stop again. (Where an extra layer comes after all that ran, it is cut off, and the
# gradients are right: *fine*.)
#
# ## 6 · Does it matter in training?
#
# A study, run beforehand (`make studies` repeats it: some minutes): a residual network on 300 digits, 400 steps, p of 0.1, 0.3 and 0.5, 2 and 8
# layers, **16 seeds**; without checkpointing, replayed, lost, and off. Its settings were fixed before the first run. Loss and accuracy are
# measured on 1,497 digits that were held out, with dropout off.
#
# **Predict.** Where do you expect to see damage: in the training loss, the held-out loss, the accuracy? At which p?

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
# Read it honestly. At p = 0.1 little but the logits shows, and of 18 intervals in a column about one excludes zero by chance.
# From p = 0.3 on the held-out loss is worse; the accuracy suffers at 0.5 only. The clearest sign, in all six settings, is one that nobody
# logs: **the logits grow**, as they do when a penalty on the weights is gone. And no run raised, diverged, or looked ill.
#
# ## 7 · Three claims, judged
#
# 1. *"Every step adds a mismatch term that does not average to a useful direction."*
# 2. *"Training is noisier, slower, or reaches a worse plateau."*
# 3. *"Switching dropout off in the recomputation biases the gradient in the opposite direction."*
#
# **Judge** before you run. Opposite to what?

# %%
from recompute_lab.instruments.directions import Direction, mean_cosine

gradients = dropout.network_gradients(p=0.3, trained=0)  # 128 draws, at the initial weights
base, lost, off = (gradients[name] for name in ("baseline", "lost", "off"))
useful = [mean_cosine(g, base) > 0.9 for g in (lost, off)]
print("1: mean gradient, cosine with the right one above 0.9; lost, off:", useful)
spread = [Direction.of(g, base).spread for g in (lost, off, base)]
print("2: noise below 1.3 x the right one's:", all(v < 1.3 * spread[2] for v in spread[:2]))
for step in (20, 70, 400):
    rows = study.differences("train_loss", ("lost", "off"), study.probes.index(step)).values()
    for way in ("lost", "off"):
        worse = sum(r[way].low > 0 for r in rows), sum(r[way].high < 0 for r in rows)
        print(f"   training loss at step {step:>3}, {way:<4}: (worse, better) in {worse} of 6")
print("3: biases of lost and off point one way:", mean_cosine(lost - base, off - base) > 0.9)
print("   opposite to the gradient (cosine below -0.9):", mean_cosine(off - base, base) < -0.9)

# %% [markdown]
# 1. **Half right.** The mismatch does not average to zero: it averages to minus the penalty. But what is left *is* a useful direction, that of
#    another objective (cosine above 0.9 with the right mean here).
# 2. **Partly.** Noisier: hardly. Slower: *lost*, for a while (step 70); *off* is even faster at first (step 20); at the end the training loss says
#    little (worse in 2 settings of 6, better in none). A worse plateau: in the held-out loss from p = 0.3 on, in the accuracy at 0.5 only.
# 3. **No.** *Lost* and *off* are biased in the same direction; neither is opposite to the gradient. Off differs in its spread: it is smaller.
#
# ## 8 · Try it
#
# (By keyboard: Tab to a list, Alt + ↓ opens it.)

# %%
from IPython.display import display
from recompute_lab.lessons.mask_panel import measure, panel
from recompute_lab.views.masks import masks_and_divergence, sentence

display(panel())
chosen = measure("a torch.Generator")
show(masks_and_divergence(chosen), sentence(chosen))

# %% [markdown]
# ## Exercises
#
# You have done the first four on the way. Hints: `hint.repair_generator()` in a cell of your own, and once more for the next one.
#
# **5.** This module owns a generator, so torch cannot replay it. Write a `mask` that gives fresh noise in every step and the same in both passes,
# under torch's defaults.

# %% tags=["solution"]
print(inspect.getsource(streams.Noisy))

def mask(self, shape):
    ### BEGIN SOLUTION
    return (torch.rand(shape) >= 0.5) * 2.0
    ### END SOLUTION


check.repair_generator(mask)

# %% [markdown]
# **6.** A second noise: each input is multiplied by a number from N(1, s²). Give the expected gradient (mean over samples of the squared error)
# with the noise replayed and with it lost; x is n × d.

# %% tags=["solution"]
def gaussian(x, y, w, s):
    ### BEGIN SOLUTION
    least_squares = 2 / len(y) * x.T @ (x @ w - y)
    return least_squares + 2 * s**2 * x.square().mean(0) * w, least_squares
    ### END SOLUTION


check.expected_gradients(gaussian)

# %% [markdown]
# **7.** Symptom and mechanism. Symptoms: "right", "silent", "count". Mechanisms: "replayed", "replay switched off", "a stream that nobody
# rewinds", "the draw decides the graph".

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
# size of the logits and in the held-out loss, hardly in the accuracy; with the loss inside the segment it would not show at all.
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
