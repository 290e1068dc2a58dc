"""Figures: right marks and numbers, readable without colour, and no trace in the reader's matplotlib."""

import io

import matplotlib
import pytest
import torch
from PIL import Image

from recompute_lab.instruments.ledger import align, record
from recompute_lab.instruments.margins import Margins
from recompute_lab.specimens.training import Step
from recompute_lab.views import style
from recompute_lab.views.odds import lifetimes, three_curves
from recompute_lab.views.strip import strip
from recompute_lab.views.tally import tally
from recompute_lab.views.training import counters
from recompute_lab.views.warnings import lead_times


def texts(made) -> str:
    return "\n".join(t.get_text() for t in made.findobj(matplotlib.text.Text))


def ledgers(extra: int):
    x = torch.ones(3, requires_grad=True)

    def segment(x, times):
        for _ in range(times):
            x = x * torch.ones(3)
        return x.exp()

    return record(segment, x, 5 + extra), record(segment, x, 5)


def test_the_strip_marks_and_names_the_odd_one_out():
    first, second = ledgers(1)
    shown = texts(strip(align(first, second)))
    assert "forward\n7 saved" in shown and "recomputation\n6 saved" in shown
    assert "nothing\nsaved" in shown and "1 without a partner" in shown


def test_the_strip_of_equal_passes_marks_nothing():
    first, second = ledgers(0)
    shown = texts(strip(align(first, second)))
    assert "none without a partner" in shown and "nothing\nsaved" not in shown


def test_a_strip_of_nothing_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="nothing to draw|no strip to draw"):
        strip([])


def test_a_long_strip_is_drawn():
    rows = record(lambda x: [x := x * torch.ones(1) for _ in range(20_000)][-1], torch.ones(1, requires_grad=True))
    assert "20000 places" in texts(strip(align(rows.rows, rows.rows[:-1])))


def test_the_counters_say_where_a_run_died():
    steps = [Step(i, int(i == 9), i) for i in range(10)]
    assert "dies here" in texts(counters({"a run": (steps, True)}))
    assert "dies here" not in texts(counters({"a run": (steps, False)}))


def test_no_run_is_drawn_beyond_the_shared_axes():
    low, high = ([Step(i, 0, height) for i in range(length)] for length, height in ((5, 3), (9, 40)))
    made = counters({"low": (low, False), "high": (high, False)})
    for axes in made.axes:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert left <= 0 and right >= 8 and bottom == 0 and top > 40


def test_the_tally_prints_each_number():
    shown = texts(tally({"as it is": {"fine": 23, "count": 5, "metadata": 2}, "deterministic": {"fine": 30}}))
    assert all(number in shown.split("\n") for number in ("23", "5", "2", "30"))


def test_the_tally_refuses_what_it_cannot_show():
    with pytest.raises(ValueError, match="none for more, other"):
        tally({"a": {"fine": 1, "other": 5, "more": 1}})


def test_a_tally_names_silent_errors_where_there_are_any():
    assert "wrong gradients" not in texts(tally({"a": {"fine": 1}}))
    assert "no error, wrong gradients" in texts(tally({"a": {"fine": 1}, "b": {"silent": 2}}))


def luminance(colour: str) -> float:
    """Relative luminance, W3C Web Content Accessibility Guidelines 2.2."""
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in matplotlib.colors.to_rgb(colour)]
    return sum(weight * channel for weight, channel in zip((0.2126, 0.7152, 0.0722), channels, strict=True))


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", [style.INK, style.GREY, style.BLUE])
def test_text_colours_have_the_contrast_of_body_text(colour):
    assert contrast(colour, "white") >= 4.5


def test_the_mark_stands_out_also_in_print():
    assert contrast(style.VERMILLION, "white") >= 3.0
    assert contrast(style.VERMILLION, "#bcd8ec") >= 2.0


def test_figures_are_opaque_white_cards_and_leave_matplotlib_alone():
    settings = dict(matplotlib.rcParams)
    image = Image.open(io.BytesIO(style.png(tally({"a": {"fine": 1}}))))
    assert image.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)
    assert dict(matplotlib.rcParams) == settings


def test_show_prints_the_message_and_gives_it_to_screen_readers(capsys, monkeypatch):
    shown = []
    monkeypatch.setattr(style, "display", shown.append)
    style.show(tally({"a": {"fine": 1}}), "One outcome.")
    assert capsys.readouterr().out == "One outcome.\n"
    assert shown[0].alt == "One outcome."


def test_a_long_message_is_printed_in_lines_that_jupyterlab_does_not_break(capsys, monkeypatch):
    shown, message = [], " ".join(["word"] * 50)
    monkeypatch.setattr(style, "display", shown.append)
    style.show(tally({"a": {"fine": 1}}), message)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 96 and " ".join(lines) == shown[0].alt == message


def test_lead_times_name_what_never_fired_and_count_false_alarms():
    shown = texts(lead_times({"loss": [None, None], "near": [3, None], "capped": [0, 0]}, dict.fromkeys(
        ("loss", "near", "capped"), 1), 4)).split("\n")  # fmt: skip
    assert "no alarm" in shown and "no alarm in 1" in shown and "×2" in shown
    assert shown.count("1 of 4") == 3


def test_curves_and_lifetimes_draw_what_was_measured():
    margins = Margins(torch.tensor([[0, 2], [1, 1], [3, 0], [3, 3]]))
    made = three_curves({"a": margins.sweep(range(-1, 5))}, {"a": 2})
    firing, guard, disagree = (list(line.get_ydata()) for line in made.axes[0].lines[:3])
    assert firing[:2] == [1, 0.75] and guard[:3] == [1, 1, 0.75] and disagree[2] == 0.5
    made = lifetimes({1: 5, 8: 20}, 20, lambda count: 0.5)
    assert list(made.axes[0].lines[1].get_ydata()) == [0.25, 1.0]
