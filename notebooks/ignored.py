"""The cells whose output nbval does not compare: what each shows, and why it cannot be compared.

A tag that hides a whole cell would hide more than the number that no two machines share. So each cell has
a template of all that it prints. What stands in braces may be anything of that kind; every other character is compared,
in what is stored and, by conftest.py, in every run. And each is followed by a cell that prints, and compares, what
holds on all machines.
"""

import re
from dataclasses import dataclass

from checks import is_ignored, text_of
from nbformat import NotebookNode

KINDS = {
    "int": r"-?[\d,]+",
    "signed": r"[+\u2212-][\d,]+",
    "float": r"-?\d+(?:\.\d+)?",
    "bool": r"True|False",
    "yes": r"yes|no",
    "version": r"\d+\.\d+[\w.+]*",
    "device": r"[\w:]+(?: \([^()\n]+\))?",  # cpu, or cuda (its name)
    "word": r"[\w.]+",
    "words": r"[\w ]+",
    "list": r"\[[-\d, ]*\]",
    "untested": r"(?:\ntorch [^\n]+ is newer than [^\n]+(?:\n[^\n]+){2})?",  # nothing, where this torch was tested
    "torch": r"(?s:.*?)",  # the installed torch's own words
}


@dataclass(frozen=True)
class Ignored:
    """One cell: a template of what it prints, why that is of one machine, and what the next code cell prints on all."""

    shows: str
    why: str
    then: str

    def matches(self, text: str) -> bool:
        """Whether a text is the template, but for what stands in braces."""
        parts = re.split(r"\{(\w+)\}", self.shows)
        pattern = "".join(f"(?:{KINDS[part]})" if i % 2 else re.escape(part) for i, part in enumerate(parts))
        return re.fullmatch(pattern, text.strip()) is not None


def machine(first: str = "python {version} | torch {version}", second: str = "\nthreads {int} | device {device}"):
    return Ignored(first + second, "which machine this is: for the reader, and for a report of a problem", "ready")


ON_THE_CPU = "\ndevice cpu, GPU or not: errors, kernels and draws are compared as the CPU has them"

