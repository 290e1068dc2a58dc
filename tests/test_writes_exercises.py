"""The exercises on side effects: right answers pass, each wrong one fails with the message that helps."""

from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch

from recompute_lab.instruments.writes import writes
from recompute_lab.lessons.exercise import NOT_ATTEMPTED, RIGHT, WRONG
from recompute_lab.lessons.side_effects import rows
from recompute_lab.lessons.writes_exercises import REASONS, REPAIRS, ROLES, check, hint
from recompute_lab.repairs.recomputation import announced, recomputing
from recompute_lab.repairs.replay import state_replayed
from recompute_lab.repairs.suppress import buffers_spared
from recompute_lab.specimens import unknown_writes as unknown
from recompute_lab.specimens.running_state import frozen_in_recomputation
from recompute_lab.specimens.unknown_writes import Gated, Smoothed, sharpened

FOUND = {
    "Smoothed": {"mean", "calls", "history"},
    "Gated": {"seen", "opened", "torch"},
    "sharpened": {"TEMPERATURE", "calls", "NumPy"},
}


def told(exercise, *answer, status=WRONG) -> str:
    verdict = exercise.judge(*answer)
    assert verdict.status == status, verdict
    return verdict.message


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """An exercise leaves globals, streams and default arguments as they were."""
    before = unknown.TEMPERATURE, sharpened.calls, np.random.get_state()[2], torch.get_rng_state(), Gated.opened
    yield
    after = unknown.TEMPERATURE, sharpened.calls, np.random.get_state()[2], torch.get_rng_state(), Gated.opened
    assert all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(before, after, strict=True))
    assert Smoothed.forward.__defaults__ == ([],)


# --- Find them all


def test_all_writes_are_found_by_the_last_part_of_their_names():
    message = told(check.find_all, FOUND, status=RIGHT)
    assert message.startswith("all 9") and "seen and torch" in message
    whole = {**FOUND, "Gated": ["first._forward_hooks[0].seen", "Gated.opened", "Torch"]}
    told(check.find_all, whole, status=RIGHT)
    drawn = {**FOUND, "Gated": ['seen["largest"]', "opened", "torch.rand"]}
    told(check.find_all, {**drawn, "sharpened": ["TEMPERATURE", "calls", "np.random"]}, status=RIGHT)


def test_a_key_is_told_from_what_is_not_written():
    message = told(check.find_all, {**FOUND, "Gated": {"largest", "opened", "torch"}})
    assert "Gated: 'largest' is a key. Name the dict that holds it." in message


def test_the_truth_is_the_instrument_s():
    for name, make in unknown.UNKNOWN.items():
        found = {write.name.rpartition(".")[2] for write in writes(make(), rows())}
        assert found == FOUND[name]
        assert unknown.source(name)
    with pytest.raises(ValueError, match="Smoothed, Gated, sharpened to review"):
        unknown.source("smoothed")


@pytest.mark.parametrize(
    ("segment", "name", "kind"),
    [
        ("Smoothed", "history", "a list (0 → 1 entries, not read)"),
        ("Smoothed", "calls", "an attribute (0 → 1, also read)"),
        ("Smoothed", "mean", "a buffer ([16] changed, not read)"),
        ("Gated", "seen", "a dict (0 → 1 entries, not read)"),
        ("Gated", "opened", "a class attribute"),
        ("Gated", "torch", "a random stream (drawn from, also read)"),
        ("sharpened", "TEMPERATURE", "a global (2 → 1.98, also read)"),
        ("sharpened", "NumPy", "a random stream"),
    ],
)
def test_what_is_missed_is_described_and_not_named(segment, name, kind):
    message = told(check.find_all, {**FOUND, segment: FOUND[segment] - {name}})
    assert f"{segment}: you missed {kind}" in message and name not in message


def test_what_is_invented_is_named():
    message = told(check.find_all, {**FOUND, "Gated": FOUND["Gated"] | {"position"}, "Smoothed": set()})
    assert "Gated: 'position' is not written." in message and message.count("Smoothed: you missed") == 3


@pytest.mark.parametrize("answer", [{}, [], {**FOUND, "Gated": "seen"}, {**FOUND, "Gated": {1}}, {**FOUND, "Gated": 1}])
def test_a_wrong_form_is_told(answer):
    assert "set" in told(check.find_all, answer)


