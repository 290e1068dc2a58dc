"""Whether somebody's saved-tensor hooks are on: asked by what torch's public functions do, in every version."""

import torch


def hooked() -> bool:
    """Does what is saved for backward now go through somebody's hooks?"""
    y = torch.ones((), requires_grad=True).sin()
    try:
        y.grad_fn._raw_saved_self.register_hooks(lambda tensor: tensor, lambda tensor: tensor)
    except RuntimeError:  # it has some already
        return True
    return False
