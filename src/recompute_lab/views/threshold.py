"""The threshold regime: where positions stand, and at which caps two passes can disagree about them."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator

import ipywidgets as widgets
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from recompute_lab.instruments.margins import Curve, Margins
from recompute_lab.instruments.odds import passes_disagree
from recompute_lab.views.canvas import Canvas
from recompute_lab.views.odds import CURVES, draw_curves
from recompute_lab.views.panel import Number, Panel, Picture, Sentence, choice, failure
from recompute_lab.views.style import BLUE, INK, SKY, VERMILLION, figure, png, styled
from recompute_lab.views.tally import tally

REACH = 80  # ulps: how far the panel's cap moves to either side of the limit
NOISES, POSITIONS = (0, 1, 4, 16, 64), tuple(10**k for k in range(7))
STEPS, SECONDS = 20, 10.0  # a run of the panel ends after so many steps, or after so long
ENOUGH = 30  # events that a share rests on, for its error to be below about a fifth
_SIZE = 8.4, 3.4  # inches
_DPI = 90
_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.9}


@styled
def regime(margins: Margins, cap: int) -> Figure:
    """Left, the positions' distances from the limit; right, what a guard makes of them at each cap; `cap` is marked.

    A position fires where its distance is larger than the cap: it stands right of the cap's line. Points are measured,
    thin lines are the closed form for independent positions that are all alike.
    """
    drawing = _Regime(margins)
    drawing.mark(cap)
    return drawing.made


class _Regime:
    """The figure; `changing` are the artists that `mark` moves."""

    @styled
    def __init__(self, margins: Margins):
        self.margins = margins
        extent = int(margins.distances.abs().max())
        self.half = next((half for half in (5, 10, 25, 50) if half >= 1.2 * extent), max(REACH, extent) + 5)
        self.made, (left, right) = figure(*_SIZE, ncols=2)
        self._histogram(left)
        self._curves(right)
        # Between two integers on the left, so that no bar is cut in half.
        self._lines = [(axes.axvline(0, color=INK, lw=1.8), shift) for axes, shift in ((left, 0.5), (right, 0))]
        top = left.get_xaxis_transform()
        self._label = left.text(0, 0.99, "", va="top", weight="bold", fontsize=9, transform=top, bbox=_BOX)
        self._dots = [
            right.plot(0, 0, mark, color=colour, ms=9, mec="white", clip_on=False, zorder=5)[0]
            for colour, mark in CURVES.values()
        ]
        self.changing = [*(line for line, _ in self._lines), self._label, *self._dots]

    def mark(self, cap: int) -> Curve:
        """Move the cap's marks, and return what was measured there. A cap out of sight is marked at the edge."""
        curve = self.margins.at(cap)
        edge = self.half + 0.5
        for line, shift in self._lines:
            line.set_xdata([min(max(cap + shift, -edge), edge)] * 2)
        arrow = "← " if cap < -self.half else "", " →" if cap > self.half else ""
        self._label.set_text(f"cap {cap}".join(arrow))
        self._label.set_x(min(max(cap + 0.5, -edge), edge))
        self._label.set_ha(_side(cap, self.half))
        heights = (curve.firing, curve.true / curve.passes, curve.disagreed / curve.pairs)
        for dot, height in zip(self._dots, heights, strict=True):
            dot.set_data([min(max(cap, -edge), edge)], [height])
        return curve

    def _histogram(self, axes: Axes) -> None:
        values, counts = np.unique(self.margins.distances.numpy(), return_counts=True)
        heights = np.zeros(values[-1] - values[0] + 1)
        heights[values - values[0]] = counts
        edges = np.arange(values[0], values[-1] + 2) - 0.5
        axes.stairs(heights, edges, fill=True, facecolor=SKY, edgecolor=BLUE, lw=0.9)
        axes.set_yscale("log")
        axes.set_ylim(0.6, 5 * float(counts.max()) ** 1.1)  # room above the bars for the cap's label
        low, high = int(self.margins.largest.min()), int(self.margins.largest.max())
        hatched = Patch(facecolor="none", edgecolor=VERMILLION, hatch="////", alpha=0.5, lw=0)
        if low < high:
            hatched.set_label("caps at which passes can disagree")
            axes.axvspan(low, high, facecolor="none", edgecolor=VERMILLION, hatch="////", alpha=0.5, lw=0)
        else:
            hatched = Patch(alpha=0, label="no cap at which these passes disagree")
        passes = f"{_many(self.margins.positions, 'position')}, {self.margins.passes} passes"
        _legend(axes, passes, handles=[hatched], handletextpad=0.6)
        axes.set_ylabel("positions, in all passes")
        self._ulps(axes, "distance from the limit, in ulps")

    def _curves(self, axes: Axes) -> None:
        caps = range(-self.half, self.half + 1)
        draw_curves(axes, self.margins.sweep(caps), self.margins.positions, every=1 + self.half // 30)
        axes.set_ylim(-0.04, 1.04)
        axes.set_ylabel("share of positions, passes, pairs")
        _legend(axes, "marks: measured; thin lines: closed form", ncols=3, handletextpad=0, columnspacing=0.6)
        self._ulps(axes, "cap, in ulps above the limit")

    def _ulps(self, axes: Axes, label: str) -> None:
        axes.set_xlim(-self.half - 0.5, self.half + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.set_xlabel(label)


def _legend(axes: Axes, title: str, **how) -> None:
    """Above the axes, where no data are."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.03, 1), borderaxespad=0.1, fontsize=8.5, title=title, title_fontsize=9,
        alignment="left", **how,
    )  # fmt: skip


def _side(x: float, half: int) -> str:
    """How a label at `x` is aligned, so that it stays within the axes."""
    return "right" if x > 0.4 * half else "left" if x < -0.4 * half else "center"


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _odds(p: float, noun: str, verb: str) -> str:
    """A probability in words and two digits: "42 of 100 steps die", "1 of 2,400 steps dies"."""
    if p == 0 or p == 1:
        return f"{'all' if p else 'none of the'} {noun}s {verb}"
    if p >= 0.1:
        return f"{min(round(100 * p), 99)} of 100 {noun}s {verb}"
    return f"1 of {int(float(f'{1 / p:.1e}')):,} {noun}s {verb}s"


def _small(p: float) -> str:
    return "below 0.001" if 0 < p < 0.001 else f"{p:.2g}"


def describe(margins: Margins, curve: Curve, *, real: bool = False, full_shape: bool = False) -> str:
    """What was measured at a cap, what the closed forms say, and what it means for a run, in plain sentences."""
    guard, disagree = margins.expected_alike(curve.cap), passes_disagree(curve.firing, margins.positions)
    told = (
        f"At cap {curve.cap}, {_odds(curve.firing, 'position', 'fire')}; the guard is true in {curve.true:,} of "
        f"{curve.passes:,} passes (closed form: {_small(guard)}); the two passes disagree in {curve.disagreed:,} of "
        f"{_many(curve.pairs, 'pair')} (closed form: {_small(disagree)}). "
    )
    if real and bool((margins.distances == margins.distances[0]).all()):
        return told + (
            "Nothing varied: this machine added up in the same order every time. With one thread, or with "
            "deterministic algorithms on, it always does. Run torch.set_num_threads(2) in a cell, then choose the "
            "source again."
        )
    if real:
        told += (
            "What varies, the machine decides; the closed form takes the positions to be independent of each other, "
            "and real noise need not be. "
        )
    rate = curve.disagreed / curve.pairs if real else disagree
    if curve.firing == 0:
        return told + "Both passes agreed every time: every position was below the cap, or on it."
    if rate < 1e-9:
        if curve.true == curve.passes:
            return told + "Both passes agreed every time: in every pass some position was past the cap."
        return told + "No pair disagreed here."
    fired = round(curve.firing * curve.passes * margins.positions)
    rough = f" (A rough number: it rests on {_many(fired, 'position')} that fired.)" if fired < ENOUGH else ""
    if full_shape:  # a guard that becomes true in the second pass only, and then half of them
        return told + (
            f"At this setting about {_odds(rate / 2, 'step', 'die')}, and as many go on with wrong gradients: a scale "
            f"of the vectors' shape passes for the tensor that is missing.{rough}"
        )
    return told + f"At this setting about {_odds(rate, 'step', 'die')}.{rough}"


class ThresholdPanel(Panel):
    """`regime` with its controls, and a button that takes real checkpointed steps at the same setting.

    `measure(noise, positions, source)` gives the margins, `steps(cap, noise, positions, source, full_shape)` the
    outcome of one step after the other (the words of `Divergence.outcome`). The cap is in ulps above the limit, the
    source "staged" or "real". What either raises as ValueError is shown as the sentence it is.
    """

    def __init__(
        self,
        measure: Callable[[int, int, str], Margins],
        steps: Callable[[int, int, int, str, bool], Iterator[str]],
        *,
        cap: int = 16,
        noise: int = 16,
        positions: int = 1000,
    ):
        self._measure, self._steps = measure, steps
        self._kept: dict[tuple[int, int], Margins] = {}  # of the staged settings, which are always the same
        self._drawing_of_now: _Regime | None = None
        self.button = widgets.Button(
            description=f"Run {STEPS} checkpointed steps",
            layout=widgets.Layout(width="auto", flex="none"),
            button_style="primary",
        )
        self.button.on_click(lambda _: self.run())
        self.progress = widgets.IntProgress(max=STEPS, description=f"0 of {STEPS}")
        self.bar = Picture(tooltip="How the steps ended.", layout=widgets.Layout(display="none", max_width="100%"))
        self.told = Sentence()
        super().__init__(
            "Left: how far positions are from the limit. Right: over the cap, how often one position fires, the guard "
            "is true, and two passes disagree.",
            tuple(round(_DPI * side) for side in _SIZE),
            cap=Number("Cap (ulps above the limit)", -REACH, REACH, cap),
            noise=choice("Noise (ulps)", NOISES, noise),
            positions=choice("Positions", [(f"{n:,}", n) for n in POSITIONS], positions),
            source=choice("Source of the noise", ("staged", "real"), "staged"),
            full_shape=choice("The cap's scale", [("one number per vector", False), ("full shape", True)], False),
        )
        run = widgets.HBox([self.button, self.progress], layout=widgets.Layout(flex_flow="row wrap"))
        self.children = (*self.children, run, self.bar, self.told)
        self.refresh()

    @property
    def result(self) -> str:
        """What came of the last run at the present setting; empty before."""
        return self.told.text

    def answer(self, changed: str | None) -> tuple[bytes, str]:
        self._show_result("")
        real = self.source.value == "real"
        self.noise.disabled = real
        if changed not in ("cap", "full_shape") or self._drawing_of_now is None:
            self._drawing_of_now = None  # should measuring be refused, or interrupted
            drawing = _Regime(self._margins())
            self._canvas = Canvas(drawing.made, drawing.changing, dpi=_DPI)
            self._drawing_of_now = drawing
        drawing = self._drawing_of_now
        curve = drawing.mark(self.cap.value)
        return self._canvas.png(), describe(drawing.margins, curve, real=real, full_shape=self.full_shape.value)

    def _margins(self) -> Margins:
        noise, positions, source = self.noise.value, self.positions.value, self.source.value
        if (noise, positions) in self._kept and source == "staged":
            return self._kept[noise, positions]
        if positions > 10_000:  # takes long enough for a reader to wonder
            self.sentence.text = f"Measuring {positions:,} positions ..."
        margins = self._measure(noise, positions, source)
        if source == "staged":
            self._kept[noise, positions] = margins
        return margins

    def run(self) -> None:
        """Take the steps, as the button does; `result` says how they ended. Does nothing while a run is under way."""
        if self.button.disabled:
            return
        self.button.disabled = True
        self._show_result("")
        outcomes, problem, start, setting = Counter(), "", time.monotonic(), self._setting()
        try:
            for outcome in itertools.islice(self._steps(*setting), STEPS):
                outcomes[outcome] += 1
                self.progress.value = outcomes.total()
                self.progress.description = f"{outcomes.total()} of {STEPS}"
                if time.monotonic() - start > SECONDS:
                    break
        except ValueError as refused:
            problem = str(refused)
        except KeyboardInterrupt:
            problem = "Interrupted."
        except Exception as error:
            problem = failure(error)
        finally:
            self.button.disabled = False
        with self._drawing:  # controls that move in another thread do so before this, or take the result away after it
            if setting != self._setting():
                self._show_result("The controls moved while the steps were taken: run them again.")
            else:
                self._show_result(_ended(outcomes, time.monotonic() - start, problem), outcomes)

    def _setting(self) -> tuple:
        return tuple(getattr(self, name).value for name in ("cap", "noise", "positions", "source", "full_shape"))

    def _show_result(self, sentence: str, outcomes: Counter | None = None) -> None:
        if not sentence:
            self.progress.value, self.progress.description = 0, f"0 of {STEPS}"
        drawn = bool(outcomes) and set(outcomes) <= {"fine", "count", "metadata", "silent"}
        if drawn:
            self.bar.value = png(tally({f"cap {self.cap.value}": outcomes}, "steps"), _DPI)
            self.bar.width = round(8.2 * _DPI)
        self.bar.layout.display = None if drawn else "none"
        self.told.text = sentence


def _ended(outcomes: Counter, seconds: float, problem: str) -> str:
    """The outcomes in a sentence: "20 steps: 12 fine, 8 died (different number of tensors)."""
    taken = outcomes.total()
    parts = [f"{outcomes[word]} {said}" for word, said in _ENDS.items() if outcomes[word]]
    steps = f"{taken} steps" if taken == STEPS else f"{taken} of {STEPS} steps in {seconds:.0f} s"
    return " ".join(filter(None, (f"{steps}: {', '.join(parts)}." if taken else "", problem)))


_ENDS = {
    "fine": "fine",
    "count": "died (different number of tensors)",
    "metadata": "died (different metadata)",
    "more": "died (more tensors in recomputation)",
    "silent": "went on with wrong gradients, without an error",
    "other": "died of another error",
}
