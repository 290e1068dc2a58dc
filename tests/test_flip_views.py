"""Lesson 03's figures and panel: every outcome in words and told apart without colour, every error at its place."""

import io
import math
from collections import Counter
from itertools import product

import matplotlib
import pytest
from matplotlib.patches import Rectangle
from PIL import Image

from recompute_lab.instruments.checkpointing import NO_EARLY_STOP, NON_REENTRANT, PLAIN, REENTRANT, Passes, Strategy
from recompute_lab.instruments.gradients import Divergence, Row, divergence
from recompute_lab.instruments.ledger import Ledger
from recompute_lab.lessons import loud_or_silent
from recompute_lab.lessons.flip_panel import measure, panel
from recompute_lab.lessons.loud_or_silent import BRANCHES, DIRECTIONS
from recompute_lab.views import outcomes, style
from recompute_lab.views.divergence import EQUAL, MISSING, over_steps, per_layer
from recompute_lab.views.flip_panel import FlipPanel
from recompute_lab.views.outcomes import Point, brief, loudness
from recompute_lab.views.slots import Case, sentence, slots


@pytest.fixture(scope="module")
def cells():
    return list(loud_or_silent.matrix())


def texts(made) -> list[str]:
    return [t.get_text() for t in made.findobj(matplotlib.text.Text) if t.get_text()]


@style.styled
def drawn(made):
    """Laid out: what overlaps, overlaps now."""
    made.draw_without_rendering()
    return made


def boxes_of(texts) -> list:
    return [matplotlib.text.Text.get_window_extent(text) for text in texts]  # without the arrow of an annotation


def lines(made, **wanted):
    found = made.findobj(lambda a: isinstance(a, matplotlib.lines.Line2D))
    return [line for line in found if all(getattr(line, f"get_{k}")() == v for k, v in wanted.items())]


# --- the matrix


def test_the_matrix_says_every_outcome_in_words(cells):
    shown = texts(outcomes.matrix(cells))
    for word in ("count", "metadata", "more"):
        assert word in shown
    for _, _, result in cells:
        if result.raised is None:
            assert any(f"{result.outcome} {brief(result.damage)}" in text for text in shown)
        if result.missing:
            assert any("2 missing" in text for text in shown)
        if result.unexpected:
            assert any("2 extra" in text for text in shown)


def test_boxes_cover_every_cell_once(cells):
    boxes = [p for p in outcomes.matrix(cells).axes[0].patches if isinstance(p, Rectangle)]
    columns = Counter()
    for box in boxes:
        row = math.floor(box.get_y())
        columns.update((row, x) for x in range(math.floor(box.get_x()), math.ceil(box.get_x() + box.get_width())))
    assert columns == Counter({(row, column): 1 for row in range(10) for column in range(8)})


def test_outcomes_are_told_apart_without_colour():
    looks = [outcomes._LOUD, outcomes._FINE, outcomes._SILENT]
    assert len({look.get("hatch") for look in looks}) == 3


def test_no_text_of_the_matrix_is_small_or_leaves_the_page(cells):
    made = drawn(outcomes.matrix(cells))
    width, height = made.get_size_inches() * made.dpi
    for text in made.findobj(matplotlib.text.Text):
        if text.get_text():
            assert text.get_fontsize() >= 8, text
            box = text.get_window_extent()
            assert box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1, text


def test_a_matrix_is_whole_or_refused_in_a_sentence(cells):
    with pytest.raises(ValueError, match="no cells"):
        outcomes.matrix([])
    with pytest.raises(ValueError, match="two results for scale per vector"):
        outcomes.matrix([*cells, cells[0]])
    with pytest.raises(ValueError, match="no result for early exit, false, then true, under non-reentrant"):
        outcomes.matrix(cells[:-1])
    with pytest.raises(ValueError, match="plain is none"):
        outcomes.matrix([(cells[0][0], PLAIN, cells[0][2])])


@pytest.mark.parametrize(
    "error, text", [(0, "0"), (8.9e-7, "9e-7"), (1.234, "1.2"), (1.0, "1.0"), (42, "42"), (0.034, "0.034")]
)
def test_errors_in_brief(error, text):
    assert brief(error) == text


def test_a_missing_gradient_counts_as_wrong_by_its_size():
    rows = [Row("a", 0.1, 1.0, False)]
    assert Divergence("x", rows).damage == 0.1
    assert Divergence("x", rows, missing=["b"]).damage == 1.0
    assert Divergence("x", [Row("a", 3.0, 1.0, False)], missing=["b"]).damage == 3.0


# --- loudness


def points(cells):
    cost = {(f.branch, f.direction): d.damage for f, s, d in cells if s.use_reentrant}
    for f, s, d in cells:
        implementation = "reentrant" if s.use_reentrant else "non-reentrant"
        loud = d.raised is not None
        error = cost[f.branch, f.direction] if loud else d.damage
        yield Point(f"{f.branch}: {f.direction}", implementation, loud, error)


def test_all_four_corners_say_what_stands_there(cells):
    shown = texts(loudness(points(cells)))
    assert all(sum(f"{a} and {b}" in text for text in shown) == 1
               for a in ("loud", "silent") for b in ("harmless", "harmful"))  # fmt: skip


