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
# # 06 · Audit your source
#
# The line that killed the run of lesson 01 was an `if`. Somewhere in your own source there are more: which of them can do it?
# In this lesson you search a small code base in three ways (a grep, an audit that reads Python, a run), see what each of them
# walks past, sort what was found by five questions, and repair it without changing a bit.
#
# **You will be able to**
# - say which forms of a branch on a tensor's value a text search finds, and which only a reading of the syntax, or a run;
# - triage a list of findings in the order that matters, and defend what you leave as it is;
# - replace each kind by an operation without a decision, and prove that no bit of the result or of a gradient has changed.
#
# **Time** 30 minutes, and 30 for the exercises. **You need** lesson 01 (the guard and its repair), or the words below.
# The outputs are stored: to predict before you see, choose *Edit → Clear Outputs of All Cells* first. The sections build on
# each other: after a restart, go on with *Run → Run All Above Selected Cell*.
#
# **The words.** A *segment* is a part of the model that is checkpointed: its *forward* throws away what backward needs, and
# the *recomputation*, a second run of that forward during backward, brings it back. The *saved tensors* are what operators
# keep for backward; both runs must save the same ones. A *site* is a place where a tensor's value is *read* into Python and
# decides something there. A *guard*, in an audit, is the condition that is settled before any tensor is read: `config.clip
# and x.max() > 1` has one.

# %% tags=["nbval-ignore-output"]
import platform

import torch

print("python", platform.python_version(), "| torch", torch.__version__)
print("threads", torch.get_num_threads(), "| device cpu: this lesson reads source")

# %%
import inspect
import textwrap
from pathlib import Path
from recompute_lab import audit
from recompute_lab.instruments.audit import CANNOT_SEE
from recompute_lab.lessons import audit_source as lesson
from recompute_lab.lessons.audit_exercises import check, hint
from recompute_lab.specimens import mended_project as mended, twelve_hits
from recompute_lab.specimens.small_project import Config, Trainer, blocks, caps, experts, mixing
from recompute_lab.views import audit as draw
from recompute_lab.views.style import show

print("ready")

# %% [markdown]
# ## 1 · A small project
#
# Eleven files, a classifier of token rows: blocks that mix the places, a router that sends each row to an expert, a norm cap,
# a guard for float16, metrics, a training loop. Each block is checkpointed. It is written as people write.

# %%
for file in sorted(lesson.PROJECT.glob("*.py")):
    lines = file.read_text(encoding="utf-8").splitlines()
    print(f"{file.name:<13} {len(lines):>3} lines  {lines[0].strip(chr(34))}")
print()
print(inspect.getsource(blocks.Block.forward))
trainer = Trainer()
print(trainer.config.described(), "|", trainer.run(20))

# %% [markdown]
# ## 2 · The grep
#
# The cheapest search, from lesson 00: lines with `if` and, later, one of seven methods with empty parentheses, directly
# followed by a colon. The project has 18 sites, counted by reading it.
#
# **Predict.** How many of the 18 does the grep return? And how many lines that are none?

# %%
searched = lesson.searched()
print(searched.hits, end="\n\n")
sites = {site.place for site in lesson.SITES}
by_grep = len(searched.by_grep & sites)
print(f"sites: {by_grep} of {len(sites)}; no sites: {len(searched.others)}")

# %% [markdown]
# Four of eighteen; and five of its nine hits are none: a comment, a docstring, a NumPy array, a configuration's own `any()`,
# the `mean()` of a class of one's own. The last three cannot be told from the line alone: who reads `if (lengths ==
# 0).any():` has to know what `lengths` is.
#
# ## 3 · The audit
#
# `recompute_lab.audit` parses each file and follows values: what a tensor's method or function returns, through assignments,
# attributes, helpers and keywords, to where Python decides by it. It imports nothing and runs nothing.
#
# **Predict.** Which of the 18 does it miss? Think of what can be known from the text of *one file at a time*.

# %%
message = f"The grep sees {by_grep} of 18, the audit {len(searched.by_audit)}."
show(draw.sightings(lesson.forms(searched), ("grep", "audit")), message)
false = searched.by_audit - sites
print("reported by the audit, and no site:", len(false))
missed = [site.form for site in lesson.SITES if site.place not in searched.by_audit]
print("missed by it:", *missed, sep="\n  ")

# %% [markdown]
# The audit has walked past all that should stay quiet: the grep's five, and shapes (`x.shape[1] < parts`), the truth of lists
# (`if self.counts`), `len(np.unique(labels))`. What it misses is what it says that it misses; the list stands below every
# result, in full:

