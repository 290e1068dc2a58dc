"""Lesson 09: an answer against its rubric, the first hour after a crash, a card of one's own; and the exercises."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from recompute_lab.lessons.cards import Card, Point, card_of, load
from recompute_lab.lessons.exercise import Exercises, Hints, Wrong
from recompute_lab.lessons.progress import GRADES, default_path
from recompute_lab.lessons.spacing import suggested

check = Exercises()
hint = Hints(check)


# --- Exercise 1: three answers, graded

NUMPY_MASK: Card = card_of(
    {
        "id": "numpy-mask",
        "topic": "randomness",
        "level": "onsite",
        "minutes": 1,
        "question": "A checkpointed block draws its dropout masks with NumPy. What happens, and what do you do?",
        "weak": ["Seeds NumPy once, at the start of training.", "Leaves out whether anybody notices."],
        "good": [
            {
                "says": "The recomputation draws another mask, so the gradients are not those of the loss.",
                "shown_by": "04_dropout.ipynb: The recomputation drew another mask",
            },
            {
                "says": "Nothing raises: both passes save as many tensors, of the same shapes.",
                "shown_by": "04_dropout.ipynb: both passes save the same number, operators and shapes: True",
            },
            {
                "says": "torch replays its own default generators, and no other stream.",
                "shown_by": "04_dropout.ipynb: torch replays its own default generator, and no other stream.",
            },
        ],
        "senior": [
            {
                "says": "The stream's state, read at the segment's entry, has to be put back for the recomputation.",
                "shown_by": "tests/test_own_checkpoint.py::test_each_stage_replays_more_than_the_one_before",
            },
            {"says": "I would compare one step with the plain run before the run goes on.", "advice": True},
        ],
        "follow_ups": ["And a generator that the module made for itself?"],
        "lesson": "04_dropout.ipynb#2 · Streams that nobody rewinds",
    },
    ["randomness"],
)
POINTS: dict[int, Point] = dict(enumerate((*NUMPY_MASK.good, *NUMPY_MASK.senior), 1))
SAID = {
    "A": "Dropout is random, so the second mask is another one, and the gradients belong to another network than the "
    "loss does. I would call np.random.seed once, before training.",
    "B": "torch puts back its own default generators and nothing else, so nn.Dropout is safe. NumPy's stream goes on "
    "where it was: another mask, and gradients that do not belong to the loss. You would see that at once, because "
    "checkpointing raises when the two passes differ.",
    "C": "Of all streams only torch's default generators are put back. A NumPy mask is drawn anew in backward, and the "
    "gradients are no longer the loss's. Silently: as many tensors are saved, in the same shapes. I would take NumPy's "
    "state when the segment is entered, and put it back for the recomputation.",
}
_MADE = {"A": {1}, "B": {1, 3}, "C": {1, 2, 3, 4}}  # which points each answer makes
_NOT_MADE = {
    ("A", 2): "it does not say whether anybody notices.",
    ("A", 3): "it speaks of dropout, not of who replays which stream.",
    ("A", 4): "a seed at the start is not the state at the segment's entry (lesson 04: silent, all the same).",
    ("B", 2): "it says that checkpointing raises. That is the opposite, and wrong.",
    ("B", 4): "it puts nothing back.",
}


def grade_of(points: Iterable[int]) -> str:
    """The grade that the rule suggests for an answer that makes these points of the rubric."""
    good, senior = len(NUMPY_MASK.good), len(NUMPY_MASK.senior)
    said = sum(point <= good for point in points)
    return suggested((said, good), (len(set(points)) - said, senior))


@check.add(
    "Take the rubric's points one by one, and look for a sentence of the answer that says the same. To come near is "
    "not to say it.",
    "One of the answers says the opposite of point 2. What is wrong is not half a point.",
    "The rule: fewer than half of the good points, Again; not all of them, Hard; all of them, Good; every senior one "
    "besides, Easy. A makes point 1 alone, B two points, C four.",
)
def grade_answers(answer: dict) -> str:
    """`answer[letter] = (numbers of the points that the written answer makes, grade)`."""
    if not isinstance(answer, dict) or set(answer) != set(SAID):
        raise Wrong(f"grade the answers {', '.join(SAID)}.")
    for letter, given in answer.items():
        if not isinstance(given, tuple | list) or len(given) != 2 or not isinstance(given[0], set | tuple | list):
            raise Wrong(f"{letter}: give two things: ({{numbers of its points}}, grade).")
        points, grade = given
        for point in points:
            if isinstance(point, bool | list | dict | set) or point not in POINTS:
                raise Wrong(f"{letter}: the rubric has the points 1 to {len(POINTS)}; {point!r} is none.")
        for point in sorted(set(points) - _MADE[letter]):
            why = _NOT_MADE.get((letter, point), "it does not say how to make sure.")
            raise Wrong(f"{letter}: it does not make point {point}: {why}")
        for point in sorted(_MADE[letter] - set(points)):
            raise Wrong(f'{letter}: it makes one more of the points. Where does it say this? "{POINTS[point].says}"')
        if grade not in GRADES:
            raise Wrong(f"{letter}: a grade is one of {', '.join(GRADES)}; got {grade!r}.")
        if grade != grade_of(points):
            told = f"the points are right, and by the rule they come to {grade_of(points)}, not {grade}."
            raise Wrong(f"{letter}: {told} Count the good points first.")
    return "all three. A said what is true and went no further; B was sure of something wrong; C lacks one judgement."


# --- Exercise 2: the first hour


@dataclass(frozen=True)
class Step:
    """Something to do after a crash: what must be there before it, and what is there after it."""

    does: str
    needs: tuple[str, ...] = ()
    gives: str = ""


FIRST_HOUR: dict[str, Step] = {
    "a": Step("treat one suspect at a time, until the step is right", ("a suspect", "the right gradients"), "a repair"),
    "b": Step("run the step without checkpointing: the baseline", ("the crash's state",), "the right gradients"),
    "c": Step("add a test, and let the run go on", ("a repair that holds",), "the run"),
    "d": Step("save batch, weights and random states, before anything restarts", (), "the crash's state"),
    "e": Step(
        "run the repaired step as often as the fault took to show", ("a repair", "how often"), "a repair that holds"
    ),
    "f": Step("repeat the step with checkpointing: in how many tries of 20?", ("the crash's state",), "how often"),
    "g": Step("compare both passes, the witness riding along", ("the crash's state", "how often"), "a suspect"),
}
_WHY = {
    "the crash's state": "whatever runs first moves the streams and the weights on, and the crash may never come again",
    "the right gradients": "without the baseline nobody can say what right is",
    "how often": "of a fault that comes in 1 of 20 tries, one quiet try says nothing",
    "a suspect": "there is nothing to treat yet; changing things at random finds what hides the fault as well",
    "a repair": "there is nothing repaired yet",
    "a repair that holds": "a repair that was tried once may only have been lucky",
}


@check.add(
    "For each step ask what it needs. Which one can be done only once, and only at first?",
    "What is right is known from the baseline alone, and a fault that comes rarely takes many tries: to see it, and to "
    "see it gone.",
    "d first; then b and f in any order; then g, a, e, c.",
)
def first_hour(answer: str) -> str:
    """`answer` is an order of the letters of FIRST_HOUR: a text or a list."""
    if not isinstance(answer, str | list | tuple):
        raise Wrong('give the letters in their order: "abc..." or a list.')
    letters = [letter for letter in answer if letter not in (" ", ",")]
    if sorted(map(str, letters)) != sorted(FIRST_HOUR):
        raise Wrong(f"each of {', '.join(FIRST_HOUR)} once; got {', '.join(map(str, letters)) or 'none'}.")
    there: set[str] = set()
    for letter in letters:
        step = FIRST_HOUR[letter]
        for need in step.needs:
            if need not in there:
                raise Wrong(f"{letter}, {step.does!r}, needs {need} first: {_WHY[need]}.")
        there.add(step.gives)
    return "nothing is done before what it needs. The steps that need the same may change places."


# --- Exercise 3: a card of one's own

OWN_TOPIC = "my-own"


@check.add(
    "The message names the field. id: small letters and hyphens; level: screen, onsite or staff; minutes: a whole "
    f"number; topic: {OWN_TOPIC!r}. weak and follow_ups are lists of texts.",
    'good and senior are lists of points: {"says": "...", "shown_by": "04_dropout.ipynb: replayed by"} for a fact, '
    '{"says": "...", "advice": True} for a judgement.',
    "What shown_by quotes must stand in an output of that notebook: copy it from there. lesson is "
    '"04_dropout.ipynb#3 · Build one": a notebook and one of its headings.',
)
def own_card(answer: Mapping) -> str:
    """`answer` is a card's fields; it must keep the rules of the deck, and quote what is printed."""
    if not isinstance(answer, Mapping):
        raise Wrong("give the card as a dict with the fields of a card.")
    try:
        card = card_of(answer, [OWN_TOPIC, *load().topics])
    except ValueError as broken:
        raise Wrong(f"{broken}.") from None
    if card.id in {other.id for other in load().cards}:
        raise Wrong(f"id: {card.id!r} is a card of the course already. An id is for good: take another one.")
    points = (*card.good, *card.senior)
    if all(point.advice for point in points):
        raise Wrong("every point is a judgement: let one at least be a fact, with what shows it.")
    for point in points:
        if not point.advice and printed(point) is False:
            file, _, text = point.shown_by.partition(": ")
            raise Wrong(f"{file} prints no {text!r}: open it, and copy what shows that {point.says!r}")
    return f"a card: {card.question} A fact that nobody can look up would have been an opinion."


