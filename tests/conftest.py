"""What several of the house's tests share."""

from pathlib import Path

import pytest

LESSON = '''\
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
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder like notebooks/, with one small lesson's source."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "01_small.py").write_text(LESSON)
    return tmp_path
