"""Choose a momentum, a drift and a repair: the running statistics of three runs, and their errors in eval mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from recompute_lab.views.batchnorm import Deviates, draw_trajectory, look
from recompute_lab.views.canvas import Canvas
from recompute_lab.views.panel import Panel, choice
from recompute_lab.views.style import GREY, figure, styled

IMPLEMENTATIONS = ("reentrant", "non-reentrant")
REPAIRS = ("none", "sqrt(m)", "1 - sqrt(1 - m)", "statistics spared in the recomputation", "boundary moved")
MOMENTA = (0.01, 0.1, 0.5, None)
STEPS = (20, 40, 60)
DRIFTS = (0, 1, 4)
_ROUNDING = 1e-5


@dataclass(frozen=True)
class Course:
    """One run: a channel's running mean and variance, [steps + 1], and its errors in eval mode by step, 0 to 1."""

    mean: Sequence[float]
    variance: Sequence[float]
    errors: Mapping[int, float]


@dataclass(frozen=True)
class Case:
    """The runs "plain" and "checkpointed", and "repaired" where there is a repair, by their names.

    `deviations` has the statistics of the last two against the plain run's, over all channels; `same_gradients` says
    whether losses and gradients of all runs were equal in every bit, `same_statistics` whether the repaired run's
    means and variances are the plain run's in every bit.
    """

    steps: int
    repair: str
    runs: Mapping[str, Course]
    deviations: Mapping[str, Deviates]
    same_gradients: bool
    same_statistics: bool


def sentence(case: Case) -> str:
    """What happened, in plain words."""
    off = case.deviations["checkpointed"]
    gradients = "the plain run's, bit for bit" if case.same_gradients else "not the plain run's"
    said = [
        f"Checkpointed, {off.tracked} batches are counted in {case.steps} steps and the statistics are {_off(off)}; "
        f"losses and gradients are {gradients}."
    ]
    if "repaired" in case.deviations:
        said.append(_repaired(case))
    ends = {name: f"{list(run.errors.values())[-1]:.0%}" for name, run in case.runs.items()}
    said.append(f"Errors at the end: {', '.join(f'{name} {error}' for name, error in ends.items())}.")
    return " ".join(said)


def _off(row: Deviates) -> str:
    """How far mean and variance are off, where no bit-for-bit claim is made."""
    worst = max(row.mean, row.variance)
    return f"off by up to {worst:.2g}" if worst > _ROUNDING else "right up to rounding"


def _repaired(case: Case) -> str:
    row = case.deviations["repaired"]
    how = "the plain run's, bit for bit" if case.same_statistics else _off(row)
    counter = "the counter is right" if row.tracked == row.expected else f"the counter still says {row.tracked}"
    return f"Repair ({case.repair}): the statistics are {how}; {counter}."


@styled
def courses(case: Case) -> Figure:
    """Draw a case: running mean and variance of one channel, and the error in eval mode, one line per run."""
    made, axes = figure(8.4, 3.3, ncols=3)
    for panel, quantity in zip(axes, ("mean", "variance"), strict=False):
        for name, run in case.runs.items():
            draw_trajectory(panel, name, getattr(run, quantity))
        panel.set_title(f"running {quantity}, one channel", fontsize=10)
    for name, run in case.runs.items():
        colour, line, mark = look(name)
        filled = {"mfc": "white", "ms": 6} if name == "repaired" else {"ms": 4}
        axes[2].plot(
            list(run.errors), list(run.errors.values()), color=colour, linestyle=line, marker=mark, lw=1.6, **filled
        )
    axes[2].set_title("errors in eval mode", fontsize=10)
    axes[2].set_ylim(0, 1)
    axes[2].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    for panel in axes:
        panel.set_xlabel("step")
        panel.set_xlim(-0.02 * case.steps, 1.03 * case.steps)
        panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        panel.yaxis.set_major_locator(MaxNLocator(5))
        panel.grid(axis="y", color=GREY, alpha=0.25)
    made.legend(*axes[0].get_legend_handles_labels(), ncols=3, loc="outside upper left", fontsize=9)
    return made


class BatchNormPanel(Panel):
    """The panel: `measure(momentum, steps, drift, implementation, repair)` gives the `Case`, once per combination."""

    def __init__(self, measure: Callable[[float | None, int, float, str, str], Case]):
        self._measure, self._answers = measure, {}
        super().__init__(
            "Running mean and variance of a channel, and the error in eval mode: plain, checkpointed and repaired",
            (756, 297),
            momentum=choice("Momentum m", [(str(m), m) for m in MOMENTA], 0.1),
            steps=choice("Steps", STEPS, 40),
            drift=choice("Drift of the light", [(str(d), d) for d in DRIFTS], 1),
            implementation=choice("Implementation", IMPLEMENTATIONS, "non-reentrant"),
            repair=choice("Repair", REPAIRS, "none"),
        )
        self.refresh()

    def answer(self, changed: str | None) -> tuple[bytes, str]:
        controls = (self.momentum, self.steps, self.drift, self.implementation, self.repair)
        key = tuple(control.value for control in controls)
        if key not in self._answers:
            case = self._measure(*key)
            self._answers[key] = Canvas(courses(case), ()).png(), sentence(case)
        return self._answers[key]
