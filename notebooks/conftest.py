"""nbval compares nothing of a cell that is tagged to be ignored; here, all of it is but what ignored.py excepts."""

import ignored
import pytest
from nbval.plugin import IPyNbCell


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    result = yield
    if isinstance(item, IPyNbCell) and not item.options["check"]:
        if problem := ignored.problem(item.path.stem, item.parent.nb, item.cell, item.test_outputs):
            item.raise_cell_error(f"Although this cell's output is ignored, {problem}")
    return result
