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
# *rubric*, which lists what a weak answer says, and the points of a good and of a senior one. You answer aloud, tick the points that you
# made, and give yourself a grade. The card comes back when you are about to forget it.
#
# **You will be able to**
# - compare an answer, your own or a candidate's, with a rubric, point by point;
# - say when a card comes back after each grade, and why;
# - put the first hour after a crash in an order that loses nothing;
# - write a card of your own, and name what shows that it is true.
#
# **Time** 45 minutes, then ten cards a day. **You need** lessons 00 to 05; each card says which section to read. The outputs are stored: to predict before
# you see, choose *Edit → Clear Outputs of All Cells* first. After a restart, go on with *Run → Run All Above Selected Cell*.
#
# **The words.** A *segment* is a part of the model that is checkpointed; its *recomputation* is a second run of its forward, during
# backward. The *plain run*, or *baseline*, is the same step without checkpointing. A *random stream* is what random numbers come from. A
# *fact* in a rubric names the test or the notebook that shows it; every other point is a *judgement*, and is marked as one. *Spaced
# repetition* means asking again at growing intervals; a card is *due* when its interval is over. The *levels*: *screen*, a first call;
# *onsite*, an hour with an engineer; *staff*, a design discussion.

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
# **Predict.** Answer aloud, in a minute. Then note your points, a word for each. The cell prints the rubric: which of its five points did
# you make?

# %%
card = interview.NUMPY_MASK
print(interview.folded(f"{card.question} ({card.level})"), "\n\na weak answer:", sep="")
for said in card.weak:
    print("   ", said)
heads = {1: "a good answer:", len(card.good) + 1: "a senior answer, besides:"}
for number, point in interview.POINTS.items():
    if number in heads:
        print(heads[number])
    judged = " (a judgement)" if point.advice else ""
    print(interview.folded(f" {number}. {point.says}{judged}"))

# %% [markdown]
# A point counts if you *said* it, so that somebody who does not know it would understand. To have known it does not count. The points that
# you left out decide the grade, since those are what you have to practise.
#
# There are four grades, Again, Hard, Good and Easy. **Predict** the grade for somebody who makes one of the three good points; two; all
# three. And for somebody who makes both senior points, but only two of the good ones.

