"""All blocks of the zoo: name -> function that gives (block, args, kwargs), the same at each call."""

from models import torch_blocks, transformers_blocks

ZOO = {**torch_blocks.BLOCKS, **transformers_blocks.BLOCKS}
