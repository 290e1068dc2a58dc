"""Lesson 07, the quiet version: what the check says of five evaluations, three findings, an evaluation repaired."""

import torch
from answers.answers import Answers

from recompute_lab.instruments.evaluation import run_twice
from recompute_lab.instruments.finding import Finding
from recompute_lab.lessons.evaluation_exercises import check
from recompute_lab.specimens.digit_scorer import held_out, scorer
from recompute_lab.specimens.threads import threads
from recompute_lab.specimens.unknown_evaluations import Harness, Queued

EXERCISES = check


# --- predict

PREDICTION = {
    "A": ("disagrees", "agrees"),
    "B": ("disagrees", "agrees"),
    "C": ("disagrees", "disagrees"),
    "D": ("agrees", "agrees"),
    "E": ("agrees", "agrees"),
}


# --- findings

BLOTTED, LOSS = "accuracy, blotted", "loss"
with threads(1):
    _check = run_twice(Harness(), scorer(), *held_out())
    _clean = Harness()(scorer(), *held_out())  # a harness without a past
FOUND = {name: Finding.of(_check, name, ["call one Harness() twice"], after=_clean[name]) for name in _check.metrics}
RUNS = {name: [_check.metrics[name].first, _check.metrics[name].second] for name in _check.metrics}


def changed(name: str, **parts) -> list[Finding]:
    """The right findings, one of them in part another."""
    kept = {part: getattr(FOUND[name], part) for part in ("metric", "confound", "steps", "before", "after")}
    return list((FOUND | {name: Finding(**(kept | parts))}).values())


def named(blotted: str, loss: str) -> list[Finding]:
    steps = ["harness = Harness()", "harness(model, *data), twice"]
    return [
        Finding.nothing("accuracy", steps, RUNS["accuracy"]),
        Finding(BLOTTED, blotted, steps, RUNS[BLOTTED], _clean[BLOTTED]),
        Finding(LOSS, loss, steps, torch.tensor(RUNS[LOSS], dtype=torch.float64), _clean[LOSS]),
    ]


BOTH = "the generator of the ink, and scores that are kept in half precision"


# --- repair


class Orderly(Queued):
    def __call__(self, model, patches, labels):
        mean, right = torch.zeros(10), 0
        for rows, wanted in zip(patches.split(100), labels.split(100), strict=True):
            scores = model(rows)
            mean = torch.lerp(mean, scores.mean(0), 0.5)
            right += int(((scores - mean).argmax(1) == wanted).sum())
        return {"accuracy": right / len(labels), "drift": mean.norm().item()}


class StillAPast(Queued):
    def __call__(self, model, patches, labels):
        right = 0
        for rows, wanted in zip(patches.split(100), labels.split(100), strict=True):
            scores = model(rows)
            self.mean = torch.lerp(self.mean, scores.mean(0), 0.5)
            right += int(((scores - self.mean).argmax(1) == wanted).sum())
        return {"accuracy": right / len(labels), "drift": self.mean.norm().item()}


class StillASet(Queued):
    def __call__(self, model, patches, labels):
        self.mean = torch.zeros(10)
        return super().__call__(model, patches, labels)


class NoMean(Queued):
    def __call__(self, model, patches, labels):
        right = int((model(patches).argmax(1) == labels).sum())
        return {"accuracy": right / len(labels), "drift": 0.0}


class Constant(Queued):
    def __call__(self, model, patches, labels):
        return {"accuracy": 0.9377, "drift": 0.3}


class Fewer(Queued):
    def __call__(self, model, patches, labels):
        return Orderly()(model, patches[:800], labels[:800])


class OtherNames(Queued):
    def __call__(self, model, patches, labels):
        return {"right": Orderly()(model, patches, labels)["accuracy"]}


class WithoutGradients(Queued):
    """All scores at once, which are then gone through."""

    @torch.no_grad()
    def __call__(self, model, patches, labels):
        mean, guesses = torch.zeros(10), []
        for scores in torch.split(model(patches), 100):
            mean = mean + (scores.mean(dim=0) - mean) / 2
            guesses.append(torch.argmax(scores - mean, dim=1))
        accuracy = (torch.cat(guesses) == labels).double().mean()
        return dict(drift=torch.linalg.vector_norm(mean).item(), accuracy=accuracy.item())


class ResetAfterwards(StillAPast):
    def __call__(self, *args):
        try:
            return super().__call__(*args)
        finally:
            self.mean = torch.zeros(10)


class ResetBefore:
    """No subclass, and its mean is an attribute all the same."""

    def __call__(self, model, patches, labels):
        again = StillAPast()
        return again(model, patches, labels)


class AllAtOnce(Queued):
    def __call__(self, model, patches, labels):
        scores = model(patches)
        mean = torch.lerp(torch.zeros(10), scores.mean(0), 0.5)
        right = int(((scores - mean).argmax(1) == labels).sum())
        return {"accuracy": right / len(labels), "drift": mean.norm().item()}


