"""Lesson 10: each fault is what its story says, the checks tell right from wrong, and the notebook shows it all."""

import ast
import inspect
import random
import textwrap
from functools import partial

import build
import checks
import jupytext
import numpy as np
import pytest
import torch
from answers.lesson_10 import ANSWERS, Dense, KeptForTheClass, LastOutside, LeftOpen, OneSegment, SeedsForAll
from torch import nn
from torch.nn.utils import parametrize

from recompute_lab.instruments.state import equal_values
from recompute_lab.instruments.steps import IMPLEMENTATIONS, outcomes, plainly
from recompute_lab.lessons.drills import DRILLS, check, hint, look, table, words
from recompute_lab.lessons.drills.drill import Drill
from recompute_lab.lessons.drills.measure import RUNS, WORDS, measured, word_for
from recompute_lab.lessons.drills.training import Step, difference, trained
from recompute_lab.lessons.exercise import NOT_ATTEMPTED, RIGHT, WRONG
from recompute_lab.specimens.drills import Balanced, Jittered, Probed, Repeated, Residual, Translator, Weighed
from recompute_lab.specimens.steps import Block, Model, power

SOURCE = next(path for path in build.sources() if path.name.startswith("10_"))
CELLS = jupytext.reads(SOURCE.read_text(encoding="utf-8"), fmt="py:percent").cells
EVERY_RIGHT = [(name, i) for name, answers in ANSWERS.items() for i in range(len(answers.right))]
EVERY_WRONG = [(name, i) for name, answers in ANSWERS.items() for i in range(len(answers.wrong))]
EACH = pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)


def named(name: str) -> Drill:
    return next(drill for drill in DRILLS if drill.name == name)


# --- The answers


@pytest.mark.parametrize("name, i", EVERY_RIGHT)
def test_a_right_answer_passes(name, i):
    verdict = check.all[name].judge(*ANSWERS[name].right[i])
    assert verdict.status == RIGHT and verdict.message, verdict


@pytest.mark.parametrize("name, i", EVERY_WRONG)
def test_a_wrong_answer_is_told_why(name, i):
    answer, part = ANSWERS[name].wrong[i]
    verdict = check.all[name].judge(*answer)
    assert verdict.status == WRONG and part in verdict.message, verdict


def test_each_exercise_has_answers_of_both_kinds():
    assert check.all.keys() == ANSWERS.keys() and len(ANSWERS) == 24
    for answers in ANSWERS.values():
        assert len(answers.right) >= 1 and len({part for _, part in answers.wrong}) >= 2


@EACH
def test_what_is_not_filled_in_is_not_judged(drill):
    empty = type("Empty", (drill.faulty,), {"__doc__": "Nothing yet."})
    assert check.all[f"mend_{drill.name}"].judge(empty).status == NOT_ATTEMPTED
    assert check.all[f"mend_{drill.name}"].judge(...).status == NOT_ATTEMPTED
    assert check.all[f"say_{drill.name}"].judge(dict.fromkeys(RUNS, ...)).status == NOT_ATTEMPTED


@EACH
def test_hints_come_one_at_a_time_and_are_short(drill, capsys):
    for hints in (drill.hints_say, drill.hints_mend):
        assert 2 <= len(set(hints)) <= 3
        assert all(len(text.split()) <= 60 for text in hints)
    getattr(hint, f"mend_{drill.name}")()
    assert capsys.readouterr().out.startswith("hint 1 of")


@EACH
def test_the_faulty_step_itself_is_no_repair(drill):
    unchanged = type("Unchanged", (drill.faulty,), {"note": "nothing of the original is changed"})
    assert check.all[f"mend_{drill.name}"].judge(unchanged).status == WRONG


def test_a_cache_that_an_answer_leaves_open_is_closed_with_it():
    assert check.mend_recurrent.judge(LeftOpen).status == WRONG
    assert parametrize._cache_enabled == 0


@pytest.mark.parametrize("answer", [SeedsForAll, KeptForTheClass, Residual])
def test_a_check_leaves_the_world_as_it_was(answer):
    def world():
        return [torch.get_rng_state(), [np.random.get_state()], [random.getstate()], dict(vars(answer)).keys()]

    before = world()
    assert check.mend_jitter.judge(answer).status == WRONG
    assert equal_values(world()[:3], before[:3]) and world()[3] == before[3]


# --- The faults

