"""What several tests share."""

import os
from pathlib import Path

import pytest
import torch
from small_lesson import LESSON

os.environ["FORWARD_TWICE_PROGRESS"] = "off"  # a right answer in a test is nobody's progress


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder like notebooks/, with one small lesson's source."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "01_small.py").write_text(LESSON)
    return tmp_path


@pytest.fixture(autouse=True)
def one_thread():
    """Tests compare bits, and share their machine: one thread, unless the order of additions is the subject."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def two_threads(one_thread):
    torch.set_num_threads(2)
