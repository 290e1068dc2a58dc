"""What several of the house's tests share."""

from pathlib import Path

import pytest
from small_lesson import LESSON


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder like notebooks/, with one small lesson's source."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "01_small.py").write_text(LESSON)
    return tmp_path