FOUND = {
    "jitter": ("right", "silent: off", "silent: off"),
    "residual": ("right", "loud: other", "loud: other"),
    "depth": ("right", "silent: off", "silent: off"),
    "locked": ("no use", "right", "right"),
    "balance": ("right", "silent: off", "side effect"),
    "probe": ("right", "silent: off", "loud: metadata"),
    "memo": ("right", "silent: missing", "loud: count"),
    "memory": ("right", "loud: other", "right"),
    "codebook": ("right", "silent: off", "silent: off"),
    "adaptive": ("right", "loud: other", "right"),
    "route": ("right", "silent: off", "loud: metadata"),
    "recurrent": ("right", "right", "loud: metadata"),
}


@EACH
@pytest.mark.parametrize("threads", [1, 2])
def test_each_fault_is_measured(drill, threads):
    torch.set_num_threads(threads)
    for number in range(len(drill.staged)):
        found = measured(drill, number)
        assert tuple(found[run][0] for run in RUNS) == FOUND[drill.name], found


def test_every_word_but_none_too_many():
    assert {word for found in FOUND.values() for word in found} == WORDS.keys()
    assert len(words().splitlines()) == len(WORDS)


def test_reentrant_gives_all_the_gradient_to_the_last_depth_and_non_reentrant_gets_only_that_one_right():
    rows = {}
    for name, run in {"plain": plainly, **IMPLEMENTATIONS}.items():
        model = Repeated()
        model.step(run)
        rows[name] = model.depths.grad
    assert [bool(row.any()) for row in rows["reentrant"]] == [False, False, False, True]
    right = [torch.allclose(a, b) for a, b in zip(rows["non-reentrant"], rows["plain"], strict=True)]
    assert right == [False, False, False, True]


def test_the_balance_is_logged_twice_as_large():
    logged = {}
    for name, run in {"plain": plainly, **IMPLEMENTATIONS}.items():
        model = Balanced()
        model.step(run)
        logged[name] = model.logged
    assert 0.9 < logged["plain"] < 1.2
    assert logged["reentrant"] == pytest.approx(2 * logged["plain"])
    assert logged["non-reentrant"] == pytest.approx(2 * logged["plain"])


def test_what_the_normalisation_saves_in_its_two_modes():
    error = outcomes(Probed)["non-reentrant"].divergence.raised
    assert str(error).count("torch.Size([0])") == str(error).count("torch.Size([16])") == 2


def test_one_decoder_layer_is_right_by_luck_and_to_retain_the_graph_does_not_help():
    class OneLayer(Translator):
        def step(self, run):
            self.memory = torch.tanh(self.encoder(self.source))
            loss = power(run(self.layer, self.stem(self.rows), 0))
            loss.backward()
            return loss.detach()

    class Retained(Translator):
        def step(self, run):
            self.memory = torch.tanh(self.encoder(self.source))
            x = self.stem(self.rows)
            for depth in range(2):
                x = run(self.layer, x, depth)
            power(x).backward(retain_graph=True)

    for right in (OneLayer, OneSegment):
        assert [word_for(result) for result in outcomes(right).values()] == ["right", "right"]
    assert [word_for(result) for result in outcomes(Retained).values()] == ["loud: other", "right"]


@pytest.mark.parametrize("make, times", [(Weighed, 4), (LastOutside, 2)])
def test_how_often_the_block_runs_where_losses_are_weighed(make, times):
    model, calls = make(), []
    model.block.register_forward_pre_hook(lambda *_: calls.append(1))
    model.step(IMPLEMENTATIONS["non-reentrant"])
    assert len(calls) == times


def test_all_experts_on_all_rows_silence_the_error_and_not_the_fault():
    for _, stage in named("route").staged:
        assert [word_for(result) for result in outcomes(stage(Dense)).values()] == ["silent: off", "silent: off"]


def test_the_tie_is_decided_by_the_last_bits_alone():
    """The two passes' scores differ in one column by no more than its rounding, and the route in one row."""
    for _, stage in named("route").staged:
        model = stage(named("route").faulty)()
        with torch.no_grad():
            scores = model.router(model.stem(model.rows))
            one, other = model.rounded(scores), model.rounded(scores)
        assert torch.allclose(one, other, rtol=3e-6, atol=0) and not torch.equal(one, other)
        assert int((one.argmax(1) != other.argmax(1)).sum()) == 1


# --- What the checks stand on


