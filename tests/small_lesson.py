"""A lesson's source, small and without a fault."""

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
