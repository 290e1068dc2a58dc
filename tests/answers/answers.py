"""What a table of answers is made of. The tables stand beside this file, one a lesson: lesson_00.py, lesson_01.py, ...

Each has `EXERCISES`, the lesson's `Exercises` or a list of them, and `ANSWERS: dict[str, Answers]`, by the exercise's
name. A table may have `state()`, too: what no check may leave changed, besides random streams and torch's switches.
tests/test_answers.py judges them all.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Answers:
    """Of one exercise: answers that pass, and answers that fail, each with a part of what the learner is told.

    An answer is the tuple of the check's arguments. The part is text, not a pattern.
    """

    right: list[tuple]
    wrong: list[tuple[tuple, str]]
