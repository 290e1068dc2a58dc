"""A lesson's source, small and without a fault, and its notebooks without the seconds that a kernel takes."""

from pathlib import Path

import build
import nbformat

LESSON = """\
# %% [markdown]
# # A small lesson

# %%
answer = 6 * 7
print("The answer is", answer)

# %% tags=["nbval-ignore-output"]
import time
print(time.perf_counter())

# %%
print("Time passes:", time.perf_counter() > 0)

# %% [markdown]
# Your turn.

# %% tags=["solution"]
def half(number):
    ### BEGIN SOLUTION
    return number / 2
    ### END SOLUTION

half(answer)
"""

# What the builder would store.
SAID = ["The answer is 42\n", "1.5\n", "Time passes: True\n"]


def write(folder: Path, name: str, solved: bool = False, source: str = LESSON) -> Path:
    """The small lesson under a name of one's own: its source, and one of its notebooks."""
    (folder / "source").mkdir(parents=True, exist_ok=True)
    (folder / "source" / f"{name}.py").write_text(source)
    notebook = build.render(name, source, solved)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, 1):
        cell.execution_count = number
    for cell, said in zip(code, SAID, strict=False):
        cell.outputs = [nbformat.v4.new_output("stream", text=said)]
    if solved:
        code[-1].outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "21.0"}, execution_count=4)]
    path = folder / ("solutions" if solved else "") / f"{name}.ipynb"
    path.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, path)
    return path


def change(path: Path, edit) -> None:
    notebook = nbformat.read(path, as_version=4)
    edit([cell for cell in notebook.cells if cell.cell_type == "code"])
    nbformat.write(notebook, path)