def printed(point: Point, folder: Path | None = None) -> bool | None:
    """Does the notebook that a point names print what it quotes? None where that cannot be looked up.

    A test that a point names is not run. `folder` is where the notebooks are: by default those of the repository. The
    solved notebook counts as well: the learner's own may have had its outputs cleared.
    """
    file, _, text = point.shown_by.partition(": ")
    folder = folder or default_path().parent.parent
    if not text or not (folder / "source").is_dir():
        return None
    return any(text in output for path in (folder / file, folder / "solutions" / file) for output in _outputs(path))


def _outputs(path: Path) -> list[str]:
    """The text of a notebook's outputs; none where it cannot be read."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):
        return []
    return ["".join(output.get("text", "")) for cell in cells for output in cell.get("outputs", ())]


# --- What the notebook prints


def folded(text: str) -> str:
    """Each line of the text in lines of 70 columns at most, for which a small window of JupyterLab has room, too.

    Further lines of a point start where its text does. A table's lines are left alone.
    """
    return "\n".join(
        _folded(line) if len(line) > 70 and "  " not in line.strip() else line for line in text.splitlines()
    )


def _folded(line: str) -> str:
    start = re.match(r"\s*(\d+\. )?", line)[0]
    return textwrap.fill(line, 70, subsequent_indent=" " * len(start))


def facts_and_judgements(cards: Iterable[Card]) -> tuple[int, int]:
    """How many points of the cards are facts, and how many are judgements."""
    judged = [point.advice for card in cards for point in (*card.good, *card.senior)]
    return judged.count(False), judged.count(True)
