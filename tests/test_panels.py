"""The panels without a browser: what is drawn, what is said, and that nothing breaks them."""

import io
import itertools

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from recompute_lab.instruments.checkpointing import NON_REENTRANT
from recompute_lab.instruments.gradients import divergence
from recompute_lab.instruments.ledger import record
from recompute_lab.instruments.margins import Margins, ulps_from
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.lessons import threshold as lesson
from recompute_lab.specimens.on_the_threshold import LIMIT, OnTheThreshold
from recompute_lab.views.canvas import Canvas
from recompute_lab.views.panel import Number, Panel, choice
from recompute_lab.views.style import VERMILLION, figure
from recompute_lab.views.threshold import ThresholdPanel, describe, regime


def pixels(png) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(bytes(png))).convert("RGB")).astype(int)


# --- The canvas


def drawn(x: float, colour: str = "black"):
    made, axes = figure(4.0, 2.0)
    axes.set_xlim(-10, 10)
    axes.plot(range(-10, 10), range(20))
    return made, axes.axvline(x, color=colour, linewidth=2)


def test_the_canvas_draws_what_an_ordinary_draw_does():
    made, line = drawn(-5)
    canvas = Canvas(made, [line])
    first = pixels(canvas.png())
    line.set_xdata([5, 5])
    moved = pixels(canvas.png())
    assert (first != moved).any()

    whole, _ = drawn(5)
    whole.set_dpi(90 * 1.5)
    agg = FigureCanvasAgg(whole)
    agg.draw()
    whole = np.asarray(agg.buffer_rgba())[..., :3].astype(int)
    assert (np.abs(whole - moved) > 32).any(-1).mean() < 0.002

    assert (moved[0, 0] == 255).all()

    line.set_xdata([-5, -5])  # nothing is left of where the line has been
    assert (np.abs(pixels(canvas.png()) - first) > 32).sum() == 0


def test_a_colour_that_comes_later_is_right():
    made, line = drawn(0)
    canvas = Canvas(made, [line])
    canvas.png()
    line.set_color(VERMILLION)
    wanted = [int(VERMILLION[i : i + 2], 16) for i in (1, 3, 5)]
    assert (np.abs(pixels(canvas.png()) - wanted).max(-1) <= 8).any()


# --- The base


class Small(Panel):
    def __init__(self):
        self.asked = []
        super().__init__("A line.", (360, 180), cap=Number("Cap", -80, 80, 0), noise=choice("Noise", [0, 1, 2, 3], 0))
        self.refresh()

    def answer(self, changed):
        self.asked.append(changed)
        if self.noise.value == 1:
            raise ValueError("not with this noise.")
        if self.noise.value == 2:
            raise RuntimeError("out of\nmemory <b>")
        return bytes([self.cap.value % 256]), f"cap {self.cap.value} < 100"


def test_a_panel_reads_the_same_on_every_machine():
    panel = Small()
    said = "Panel with cap, noise: run this cell to use it."
    assert repr(panel) == said and panel._repr_mimebundle_()["text/plain"] == said
    panel.cap.value = 7
    assert repr(panel) == said


def test_a_control_that_a_cell_sets_moves_all_of_its_parts():
    panel = Small()
    box, slider = panel.cap.children
    for part in (panel.cap, box, slider):
        part.value += 3
        assert box.value == slider.value == panel.cap.value
        assert panel.message == f"cap {panel.cap.value} < 100"
    assert panel.asked == [None, "cap", "cap", "cap"]  # one answer for each move
    panel.cap.value = 500
    assert panel.cap.value == box.value == 80 and panel.message == "cap 80 < 100"
    assert "cap 80 &lt; 100" in panel.sentence.value and 'role="status"' in panel.sentence.value


def test_an_error_is_a_sentence_and_the_panel_lives_on():
    panel = Small()
    first = bytes(panel.picture.value)
    panel.noise.value = 1
    assert panel.message == "not with this noise." and bytes(panel.picture.value) != first
    assert pixels(panel.picture.value).size
    panel.noise.value = 2
    assert panel.message == "This went wrong (RuntimeError: out of memory <b>). The controls still work."
    panel.cap.value = 4
    panel.noise.value = 3
    assert panel.message == "cap 4 < 100" and bytes(panel.picture.value) == b"\x04"


# --- The threshold's figure and sentence


def staged(noise: int, positions: int) -> Margins:
    return lesson.measure(noise, positions, "staged")


