"""Lesson 09: answers that pass, and answers that fail."""

from answers.answers import Answers

from recompute_lab.lessons.interview import check

EXERCISES = check

GRADED = {"A": ({1}, "Again"), "B": ({1, 3}, "Hard"), "C": ({1, 2, 3, 4}, "Good")}
CARD = {
    "id": "replay-switched-off",
    "topic": "my-own",
    "level": "onsite",
    "minutes": 2,
    "question": "Somebody sets preserve_rng_state=False to save time. What do you ask?",
    "weak": ["Says that it is safe, since nothing raises."],
    "good": [{"says": "Dropout is wrong, and silent.", "shown_by": "04_dropout.ipynb: gradients silent"}],
    "senior": [{"says": "Measure first what replaying costs.", "advice": True}],
    "follow_ups": ["And if there is no dropout?"],
    "lesson": "04_dropout.ipynb#1 · The silent mismatch",
}
OPINIONS = [{"says": "It is so.", "advice": True}]
MADE_UP = [{"says": "It is so.", "shown_by": "04_dropout.ipynb: everything is fine"}]

ANSWERS: dict[str, Answers] = {
    "grade_answers": Answers(
        right=[(GRADED,), ({"A": ([1], "Again"), "B": ((3, 1), "Hard"), "C": ([4, 3, 2, 1], "Good")},)],
        wrong=[
            ((GRADED | {"A": ({1, 4}, "Again")},), "A: it does not make point 4: a seed at the start is not"),
            ((GRADED | {"A": ({1, 3}, "Hard")},), "A: it does not make point 3"),
            ((GRADED | {"B": ({1, 2, 3}, "Good")},), "B: it does not make point 2: it says that checkpointing raises"),
            ((GRADED | {"B": ({1}, "Again")},), "B: it makes one more of the points"),
            ((GRADED | {"C": ({1, 2, 3, 4, 5}, "Easy")},), "C: it does not make point 5"),
            ((GRADED | {"C": ({1, 2, 3, 4}, "Easy")},), "C: the points are right, and by the rule they come to Good"),
            ((GRADED | {"B": ({1, 3}, "Fine")},), "B: a grade is one of Again, Hard, Good, Easy"),
            ((GRADED | {"B": ({1, 9}, "Hard")},), "the rubric has the points 1 to 5; 9 is none"),
            ((GRADED | {"B": "Hard"},), "B: give two things"),
            (({"A": ({1}, "Again")},), "grade the answers A, B, C"),
            ((7,), "grade the answers"),
        ],
    ),
    "first_hour": Answers(
        right=[("dbfgaec",), ("dfgbaec",), (["d", "f", "b", "g", "a", "e", "c"],), ("d, b, f, g, a, e, c",)],
        wrong=[
            (("bdfgaec",), "needs the crash's state first"),
            (("dfgaebc",), "needs the right gradients first: without the baseline nobody can say"),
            (("dbfagec",), "needs a suspect first"),
            (("dbgfaec",), "needs how often first"),
            (("dbfgace",), "needs a repair that holds first"),
            (("dbfgeac",), "needs a repair first"),
            (("dbf",), "each of a, b, c, d, e, f, g once; got d, b, f"),
            ((3,), "give the letters in their order"),
        ],
    ),
    "own_card": Answers(
        right=[(CARD,), (CARD | {"senior": CARD["good"], "minutes": 5},)],
        wrong=[
            ((CARD | {"id": "Replay off"},), "card 'Replay off', id: small letters, digits"),
            ((CARD | {"level": "junior"},), "level: 'junior' is none of screen, onsite, staff"),
            (({k: v for k, v in CARD.items() if k != "weak"},), "weak: is missing"),
            ((CARD | {"good": [{"says": "It is so."}]},), "good, number 1: either shown_by"),
            ((CARD | {"good": OPINIONS},), "every point is a judgement"),
            ((CARD | {"good": MADE_UP},), "04_dropout.ipynb prints no 'everything is fine'"),
            (("a card",), "give the card as a dict"),
        ],
    ),
}