# --- Smoothed, in the code


def smoothed(guard_of_all=lambda: True, guard_of_mean=None):
    """The class with another condition around its writes."""

    class Answer(Smoothed):
        def forward(self, x, history=[]):  # noqa: B006
            h = self.first(x)
            mean = h.mean(0) if self.training else self.mean
            if self.training and (guard_of_mean or guard_of_all)():
                self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
            if self.training and guard_of_all():
                self.calls += 1
            if guard_of_all():
                history.append(float(mean.detach().norm()))
            return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))

    return Answer


class AsAttribute(Smoothed):
    """The list is the module's own, and all writes stand together."""

    def build(self):
        super().build()
        self.history = []

    def forward(self, x):
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean
        if not recomputing():
            self.history.append(float(mean.detach().norm()))
            if self.training:
                self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
                self.calls += 1
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


def test_a_guard_in_the_code_is_right():
    told(check.guarded, smoothed(lambda: not recomputing()), status=RIGHT)
    told(check.guarded, AsAttribute, status=RIGHT)


class ForgetsEvaluation(Smoothed):
    """Right in training, where the check of gradients looks."""

    def forward(self, x, history=[]):  # noqa: B006
        h = self.first(x)
        mean = h.mean(0)
        if not recomputing():
            self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
            self.calls += 1
            history.append(float(mean.detach().norm()))
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


class LogsInTrainingOnly(Smoothed):
    def forward(self, x, history=[]):  # noqa: B006
        h = self.first(x)
        mean = h.mean(0) if self.training else self.mean
        if self.training and not recomputing():
            self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
            self.calls += 1
            history.append(float(mean.detach().norm()))
        return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))


def test_evaluation_has_to_be_as_it_was():
    message = told(check.guarded, ForgetsEvaluation)
    assert "In evaluation mode" in message and "its output and calls and" in message and "are not what" in message
    message = told(check.guarded, LogsInTrainingOnly)
    assert "In evaluation mode, without a recomputation, history is not what Smoothed gives" in message


def test_unrepaired_it_counts_twice():
    message = told(check.guarded, Smoothed)
    assert "calls ends at 40, in the plain run at 20" in message and "history ends at 40 entries" in message
    assert "Grad mode" not in message


def test_a_guard_on_grad_mode_is_told_why():
    class OnGradMode(Smoothed):
        def forward(self, x, history=[]):  # noqa: B006
            h = self.first(x)
            mean = h.mean(0) if self.training else self.mean
            if torch.is_grad_enabled():
                self.mean = torch.lerp(self.mean, mean.detach(), 0.1)
                self.calls += 1
                history.append(float(mean.detach().norm()))
            return self.second(min(1.0, self.calls / 10) * torch.tanh(h - mean))

    message = told(check.guarded, OnGradMode)
    assert "gradients are off" in message and "non-reentrant has it on in both, and reentrant has it off" in message


@pytest.mark.parametrize("suppressed", [lambda: False, lambda: not torch.is_grad_enabled()])
def test_a_write_suppressed_in_both_passes_is_frozen_for_good(suppressed):
    message = told(check.guarded, smoothed(lambda: not recomputing(), guard_of_mean=suppressed))
    assert message.startswith("without checkpointing: mean stays where it was, for good")


def test_other_computations_are_no_repair():
    class Uncentred(Smoothed):
        def forward(self, x, history=[]):  # noqa: B006
            output = super().forward(x, history)
            return output * 1.5

    assert "gradients are off" in told(check.guarded, Uncentred)
    assert "give a class" in told(check.guarded, smoothed)
    assert "give a class" in told(check.guarded, torch.nn.Linear)


def test_a_stub_is_not_attempted():
    class Stub(Smoothed):
        def forward(self, x, history=[]): ...  # noqa: B006

    def context(module): ...

    def context_with_a_stub(module):
        @contextmanager
        def recomputation(): ...

        return lambda: (nullcontext(), nullcontext())

    def once(shape): ...

    for exercise, answer in (
        (check.find_all, {**FOUND, "Gated": ...}),
        (check.guarded, Stub),
        (check.guarded, ...),
        (check.from_outside, context),
        (check.from_outside, context_with_a_stub),
        (check.moved_out, (once, ...)),
        (check.replayed, ...),
        (check.who_chooses, dict.fromkeys(ROLES, ...)),
    ):
        assert exercise.judge(answer).status == NOT_ATTEMPTED


