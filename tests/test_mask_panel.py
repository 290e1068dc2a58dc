"""Lesson 04's panel of masks: what it says agrees with who replays what, at every p and number of layers."""

import io
import random
from itertools import product

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.collections import QuadMesh
from PIL import Image
from test_streams import REPLAYED

from recompute_lab.instruments.gradients import Divergence, Row
from recompute_lab.instruments.state import same_bits
from recompute_lab.instruments.streams import process_streams
from recompute_lab.lessons.mask_panel import SETTINGS, measure, panel
from recompute_lab.specimens.draws import DRAWS
from recompute_lab.views import style
from recompute_lab.views.mask_panel import STAGES, MaskPanel
from recompute_lab.views.masks import Case, draw_masks, masks_and_divergence, sentence

OWN = "the course's own"
# The columns of the lesson's table, by what the panel's controls say.
COLUMNS = {
    ("reentrant", True): "reentrant",
    ("reentrant", False): "reentrant, preserve_rng_state=False",
    ("non-reentrant", True): "non-reentrant",
    ("non-reentrant", False): "non-reentrant, preserve_rng_state=False",
    (OWN, "nothing"): "own, nothing replayed",
    (OWN, "torch's default"): "own, torch's streams",
    (OWN, "every default"): "own, every stream",
    (OWN, "every default, and generators by name"): "own, told of the generator",
}
EXTREMES = list(product((0.0, 0.1, 0.9), (1, 8)))


def texts(made) -> list[str]:
    return [t.get_text() for t in made.findobj(matplotlib.text.Text) if t.get_text()]


@style.styled
def boxes(made) -> dict:
    """Where each text of the figure stands, in pixels."""
    made.draw_without_rendering()
    found = [t for t in made.findobj(matplotlib.text.Text) if t.get_text() and t.get_visible()]
    return {text: matplotlib.text.Text.get_window_extent(text) for text in found}


@pytest.fixture(scope="module")
def shown() -> MaskPanel:
    return panel()


def put(shown: MaskPanel, stream: str, implementation: str, setting: bool | str) -> None:
    shown.stream.value, shown.implementation.value = stream, implementation
    (shown.stage if implementation == OWN else shown.preserve).value = setting


# --- what is measured, and what is said of it


def test_every_column_of_the_table_can_be_chosen():
    assert sorted(map(str, SETTINGS)) == sorted(map(str, COLUMNS)) and sorted(COLUMNS.values()) == sorted(REPLAYED)


@pytest.mark.parametrize("stream", DRAWS)
@pytest.mark.parametrize("implementation, setting", COLUMNS, ids=str)
def test_the_panel_agrees_with_the_table(shown, stream, implementation, setting):
    put(shown, stream, implementation, setting)
    replayed = stream in REPLAYED[COLUMNS[implementation, setting]]
    case, said = measure(stream, implementation, setting), shown.message
    assert said == sentence(case) and said.endswith(".")
    assert (case.divergence.outcome == "fine", case.divergence.equal, case.differ == 0) == (replayed,) * 3
    assert (f"{stream} was replayed" in said, f"{stream} was not replayed" in said) == (replayed, not replayed)
    assert ("drew the same mask" in said, "drew another mask" in said) == (replayed, not replayed)
    assert ("equal the plain run's, bit for bit" in said, "No error" in said) == (replayed, not replayed)
    assert replayed or (0.4 < case.differ < 0.6 and 0.2 < case.divergence.worst < 3)
    assert Image.open(io.BytesIO(shown.picture.value)).size == (1134, 445)


@pytest.mark.parametrize("stream", DRAWS)
@pytest.mark.parametrize("implementation, setting", COLUMNS, ids=str)
@pytest.mark.parametrize("p, layers", EXTREMES)
def test_the_ends_of_the_scales(stream, implementation, setting, p, layers):
    case = measure(stream, implementation, setting, p, layers)
    replayed = stream in REPLAYED[COLUMNS[implementation, setting]]
    assert case.divergence.raised is None and case.forward.shape == (32, 16)
    assert len(case.divergence.rows) == 2 * layers + 1
    assert case.divergence.equal == (case.differ == 0) == (replayed or p == 0)
    if p == 0:
        assert "at p = 0 it keeps everything, replayed or not" in sentence(case)
        assert bool((case.forward == 1).all())
    elif not replayed:
        assert 0.1 < case.differ < 0.27  # 2 p (1 - p) = 0.18


def collecting():
    """A generator that keeps what it is sent: a list that the draw could reach would be put back after each run."""
    seen: list[torch.Tensor] = []
    while True:
        sent = yield seen
        seen.append(sent)


@pytest.mark.parametrize("stream", DRAWS)
def test_the_masks_shown_are_those_that_the_gradients_come_from(stream, monkeypatch):
    log = collecting()
    seen = next(log)

    class Seen(DRAWS[stream]):
        def __call__(self, shape):
            return log.send(super().__call__(shape))[-1]

    monkeypatch.setitem(DRAWS, stream, Seen)
    case = measure(stream, "reentrant", False, layers=2)
    shown_forward, shown_again, plain, forward, recomputation = seen[::2]  # the first layer's
    assert shown_forward is case.forward and shown_again is case.recomputation
    assert same_bits(case.forward, plain) and same_bits(case.forward, forward)
    assert same_bits(case.recomputation, recomputation)


def test_measuring_leaves_the_streams_where_they_are():
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    before = [stream.read() for stream in process_streams()]
    measure("Python's random", OWN, "nothing")
    assert [*map(repr, before)] == [repr(stream.read()) for stream in process_streams()]


