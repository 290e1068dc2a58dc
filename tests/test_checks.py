"""notebooks/checks.py catches what nbval does not, and names the notebook and the cell.

Each test spoils one thing in a notebook that is known to be good.
"""

import copy
from base64 import b64decode

import build
import checks
import nbformat
import pytest
from nbformat.v4 import new_output
from small_lesson import LESSON

NAME = "solutions/01_small.ipynb"
EXPECTED = build.render("01_small", LESSON, solved=True)


@pytest.fixture
def stored():
    """The small lesson as the builder would have stored it."""
    notebook = copy.deepcopy(EXPECTED)
    outputs = [["The answer is 42\n"], ["1234.56789\n"], ["Time passes: True\n"], ["21.0"]]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for count, (cell, texts) in enumerate(zip(code, outputs, strict=True), 1):
        cell.execution_count = count
        cell.outputs = [new_output("stream", name="stdout", text=text) for text in texts]
    return notebook


def problems(stored):
    return checks.check_notebook(NAME, EXPECTED, stored)


def test_a_good_notebook_has_no_problem(stored):
    assert problems(stored) == []


def test_a_stripped_notebook(stored):
    for cell in stored.cells:
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = None, []
    assert f"{NAME} cell 2: execution count None, not 1" in problems(stored)


def test_cells_run_out_of_order(stored):
    stored.cells[1].execution_count = 5
    assert problems(stored) == [f"{NAME} cell 2: execution count 5, not 1"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("saved to /home/ada/x.png", "an absolute path in its output, '/home/a'"),
        ("File '/tmp/ipykernel_7/1.py'", "an absolute path in its output, '/tmp/i'"),
        ("/Users/ada", "an absolute path"),
        (r"C:\Users\ada", "an absolute path"),
        ("<object at 0x7f3a>", "an object's address in its output, '0x7f3a'"),
        ("UserWarning: mind", "a warning in its output"),
        ("torch 2.13.0+cpu", "a version in a compared output, '2.13.0'"),
        ("loss 0.123456", "more than 4 digits compared, '0.123456'"),
        ("1,234.56 MB", "more than 4 digits compared, '1,234.56'"),
    ],
)
def test_an_output_that_is_true_here_only(stored, text, complaint):
    stored.cells[1].outputs = [new_output("stream", name="stdout", text=text)]
    (problem,) = problems(stored)
    assert problem.startswith(f"{NAME} cell 2: {complaint}")
    stored.cells[1].outputs = [new_output("execute_result", {"text/html": text})]
    assert problems(stored) == [problem]


@pytest.mark.parametrize("text", ["0.1234", "4096.0", "1,048,576 B", "12.34", "9/10", "0.00012"])
def test_an_output_that_is_true_everywhere(stored, text):
    stored.cells[1].outputs = [new_output("stream", name="stdout", text=text)]
    assert problems(stored) == []


def test_output_on_stderr(stored):
    stored.cells[1].outputs[0].name = "stderr"
    assert problems(stored) == [f"{NAME} cell 2: output on stderr (a warning?)"]


def test_an_error(stored):
    stored.cells[1].outputs.append(new_output("error", ename="ValueError", evalue="", traceback=[]))
    assert problems(stored) == [f"{NAME} cell 2: an error, ValueError"]


def test_an_edited_cell(stored):
    stored.cells[1].source += "\nprint()"
    assert problems(stored) == [f"{NAME} cell 2: its source is not what the source gives"]


def test_an_edited_tag(stored):
    stored.cells[1].metadata.tags = [checks.IGNORE]
    assert f"{NAME} cell 2: its tags or metadata are not what the source gives" in problems(stored)


def test_a_missing_cell(stored):
    del stored.cells[-1]
    assert problems(stored) == [f"{NAME}: 5 cells, the source has 6"]


def test_the_learners_notebook_in_place_of_the_solved_one(stored):
    stored.cells[-1].source = build.render("01_small", LESSON, solved=False).cells[-1].source
    assert problems(stored) == [f"{NAME} cell 6: its source is not what the source gives"]


PICTURE = new_output("display_data", {"text/plain": "<Figure 1>"})


@pytest.mark.parametrize("outputs", [[], [PICTURE]])
def test_an_ignored_cell_without_a_compared_one_after_it(stored, outputs):
    stored.cells[3].outputs = outputs
    complaint = "tagged 'nbval-ignore-output', but the next one compares no text"
    assert problems(stored) == [f"{NAME} cell 3: {complaint}"]


@pytest.mark.parametrize("tag", sorted(checks.FORBIDDEN_TAGS))
def test_another_way_around_nbval(stored, tag):
    stored.cells[1].metadata.tags = [tag]
    assert f"{NAME} cell 2: the tag '{tag}' is not allowed" in problems(stored)