# %%
for line in CANNOT_SEE:
    print(textwrap.fill(f"- {line}", 96, subsequent_indent="  "))
print()
for where in ("mixing.py:34", "blocks.py:30"):
    print(lesson.shown(lesson.finding(searched.audited, where)), end="\n\n")

# %% [markdown]
# **One finding, part by part.** The *place*, and the rule. What was *read*, where, and what it *decides*. Whether it stands
# *inside a checkpoint*: directly (its function is given to one), through a parent (something that calls it is), or not seen.
# The *guard*, if any: here a switch of the configuration. And *instead*: an operation to write, with a warning where one is
# due.
#
# ## 4 · Triage
#
# Sixteen findings are not sixteen repairs. Ask in this order, since each answer makes the next question shorter:
#
# 1. **Is its function ever inside a checkpoint?** What runs once cannot differ from itself. The audit's answers are
#    *directly*, *through a parent* and *not seen*, never *no*: a registry, a hook or a trainer's configuration leave no trace
#    in the text. A run can add to it.
# 2. **Is it settled before any tensor is read?** A guard that is off today puts a site to sleep.
# 3. **What does it decide?** *graph*: which operations run, hence what is saved; *shape*: how large that is. Then *raise*
#    (an exception), *state* (what is kept in an attribute), *telemetry* (what is logged): less, in that order.
# 4. **Which operation, done always, is the identity where the condition is false?** That is the repair.
# 5. **Dormant is not fixed.** Who turns the switch on a year from now will not read this list. It comes next, not never.
#
# **Predict.** How many of the sixteen are left after question 1, 2, 3?

# %%
seen = lesson.observed(steps=3)
stages = lesson.stages(searched, seen)
message = f"Of {stages[0].left} lines, {stages[-1].left} decide, today, what is saved."
show(draw.narrowing(stages), message)
left = lesson.triage(searched.audited, seen)[-1].left
print(textwrap.fill(f"repair first: {', '.join(map(lesson.short, left))}", 96))
shown = [one.checkpoint != "not seen" for one in lesson.branches(searched.audited)]
print("inside a checkpoint, as far as the text shows:", sum(shown))
cap = lesson.finding(searched.audited, "caps.py:26")
print(f"caps.py:26, audit: {cap.checkpoint};", end=" ")
print("three steps:", "inside" if seen["caps.py:26"].in_a_checkpoint else "outside")

# %% [markdown]
# `caps.py:26` is the guard of lesson 01. The block takes its cap out of a table, `CAPS[config.cap]`, so that no text shows
# who calls it: *not seen*. Three training steps, in which every read was logged, show it inside a forward and inside a
# recomputation. Had *not seen* been taken for *no*, the one site that is known to kill runs would have been the first to be
# crossed off.
#
# ## 5 · Repairs, one of each kind
#
# **Graph: an operation that is the identity.** Lesson 01's repair of the cap; and for the padding, filling by an empty mask.
#
# **Predict.** Forty inputs, on both sides of the condition. Is every output equal, bit for bit? And every gradient? How many
# numbers of saved tensors are there before, and after?

# %%
for kind in (caps.NormCap, mended.AlwaysCapped):
    print(f"{kind.__name__}:\n{inspect.getsource(kind.forward)}")
many = lesson.activations()
updates = zip(lesson.activations(scales=(0.05, 1.0)), many, strict=True)
both = lesson.twins(caps.NormCap, mended.AlwaysCapped, Config())
print("cap:", lesson.compared(*both, updates))
padded = zip(many, lesson.paddings(), strict=True)
print("padding:", lesson.compared(*lesson.spreads(), padded))

# %% [markdown]
# **Graph: both arms, and `torch.where`.** The ternary of `mixing.py` divides by a standard deviation where that is not zero.
# The audit says: `torch.where`, and *where an arm that is not chosen may be inf or NaN, make its argument safe first*.
#
# **Predict.** Every second input consists of zeros. Three versions: the ternary, `torch.where` alone, and with a safe
# argument. In which are the outputs right, in which the gradients?

# %%
for version in (mixing.standardised, mended.poisoned, mended.standardised):
    print(f"{version.__module__.split('.')[-1]}.{version.__name__}:")
    print(inspect.getsource(version).split('"""')[2].strip("\n"))
zeros = [(x,) for x in lesson.activations(scales=(1.0, 0.0))]
print()
for name in ("poisoned", "standardised"):
    print(f"{name}: {lesson.compared(mixing.standardised, getattr(mended, name), zeros)}")