class MeanAfterwards(Queued):
    """Takes the mean away before the batch has gone into it."""

    def __call__(self, model, patches, labels):
        mean, right = torch.zeros(10), 0
        for rows, wanted in zip(patches.split(100), labels.split(100), strict=True):
            scores = model(rows)
            right += int(((scores - mean).argmax(1) == wanted).sum())
            mean = torch.lerp(mean, scores.mean(0), 0.5)
        return {"accuracy": right / len(labels), "drift": mean.norm().item()}


class SortedNames(Queued):
    """Sorted they are, but the names are made anew in each run."""

    def __call__(self, model, patches, labels):
        import uuid

        order = [row for _, row in sorted((uuid.uuid4(), row) for row in range(len(labels)))]
        return Orderly()(model, patches[order], labels[order])


class Shuffled(Queued):
    """An order that is drawn: the same in the check's runs, and in no other."""

    def __call__(self, model, patches, labels):
        order = torch.randperm(len(labels))
        return Orderly()(model, patches[order], labels[order])


ANSWERS = {
    "predict": Answers(
        right=[(PREDICTION,), ({letter: list(said) for letter, said in reversed(PREDICTION.items())},)],
        wrong=[
            (({**PREDICTION, "A": ("disagrees", "disagrees")},), "A, with the switch: you said 'disagrees', it agrees"),
            (({**PREDICTION, "A": ("agrees", "agrees")},), "A, without the switch: you said 'agrees', it disagrees"),
            (({**PREDICTION, "B": ("disagrees", "disagrees")},), "the switch stops the race, not the branch"),
            (({**PREDICTION, "C": ("disagrees", "agrees")},), "is where the next one starts"),
            (({**PREDICTION, "D": ("disagrees", "disagrees")},), "the same at the start of each run"),
            (({**PREDICTION, "E": ("disagrees", "disagrees")},), "the set's order does not reach the result"),
            ((dict.fromkeys(PREDICTION, ("disagrees", "agrees")),), "C, with the switch: you said 'agrees'"),
            (({**PREDICTION, "E": ("yes", "agrees")},), "'yes' is neither 'agrees' nor 'disagrees'"),
            (({**PREDICTION, "A": "agrees"},), "give a pair"),
            (({"A": ("agrees", "agrees")},), "answer for A, B, C, D, E"),
        ],
    ),
    "findings": Answers(
        right=[
            (list(FOUND.values()),),
            (tuple(reversed(FOUND.values())),),
            (changed("loss", confound="the scores are kept in half precision"),),
            (named("the ink's generator is made once and goes on", "a cache of the scores, in float16"),),
            (named("blots are drawn anew from a stream that is kept", "scores are kept from the run before, halved"),),
        ],
        wrong=[
            (([FOUND[BLOTTED], FOUND[LOSS]],), "has no finding. That nothing was found is written down"),
            (([*FOUND.values(), Finding.nothing("recall", ["a step"], [1, 1])],), "is no metric of the harness"),
            (
                ([FOUND["accuracy"], FOUND[LOSS], Finding.nothing(BLOTTED, ["a step"], [RUNS[BLOTTED][0]] * 2)],),
                "you have written that nothing was found",
            ),
            (
                ([FOUND[BLOTTED], FOUND[LOSS], Finding("accuracy", "a guess", ["a", "b"], [0.9, 0.8], 0.9)],),
                "you have written that something was found, and every run gives the same",
            ),
            ((changed(BLOTTED, after=sum(RUNS[BLOTTED]) / 2),), "An average still has the confound in it"),
            ((changed(BLOTTED, after=0.5),), "with the confound gone it is"),
            ((changed(LOSS, after=RUNS[LOSS][1]),), "with the confound gone it is"),
            ((changed(LOSS, before=[0.5, 0.6]),), "its runs gave"),
            ((changed(LOSS, before=RUNS[LOSS][::-1]),), "its runs gave"),
            ((changed(LOSS, confound=FOUND[BLOTTED].confound),), "What you name moves another metric"),
            ((changed(LOSS, confound="something odd"),), "the confound should name"),
            ((changed(LOSS, confound="the GPU is not deterministic"),), "the confound should name"),
            ((named(BOTH, BOTH),), "you give one confound for two metrics"),
            ((changed(LOSS, steps=["run it"]),), "with one step nobody sees it again"),
            ((FOUND,), "give a list of Findings"),
            (([*FOUND.values(), FOUND[LOSS]],), "give one finding for each"),
        ],
    ),
    "repair": Answers(
        right=[(Orderly,), (WithoutGradients,), (ResetAfterwards,), (ResetBefore,)],
        wrong=[
            ((Queued,), "still disagrees with itself"),
            ((StillAPast,), "still disagrees with itself"),
            ((StillASet,), "names made anew in each run"),
            ((SortedNames,), "still disagrees with itself"),
            ((Shuffled,), "with other seeds its"),
            ((NoMean,), "the original gives accuracy"),
            ((MeanAfterwards,), "the original gives accuracy"),
            ((AllAtOnce,), "on 150 copies of one digit, a batch and a half, the original gives drift"),
            ((Constant,), "the original gives accuracy"),
            ((Fewer,), "some were left out"),
            ((OtherNames,), "return what the original does"),
            ((Orderly(),), "give the class"),
        ],
    ),
}
