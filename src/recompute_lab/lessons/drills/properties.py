"""What has to hold of every repair: the plain run kept, both implementations right, layers checkpointed, no traces."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial

import torch
from torch.utils.checkpoint import checkpoint

from recompute_lab.instruments.gradients import ROUNDING
from recompute_lab.instruments.state import Snapshot, equal_values
from recompute_lab.instruments.steps import IMPLEMENTATIONS, outcome, plainly, stepped
from recompute_lab.instruments.streams import kept, process_streams, seed_everything
from recompute_lab.instruments.witness import Witness
from recompute_lab.lessons.drills.drill import Drill, Make
from recompute_lab.lessons.drills.measure import RIGHT, closed, sight_of, word_for
from recompute_lab.lessons.drills.training import alone, difference, trained
from recompute_lab.lessons.exercise import Wrong

REENTRANT, NON_REENTRANT = IMPLEMENTATIONS.values()
ORDERS = ((REENTRANT, NON_REENTRANT) * 2, (NON_REENTRANT, REENTRANT) * 2)


def mended(drill: Drill, answer: type) -> str:
    """Raises `Wrong`, with what to look at, unless `answer`, a subclass of `drill.faulty`, is a repair of it."""
    name = drill.faulty.__name__
    if not isinstance(answer, type) or not issubclass(answer, drill.faulty):
        raise Wrong(f"give a class: class Repaired({name}), with the methods that you change.")
    drill.must_do(answer)
    must_keep_the_plain_run(drill, answer)
    for staged, stage in drill.staged:
        must_replay(stage(answer), staged)
    drill.besides(answer)
    must_replay_in_any_order(drill, answer)
    must_be_checkpointed(drill, answer)
    must_leave_no_trace(drill, answer)
    return drill.well


def must_keep_the_plain_run(drill: Drill, answer: Make) -> None:
    """Three steps without checkpointing are the faulty one's, bit for bit as far as `difference` demands."""
    for setting, change in drill.ordinary:
        theirs = trained(drill.faulty, [plainly] * 3, drill.state, change)
        ours = trained(answer, [plainly] * 3, partial(_held, drill), change)
        if told := difference(ours, theirs, exact=True):
            where = " ".join(["without checkpointing", *([f"({setting})"] if setting else [])])
            raise Wrong(f"{where} your step is not the original's: {told}.")


def _held(drill: Drill, model) -> dict[str, object]:
    try:
        return drill.state(model)
    except AttributeError as error:
        raise Wrong(f"what the original leaves behind is no longer there: {error}.") from None


def must_replay(make: Make, staged: str = "") -> None:
    """Under both implementations loss, gradients and state of a step are those of its own plain run."""
    plain = stepped(make, plainly)
    for name, run in IMPLEMENTATIONS.items():
        result = outcome(make, run, plain)
        word, seen = word_for(result), sight_of(result)
        if word == RIGHT and (result.loss_off or 0) > ROUNDING:
            word, seen = "another loss", "gradients and state are right, but the loss is not that of the plain run"
        if word != RIGHT:
            named = "" if staged else _named(make, name)  # staged noise would be what it names
            raise Wrong(f"still {word!r} under {name}{f' ({staged})' if staged else ''}: {closed(seen)}{named}")


def _named(make: Make, implementation: str) -> str:
    """What a witness that rides along finds proven; it rides along in non-reentrant."""
    witness = Witness()
    try:
        stepped(make, partial(checkpoint, use_reentrant=False, context_fn=witness.context_fn))
    except Exception:
        pass  # what it has seen is there all the same
    names = [c.name for report in witness.reports for c in report.causes if c.proven and implementation in c.under]
    return f" A witness that rides along proves as the cause: {names[0]}." if names else ""


def must_replay_in_any_order(drill: Drill, answer: Make) -> None:
    """Four steps by turns, either implementation first, train as four plain ones do."""
    plain = trained(answer, [plainly] * 4, drill.state, seed=100)
    for runs, first in zip(ORDERS, IMPLEMENTATIONS, strict=True):
        if told := difference(trained(answer, list(runs), drill.state, seed=100), plain):
            raise Wrong(f"one step is right; over four, by turns, {first} first, something is left over: {told}.")


def must_be_checkpointed(drill: Drill, answer: Make) -> None:
    """The layers run in what is given to `run`, and twice; with gradients on, nowhere else."""
    once, outside = _runs_of_layers(drill, answer, plainly)
    twice, _ = _runs_of_layers(drill, answer, NON_REENTRANT)
    for layer in once:
        if not once[layer]:
            raise Wrong(f"{layer} no longer runs in a checkpointed segment: that saves no memory. Give it to run().")
        if outside[layer]:
            raise Wrong(f"{layer} runs in a segment, and once more outside of it, where its saved tensors are kept.")
        if twice[layer] <= once[layer]:
            raise Wrong(f"{layer} is not computed again in backward: its saved tensors are kept somewhere.")


def _runs_of_layers(drill: Drill, answer: Make, run: Callable) -> tuple[Counter, Counter]:
    """How often each layer runs inside of a segment, and outside with gradients on."""
    inside, outside, depth = Counter(), Counter(), 0

    def noting(segment: Callable, *args):
        def noted(*args):
            nonlocal depth
            depth += 1
            try:
                return segment(*args)
            finally:
                depth -= 1

        return run(noted, *args)

    with alone(answer) as model:
        names = {id(module): name for name, module in model.named_modules()}
        for layer in drill.inside(model):
            name = names[id(layer)]
            inside[name] += 0

            def count(*_, name=name):
                if depth:
                    inside[name] += 1
                elif torch.is_grad_enabled():
                    outside[name] += 1

            layer.register_forward_pre_hook(count)
        seed_everything(0)
        model.step(noting)
    return inside, outside


def must_leave_no_trace(drill: Drill, answer: Make) -> None:
    """No stream is seeded, no switch moved; nothing but the model is written to that the faulty step does not write."""
    ours, theirs = _traces(answer), _traces(drill.faulty)
    if ours["seeded"]:
        raise Wrong(
            f"your step seeds {ours['seeded'][0]}: whoever draws from it afterwards, the next layer or the data, "
            "draws the same numbers in every step."
        )
    if moved := [name for name in ours["switches"] if name not in theirs["switches"]]:
        raise Wrong(f"after the step a switch of torch's stands elsewhere: {moved[0]}.")
    if written := [name for name in ours["written"] if name not in theirs["written"]]:
        raise Wrong(f"your step writes to what is not its model's own: {written[0]}. Two models would share it.")


def _traces(make: Make) -> dict[str, list[str]]:
    ends = []
    for seed in (1, 2):
        with kept(process_streams()), warnings.catch_warnings(action="ignore"):
            seed_everything(seed)
            model = make()
            before = Snapshot(model.step)
            try:
                model.step(NON_REENTRANT)
            except Exception:
                pass  # the faulty one's own; what it has written is there all the same
            finally:
                kinds, switches = before.changed_kinds(), before.moved_switches()
                ends.append({stream.name: stream.read() for stream in process_streams()})
                own = {*vars(model), *model._buffers, *model._modules, *model._parameters}
                before.restore()
    foreign = ("global", "class attribute", "variable")
    return {
        "seeded": [name for name in ends[0] if equal_values(ends[0][name], ends[1][name])],
        "switches": list(switches),
        "written": [n for n, kind in kinds.items() if kind in foreign or n.split(".")[0].split("[")[0] not in own],
    }