@pytest.mark.parametrize("noise, positions, cap", [(0, 1000, 0), (1, 1, -80), (16, 1000, 16), (64, 10, 80)])
def test_the_figure_holds_for_all_settings(noise, positions, cap):
    made = regime(staged(noise, positions), cap)
    left, right = made.axes
    assert any(text.get_text().strip("← →") == f"cap {cap}" for text in left.texts)
    low, high = right.get_xlim()
    for axes in made.axes:
        assert axes.get_xlim() == (low, high)
    marks = [line for line in right.lines if line.get_markersize() == 9]
    curve = staged(noise, positions).at(cap)
    heights = [mark.get_ydata()[0] for mark in marks]
    assert heights == [curve.firing, curve.true / curve.passes, curve.disagreed / curve.pairs]


def test_the_sentence_counts_and_says_what_it_means():
    half = Margins(torch.tensor([[0], [2]] * 50))
    said = describe(half, half.at(1))
    assert "50 of 100 positions fire; the guard is true in 50 of 100 passes (closed form: 0.5)" in said
    assert "disagree in 50 of 50 pairs (closed form: 0.5). At this setting about 50 of 100 steps die." in said
    assert describe(half, half.at(2)).endswith("agreed every time: every position was below the cap, or on it.")
    assert describe(half, half.at(-1)).endswith("agreed every time: in every pass some position was past the cap.")
    assert "At this setting about 25 of 100 steps die, and as many" in describe(half, half.at(1), full_shape=True)
    rare = Margins(torch.tensor([[2]] + [[0]] * 2499))
    assert "1 of 2,500 positions fires" in describe(rare, rare.at(1))
    assert "about 1 of 1,300 steps dies." in describe(rare, rare.at(1))
    assert describe(rare, rare.at(1)).endswith("(A rough number: it rests on 1 position that fired.)")
    assert "rough" not in describe(half, half.at(1))


# --- The panel of lesson 02


@pytest.fixture
def panel() -> ThresholdPanel:
    return lesson.panel()


def test_both_ends_of_the_slider(panel):
    panel.cap.value = 80
    assert panel.message.startswith("At cap 80, none of the positions fire; the guard is true in 0 of 200 passes")
    panel.cap.value = -80
    assert panel.message.startswith("At cap -80, all positions fire; the guard is true in 200 of 200 passes")


def test_a_move_of_the_cap_measures_nothing():
    asked = []

    def measure(*setting):
        asked.append(setting)
        return lesson.measure(*setting)

    panel = ThresholdPanel(measure, lesson.steps)
    pictures = set()
    for cap in (10, 16, 17):
        panel.cap.value = cap
        pictures.add(bytes(panel.picture.value))
    panel.full_shape.value = True
    assert asked == [(16, 1000, "staged")] and len(pictures) == 3
    panel.noise.value = 1
    panel.noise.value = 16  # known
    assert asked == [(16, 1000, "staged"), (1, 1000, "staged")]


def test_one_position_and_a_million(panel):
    panel.cap.value = 0
    panel.positions.value = 1
    assert "of 400 passes" in panel.message and "of 100 steps die." in panel.message
    panel.positions.value = 1_000_000
    assert "of 2 passes" in panel.message and "of 1 pair " in panel.message


def test_no_noise_and_nothing_disagrees(panel):
    panel.noise.value = 0
    for cap in (-1, 0, 1):
        panel.cap.value = cap
        assert "disagree in 0 of 100 pairs (closed form: 0). Both passes agreed every time" in panel.message


def test_real_noise_with_one_thread_says_what_to_do(panel):
    panel.source.value = "real"
    assert panel.noise.disabled
    assert "Nothing varied" in panel.message and "torch.set_num_threads(2)" in panel.message
    assert "deterministic algorithms on" in panel.message
    panel.source.value = "staged"
    assert not panel.noise.disabled


def test_real_noise_says_what_the_closed_form_assumes(two_threads, panel):
    panel.positions.value = 100
    for _ in range(20):  # the machine decides
        panel.source.value = "real"
        if "Nothing varied" not in panel.message:
            break
        panel.source.value = "staged"
    assert "closed form takes the positions to be independent" in panel.message


def test_too_many_real_positions_are_refused_until_another_choice(panel):
    panel.positions.value = 10_000
    panel.source.value = "real"
    refused = panel.message
    assert refused.startswith("Real noise is shown for 1,000 positions at most")
    panel.cap.value = 3
    assert panel.message == refused
    panel.run()
    assert panel.result == refused and not panel.button.disabled
    panel.positions.value = 10
    assert panel.message.startswith("At cap 3,") and panel.result == ""