x = torch.zeros(2, 3, requires_grad=True)
mended.poisoned(x).sum().backward()
print("gradient of where alone, for zeros:", x.grad.flatten().tolist()[:3])
bends = [(x,) for x in lesson.activations(scales=(0.05, 0.15, 1.0))]
print("bends:", lesson.compared(lambda x: blocks.Block.bent(None, x), mended.every_bend, bends))

# %% [markdown]
# `torch.where` chooses among *results*. Backward goes through both arms, and multiplies the gradient of the one that was not
# chosen by zero: 0 · ∞ is NaN. The outputs of all forty are right, so that no test of outputs notices; twenty gradients are
# NaN. Making the argument safe *before* the operation leaves nothing to poison. (And x / 1.0 is x, so that here the outer
# `where` is not needed.) The
# table of three functions, `BENDS`, is the same with one arm more: `every_bend` computes all three.
#
# **Rounds, an index, an exception, a write.** The router's loop runs over the experts that were hit; it looks layers up by a
# number that was read; it raises where scores are NaN; it counts. Repaired: a loop over *all* experts, an index by the loop's
# own number, an assertion that is an operator, a count in the forward alone (`recomputing()`, lesson 05).
#
# **Predict.** An expert without rows computes on a tensor of zero rows. Does that change a gradient? And what does the audit
# say afterwards?

# %%
print(inspect.getsource(mended.EveryExpert).split('"""')[2].strip("\n"), end="\n\n")
modules = lesson.twins(experts.Experts, mended.EveryExpert, Config())
print("experts:", lesson.compared(*modules, [(x,) for x in many]))
quiet, sizes = audit(mended.__file__), audit(mended.__file__, sizes=True)
print("the audit of the repaired file, branches:", len(lesson.branches(quiet)))
print("with sizes=True:", *(one.source for one in lesson.branches(sizes)), sep="\n  ")

# %% [markdown]
# Equal in every bit, and always 23 saved tensors. (Another repair is often recommended: every expert for every row, weighed
# with zero. Its gradients are equal up to rounding only, since they are added up over other rows.)
#
# **A quiet audit is not the end.** `choice` is still decided by values, and what is selected by it has a size that depends on
# them: `sizes=True` lists that. So let the route itself flip, by sixteen units in the last place of the input: in the forward
# all rows go to the first expert, in the recomputation all go to the second.
#
# **Predict.** Original, repaired, and a third version that is *given* the choice, made between segments, where it is made
# once. Who raises, who is silent?

# %%
for kind in (experts.Experts, mended.EveryExpert, mended.ChoiceFromOutside):
    result = lesson.flipped_route(kind)
    said = {"silent": "silent, gradients wrong", "metadata": "raises: a shape differs"}
    print(f"{kind.__name__:<18} {(said | {'fine': 'right'})[result.outcome]}")
print(inspect.getsource(mended.ChoiceFromOutside.forward))

# %% [markdown]
# The original is silent: one expert is hit in both passes, by equally many rows. The repaired one raises, as its shapes give
# the flip away; louder is better, but not right. A decision that cannot be made harmless has to be made once. (Its weight
# goes by the choice, too: `amax` would choose anew, and the third version would be as silent as the first.)
#
# ### All of it, in the project
#
# Cap, padding, ternary, table and router are replaced, six of the eight, and the project trains for five steps. The
# router's log is left out, since the load tells the same; the cap's count is, since nobody reads it. The other two of the
# eight, and the float16 guard that sleeps, are left to you: exercise 3. The early exit sleeps on, and what is outside of every
# checkpoint stays. Two sites inside of it stay as well, since the audit has not found them: section 6.
#
# **Predict.** Are losses and weights the original's, bit for bit? Each block's router counted its rows, eight a step: how
# many after five?

# %%
original, plain = lesson.trained(), lesson.trained(checkpointed=False)
with lesson.repaired_project():
    repaired = lesson.trained()
print("losses and weights equal in every bit:", repaired.same_as(original))
for name, run in {"plain": plain, "checkpointed": original, "repaired": repaired}.items():
    print(f"rows counted, {name + ':':<14}{run.loads}")
writes = [one for one in searched.audited.findings if one.rule == "lasting-write"]
print("\nlasting writes that the audit finds:")
for one in writes:
    print(f"  {lesson.short(one):<14} {one.source}")
    print(textwrap.indent(textwrap.fill(one.suggestion, 80), " " * 6))

# %% [markdown]
# **The second rule.** A *lasting write* is what a forward leaves behind (lesson 05): here two counts, each of them doubled by
# a checkpoint, and an attribute that the second pass sets again, to the same value as long as its input is the same. None
# could have been found by comparing losses: they are equal in every bit. The audit sees the write; whether it differs
# between the passes, a run says: `examine(segment, *args)`. A write behind `if not recomputing()` is left out: it is mended.
#
# ## 6 · Reading and running
#
# The same code once more, three training steps and an evaluation, with a log of every value that Python read from a tensor:
# the witness's own log (lesson 08), around every forward and every recomputation.
#
# **Predict.** Which of the 18 does the run not see? Name three different reasons.

