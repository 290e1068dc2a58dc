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
# # 09 · Interview cards
#
# You know it when you read it. Can you say it, in a minute, to somebody who asks? This lesson is a deck of cards: a question, and a
# *rubric* that says what a weak, a good and a senior answer has in it. You answer aloud, tick what you said, and take a grade. The card comes back
# when you are about to forget it.
#
# **You will be able to**
# - hold an answer, your own or a candidate's, against a rubric, point by point;
# - say when a card comes back after each grade, and why;
# - put the first hour after a crash in an order that loses nothing;
# - write a card of your own, with what shows that it is true.
#
# **Time** 45 minutes, then ten a day. **You need** lessons 00 to 05; a card says which section to read. The outputs are stored: to predict before
# you see, choose *Edit → Clear Outputs of All Cells* first. After a restart, go on with *Run → Run All Above Selected Cell*.
#
# **The words.** A *segment* is a part of the model that is checkpointed; its *recomputation* is a second run of its forward, during
# backward. The *plain run*, or *baseline*, is the same step without checkpointing. A *fact* in a rubric names the test or the notebook that
# shows it; everything else is a *judgement*, and says so. A card is *due* when its time has come. *Spaced repetition* is to ask again at
# growing intervals. The *levels*: *screen*, a first call; *onsite*, an hour with an engineer; *staff*, a design discussion.

# %%
from recompute_lab.lessons import interview, overview
from recompute_lab.lessons.cards import load
from recompute_lab.lessons.interview import check, hint
from recompute_lab.lessons.spacing import in_words, intervals, suggested
from recompute_lab.views.spacing import run_of_intervals
from recompute_lab.views.style import show

print("ready")

# %% [markdown]
# ## 1 · A minute, against a rubric
#
# *"A checkpointed block draws its dropout masks with NumPy. What happens, and what do you do?"*
#
# **Predict.** Answer aloud, in a minute. Then write down, in single words, which points you made. The cell prints the rubric: which of
# its five points are yours?

# %%
card = interview.NUMPY_MASK
print(f"{card.question} ({card.level}, {card.minutes} minute)\n\na weak answer:")
for said in card.weak:
    print("   ", said)
for number, point in interview.POINTS.items():
    if number in (1, len(card.good) + 1):
        print("a good answer:" if number == 1 else "a senior answer, besides:")
    print(f" {number}. {point.says}{' (a judgement)' if point.advice else ''}")

# %% [markdown]
# A point counts if you *said* it, to somebody who does not know it; that you would have known it does not count. The points that you did not say
# decide the grade, since they are what you have to practise.
#
# **Predict** the grade, of Again, Hard, Good and Easy, for somebody who makes one good point of three; two; all three; and for
# somebody who makes all but the first one, the senior points included.