def test_a_failure_while_measuring_or_stepping_is_told(panel):
    def broken(*_):
        yield "fine"
        raise RuntimeError("boom")

    panel._steps = broken
    panel.run()
    assert panel.result.startswith("1 of 20 steps") and "1 fine. This went wrong (RuntimeError: boom)" in panel.result
    assert not panel.button.disabled
    panel._measure = lambda *_: 1 / 0
    panel.noise.value = 4
    assert panel.message.startswith("This went wrong (ZeroDivisionError")
    panel.noise.value = 16
    assert panel.message.startswith("At cap 16,")


def test_an_interrupt_leaves_the_panel_usable(panel):
    def interrupted(*_):
        yield "count"
        raise KeyboardInterrupt

    panel._steps = interrupted
    panel.run()
    assert panel.result.endswith("1 died (different number of tensors). Interrupted.") and not panel.button.disabled


def test_an_interrupted_measurement_leaves_no_picture_of_another_setting(panel):
    def interrupted(*_):
        raise KeyboardInterrupt

    before, panel._measure = bytes(panel.picture.value), interrupted
    with pytest.raises(KeyboardInterrupt):
        panel.noise.value = 64
    assert panel.sentence.text == "Interrupted: move a control to go on." and bytes(panel.picture.value) != before
    panel._measure = lesson.measure
    panel.noise.value = 64  # as in a cell that is run again: no control moves
    assert panel.message == describe(staged(64, 1000), staged(64, 1000).at(panel.cap.value))
    panel.cap.value = 80
    assert panel.message == describe(staged(64, 1000), staged(64, 1000).at(80))


def test_a_run_says_nothing_of_a_setting_that_was_not_its_own(panel):
    def moving(*_):
        yield "count"
        panel.cap.value = 60
        yield "fine"

    panel._steps = moving
    panel.run()
    assert panel.result == "The controls moved while the steps were taken: run them again."
    assert panel.bar.layout.display == "none"


def test_what_was_measured_is_not_said_of_all_passes():
    rare = lesson.measure(64, 10, "staged").at(67)  # ten million draws: 0.07% of positions fire, 1.4% of pairs disagree
    said = describe(lesson.measure(64, 10, "staged"), rare)
    assert rare.firing == 0 and "always" not in said and "agreed every time" in said


def test_a_run_ends_when_its_time_is_up(panel, monkeypatch):
    clock = itertools.count(0, 3)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    panel._steps = lambda *_: itertools.repeat("fine")
    panel.run()
    assert panel.result == "4 of 20 steps in 15 s: 4 fine." and panel.progress.value == 4


@pytest.mark.parametrize("full_shape", [False, True])
def test_the_guard_is_true_exactly_past_the_cap(full_shape):
    specimen = OnTheThreshold(1, width=1)
    specimen.stream = torch.ones(1, 1)
    for cap in range(-80, 81):
        segment = specimen.segment(ulps_from(LIMIT, cap), full_shape)
        for distance in (cap, cap + 1):
            vectors = torch.tensor([[ulps_from(LIMIT, distance)]], requires_grad=True)
            assert len(record(segment, vectors)) == (2 if distance > cap else 1)


@pytest.mark.parametrize("full_shape", [False, True])
def test_the_steps_are_real_ones(panel, monkeypatch, full_shape):
    def directly(seed: int) -> str:
        specimen = OnTheThreshold(1000, Nudge(16, seed=seed))
        segment = specimen.segment(ulps_from(LIMIT, 16), full_shape)
        return divergence(segment, specimen.vectors, strategy=NON_REENTRANT).outcome

    expected = [directly(seed) for seed in range(1, 21)]
    monkeypatch.setattr(lesson, "_seeds", itertools.count(1))
    panel.full_shape.value = full_shape
    panel.run()
    words = {
        "fine": " fine",
        "count": " died (different number",
        "metadata": " died (different meta",
        "silent": " went on",
    }
    assert panel.result.startswith("20 steps: ")
    for word, said in words.items():
        assert (f"{expected.count(word)}{said}" in panel.result) == (word in expected)
    assert {"fine", "count", "silent" if full_shape else "metadata"} == set(expected)
    assert panel.bar.layout.display is None and pixels(panel.bar.value).size
    panel.cap.value = 17
    assert panel.result == "" and panel.bar.layout.display == "none"