# %%
rows = lesson.static_and_dynamic(searched, seen)
columns = ("audit: a checkpoint?", "run: what was read")
show(draw.sightings(rows, columns), "Neither sees all; together they see all eighteen.")
by_audit, by_run = ({row.name for row in rows if row.cells[n][0]} for n in (0, 1))
print("both:", len(by_audit & by_run), "| audit only:", len(by_audit - by_run), end=" | ")
print("run only:", len(by_run - by_audit), "| neither:", len(rows) - len(by_audit | by_run))
print("read, and nothing decided by it:", *lesson.undecided(seen))

# %% [markdown]
# - *Only the audit*: what did not happen. A guard that is off (the early exit; float16), code that was not called (`recall`,
#   `same_weights`). And the loop over `nonzero()`, where no value is read, only a size. **Always True** is a milder form: the
#   other arm is in the text, and no input took it.
# - *Only the run*: what one file does not show. A helper in another file, and there, too, `int()` of an argument that nobody
#   typed.
# - What the run *cannot* tell is what a read is for: two lines read a number and decide nothing (a metric, the loss for a
#   list).
# - *In forward only*: behind the last saved tensor. Early stop leaves the recomputation before it gets there.
#
# So: audit first, it costs seconds and needs no data. Then ride along (`Witness`) for some steps, with the switches as you
# train. Where the two disagree, look.
#
# ## 7 · Your own source
#
# Put a file, a notebook or a folder of yours there. In a terminal it is `recompute-lab audit PATH`, whose exit code is 1
# where something is found; `--format github` annotates a pull request, `--checkpointed-only` leaves out what is not seen
# inside a checkpoint. What you decide to keep, keep with its reason: `# recompute-lab: ignore[tensor-branch] outside of every
# checkpoint`.

# %%
MY_SOURCE = lesson.PROJECT  # or a path of yours, such as "~/my_project/src"

print(lesson.report(MY_SOURCE))

# %% [markdown]
# **On real code.** In the package transformers 5.24.0 (2,912 files, 1.2 million lines) the grep has 104 hits. The audit
# reports 1,492 branches, 94 of the 104 among them; of the other ten six are NumPy arrays, two are settled by shapes, and
# two are masks whose kind nothing in their file shows. 187 of the 1,492 are seen inside a checkpoint, directly or
# through a parent; of these 158 decide the graph with no guard before them. (Half a minute, on two cores.)
#
# How much does it miss there? One person read 110 files of transformers and torch whole, without having seen an audit, and
# wrote down each branch that a tensor's value decides (`tests/audit/labels`, with the rules). The audit was developed on the
# first 52; the other 58 were held out, chosen by a rule. In the held-out *model* files it finds 41 of 47 branches, and 2 of
# its reports are false; the grep finds 4 of 47, and none of its hits is false. In *all* held-out files, with optimisers,
# losses and generation, it finds 62 of 75 (the grep 5): numbers that travel through many functions are missed more often.
# `tests/test_audit_labels.py` counts that. One reader's labels are one reader's judgement; doubtful cases count neither way.
#
# ## Exercises
#
# **1. Triage.** Twelve lines of a file, reported by the grep or by the audit. Say for each: is it `"inside"` a checkpoint or
# `"not seen"` there, by reading; with `Options()` and float32, is it `"armed"` or `"dormant"`; does it decide `"graph"`,
# `"raise"`, `"state"`, `"telemetry"` or `"nothing"`; and what to do: `"repair"`, `"move"` (out of the segment, or into an
# operator), `"keep"`. Hints: `hint.triage()`.

# %%
print(Path(twelve_hits.__file__).read_text(encoding="utf-8").partition("\n\n\n")[2])

# %% tags=["solution"]
answer = {
    ### BEGIN SOLUTION
    "A": ("inside", "armed", "graph", "repair"),
    "B": ("not seen", "armed", "nothing", "keep"),
    "C": ("inside", "armed", "raise", "move"),
    "D": ("inside", "armed", "graph", "repair"),
    "E": ("inside", "armed", "state", "move"),
    "F": ("inside", "armed", "telemetry", "keep"),
    "G": ("inside", "dormant", "graph", "repair"),
    "H": ("not seen", "armed", "nothing", "keep"),
    "I": ("inside", "armed", "graph", "repair"),
    "J": ("inside", "armed", "graph", "repair"),
    "K": ("not seen", "armed", "raise", "keep"),
    "L": ("not seen", "armed", "graph", "keep"),
    ### STUB
    # **dict.fromkeys("ABCDEFGHIJKL", (..., ..., ..., ...)),
    ### END SOLUTION
}
check.triage(answer)