AGREED: dict[str, tuple[Ignored, ...]] = {
    "00_start_here": (
        machine(
            "Python {version}, fsrs {version}, ipython {version}, ipywidgets {version}, jupyterlab {version}, "
            "matplotlib {version}, numpy {version}, pillow {version}, platformdirs {version}, scikit-learn {version}, "
            "scipy {version}, torch {version}, traitlets {version}\n",
            "{word} {word}, CPU kernels: {words}\ntorch threads: {int}\n"
            "CUDA: {yes}; lessons 01 to 05 and 07 compute on: {device}\n"
            "the same sum can differ from call to call here: {yes}{untested}",
        ),
    ),
    "01_the_crash": (
        machine(),
        Ignored(
            "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
            "recomputation.\nNumber of tensors saved during forward: 162\n"
            "Number of tensors saved during recomputation: 161{torch}\n\n"
            "        if not len(self.weak_holders) == self.recomp_counter[gid]:{torch}raise CheckpointError({torch}"
            "Number of tensors saved during forward: {torch}Number of tensors saved during recomputation: {torch}",
            "the installed torch's message, and its source: both change from version to version",
            "the non-reentrant implementation compares counts: True\nthe reentrant one does: False\n",
        ),
        Ignored(
            "time of a step, repaired / guarded: {float} (medians, taking turns)",
            "a measured time",
            "the repair saves 4,096 bytes more for backward, 0.04%\n",
        ),
        Ignored(
            "{int} entries take another path, for example torch.{word}, torch.{word}, torch.{word}\n"
            "{int} entries raise, for example torch.{word}, torch.{word}, torch.{word}",
            "the installed torch's documentation: its lists grow",
            "index_put, calls that differ from the first: 0\nput_: put_ does not have a deterministic implementation\n",
        ),
    ),
    "02_the_threshold": (
        machine(),
        Ignored(
            "{int} of 256 positions are not the same in all 100 passes\n"
            "the largest ratio is about {float} and spans {int} ulps\n"
            "at the worst cap, {int} of 50 pairs disagree",
            "a race between two threads, if there are two",
            "cap at the median: guard true in 100 passes, 0 pairs disagree\n"
            "cap 1000 ulps past the largest: guard true in 0 passes, 0 pairs disagree\n"
            "pairs that disagree outside that ratio's span: 0\n",
        ),
        Ignored(
            "worst cap: {int} of 50 pairs disagree\n"
            "    closed form for n = 100: {float} of 50\n    closed form for n = 1: {float} of 50\n"
            "real, passes with all positions at one distance: {int} of 100\ndistances that occur: {list}",
            "a race between two threads, if there are two",
            "real, all within 9 ulps of the limit: True\n",
        ),
    ),
    "03_loud_or_silent": (
        machine(),
        Ignored(
            "with early stop on:\n{torch}early_stop{torch}\n                raise _StopRecomputationError\n{torch}\n\n"
            "with it off:\n            if recomp_idx >= len(target_frame.weak_holders):\n{torch}"
            "trying to save more tensors{torch}\n\n"
            "def _default_meta_extractor(x: torch.Tensor) -> {torch}"
            '"shape": x.shape,\n        "dtype": x.dtype,\n        "device": x.device{torch}',
            "the installed torch's source: it changes from version to version",
            "gate                 early stop on: silent, off: more\n",
        ),
        Ignored(
            "ends in a tanh         off / on: {float}   (on / plain: {float})\n"
            "ends in a wide linear  off / on: {float}   (on / plain: {float})",
            "measured times",
            "a tanh         ran to its end 1 x in a step; with early stop off 2 x\n"
            "a wide linear  ran to its end 1 x in a step; with early stop off 2 x\n",
        ),
    ),
    "04_dropout": (
        machine("python {version} | torch {version} | numpy {version}"),
        Ignored(
            "width 16: a naive step takes {int} µs; torch's stream {signed} µs, every stream {signed} µs\n"
            "width 256: a naive step takes {int} µs; torch's stream {signed} µs, every stream {signed} µs",
            "measured times",
            "bytes kept per segment: torch 5056, NumPy 2496, Python about 20000\n",
        ),
    ),
    "05_batchnorm": (machine(),),
    "06_audit_your_source": (machine(second="\nthreads {int} | device cpu: this lesson reads source"),),
    "07_quiet_version": (
        machine(),
        Ignored(
            "threshold   accuracy: {float} to {float}, {int} different numbers\n"
            "early exit  steps: {int} to {int}, {int} different numbers\n"
            "filter      accuracy: {float} to {float}, {int} different numbers\n"
            "warnings: 0",
            "a race between two threads, if there are two",
            "threshold   with the switch, different results: 1\n"
            "early exit  with the switch, different results: 1\n"
            "filter      with the switch, different results: 1\n",
        ),
        Ignored(
            "this process:  accuracy {float} on {int} digits\nplain kernels: accuracy {float} on {int} digits",
            "the rounding of this CPU's kernels, which is what the cell shows",
            "plain kernels: two runs agree: True\naccuracy on all digits, equal with both kernels: True\n",
        ),
    ),
    "08_field_guide": (machine(second=ON_THE_CPU),),
    "10_coding_drills": (machine(second=ON_THE_CPU),),
}


def problem(lesson: str, notebook: NotebookNode, cell: NotebookNode, outputs: list[NotebookNode]) -> str:
    """What is wrong with the outputs of one of the notebook's ignored cells, in a sentence; "" if nothing is."""
    agreed = AGREED.get(lesson, ())
    place = [one.id for one in notebook.cells if is_ignored(one)].index(cell.id)
    if place >= len(agreed):
        return f"{lesson} has more cells with that tag than notebooks/ignored.py has agreed on: {len(agreed)}"
    text = text_of(NotebookNode(outputs=outputs))
    if agreed[place].matches(text):
        return ""
    return f"it prints\n{text}\nwhich is not what notebooks/ignored.py says that it shows:\n{agreed[place].shows}"
