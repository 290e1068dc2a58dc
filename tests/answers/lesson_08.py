"""Lesson 08, the field guide: six unknown segments, and two of them repaired."""

from answers.answers import Answers
from torch.nn.functional import gelu

from recompute_lab.lessons.field_guide import check
from recompute_lab.specimens.steps import NON_REENTRANT, power
from recompute_lab.specimens.unknown_segments import Scaled, Steered, steering

EXERCISES = check


# --- diagnose

ANSWER = {
    "A": (1, "Chosen", "silent", "right"),
    "B": (3, "hook", "silent", "loud"),
    "C": (4, "scales", "silent", "silent"),
    "D": (6, "weights", "silent", "loud"),
    "E": (7, "is_grad_enabled", "silent", "right"),
    "F": (8, "Exception", "right", "loud"),
}
OTHER_NAMES = {
    "A": "shares",
    "B": "self.block.up._forward_hooks",
    "C": "iterator",
    "D": "_parameters",
    "E": "grad mode",
    "F": "early stop",
}
ALL_NAMES = "chosen shares hook handle scales iterator weights parameters grad enabled mode autocast except exception"


def said(letter: str, *answer) -> tuple:
    return ({**ANSWER, letter: answer},)


# --- repair_steered


class Inside(Steered):
    def step(self, run):
        def steered(x):
            with steering(self.block.up, self.gain):
                return self.block(x)

        loss = power(run(steered, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class Around(Steered):
    def step(self, run):
        with steering(self.block.up, self.gain):
            loss = power(run(self.block, self.stem(self.rows)))
            loss.backward()
        return loss.detach()


class NotCheckpointed(Steered):
    def step(self, run):
        with steering(self.block.up, self.gain):
            loss = power(self.block(self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class LeftBehind(Steered):
    def step(self, run):
        gain = self.gain
        self.block.up.register_forward_hook(lambda module, args, output: output * gain)
        loss = power(run(self.block, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class NotSteered(Steered):
    def step(self, run):
        loss = power(run(self.block, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class Silent(Inside):
    def step(self, run):
        super().step(run)


class Doubled(Inside):
    def step(self, run):
        return 2 * super().step(run)


class InAClosure(Steered):
    """The steering entered by hand, and left again whatever happens; with a default for run."""

    def step(self, run=NON_REENTRANT):
        handle = None

        def amplify(module, args, output):
            return output * self.gain

        def segment(x):
            nonlocal handle
            handle = self.block.up.register_forward_hook(amplify)
            try:
                return self.block.forward(x)
            finally:
                handle.remove()

        loss = power(run(segment, self.stem(self.rows)))
        loss.backward()
        return loss.clone().detach()


class RemovedTooSoon(Steered):
    """Enters the steering in the segment, and leaves it before the block has run."""

    def step(self, run):
        def steered(x):
            with steering(self.block.up, self.gain):
                pass
            return self.block(x)

        loss = power(run(steered, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class HalfOutside(Steered):
    """Checkpoints what is not steered, and keeps the rest."""

    def step(self, run):
        x = self.stem(self.rows)
        with steering(self.block.up, self.gain):
            hidden = self.block.up(x)
        loss = power(x + run(lambda h: self.block.down(gelu(h)), hidden))
        loss.backward()
        return loss.detach()


class NoBackward(Steered):
    def step(self, run):
        with steering(self.block.up, self.gain):
            return power(run(self.block, self.stem(self.rows)))


# --- repair_scaled


class ListOfScales(Scaled):
    def step(self, run):
        scales = [0.5**depth for depth in range(3)]
        loss = power(run(lambda x: self.deep(x, iter(scales)), self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class IteratorOfAList(Scaled):
    def step(self, run):
        scales = [0.5**depth for depth in range(3)]
        loss = power(run(self.deep, self.stem(self.rows), iter(scales)))
        loss.backward()
        return loss.detach()


class NotAnIterator(Scaled):
    def step(self, run):
        loss = power(run(self.deep, self.stem(self.rows), [1.0, 0.5, 0.25]))
        loss.backward()
        return loss.detach()


class ListInside(Scaled):
    def step(self, run):
        def deep(x):
            return self.deep(x, (0.5**depth for depth in range(3)))

        loss = power(run(deep, self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class LayerByLayer(Scaled):
    """A segment for each layer."""

    def step(self, run=NON_REENTRANT):
        x = self.stem(self.rows)
        for depth, layer in enumerate(self.deep.layers):
            x = run(lambda x, layer, scale: x + scale * layer(x).tanh(), x, layer, 0.5**depth)
        loss = power(x)
        loss.backward()
        return loss.detach()


class FirstLayerOnly(Scaled):
    """One layer in a segment, all others kept."""

    def step(self, run):
        first, *others = self.deep.layers
        x = run(lambda x: x + first(x).tanh(), self.stem(self.rows))
        for depth, layer in enumerate(others, 1):
            x = x + 0.5**depth * layer(x).tanh()
        loss = power(x)
        loss.backward()
        return loss.detach()


class NoScales(Scaled):
    def step(self, run):
        loss = power(run(lambda x: self.deep(x, iter(())), self.stem(self.rows)))
        loss.backward()
        return loss.detach()


class Unscaled(Scaled):
    """Not checkpointed: then nothing is gone through twice."""

    def step(self, run):
        loss = power(self.deep(self.stem(self.rows), iter([1.0, 0.5, 0.25])))
        loss.backward()
        return loss.detach()


class WithoutALoss(Scaled):
    def step(self, run):
        ListInside.step(self, run)


ANSWERS = {
    "diagnose": Answers(
        right=[
            (ANSWER,),
            ({letter: (a[0], OTHER_NAMES[letter], *a[2:]) for letter, a in ANSWER.items()},),
            ({letter: [a[0], a[1], a[2].upper(), a[3].title()] for letter, a in ANSWER.items()},),
        ],
        wrong=[
            (said("A", 1, "Chosen", "right", "right"), "A, reentrant: you said 'right'; run, it is: "),
            (said("B", 3, "hook", "silent", "silent"), "B, non-reentrant: you said 'silent'; run, it is: "),
            (said("C", 4, "scales", "silent", "loud"), "C, non-reentrant: you said 'loud'; run, it is: "),
            (said("A", 7, "Chosen", "silent", "right"), "The loss is the plain run's"),
            (said("A", 3, "Chosen", "silent", "right"), "What is special about its forward?"),
            (said("B", 1, "hook", "silent", "loud"), "leave non-reentrant right"),
            (said("B", 6, "hook", "silent", "loud"), "Treated for 'the weights are others'"),
            (said("C", 8, "scales", "silent", "silent"), "leave reentrant right"),
            (said("C", 2, "scales", "silent", "silent"), "Treated for 'the forward writes state'"),
            (said("D", 3, "weights", "silent", "loud"), "Treated for 'the recomputation sees another world'"),
            (said("E", 1, "is_grad_enabled", "silent", "right"), "The loss itself is another"),
            (said("F", 4, "Exception", "right", "loud"), "runs the same code twice"),
            (said("F", 7, "Exception", "right", "loud"), "as wrong as before"),
            (said("D", 6, "validation", "silent", "loud"), "'validation' is not what differs, or it only follows"),
            (said("B", 3, "gain", "silent", "loud"), "'gain' is not what differs"),
            (
                ({letter: (a[0], ALL_NAMES, *a[2:]) for letter, a in ANSWER.items()},),
                "A: verdicts and root cause are right; as the name give one thing",
            ),
            ((dict.fromkeys(ANSWER, (3, "hook", "silent", "loud")),), "A, non-reentrant: you said 'loud'"),
            (({},), "answer for the segments A, B, C, D, E, F"),
            (([],), "answer for the segments"),
            (said("B", 3, "hook"), "B: give four things"),
            (said("B", 9, "hook", "silent", "loud"), "a number from 1 to 8; got 9"),
            (said("A", True, "Chosen", "silent", "right"), "a number from 1 to 8; got True"),
            (said("B", 3, "hook", "silent", "noisy"), "'noisy' is none of"),
            (said("B", 3, 3, "silent", "loud"), "3 is not what differs"),
        ],
    ),
    "repair_steered": Answers(
        right=[(Inside,), (Around,), (InAClosure,)],
        wrong=[
            ((Steered,), "reentrant: no error, 1 gradient missing"),
            ((NotCheckpointed,), "or some of them, no longer run in a checkpointed segment"),
            ((HalfOutside,), "or some of them, no longer run in a checkpointed segment"),
            ((LeftBehind,), "the hook is still there"),
            ((Silent,), "does not return its loss"),
            ((Doubled,), "what your step returns is not the original's loss"),
            ((NotSteered,), "without checkpointing your step is not the original's"),
            ((RemovedTooSoon,), "without checkpointing your step is not the original's"),
            ((NoBackward,), "without checkpointing your step is not the original's"),
            ((Scaled,), "class Repaired(Steered)"),
            ((3,), "class Repaired(Steered)"),
        ],
    ),
    "repair_scaled": Answers(
        right=[(ListOfScales,), (ListInside,), (LayerByLayer,)],
        wrong=[
            ((Scaled,), "reentrant: no error, gradients off by 3"),
            ((IteratorOfAList,), "reentrant: no error, gradients off by 3"),
            ((NotAnIterator,), "raises TypeError: 'list' object is not an iterator"),
            ((NoScales,), "without checkpointing your step is not the original's"),
            ((Unscaled,), "or some of them, no longer run in a checkpointed segment"),
            ((FirstLayerOnly,), "or some of them, no longer run in a checkpointed segment"),
            ((WithoutALoss,), "does not return its loss"),
            ((Steered,), "class Repaired(Scaled)"),
        ],
    ),
}
