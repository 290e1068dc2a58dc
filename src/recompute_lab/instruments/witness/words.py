"""What is said of a cause: what it is called, what happens, how it is repaired. A sentence for each kind."""

from __future__ import annotations

from collections.abc import Iterable

_STREAMS = {
    "torch": "torch RNG",
    "GPU": "torch RNG (GPU)",
    "Python": "python random stream (random.*)",
    "NumPy": "numpy random stream (numpy.random.*)",
}
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
POWER_ITERATION = ("_u", "_v", "weight_u", "weight_v")


def group_of(name: str, kind: str) -> tuple:
    """What belongs together: all parameters, all training flags, all BatchNorms' statistics, one power iteration."""
    owner, _, last = name.rpartition(".")
    if last == "training":
        return ("training",)
    if kind in ("parameter", "requires_grad", "lazy"):
        return (kind,)
    if kind == "buffer" and last in STATISTICS:
        return ("statistics",)
    if kind == "buffer" and last in POWER_ITERATION:
        return ("power iteration", owner)
    return (kind, name)


def label(group: tuple, names: Iterable[str]) -> str:
    """What a group is called in a report; its names as the code has them are part of it."""
    kind, told = group[0], few(names)
    if kind == "training":
        return f"training flag, as eval() sets it ({told})"
    if kind == "parameter":
        return f"parameters changed in place (weight: {told})"
    if kind == "lazy":
        return f"lazy layers, made in the first forward ({told})"
    if kind == "requires_grad":
        return f"frozen, or no longer ({told})"
    if kind == "statistics":
        # InstanceNorm keeps running statistics, too, but counts no batches.
        whose = "BatchNorm" if any(name.endswith("num_batches_tracked") for name in names) else "running"
        return f"{whose} statistics ({told})"
    if kind == "power iteration":
        return f"spectral norm's power iteration ({told})"
    if kind == "random stream":
        return _STREAMS.get(group[1], f"random stream {group[1]} (Generator)")
    if kind == "cache":
        return f"{group[1]} (a cache, functools.lru_cache)"
    if group[1].rpartition(".")[2] == "__class__":
        return f"{group[1]} (the module was given another class)"
    return group[1]


def few(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def is_torchs_stream(name: str) -> bool:
    return name in ("torch", "GPU")


def read(group: tuple, name: str, own: bool) -> tuple[str, str]:
    """(what happens, the repair) where the recomputation finds it changed and computes something else.

    `own` says whether the forward itself has changed it.
    """
    kind, last = group[0], name.rpartition(".")[2]
    if kind == "random stream" and is_torchs_stream(group[1]):
        return (
            "torch's stream is not replayed: the recomputation draws other numbers than the forward.",
            "leave preserve_rng_state=True, its default.",
        )
    if kind == "random stream":
        return (
            "nobody rewinds this stream: the recomputation draws on from it, other numbers than the forward.",
            "draw from torch's default generator, which is replayed, or rewind this one (context_fn).",
        )
    if kind == "training":
        return "train() or eval() was called between the passes.", "switch modes after backward."
    if kind == "parameter":
        return (
            "the weights changed between the passes; the recomputation reads them as they are then.",
            "run backward before anything writes to the weights.",
        )
    if kind == "lazy":
        return (
            "the first forward makes the parameters, and draws for them; the recomputation finds them made.",
            "call the model once before the first step.",
        )
    if kind == "requires_grad":
        return (
            "requires_grad was switched between the passes: the recomputation saves what is needed now.",
            "freeze and unfreeze before the forward, or after backward.",
        )
    if kind == "switch":
        return f"{name} was switched between the passes.", f"keep {name} as it is until backward is done."
    if kind == "cache" and own:
        return (
            "the forward makes what the recomputation takes from the cache: it runs, and saves, less.",
            "fill it before the segment, or keep what depends on parameters out of it.",
        )
    if kind == "environment variable" and not own:
        return "an environment variable has another value in backward.", "read it once, where the module is made."
    if kind == "context variable":
        return "a context variable has another value in backward.", "pass its value to the segment as an argument."
    if kind == "variable" and not own:
        return (
            f"the closure looks {last} up when it runs: by then it stands for something else.",
            f"bind it when the segment is made: lambda x, {last}={last}: ...",
        )
    if own and name.startswith(("args[", "kwargs[")):
        return (
            f"the forward changes {name}, which it was given: the recomputation is given it changed.",
            "read the argument only, or copy it first inside the segment: extras = dict(extras), x = x.clone().",
        )
    if own:
        return (
            f"the forward writes {name} and reads it: the recomputation finds it changed.",
            "rewind it for the recomputation (recompute_lab.repairs.replay), or keep it out of the segment.",
        )
    return (
        f"{name} was changed between the passes, and the recomputation reads it.",
        "leave it alone until backward is done, or pass it to the segment as an argument.",
    )


def written_twice(group: tuple, names: Iterable[str]) -> tuple[str, str]:
    """(what happens, the repair) where nothing reads it, but it is written by both passes."""
    told = f"written by the forward, and again by the recomputation: {few(names)}."
    if group[0] in ("statistics", "buffer"):
        return told, "spare the buffers in the recomputation (recompute_lab.repairs.suppress), or move the boundary."
    return told, "write it outside the segment, or `if not recomputing()` (recompute_lab.repairs.recomputation)."