def test_a_comment_that_hides_a_cell_from_nbval(stored):
    stored.cells[1].source = "# NBVAL_SKIP\n1"
    assert f"{NAME} cell 2: the comment '# NBVAL_SKIP' is not allowed" in problems(stored)


def test_a_long_cell_and_a_long_lesson(stored):
    stored.cells[1].source = "\n".join("abcdefghijklmnop")
    assert f"{NAME} cell 2: 16 lines of code, at most 15 are allowed" in problems(stored)
    stored.cells *= 7
    assert f"{NAME}: 42 cells, at most 40 are allowed" in problems(stored)


def test_an_unbuilt_lesson_and_a_notebook_without_a_source(root):
    assert checks.check_all(root) == [
        "01_small.ipynb: not there, run make notebooks",
        "solutions/01_small.ipynb: not there, run make notebooks",
    ]
    (root / "source" / "01_small.py").unlink()
    nbformat.write(nbformat.v4.new_notebook(), root / "02_stray.ipynb")
    assert checks.check_all(root) == [
        f"there is no lesson in {root.name}/source",
        "02_stray.ipynb: has no source",
    ]


def test_a_picture_beside_the_notebooks_is_the_one_in_them(stored, tmp_path):
    png = "iVBORw0KGgo="
    stored.cells[1].metadata["tags"] = ["picture:it"]
    stored.cells[1].outputs.append(new_output("display_data", data={"image/png": png}))
    missing = "images/it.png is not the picture in the notebook"
    assert missing in checks.check_pictures(tmp_path, NAME, stored)[0]
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "it.png").write_bytes(b"another")
    assert missing in checks.check_pictures(tmp_path, NAME, stored)[0]
    (tmp_path / "images" / "it.png").write_bytes(b64decode(png))
    assert checks.check_pictures(tmp_path, NAME, stored) == []


def test_a_line_that_is_cut_off(stored):
    stored.cells[1].source += "\n# " + "x" * 95
    assert f"{NAME} cell 2: 97 columns of code, at most 96 are allowed" in problems(stored)


def test_a_cell_that_depends_on_the_learners_answer(stored):
    learner = copy.deepcopy(stored)
    assert checks.check_independent(NAME, learner, stored) == []
    learner.cells[5].outputs[0].text = "unsolved"  # an exercise may differ
    learner.cells[2].outputs[0].text = "5.0"  # and so may what is not compared
    assert checks.check_independent(NAME, learner, stored) == []
    learner.cells[3].outputs[0].text = "Time passes: False"
    assert checks.check_independent(NAME, learner, stored) == [
        f"{NAME} cell 4: prints something else where the exercises are solved"
    ]


CODE = "class One:\n    def forward(self, x):\n        return x + 1\n\n    def other(self):\n        return 2\n"
QUOTED = "def forward(self, x):\n    return x + 1\n"


@pytest.mark.parametrize(
    ("quote", "complaints"),
    [
        ("# recompute_lab/one.py: class One\n" + QUOTED, []),
        ("# recompute_lab/one.py\n" + QUOTED + "\n# and\ndef other(self):\n    return 2\n", []),
        ("# recompute_lab/one.py\n" + QUOTED.replace("1", "2"), ["the lines from 'def forward(self, x):' are not in"]),
        ("# recompute_lab/one.py\n" + QUOTED + "def other(self):\n    return 2\n", ["are not in recompute_lab/one.py"]),
        ("# recompute_lab/two.py\n" + QUOTED, ["quotes recompute_lab/two.py, which is not there"]),
        ("# how it is called\nforward(x)\n", []),
    ],
)
def test_code_that_markdown_quotes_is_the_package_s(tmp_path, quote, complaints):
    file = tmp_path / "src" / "recompute_lab" / "one.py"
    file.parent.mkdir(parents=True)
    file.write_text("\n" + CODE, encoding="utf-8")
    cell = nbformat.v4.new_markdown_cell(f"Look at this:\n\n```python\n{quote}```\n\nWell?")
    found = checks.check_quotes(tmp_path / "notebooks", NAME, nbformat.v4.new_notebook(cells=[cell]))
    assert len(found) == len(complaints)
    assert all(complaint in problem for complaint, problem in zip(complaints, found, strict=True)), found


def test_a_quote_fits_the_page(tmp_path):
    (tmp_path / "src" / "recompute_lab").mkdir(parents=True)
    (tmp_path / "src" / "recompute_lab" / "one.py").write_text(f"\na = {'1' * 90}\n", encoding="utf-8")
    cell = nbformat.v4.new_markdown_cell(f"```python\n# recompute_lab/one.py\na = {'1' * 90}\n```")
    found = checks.check_quotes(tmp_path / "notebooks", NAME, nbformat.v4.new_notebook(cells=[cell]))
    assert found == [f"{NAME} cell 1: the lines from 'a = {'1' * 90}' are longer than 88 columns"]