# %% [markdown]
# **2. Walk past.** Write the source of a function `segment(x)`, x [8, 16], in which a value of x decides which operations
# run. First in a form that the grep does not find and the audit does; then in one that neither of them finds. Write in the
# idiom of your own code. The text stands behind `import torch`; the check searches it, and runs it for several kinds of
# input.

# %% tags=["solution"]
walks_past_the_grep = (
    ### BEGIN SOLUTION
    """
    def segment(x):
        largest = x.abs().max().item()
        return x.tanh() if largest > 1.0 else x.sin()
    """
    ### END SOLUTION
)
check.walked_past(walks_past_the_grep)

# %% tags=["solution"]
walks_past_both = (
    ### BEGIN SOLUTION
    """
    ARMS = {"True": torch.tanh, "False": torch.sin}

    def segment(x):
        return ARMS[str((x.max() > 1.0).item())](x)
    """
    ### END SOLUTION
)
check.missed_by_both(walks_past_both)

# %% [markdown]
# **3. Repair three.** Without a decision, equal in every bit of output and gradient, so that the audit has nothing to report
# and both passes save the same: `bent_back(x, hot)` for what `Block.look` and the first `if` of `Block.forward` do (`hot` is
# `config.hot`), and the two functions below. Beware: x may hold NaN.

# %%
print(inspect.getsource(blocks.Block.look))
print(inspect.getsource(blocks.clamped))
print(inspect.getsource(mixing.summary))

# %% tags=["solution"]
def bent_back(x, hot):
    ### BEGIN SOLUTION
    large = x.abs().amax() > hot
    safe = torch.where(large, x, 0.0)
    return torch.where(large, hot * torch.tanh(safe / hot), x)
    ### END SOLUTION


check.bent_back(bent_back)

# %% tags=["solution"]
def clamped(x):
    ### BEGIN SOLUTION
    if x.dtype != torch.float16:
        return x
    largest = torch.finfo(x.dtype).max - 1000
    return torch.where(torch.isinf(x).any(), x.clamp(-largest, largest), x)
    ### END SOLUTION


check.clamped(clamped)

# %% tags=["solution"]
def summary(x, parts):
    ### BEGIN SOLUTION
    if x.shape[1] < parts:
        return x.mean(1)
    means = [part.mean(1) for part in x.chunk(parts, dim=1)]
    return sum(torch.where(m.abs().mean() > 0.25, m, 0.0) for m in means) / len(means)
    ### END SOLUTION


check.summary(summary)

# %% [markdown]
# ## Recap
#
# Answer aloud, then open.
#
# <details><summary>A search of your source returns fifty branches on values. In which order do you sort them?</summary>
#
# Is its function run by a checkpoint (directly, through a parent; not seen is not no: ask a run)? Is it settled before a
# tensor is read? What does it decide: operations, a size, or only an exception, a state, a log? Which operation is the identity where
# the condition is false? And what is asleep is not repaired: it comes next.
# </details>
#
# <details><summary>You replaced a guard by torch.where. All outputs are equal bit for bit, and in the next run the loss is NaN. What happened?</summary>
#
# Backward goes through both arms. The one that is not chosen divides by zero (or takes the logarithm, or overflows): its
# gradient is inf or NaN, and zero times that is NaN. Make the argument safe before the operation, and compare gradients, not
# only outputs.
# </details>
#
# <details><summary>From lesson 05: a forward counts its calls. Nothing raises, and losses and gradients are the plain run's. Is it right?</summary>
#
# No: it counts the recomputation as well, twice per step. Who reads it in training changes what is computed; who reads it
# afterwards reads a wrong number. Count outside, or in the forward alone.
# </details>
#
# ## References
#
# - PyTorch documentation: `torch.utils.checkpoint`; `torch.where`; `torch.nonzero` (its result's size); *Numerical accuracy*
#   (notes).
# - The installed source: `torch/utils/checkpoint.py`, `_CheckpointFrame`. `torch._assert_async` is the operator
#   `aten::_assert_async.msg`.
# - PyTorch documentation: `torch.compile`, *graph breaks* on data-dependent control flow: the same sites, seen by another
#   tool.
# - transformers 5.24.0: `models/t5/modeling_t5.py`, a clamp against float16's overflow whose decision is kept as a tensor, by
#   `torch.where`.
