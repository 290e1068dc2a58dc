"""A small code base as one finds it: a classifier of rows of tokens.

Its blocks are checkpointed. It is written as people write, guards and all; lesson 06 audits it. Nothing here is an
example to follow.
"""

from .config import Config
from .data import batch
from .model import Classifier
from .train import Trainer

__all__ = ["Classifier", "Config", "Trainer", "batch"]
