"""What differs between versions of torch: the installed one gives the answers of its column, and what follows holds."""

import gc
import re
import warnings
from functools import partial

import course
import pytest
import torch
from saved_hooks import hooked
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, set_checkpoint_early_stop

from recompute_lab import NO_EARLY_STOP, divergence, passes
from recompute_lab.instruments import torch_version
from recompute_lab.instruments.torch_version import NEWEST, OLDEST, QUESTIONS, not_tested, shown
from recompute_lab.lessons import installation
from recompute_lab.specimens.guards import clip_when_needed

PAGE = course.text_of(course.NOTEBOOKS / "versions.md")
HEAD, _, *ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")
]
COLUMNS = {cell.removeprefix("torch "): number for number, cell in enumerate(HEAD) if cell.startswith("torch ")}
INSTALLED = re.match(r"[\d.]*\d", torch.__version__)[0]
TABLE = {row[0].strip("`"): row for row in ROWS}


def leaf(*shape):
    return torch.ones(shape, requires_grad=True)


# The page


def test_the_page_has_all_questions_in_their_order():
    assert list(TABLE) == [question.__name__ for question in QUESTIONS]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)
def test_the_installed_torch_answers_as_its_column_says(question):
    answer = shown(question())
    assert answer == shown(question()), "asked again, it says the same"
    if INSTALLED not in COLUMNS:
        pytest.skip(f"torch {INSTALLED} is not in the table; it answers: {answer}")
    if question is torch_version.mask_from_seed_0 and not torch.backends.mkl.is_available():
        pytest.skip("the table has the masks that torch draws with MKL")
    assert answer == TABLE[question.__name__][COLUMNS[INSTALLED]]


def test_a_row_is_there_because_its_answers_differ():
    for name, row in TABLE.items():
        assert len({row[number] for number in COLUMNS.values()}) > 1, name


def test_the_columns_are_from_the_oldest_to_the_newest_that_are_supported():
    releases = [tuple(map(int, version.split(".")[:2])) for version in COLUMNS]
    assert releases == sorted(releases) and (releases[0], releases[-1]) == (OLDEST, NEWEST)
    assert installation.NEEDED["torch"] == OLDEST


def test_the_report_has_a_line_for_each():
    lines = torch_version.report().splitlines()
    assert lines[0] == f"torch {torch.__version__}"
    assert [line.split()[0] for line in lines[1:]] == list(TABLE)


# Older and newer ones


def test_a_torch_that_is_tested_is_not_spoken_of():
    assert not any(map(not_tested, ["2.6.0", "2.6.0+cu124", "2.9.1", "2.13.0+cpu", "2.14.1", "unknown"]))
    assert [line in installation.machine() for line in [not_tested()]] == [True]


@pytest.mark.parametrize("version", ["2.15.0", "2.15.0+cpu", "2.20.1", "3.0.0", "2.15.0a0+git1234"])
def test_a_newer_one_is_met_with_what_to_do(version):
    told = not_tested(version)
    assert told.startswith(f"torch {version} is newer than any") and "'torch<2.15'" in told
    assert max(map(len, told.splitlines())) <= 115


@pytest.mark.parametrize("version", ["2.5.1", "1.13.0+cu117", "0.4"])
def test_an_older_one_is_too_old(version):
    assert not_tested(version) == f"torch {version} is too old for this course: 2.6 is needed."


def test_the_check_of_the_installation_says_it_and_finds_no_problem(monkeypatch):
    pytest.importorskip("jupyterlab")
    before = installation.machine()
    monkeypatch.setattr(torch_version, "NEWEST", (2, 5))
    monkeypatch.setattr(torch_version, "OLDEST", (2, 4))
    assert installation.problems() == []
    assert installation.machine().startswith(before) and "newer than any that this course" in installation.machine()