def test_what_cannot_be_measured_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="'dice' is none of: torch's default, a torch.Generator"):
        measure("dice")
    with pytest.raises(ValueError, match="no way to checkpoint: reentrant, nothing. There are: reentrant, True;"):
        measure("a torch.Generator", "reentrant", "nothing")
    with pytest.raises(ValueError, match="p is the share"):
        measure("a torch.Generator", p=1.0)


def test_gradients_that_the_lesson_does_not_have_are_told_as_well():
    mask = torch.ones(2, 2)
    off = Divergence("s", [Row("w", 1e-7, 1.0, False)])
    assert "right up to rounding" in sentence(Case("a stream", 0.5, mask, mask, off))
    died = Divergence("s", raised=RuntimeError("no"))
    assert "An error ended backward (RuntimeError)." in sentence(Case("a stream", 0.5, mask, mask, died))


# --- the figure


def test_the_figure_shows_both_masks_and_the_places():
    case = measure("a torch.Generator")
    made = masks_and_divergence(case)
    first, second, differ = (m.get_array().astype(bool) for m in made.axes[0].findobj(QuadMesh))
    assert (first == (case.forward != 0).numpy()).all() and (second == (case.recomputation != 0).numpy()).all()
    assert (differ == (first != second)).all() and differ.mean() == case.differ
    shown = texts(made)
    assert {"forward", "recomputation", "they differ", f"{case.differ:.0%} of the places"} <= set(shown)
    assert {f"{mask.mean():.0%} kept" for mask in (first, second)} <= set(shown) and "nowhere" not in shown


def test_equal_masks_differ_nowhere():
    shown = texts(masks_and_divergence(measure("torch's default", p=0.0, layers=1)))
    assert {"nowhere", "100% kept", "0% of the places"} <= set(shown)


@pytest.mark.parametrize("p, layers", [(0.5, 4), *EXTREMES])
def test_no_text_of_the_figure_is_small_or_in_the_way(p, layers):
    made = masks_and_divergence(measure("a torch.Generator", p=p, layers=layers))
    width, height = made.get_size_inches() * made.dpi
    masks = made.axes[0].get_window_extent()
    for text, box in boxes(made).items():
        assert text.get_fontsize() >= 8, text
        assert box.x0 >= 0 and box.x1 <= width + 1 and box.y0 >= 0 and box.y1 <= height, text
        assert text in made.axes[0].texts or box.x0 > masks.x1, text


def test_masks_of_different_shapes_are_refused():
    _, axes = style.figure()
    with pytest.raises(ValueError, match=r"have one shape; got \[2, 3\] and \[3, 2\]"):
        draw_masks(axes, torch.ones(2, 3, dtype=torch.bool), torch.ones(3, 2, dtype=torch.bool))


# --- the panel


def test_the_panel_starts_at_a_generator_that_nobody_replays_and_has_labels():
    fresh = panel()
    assert fresh.stream.value == "a torch.Generator" and "since a torch.Generator was not replayed" in fresh.message
    choices = (fresh.stream, fresh.implementation, fresh.preserve, fresh.stage, fresh.p, fresh.layers.children[0])
    assert [control.description for control in choices] == [
        "Masks are drawn from",
        "Implementation",
        "preserve_rng_state",
        "The own one replays",
        "p (share dropped)",
        "Layers with dropout",
    ]
    assert list(fresh.stream.options) == list(DRAWS) and [v for _, v in fresh.p.options] == [i / 10 for i in range(10)]
    assert (fresh.layers.low, fresh.layers.high) == (1, 8)
    assert repr(fresh) == "Panel with stream, implementation, preserve, stage, p, layers: run this cell to use it."


def test_what_means_nothing_is_disabled_and_keeps_its_value(shown):
    put(shown, "torch's default", OWN, STAGES[1])
    put(shown, "torch's default", "non-reentrant", False)
    assert shown.stage.disabled and not shown.preserve.disabled and "not replayed" in shown.message
    shown.implementation.value = OWN
    assert shown.preserve.disabled and not shown.stage.disabled and "was replayed" in shown.message
    assert (shown.preserve.value, shown.stage.value) == (False, STAGES[1])
    shown.implementation.value = "reentrant"
    assert shown.stage.disabled and not shown.preserve.disabled and "not replayed" in shown.message


def test_each_combination_is_measured_once():
    asked = []
    one = MaskPanel(lambda *of: asked.append(of) or measure(*of), DRAWS)
    assert asked == [("torch's default", "non-reentrant", True, 0.5, 4)]
    first = one.picture.value, one.message
    one.stage.value = STAGES[2]  # disabled: it changes nothing
    assert (one.picture.value, one.message) == first and len(asked) == 1
    one.layers.value = 8
    one.layers.value = 4
    assert (one.picture.value, one.message) == first and len(asked) == 2
    one.p.value = 0.0
    one.refresh()
    assert one.message != first[1] and len(asked) == 3


def test_layers_out_of_range_become_the_nearest_end(shown):
    shown.layers.value = 99
    assert shown.layers.value == 8
    shown.layers.value = 4


def test_what_goes_wrong_inside_is_a_sentence():
    def broken(stream, *rest):
        if stream == "NumPy's default":
            raise RuntimeError("no luck")
        return measure(stream, *rest)

    one = MaskPanel(broken, DRAWS)
    first = one.picture.value, one.message
    one.stream.value = "NumPy's default"
    assert one.message == "This went wrong (RuntimeError: no luck). The controls still work."
    assert one.picture.value != first[0]
    one.stream.value = "torch's default"
    assert (one.picture.value, one.message) == first