# --- Smoothed, from outside


def replaying(module):
    """state_replayed, and the list that it does not find."""
    inner, history = state_replayed(module), Smoothed.forward.__defaults__[0]

    def context_fn():
        forward, again = inner()

        @contextmanager
        def recomputation():
            length = len(history)
            try:
                with again:
                    yield
            finally:
                del history[length:]

        return forward, recomputation()

    return context_fn


def test_replay_from_outside_is_right_when_it_has_all_three():
    told(check.from_outside, replaying, status=RIGHT)
    message = told(check.from_outside, state_replayed)
    assert "history ends at 40 entries, in the plain run at 20" in message and "calls" not in message


def test_evaluation_mode_in_the_recomputation_is_told_why():
    message = told(check.from_outside, frozen_in_recomputation)
    assert "evaluation mode" in message and "BatchNorm" in message and "gradients are off by" in message


@pytest.mark.parametrize("answer", [buffers_spared, lambda module: announced])
def test_from_outside_what_covers_too_little_is_wrong(answer):
    assert "calls ends at 40, in the plain run at 20" in told(check.from_outside, answer)


def test_to_put_back_without_replaying_leaves_gradients_wrong():
    def put_back(module):
        history = Smoothed.forward.__defaults__[0]

        @contextmanager
        def recomputation():
            found = module.mean, module.calls, len(history)
            try:
                yield
            finally:
                module.mean, module.calls = found[:2]
                del history[found[2] :]

        return lambda: (nullcontext(), recomputation())

    message = told(check.from_outside, put_back)
    assert "gradients are off" in message and "ends at" not in message


def test_what_is_no_context_fn_is_told():
    assert "two context managers" in told(check.from_outside, lambda module: 3)
    assert "two context managers" in told(check.from_outside, lambda module: lambda: None)
    assert "two context managers" in told(check.from_outside, lambda module: lambda: (nullcontext(),))
    assert "def context(module)" in told(check.from_outside, Smoothed)
    assert "two context managers" in told(check.replayed, lambda: (1, 2))
    assert "def context()" in told(check.replayed, 3)


# --- sharpened: moved out, and replayed


def once(shape):
    unknown.TEMPERATURE = max(1.0, 0.99 * unknown.TEMPERATURE)
    sharpened.calls += 1
    return unknown.TEMPERATURE, torch.from_numpy(np.random.standard_normal(shape)).float()


def segment(x, temperature, noise):
    return x * torch.softmax((x + 0.1 * noise) / temperature, dim=1)


def test_moved_out_is_right():
    told(check.moved_out, (once, segment), status=RIGHT)


def test_moved_out_half_is_wrong():
    def once_without_counting(shape):
        unknown.TEMPERATURE = max(1.0, 0.99 * unknown.TEMPERATURE)
        return unknown.TEMPERATURE, torch.from_numpy(np.random.standard_normal(shape)).float()

    def quiet(x, temperature, noise):
        return x * torch.softmax(x / temperature, dim=1)

    def drawing(x, temperature, noise):
        return segment(x, temperature, torch.from_numpy(np.random.standard_normal(x.shape)).float())

    assert "calls stays where it was, for good" in told(check.moved_out, (once_without_counting, segment))
    assert "gradients are off" in told(check.moved_out, (once, quiet))
    assert told(check.moved_out, (once, drawing)).startswith("without checkpointing: ")
    message = told(check.moved_out, (lambda shape: (), lambda x: sharpened(x)))
    assert "calls ends at 40, in the plain run at 20" in message
    assert "returns a tuple" in told(check.moved_out, (lambda shape: 3, segment))
    assert "as a pair" in told(check.moved_out, once)


def replay(finally_too=True, entry_too=True):
    def context():
        entry = []

        @contextmanager
        def forward():
            entry.append(unknown.read())
            yield

        @contextmanager
        def recomputation():
            now = unknown.read()
            if entry_too:
                unknown.write(entry[0])
            try:
                yield
            except BaseException:
                if finally_too:
                    unknown.write(now)
                raise
            unknown.write(now)

        return forward(), recomputation()

    return context