# Nothing is left behind


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)
def test_to_ask_leaves_everything_as_it_was(question):
    stream, filters = torch.get_rng_state(), len(warnings.filters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        question()
    assert torch.equal(torch.get_rng_state(), stream) and len(warnings.filters) == filters
    assert not hooked() and torch.empty(0).device.type == "cpu" and torch.is_grad_enabled()


# What follows


def test_the_hooks_of_a_forward_that_failed_are_on_while_its_error_is_held_or_not_at_all():
    """Of a forward that failed no hooks are on once its error is let go, and in newer versions none before."""
    lingers = torch_version.failed_forward_lingers()

    def failing(x):
        raise ArithmeticError

    try:
        checkpoint(failing, leaf(), use_reentrant=False)
    except ArithmeticError as error:
        held = error
    on = hooked()
    del held
    gc.collect()
    assert on == lingers and not hooked()


def both_spellings(context, **argument):
    """How often a segment runs to its end, under the context manager and with the argument."""
    ended = []

    def segment(x):
        y = x.sin() * 2
        ended.append(1)
        return y

    with set_checkpoint_early_stop(context):
        y = checkpoint(segment, leaf(), use_reentrant=False, **argument)
    y.backward()
    return len(ended)


def test_the_context_manager_decides_in_every_version():
    assert (both_spellings(True), both_spellings(False)) == (1, 2)


@pytest.mark.skipif(torch_version.early_stop_argument() != "checkpoint", reason="this torch has no such argument")
def test_where_both_are_given_the_context_manager_decides():
    assert both_spellings(True, early_stop=False) == 1
    assert both_spellings(False, early_stop=True) == 2


def test_an_argument_that_is_not_known_goes_to_the_segment():
    def call():
        return checkpoint(torch.sin, leaf(), use_reentrant=False, early_stop=False)

    if torch_version.early_stop_argument() == "checkpoint":
        assert call().grad_fn is not None
    else:
        with pytest.raises(TypeError, match="early_stop"):
            call()


def test_swallowed_early_stop_is_an_assertion_error_which_names_it_or_says_nothing():
    def with_fallback(x):
        x = x * x
        try:
            return x.sin()
        except Exception:
            return x.cos().exp()

    error = passes(with_fallback, leaf(3)).error
    assert isinstance(error, AssertionError) and str(error) == torch_version.swallowed_stop_says()
    assert "early_stop" in str(error) or not str(error)
    assert divergence(with_fallback, leaf(3), strategy=NO_EARLY_STOP).equal


def gradient_on_the_bound(clip, *others):
    x = torch.tensor([1.0, *others], requires_grad=True)
    clip(x, 1.0).sum().backward()
    return x.grad[0].item()


def test_on_the_bound_the_guarded_clip_has_the_answers_that_the_lesson_says():
    there = torch_version.clamp_gradient_on_bound()
    clamp = lambda x, bound: x.clamp(-bound, bound)  # noqa: E731
    assert (gradient_on_the_bound(clip_when_needed, 0.5), gradient_on_the_bound(clip_when_needed, 2.0)) == (1.0, there)
    assert gradient_on_the_bound(clamp, 0.5) == gradient_on_the_bound(clamp, 2.0) == there


def test_a_seed_gives_equal_uniform_and_normal_numbers_in_all_versions():
    torch.manual_seed(0)
    assert torch.rand(2).mul(1000).int().tolist() == [496, 768]
    torch.manual_seed(0)
    assert torch.randn(2).mul(1000).int().tolist() == [1540, -293]


def test_an_outer_error_counts_what_an_inner_checkpoint_keeps():
    flips = iter((True, False))

    def outer(x):
        y = checkpoint(torch.sin, x * 2, use_reentrant=False)
        return y.exp() if next(flips) else y + 1

    said = passes(outer, leaf(3)).mismatch
    assert said.saved - said.recomputed == 1 and said.recomputed == torch_version.inner_checkpoint_saves()


def test_a_policy_that_changes_its_mind_is_asked_or_not():
    """Nothing in the forward is kept; asked again, it says that all was."""
    asked = []

    def policy(*_, **__):
        asked.append(1)
        return CheckpointPolicy.PREFER_RECOMPUTE if len(asked) <= 2 else CheckpointPolicy.MUST_SAVE

    contexts = partial(torch.utils.checkpoint.create_selective_checkpoint_contexts, policy)
    y = checkpoint(lambda x: x.sin().exp(), leaf(), use_reentrant=False, context_fn=contexts)
    if torch_version.policy_is_asked_again():
        with pytest.raises(RuntimeError, match="not found in storage"):
            y.backward()
    else:
        y.backward()
        assert len(asked) == 2


def test_the_decorator_checkpoints():
    if not torch_version.makes_a_decorator():
        with pytest.raises(TypeError):
            checkpoint(use_reentrant=False)
        return
    runs = []

    @checkpoint(use_reentrant=False)
    def segment(x):
        runs.append(1)
        return x.sin()

    segment(leaf()).backward()
    assert len(runs) == 2