# %%
for good, senior in ((1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (2, 2)):
    grade = suggested((good, 3), (senior, 2))
    print(f"good {good} of 3, senior {senior} of 2: {grade}")

# %% [markdown]
# Fewer than half of the good points is *Again*; half or more, but not all, is *Hard*; all of them is *Good*; all of them and every senior
# point is *Easy*. Senior points do not make up for a good one: somebody who explains how to save a stream's state, and leaves out that
# nothing raises, has not answered the question. All this is a suggestion. You choose the grade.
#
# ## 2 · When a card comes back
#
# The rule is FSRS (Free Spaced Repetition Scheduler) in version 6, computed by its authors' library. From your grades and their times it
# estimates, for each card, how fast *you* forget it. It asks again when the chance that you still know the card has fallen to nine in
# ten. A card starts with steps of minutes; then come days.
#
# **Predict.** You grade a card Good every time. How long does it stay away after the first, the third, the sixth time? And if the fourth
# answer fails: does the card start anew, or does something remain of what went before?

# %%
grades = ("Again", "Hard", "Good", "Easy")
runs = {f"always {grade}": [grade] * 6 for grade in grades}
runs["fourth Again"] = ["Good"] * 3 + ["Again"] + ["Good"] * 2
away = {name: intervals(grades) for name, grades in runs.items()}
message = "Good, Easy: intervals grow. Again, Hard on a new card: minutes."
show(run_of_intervals(away), message)
for name, times in away.items():
    told = (in_words(one).removeprefix("in ").removeprefix("about ") for one in times)
    print(f"{name:<12} ", ", ".join(told))

# %% [markdown]
# With Good every time, each interval from the third on is three to six times the one before. After a failed fourth answer the card comes
# back in ten minutes and then in two days, as a new one does. After that its intervals grow more slowly: five days, where a new card has
# eleven. What remains is that this card is *hard for you*. Two lines are flat: graded Again or Hard, a new card stays at steps of minutes.
# So if you grade honestly, you spend your evening on the few cards that you cannot yet answer.
#
# An interview has a date, and the rule does not know it. In the last week, choose cards by topic and level, due or not.
#
# ## 3 · The deck
#
# One button draws a card and then reveals it, part by part: weak, good, senior, follow-ups. Answer aloud before you reveal; the timer says
# when the card's minutes are up. Tick the points that you made. The suggested grade is marked on its button, and *Go to the grades* takes
# you there. *Skip this card* puts a card off without a grade. The keyboard is enough: *Tab* moves; *Space* ticks, and *Space* or *Enter*
# presses a button.
#
# Your grades go into a file of your own, `notebooks/my/progress.jsonl`, a line for each. Git ignores the file, and it stays on your
# machine. `.venv/bin/recompute-lab progress --export PATH` copies it; with `--import PATH` you add what another machine has.
#
# **Predict**, for each card, your grade before you reveal anything. Where you were sure and wrong, you have found what to learn.

# %%
from recompute_lab.lessons.card_panel import panel

cards = panel()
cards

# %%
deck = load()
first = deck.cards[0]
print(f"the first card of the deck ({first.level}):")
print(interview.folded(first.question))
print("good points", len(first.good), "| senior points", len(first.senior))
facts, judgements = interview.facts_and_judgements(deck.cards)
print(f"points in the deck: facts {facts}, judgements {judgements}")

# %% [markdown]
# (Where no panel can be shown, as on GitHub, it is a line of text. The second cell says what is in the deck.)
#
# ## 4 · On paper, and for two
#
# All cards are in [interview_cards.md](interview_cards.md), to read and to print: right-click it in the file browser, *Open With → Markdown
# Preview*, and print that. For a part of them, use a terminal in the repository:
#
# ```
# .venv/bin/recompute-lab cards --topic NAME --level onsite > cards.md
# ```
#
# For two: one asks and ticks, the other answers. Whoever asks gives no point away before the time is up, and then begins with what *was*
# said. If you are the interviewer, the rubric keeps you from grading self-confidence. Exercise 1 has an answer that is sure of itself,
# and wrong.
#
# ## Exercises
#
# **1.** Three people have answered the question of section 1. For each: which of the five points does the answer *make*, and which grade
# does the rule suggest? A point that is stated wrongly is not made. `hint.grade_answers()`, in a cell of your own, gives a hint, and another one
# each time you call it.

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
# **2.** "Your run has just died with a `CheckpointError`. What do you do in the first hour?" Here are seven steps, shuffled. The *witness*, from
# lesson 08, rides along in a step and names what differed between a segment's two passes. Put the letters in an order in which no step comes before
# what it needs. More than one order is right. Hints: `hint.first_hour()`.

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
# **3.** Write a card of your own, best on something that you got wrong in this course. `good` and `senior` are lists of points. A fact is
# `{"says": "...", "shown_by": "04_dropout.ipynb: ..."}`, where the text after the colon is printed in that notebook; the check looks it up. A
# judgement is `{"says": "...", "advice": True}`. `lesson` is a notebook and a heading, as in `04_dropout.ipynb#3 · Build one`. (Your card
# is not added to the deck, which is the same for everybody.) Hints: `hint.own_card()`.

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
# The checks that you pass, in all lessons, are noted in the same file when JupyterLab runs the notebook. The cell counts them for each lesson,
# with the days of the first and the last one, and the cards that are due and those that you have seen. (In a terminal:
# `.venv/bin/recompute-lab progress`.)

# %%
print(interview.folded(overview.overview()))

# %% [markdown]
# ## Recap
#
# Answer aloud, then open.
#
# <details><summary>An answer makes all senior points and leaves out a good one. Which grade, and why?</summary>
#
# Hard, if it makes at least half of the good points. They are what was asked; a senior point does not make up for them.
# </details>
#
# <details><summary>You fail a card that you knew three times. When does it come back, and does it start from nothing?</summary>
#
# In ten minutes, then in two days, like a new card. After that its intervals grow more slowly than a new card's, because the rule has learned
# that it is hard for you. All grades count, not the last one alone.
# </details>
#
# <details><summary>From lesson 03: which answer to "does the determinism check catch it?" is weak?</summary>
#
# "Yes." The check compares the number, shapes, dtypes and devices of the saved tensors, and no values. With early stop, it notices too few
# tensors, and not too many.
# </details>
#
# ## References
#
# - J. Ye, J. Su, Y. Cao, "A Stochastic Shortest Path Algorithm for Optimizing Spaced Repetition Scheduling", *KDD* 2022.
# - The open-spaced-repetition project: FSRS and its Python library, `py-fsrs`, which this lesson uses (version 6 of the algorithm, its default
#   parameters, no random spread of intervals).
