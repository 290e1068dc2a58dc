"""A pytest plugin that writes what became of each cell under nbval: pytest -p cell_report --cell-report FILE

JSON Lines: one line when a cell begins and one when it has ended, so that a run that was killed still says where it
was. Cells are counted as nbval counts them: code cells only, from 0. Each line names its notebook's file.
"""

from __future__ import annotations

import json

import pytest
from checks import text_of


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cell-report", required=True, help="the file to write")


def note(item: pytest.Item, **told) -> None:
    with open(item.config.getoption("--cell-report"), "a", encoding="utf-8") as out:
        out.write(json.dumps({"notebook": str(item.path), "cell": item.cell_num, **told}) + "\n")


def pytest_runtest_setup(item: pytest.Item) -> None:
    note(item, outcome="began")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = (yield).get_result()
    if report.when == "call" and not report.failed:
        note(item, outcome=report.outcome)
    elif report.failed:
        outputs = item.test_outputs or []
        raised = [f"{o.ename}: {o.evalue}" for o in outputs if o.output_type == "error"]
        note(
            item,
            outcome="failed",
            why=str(call.excinfo.value).strip(),
            raised=raised[0] if raised else None,
            stored=text_of(item.cell),
            here=text_of({"outputs": outputs}),
        )
