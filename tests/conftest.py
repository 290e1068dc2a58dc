import pytest
import torch


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