def test_a_difference_is_told_in_words():
    one = Step(torch.tensor(1.0), {"w": torch.ones(3), "v": None}, {"count": 1.0, "t": torch.ones(2)})

    def against(loss=None, exact=True, **changed):
        other = Step(one.loss if loss is None else loss, {**one.gradients}, {**one.state})
        for name, value in changed.items():
            (other.gradients if name in other.gradients else other.state)[name] = value
        return difference([one, other], [one, one], exact) or difference([other], [one], exact)

    assert against() == ""
    assert against(torch.tensor(2.0)) == "the loss is 2, not 1 in step 2"
    assert against(torch.tensor(1.0 + 2**-23)).startswith("the loss differs in its last bits")
    assert against(torch.tensor(1.0 + 2**-23), exact=False) == ""
    assert against(torch.ones(2)).startswith("the step returns no loss")
    assert "with its graph" in against(torch.ones(()).requires_grad_())
    assert against(w=None) == "w has no gradient in step 2"
    assert against(w=torch.zeros(3)) == "the gradient of w is off by 1 in step 2"
    assert against(v=torch.ones(1)) == "v has a gradient, where there should be none in step 2"
    assert against(v=torch.zeros(1)) == ""  # zeros are what None stands for
    assert against(count=2.0) == "count is 2, not 1 in step 2"
    assert difference([Step(one.loss, one.gradients, {**one.state, "count": 1 + 1e-9})], [one], exact=True).startswith(
        "count differs in its last bits"
    )
    assert against(t=torch.zeros(2)) == "t is not what it should be in step 2"


def test_a_training_changes_nothing_but_its_own_model():
    before = torch.get_rng_state()
    first, again = (trained(Jittered, [plainly] * 2, lambda model: {}) for _ in range(2))
    assert difference(again, first, exact=True) == ""
    assert torch.equal(torch.get_rng_state(), before)


def test_a_look_at_any_step(capsys):
    class Warmed(Model):
        def build(self):
            self.stem, self.block, self.calls = nn.Linear(16, 16), Block(), 0

        def step(self, run):
            raise ValueError("no batch")

    look(Warmed)
    assert capsys.readouterr().out.split(maxsplit=1) == ["plain", "loud: other      it raises ValueError: no batch.\n"]
    look(partial(Residual))
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert [line[:31].split(maxsplit=1)[1].strip() for line in lines] == ["right", "loud: other", "loud: other"]


# --- The notebook


def test_the_levels_rise_and_the_minutes_fit():
    levels = ["screen", "onsite", "staff"]
    assert [d.level for d in DRILLS] == sorted((d.level for d in DRILLS), key=levels.index)
    assert len({d.faulty for d in DRILLS}) == len(DRILLS) == 12
    assert all(5 <= d.minutes <= 15 for d in DRILLS)


def test_the_notebooks_table_is_the_drills():
    assert any(table() in cell.source for cell in CELLS if cell.cell_type == "markdown")


@EACH
def test_the_notebook_shows_each_step_in_full(drill):
    """All methods of the class, line for line, under its number and title."""
    path = "recompute_lab/specimens/drills/" + drill.faulty.__module__.rpartition(".")[2] + ".py"
    (cell,) = [c for c in CELLS if c.cell_type == "markdown" and f"# {path}" in c.source]
    number = DRILLS.index(drill) + 1
    assert cell.source.startswith(f"### {number} · {drill.title}\n\n*{drill.minutes} minutes · {drill.topic}.*")
    shown = [line for quoted, pieces in checks.quoted(cell) for piece in pieces for line in piece.splitlines()]
    assert [line for line in shown if line.strip()] == methods(drill.faulty)


def methods(kind: type) -> list[str]:
    """The lines of a class's methods, dedented, without blank ones."""
    source = inspect.getsource(kind)
    lines, found = source.splitlines(), []
    for node in ast.parse(source).body[0].body:
        if isinstance(node, ast.FunctionDef):
            start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found += textwrap.dedent("\n".join(lines[start - 1 : node.end_lineno])).splitlines()
    return [line for line in found if line.strip()]


def test_the_notebook_asks_each_exercise_once_and_in_order():
    asked = [
        node.func.attr
        for cell in CELLS
        if cell.cell_type == "code"
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "check"
    ]
    assert asked == [f"{part}_{drill.name}" for drill in DRILLS for part in ("say", "mend")]
