"""A sentence under an error that comes from where the learner stands, and not from what the cell says.

A kernel that was restarted knows no names; an installation can lose a package. What to do then is printed below the
traceback, from the first import of a lesson's module on. IPython keeps the last error: it is made fit for that.
"""

from __future__ import annotations

import shlex
import sys

from recompute_lab.lessons.installation import NEEDED

RUN_ABOVE = "Run → Run All Above Selected Cell"  # JupyterLab's menu
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow", "IPython": "ipython"}  # where the import has another name


def advice(error: BaseException | None) -> str:
    """What to do, in a sentence or two; empty where the error says all that is known."""
    if isinstance(error, NameError) and not isinstance(error, UnboundLocalError):
        return f"If the kernel was restarted, or a cell above was left out: {RUN_ABOVE}, then this cell again."
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        package = _DISTRIBUTIONS.get(module, module)
        if package in {*NEEDED, "transformers"}:  # of any other name, no advice to install it: it may be misspelt
            command = f"{shlex.quote(sys.executable)} -m pip install {package}"
            return (
                f"{package} is not installed in this Python, {sys.executable}. Start the lab as the README says; if "
                f"you did, `{command}` in a terminal puts it back. Then restart the kernel."
            )
    if isinstance(error, ImportError):
        return "The first cell of lesson 00 checks the installation, package by package."
    return ""


def after_a_cell(result) -> None:
    if result.error_in_exec and "torch.utils.checkpoint" in sys.modules:
        from recompute_lab.instruments.checkpointing import released  # torch is there

        released(result.error_in_exec)
    if told := advice(result.error_in_exec):
        print(told)


def below_tracebacks() -> None:
    """From now on in this notebook; nothing outside of IPython."""
    ipython = sys.modules.get("IPython")  # a notebook has imported it, and nobody else needs to
    if shell := ipython and ipython.get_ipython():
        shell.events.register("post_run_cell", after_a_cell)  # once, however often it is asked