def test_what_sharpened_writes_can_be_read_and_put_back():
    before = unknown.read()
    sharpened(rows())
    assert unknown.TEMPERATURE != before[0] and sharpened.calls == before[1] + 1
    assert np.random.get_state()[2] != before[2][2]
    unknown.write(before)
    assert (unknown.TEMPERATURE, sharpened.calls) == before[:2] and np.random.get_state()[2] == before[2][2]


def test_replayed_is_right():
    told(check.replayed, replay(), status=RIGHT)


def test_replayed_without_a_finally_is_undone_by_early_stop():
    message = told(check.replayed, replay(finally_too=False))
    assert message.startswith("non-reentrant, two calls before each backward")


def test_only_put_back_or_only_announced_is_wrong():
    message = told(check.replayed, replay(entry_too=False))
    assert "gradients are off" in message and "ends at" not in message
    assert "calls ends at 40, in the plain run at 20" in told(check.replayed, announced)


# --- Who chooses

GOOD = {"author": ("return", "whoever"), "user": ("replay", "no edit"), "tomorrow": ("leave", "same run")}


@pytest.mark.parametrize(
    ("role", "choice"),
    [
        ("author", ("idempotent", "whoever")),
        ("user", ("outside", "no edit")),
        ("user", ("idempotent", "no edit")),
        ("user", ("idempotent", "same run")),
        ("tomorrow", ("replay", "same run")),
        ("tomorrow", ("guard", "same run")),
        ("tomorrow", ("outside", "same run")),
    ],
)
def test_several_choices_can_be_defended(role, choice):
    told(check.who_chooses, {**GOOD, role: choice}, status=RIGHT)


def test_the_good_answer_is_right():
    told(check.who_chooses, GOOD, status=RIGHT)


@pytest.mark.parametrize(
    ("role", "repair", "part"),
    [
        ("author", "guard", "counts 2 calls per step"),
        ("author", "replay", "counts 2 calls per step"),
        ("author", "outside", "for others to say"),
        ("author", "leave", "gradients are wrong"),
        ("user", "guard", "cannot make"),
        ("user", "return", "cannot make"),
        ("tomorrow", "return", "keys, values"),
        ("tomorrow", "idempotent", "a risk for this one"),
        *[(role, "eval", "non-reentrant: raises, metadata") for role in ROLES],
        *[(role, "grad mode", "reentrant off, then on; non-reentrant on, then on") for role in ROLES],
    ],
)
def test_what_cannot_be_defended_is_told_why(role, repair, part):
    for reason in REASONS:
        message = told(check.who_chooses, {**GOOD, role: (repair, reason)})
        assert message.startswith(f"{role}: ") and part in message


def test_a_right_repair_needs_a_right_reason():
    for role, (repair, right) in GOOD.items():
        for reason in REASONS.keys() - {right} - ({"no edit", "same run"} if role != "author" else set()):
            assert "can be defended, but not with" in told(check.who_chooses, {**GOOD, role: (repair, reason)})


def test_what_is_not_on_the_list_is_refused():
    assert "is none of" in told(check.who_chooses, {**GOOD, "user": ("pray", "no edit")})
    assert "is none of" in told(check.who_chooses, {**GOOD, "user": ("replay", "why not")})
    assert "a pair" in told(check.who_chooses, {**GOOD, "user": "replay"})
    assert "author, user, tomorrow" in told(check.who_chooses, {})
    assert set(REPAIRS) >= {"guard", "replay", "return", "idempotent", "outside", "leave"}


def test_every_exercise_has_hints(capsys):
    for name, exercise in check.all.items():
        assert len(exercise.hints) >= 2
        getattr(hint, name)()
        assert "hint 1 of" in capsys.readouterr().out


def test_answers_of_unusual_form_are_right():
    told(check.find_all, {segment: (name for name in names) for segment, names in FOUND.items()}, status=RIGHT)
    told(check.who_chooses, {**GOOD, "author": ["Return", "WHOEVER"]}, status=RIGHT)
    assert "is none of" in told(check.who_chooses, {**GOOD, "user": (["replay"], "no edit")})