def test_labels_of_points_do_not_touch(cells):
    made = drawn(loudness(points(cells)))
    boxes = boxes_of(made.axes[0].texts)
    assert len(boxes) > 20
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i]), made.axes[0].texts[i]


def test_implementations_have_marks_of_their_own(cells):
    made = loudness(points(cells))
    assert {line.get_marker() for line in lines(made, linestyle="None")} >= {"o", "s"}


def test_points_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match="no points"):
        loudness([])
    with pytest.raises(ValueError, match="that of b is not"):
        loudness([Point("a", "x", True, 1.0), Point("b", "x", True, math.nan)])
    with pytest.raises(ValueError, match="none for 4"):
        loudness([Point("a", str(i), True, 1.0) for i in range(5)])


def test_errors_outside_the_axes_stand_at_their_edge():
    axes = loudness([Point("a", "x", True, 0.0), Point("b", "x", False, math.inf)]).axes[0]
    assert {x for line in lines(axes, marker="o") for x in line.get_xdata()} == {1e-8, 10.0}


# --- divergence


def rows(**errors: float) -> list[Row]:
    return [Row(name.replace("_", "."), error, 1.0, error == 0) for name, error in errors.items()]


def test_zero_has_a_floor_and_missing_an_empty_mark():
    result = Divergence("s", rows(m_a=0.0, m_b=1e-7, m_c=0.5), missing=["m.d"], unexpected=["m.e"])
    made = per_layer({"one": result})
    (line,) = lines(made, label="one")[:1]
    assert list(line.get_ydata())[:3] == [EQUAL, 1e-7, 0.5]
    (missing,) = lines(made, gid="missing")
    assert list(missing.get_ydata()) == [MISSING] and missing.get_markerfacecolor() == "white"
    (unexpected,) = lines(made, gid="unexpected")
    assert unexpected.get_marker() == "X"
    assert {"missing", "the plain run has none", "shaded: no more than rounding"} <= set(texts(made))
    assert "equal,\nbit for bit" in texts(made)


def test_parameters_stand_in_the_order_of_the_forward():
    route = loud_or_silent.flip("route", "true, then false")
    both = {s.name: divergence(route.segment, route.x, strategy=s) for s in (NON_REENTRANT, REENTRANT)}
    made = drawn(per_layer(both))
    names = [t.get_text() for t in made.axes[0].get_xticklabels()]
    assert names[0] == "layers.0.weight" and names[-1] == "args[0]"
    assert names.index("update.bias") < names.index("branch.long.weight") < names.index("branch.short.bias")


def test_a_series_that_raised_is_named():
    scale = loud_or_silent.flip("scale per vector", "true, then false")
    made = per_layer({"a": divergence(scale.segment, scale.x, strategy=NON_REENTRANT)})
    assert "a: raised (count)" in texts(made)


def test_infinite_errors_and_many_parameters_are_drawn():
    many = Divergence("s", [Row(f"m.{i}", math.inf, 0.0, False) for i in range(200)])
    made = drawn(per_layer({"a": many}))
    assert len(made.axes[0].get_xticklabels()) <= 26


@pytest.mark.parametrize("draw", [per_layer, over_steps])
def test_series_are_some_and_not_too_many(draw):
    with pytest.raises(ValueError, match="nothing to draw"):
        draw({})
    with pytest.raises(ValueError, match="at most 5"):
        draw({str(i): [1.0] for i in range(6)})


def test_steps_have_the_same_floor_and_names_at_their_ends():
    made = drawn(over_steps({"plain": [0.0] * 9, "gate": [1e-7] * 4 + [1.2] * 5, "cap": [2e-7] * 6},
                            first=5, died={"cap": "raised"}))  # fmt: skip
    (plain,) = lines(made, label="plain")
    assert set(plain.get_ydata()) == {EQUAL} and list(plain.get_xdata())[0] == 5
    assert {"plain", "gate", "cap: raised"} <= set(texts(made))
    assert any(line.get_marker() == "X" for line in lines(made))


def test_names_at_the_ends_do_not_touch():
    made = drawn(over_steps({str(i) * 8: [1e-7, 1.0 + i / 100] for i in range(5)}))
    boxes = boxes_of(t for t in made.axes[0].texts if len(t.get_text()) == 8)
    assert len(boxes) == 5
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_steps_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="no steps in a"):
        over_steps({"a": []})
    with pytest.raises(ValueError, match="b died, and is none of the series"):
        over_steps({"a": [1.0]}, died={"b": "count"})


# --- slots

FULL = "scale of full shape", "false, then true"


def hatched(made) -> int:
    return sum(bool(p.get_hatch()) for p in made.axes[0].patches)


def test_a_slot_filled_with_another_tensor_is_marked():
    case = measure(*FULL)
    assert case.wrong == [12] and [row.operator for row in case.cut] == ["tanh"]
    made = slots(case)
    assert hatched(made) == 1 and {"≠", "no\nslot", "stopped early ✂", "1 to 9\nthe same"} <= set(texts(made))
    assert "in slot 12 the forward had saved tanh's tensor (32×16), the recomputation put mul's (32×16)" in sentence(
        case
    )
    assert "and stopped: it had its 12. The shapes agree, so nothing raises" in sentence(case)


