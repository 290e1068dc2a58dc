"""A trace of every instruction, the same way for all versions of Python."""

import sys
from collections.abc import Callable
from types import FrameType


def trace(function: Callable) -> None:
    """`sys.settrace`, for functions that call `each_instruction`.

    Python 3.12 looks, when tracing begins, whether any frame that is there wants its instructions traced.
    """
    sys._getframe().f_trace_opcodes = True
    sys.settrace(function)


def each_instruction(frame: FrameType, local: Callable) -> Callable:
    """What a trace function returns for a frame of which `local` is to see the instructions, and not the lines.

    Python 3.13 takes notice of the wish only where a frame has its trace function already.
    """
    frame.f_trace = local
    frame.f_trace_lines, frame.f_trace_opcodes = False, True
    return local