# %%
for good, senior in ((1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (2, 2)):
    grade = suggested((good, 3), (senior, 2))
    print(f"good points {good} of 3, senior ones {senior} of 2: {grade}")

# %% [markdown]
# Fewer than half of the good points is *Again*, not all of them *Hard*, all of them *Good*. Senior points make *Easy* only on top of all good
# ones: who speaks of stream states and leaves out that nothing raises has skipped the question. It is a suggestion: the grade is yours.
#
# ## 2 · When a card comes back
#
# The rule is FSRS, in its sixth version, by the library of its authors. It estimates for each card how fast *you* forget it, from your grades and
# their times, and asks again when the chance that you know it has fallen to nine in ten. A card starts with short steps, of minutes; then come
# days.
#
# **Predict.** A card is graded Good each time that it comes. How long does it stay away after the first, the third, the sixth time?
# If the fourth answer fails: does the card start from nothing, or is something kept of what went before?

# %%
runs = {f"always {grade}": [grade] * 6 for grade in ("Again", "Hard", "Good", "Easy")}
runs["Good, the fourth Again"] = ["Good"] * 3 + ["Again"] + ["Good"] * 2
away = {name: intervals(grades) for name, grades in runs.items()}
message = "Good and Easy: intervals grow. Again and Hard on a card not yet known: minutes."
show(run_of_intervals(away), message)
for name, times in away.items():
    print(f"{name:<22}", ", ".join(in_words(one).removeprefix("in ") for one in times))

# %% [markdown]
# Known each time, the card stays away three to six times as long as before. After a failed fourth answer it goes through minutes and two
# days, as a new one does, and then grows more slowly: five days, where a new card has eleven. What is kept is that this card is *hard for
# you*. And two lines are flat: with Again or Hard, a card that was never known does not leave the short steps. If you grade honestly, an
# evening belongs to the few cards that you cannot say.
#
# An interview has a date, and the rule does not know it. In the last week, draw by topic and level, whatever is due.
#
# ## 3 · The deck
#
# One button draws a card and reveals it, part by part: weak, good, senior, follow-ups. Answer aloud before you press it; the timer says when the
# card's minutes are up. Tick what you said. The suggested grade says so on its button, and *Go to the grades* takes you there. By keyboard alone:
# *Tab* moves, *Enter* or *Space* presses and ticks. *Skip* puts a card off without a grade.
#
# Grades go into a file of your own, `notebooks/my/progress.jsonl`: one line each, added at the end and never changed. Git ignores it. It
# stays on your machine; `recompute-lab progress --export PATH` copies it, `--import PATH` adds what another machine has.
#
# **Predict**, for each card, before you reveal anything: your grade. Where you were sure and wrong, you have found what to learn.

# %%
from recompute_lab.lessons.card_panel import panel

cards = panel()
cards

# %%
deck = load()
first = deck.cards[0]
print(f"the first card of the deck ({first.level}):")
print(interview.folded(first.question))
print("good points:", len(first.good), "| senior ones:", len(first.senior))
facts, judgements = interview.facts_and_judgements(deck.cards)
print(f"points in the deck: facts {facts}, judgements {judgements}")

# %% [markdown]
# (Without JupyterLab the panel is a line of text. The second cell shows what is in it at first.)
#
# ## 4 · On paper, and for two
#
# All cards are in [interview_cards.md](interview_cards.md), to read and to print: right-click it in the file browser, *Open With → Markdown
# Preview*, and print that. A part of them, from a terminal in the repository:
#
# ```
# .venv/bin/recompute-lab cards --topic NAME --level onsite > cards.md
# ```
#
# For two: one asks and ticks, the other answers. Whoever asks reads no point aloud before the time is up, and then says first what *was*
# said. In a real interview the rubric keeps you from grading confidence: in exercise 1, the answer that is surest of itself is not the best.
#
# ## Exercises
#
# **1.** Three people have answered the question of section 1. For each: which of the five points does the answer *make*, and which grade
# does the rule suggest? A point that comes out wrong is not made. Hints: `hint.grade_answers()` in a cell of your own, and again for the next one.

# %%
for letter, said in interview.SAID.items():
    print(interview.folded(f"{letter}: {said}"), end="\n\n")

# %% tags=["solution"]
answer = {
    ### BEGIN SOLUTION
    "A": ({1}, "Again"),
    "B": ({1, 3}, "Hard"),
    "C": ({1, 2, 3, 4}, "Good"),
    ### STUB
    # "A": (..., ...),
    # "B": (..., ...),
    # "C": (..., ...),
    ### END SOLUTION
}
check.grade_answers(answer)

# %% [markdown]
# **2.** "Your run has just died with a `CheckpointError`. What do you do in the first hour?" Seven steps, shuffled. Put their letters in an order
# in which nothing is done before what it needs. More than one order is right.

# %%
for letter, step in interview.FIRST_HOUR.items():
    print(f"{letter}: {step.does}")

# %% tags=["solution"]
### BEGIN SOLUTION
order = "dbfgaec"
### STUB
# order = ...
### END SOLUTION
check.first_hour(order)

# %% [markdown]
# **3.** Write a card of your own, best on something that you got wrong in this course. The check has the deck's own rules, and one more: what
# `shown_by` quotes of a notebook must be printed there. A point is `{"says": "...", "shown_by": "04_dropout.ipynb: ..."}` or
# `{"says": "...", "advice": True}`. (It is not added to the deck: that is a file, `interview_cards.toml`, for everybody.)

# %% tags=["solution"]
mine = {
    "topic": "my-own",
    ### BEGIN SOLUTION
    "id": "replay-switched-off",
    "level": "onsite",
    "minutes": 2,
    "question": "Somebody sets preserve_rng_state=False to save time. What do you ask?",
    "weak": ["Says that it is safe, since nothing raises."],
    "good": [{"says": "Dropout is wrong.", "shown_by": "04_dropout.ipynb: gradients silent"}],
    "senior": [{"says": "Measure what replaying costs.", "advice": True}],
    "follow_ups": ["And if there is no dropout?"],
    "lesson": "04_dropout.ipynb#1 · The silent mismatch",
    ### STUB
    # "id": ...,
    # "level": ...,
    # "minutes": ...,
    # "question": ...,
    # "weak": [...],
    # "good": [...],
    # "senior": [...],
    # "follow_ups": [...],
    # "lesson": ...,
    ### END SOLUTION
}
check.own_card(mine)

# %% [markdown]
# ## Where you stand
#
# Right answers to the checks of all lessons are written down as well, once each, when JupyterLab runs the notebook. The cell shows them, and
# the cards that are due. (In a terminal: `.venv/bin/recompute-lab progress`.)

# %%
print(interview.folded(overview.overview()))

# %% [markdown]
# ## Recap
#
# Answer aloud, then open.
#
# <details><summary>An answer makes all senior points and leaves out a good one. Which grade, and why?</summary>
#
# Hard. The good points are what was asked; a senior point without them answers another question.
# </details>
#
# <details><summary>You fail a card that you knew three times. When does it come back, and does it start from nothing?</summary>
#
# In ten minutes, then in two days, like a new card; and then its intervals grow more slowly than a new card's, because the rule has learned that
# it is hard for you. All grades count, not the last one alone.
# </details>
#
# <details><summary>From lesson 03: which answer to "does the determinism check catch it?" is weak?</summary>
#
# "Yes." It compares number, shapes, dtypes and devices of the saved tensors, with early stop in one direction only, and no values.
# </details>
#
# ## References
#
# - J. Ye, J. Su, Y. Cao, "A Stochastic Shortest Path Algorithm for Optimizing Spaced Repetition Scheduling", *KDD* 2022.
# - The open-spaced-repetition project: FSRS and its Python library, `py-fsrs`, which this lesson uses (version 6 of the algorithm, its default
#   parameters, no random spread of intervals).