def test_empty_slots_are_drawn_empty():
    made = slots(measure("gate", "true, then false"))
    assert texts(made).count("nothing") == 5 and hatched(made) == 1
    assert "no gradients: an error ended backward\n(17 tensors saved in forward, 12 in recomputation)" in texts(made)


def test_one_tensor_too_many_is_marked():
    made = slots(measure(*FULL, NO_EARLY_STOP))
    assert hatched(made) == 2 and "an error ended it ✂" in texts(made)


def test_a_route_marks_no_slot():
    case = measure("route", "true, then false")
    assert not case.wrong and not case.cut and not hatched(slots(case))
    assert "same operator and shape" in sentence(case) and "nothing raises" in sentence(case)


def test_an_early_stop_in_time_is_no_difference():
    case = measure("early exit", "true, then false")
    made = slots(case)
    assert not hatched(made) and "≠" not in texts(made) and "stopped early ✂" in texts(made)
    assert "early stop cut off what the flip would have added" in sentence(case)


def test_reentrant_compares_nothing():
    case = measure("gate", "true, then false", REENTRANT)
    shown = texts(slots(case))
    assert "no slots: the forward is run without autograd" in shown and not {"=", "≠"} & set(shown)
    assert sentence(case).endswith("2 parameters get none at all. Early stop and determinism check mean nothing here.")


def test_long_passes_are_cut_short():
    rows = measure(*FULL).forward
    first, second = Ledger(rows * 9, "returned"), Ledger(rows[:5], "returned")
    case = Case("b", "d", NON_REENTRANT, Passes([first, second]), second.rows, Divergence("s"))
    made = drawn(slots(case))
    assert "+97" in texts(made) and len(made.axes[0].patches) < 25


# --- the panel


@pytest.fixture(scope="module")
def shown() -> FlipPanel:
    return panel()


WAYS = [
    Strategy("reentrant", True),
    *(Strategy("n", False, *flags) for flags in product((True, False), ("default", "none"))),
]


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_sentence_agrees_with_the_outcome(shown, cells, branch, direction, way):
    shown.branch.value, shown.direction.value = branch, direction
    shown.implementation.value = "reentrant" if way.use_reentrant else "non-reentrant"
    shown.early_stop.value, shown.check.value = way.early_stop, way.determinism_check
    (result,) = (
        d for f, s, d in cells
        if (f.branch, f.direction) == (branch, direction)
        and (s.use_reentrant, s.early_stop, s.determinism_check)
        == (way.use_reentrant, way.early_stop, way.determinism_check)
    )  # fmt: skip
    said = shown.message
    assert said.startswith(direction.capitalize() + ": ") and said.endswith(".")
    assert ("torch raises" in said, "nothing raises" in said) == (result.raised is not None, result.raised is None)
    assert ("right up to rounding" in said) == (result.outcome == "fine")
    assert ("off by up to" in said) == (result.outcome == "silent")
    assert ("more than the forward's" in said, "fewer" in said, "The check compares shapes" in said) == tuple(
        result.outcome == kind for kind in ("more", "count", "metadata")
    )
    assert Image.open(io.BytesIO(shown.picture.value)).size == (1134, 729)


def test_what_means_nothing_is_disabled_and_keeps_its_value(shown):
    shown.implementation.value, shown.early_stop.value, shown.check.value = "non-reentrant", False, "none"
    assert not shown.early_stop.disabled and not shown.check.disabled
    shown.implementation.value = "reentrant"
    assert shown.early_stop.disabled and shown.check.disabled and "mean nothing here" in shown.message
    shown.implementation.value = "non-reentrant"
    assert not shown.early_stop.disabled and (shown.early_stop.value, shown.check.value) == (False, "none")


def test_each_combination_is_measured_once():
    asked = []
    one = FlipPanel(lambda *of: asked.append(of) or measure(*of), BRANCHES, DIRECTIONS)
    first = one.picture.value, one.message
    one.branch.value = "gate"
    assert (one.picture.value, one.message) != first
    one.branch.value = "scale per vector"
    assert (one.picture.value, one.message) == first and len(asked) == 2
    one.implementation.value = "reentrant"
    one.refresh()
    assert len(asked) == 3


def test_the_panel_starts_at_the_heart_of_the_lesson_and_has_labels():
    fresh = panel()
    assert (fresh.branch.value, fresh.direction.value) == FULL and "mul's" in fresh.message
    labels = [
        c.description for c in (fresh.branch, fresh.direction, fresh.implementation, fresh.early_stop, fresh.check)
    ]
    assert labels == ["Branch", "The guard says", "Implementation", "Early stop", "Determinism check"]
    assert repr(fresh) == ("Panel with branch, direction, implementation, early_stop, check: run this cell to use it.")


def test_an_unknown_branch_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="'guess' is none of: scale per vector"):
        measure("guess", "true, then false")
