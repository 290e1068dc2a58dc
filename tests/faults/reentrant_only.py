"""What only the reentrant implementation gets wrong.

It runs the forward without recording, joins the graph by its top-level tensor arguments, and runs a backward within
the backward.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from faults import LOUD, NOT_RUN_AGAIN, REPLAYABLE, SILENT, fault
from recompute_lab.instruments.torch_version import replays_default_device


class Tagger(nn.Module):
    """A frozen embedding, a block that is trained, a head."""

    def __init__(self, words: int, width: int, tags: int):
        super().__init__()
        self.embedding = nn.Embedding(words, width).requires_grad_(False)
        self.block, self.head = nn.Sequential(nn.Linear(width, width), nn.GELU()), nn.Linear(width, tags)


def block_checkpointed(checkpoint, tagger, words):
    return tagger.head(checkpoint(tagger.block, tagger.embedding(words)))


@fault(r"requires_grad|frozen", REPLAYABLE, SILENT, proven=False, driver=block_checkpointed)
def frozen_embedding_below():
    """No argument requires grad: the block's parameters get no gradient, the head's do."""
    return Tagger(9, 5, 2), (torch.randint(9, (3, 4)),)


@fault(r"requires_grad|frozen", REPLAYABLE, SILENT, proven=False)
def frozen_input():
    return nn.Sequential(nn.Linear(5, 5), nn.Tanh()), (torch.randn(4, 5),)


@fault(r"requires_grad|frozen", REPLAYABLE, SILENT, proven=False)
def whole_numbers_only():
    """An embedding inside the segment: its argument cannot require grad."""
    return nn.Sequential(nn.Embedding(9, 5), nn.Linear(5, 5), nn.Tanh()), (torch.randint(9, (3, 4)),)


class Fused(nn.Module):
    """Takes its features by name."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.head = nn.Linear(2 * width, width), nn.Linear(width, 2)


def features_by_name(checkpoint, model, image, text):
    def fuse(features):
        return F.silu(model.mix(torch.cat([features["image"], features["text"]], dim=-1)))

    return model.head(checkpoint(fuse, {"image": image, "text": text}))


@fault(r"container|nested|dict|list", REPLAYABLE, SILENT, proven=False, driver=features_by_name)
def features_in_a_dictionary():
    return Fused(3), (torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True))


def joined(parts):
    return torch.sigmoid(torch.cat(parts, dim=-1)).square()


@fault(r"container|nested|dict|list", REPLAYABLE, SILENT, proven=False)
def tensors_in_a_list():
    return joined, ([torch.randn(4, 3, requires_grad=True), torch.randn(4, 2, requires_grad=True)],)


def keyword_tensors(checkpoint, model, image, text):
    def fuse(*, image, text):
        return F.silu(model.mix(torch.cat([image, text], dim=-1)))

    return model.head(checkpoint(fuse, image=image, text=text))


@fault(r"frozen|keyword|container", REPLAYABLE, SILENT, proven=False, driver=keyword_tensors)
def tensors_by_keyword():
    """Reentrant takes no keywords; bound beforehand, they are no arguments of its."""
    return Fused(3), (torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True))


class Distilled(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.target, self.online = nn.Linear(width, width), nn.Linear(width, width)

    def targets(self, x):
        with torch.no_grad():
            return torch.softmax(self.target(x), dim=-1)

    def both(self, x):
        return torch.softmax(self.online(x), dim=-1), self.targets(x)


def targets_checkpointed(checkpoint, model, x):
    return torch.softmax(model.online(x), dim=-1) + checkpoint(model.targets, x)


@fault(
    r"detach|no output requires grad",
    REPLAYABLE,
    LOUD,
    proven=False,
    driver=targets_checkpointed,
    missed={"watched": NOT_RUN_AGAIN, "watched verdict": NOT_RUN_AGAIN},
)
def targets_without_grad():
    """Reentrant marks the output as requiring grad; in backward the segment gives none that does."""
    return Distilled(4), (torch.randn(3, 4, requires_grad=True),)


def both_checkpointed(checkpoint, model, x):
    prediction, target = checkpoint(model.both, x)
    # A loss that stops the gradient of what does not require grad anyway, and scales what does.
    return prediction * (target * 2 if target.requires_grad else target)


@fault(r"detach", REPLAYABLE, SILENT, proven=False, driver=both_checkpointed)
def stop_gradient_forgotten():
    """Of two outputs one is detached, and comes out as if it were not."""
    return Distilled(4), (torch.randn(3, 4, requires_grad=True),)


class Detector(nn.Module):
    """Returns its outputs in a dictionary, the stop-gradient one too."""

    def __init__(self, width: int):
        super().__init__()
        self.boxes, self.scores = nn.Linear(width, 4), nn.Linear(width, 2)

    def forward(self, x):
        scores = self.scores(x)
        return {"boxes": torch.tanh(self.boxes(x)), "scores": {"raw": torch.exp(scores), "target": scores.detach()}}


@fault(r"container|nested|dict|detach", REPLAYABLE, SILENT, proven=False)
def outputs_in_a_dictionary():
    return Detector(4), (torch.randn(3, 4, requires_grad=True),)


class Tied(nn.Module):
    """One layer in two segments, and something that acts when its gradient is ready."""

    def __init__(self, width: int):
        super().__init__()
        self.layer, self.ready = nn.Linear(width, width), []
        self.layer.weight.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, parameter):
        self.ready.append(round(float(parameter.grad.norm()), 5))


def two_segments(checkpoint, model, x):
    def segment(h):
        return torch.sigmoid(model.layer(h))

    return checkpoint(segment, checkpoint(segment, x))


@fault(r"hook", REPLAYABLE, "side effect", proven=False, driver=two_segments)
def gradient_ready_more_than_once():
    """Each inner backward ends an accumulation of its own: what reduces gradients gets parts of one."""
    return Tied(4), (torch.randn(3, 4, requires_grad=True),)


def penalised(output, segment):
    """Only the gradient of some leaves, as a gradient penalty or a saliency map asks for it."""
    leaves = [p for p in segment.parameters() if p.requires_grad]
    for leaf, gradient in zip(leaves, torch.autograd.grad(output.square().sum(), leaves), strict=True):
        leaf.grad = gradient


@fault(r"autograd.grad|inputs=", REPLAYABLE, LOUD, proven=False, backward=penalised)
def gradients_by_autograd_grad():
    return nn.Sequential(nn.Linear(4, 4), nn.Softplus()), (torch.randn(3, 4, requires_grad=True),)


def weights_only(output, segment):
    output.square().sum().backward(inputs=[segment[0].weight])


@fault(r"autograd.grad|inputs=", REPLAYABLE, SILENT, proven=False, backward=weights_only)
def backward_for_some_inputs():
    """Reentrant's node has no edge to the weights: their gradient is never asked for. For the input it raises."""
    return nn.Sequential(nn.Linear(4, 4), nn.Softplus()), (torch.randn(3, 4, requires_grad=True),)


class Placed(nn.Module):
    """Makes a table where the surrounding device context says, and reads no more of it than where that was."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        table = torch.zeros(1)
        return torch.tanh(self.mix(x) * (3.0 if table.is_meta else 1.0))


def under_a_device_context(checkpoint, segment, x):
    with torch.device("meta"):
        return checkpoint(segment, x)


@fault(
    r"device",
    REPLAYABLE if replays_default_device() else SILENT,  # older versions of torch do not
    SILENT,
    proven=False,
    driver=under_a_device_context,
)
def device_context_around_the_forward():
    """Non-reentrant enters it again for the recomputation, reentrant does not."""
    return Placed(4), (torch.randn(3, 4, requires_grad=True),)


class Conditioned(nn.Module):
    """Layers that all look at one embedding of the time."""

    def __init__(self, width: int, layers: int):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU())
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))


def time_captured(checkpoint, model, x):
    time = model.time(torch.full((x.shape[0], 1), 0.3))
    x = x * 1.0
    for layer in model.layers:
        x = checkpoint(lambda h, layer=layer: torch.sigmoid(layer(h) + time * h), x)
    return x


@fault(r"captured|closure|graph", REPLAYABLE, LOUD, proven=False, driver=time_captured)
def embedding_captured_by_two_segments():
    """The first inner backward frees the embedding's graph, the second finds it gone. One segment alone works."""
    return Conditioned(4, 2), (torch.randn(3, 4, requires_grad=True),)


class Lean(nn.Module):
    """Rounds where nothing is recorded, to save memory in evaluation."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = self.mix(x)
        if not torch.is_grad_enabled():
            h = (h * 4).round() / 4
        return torch.exp(h)


@fault(
    r"grad mode|is_grad_enabled|no_grad",
    REPLAYABLE,
    SILENT,
    proven=False,
)
def branch_on_grad_mode():
    """Reentrant's forward runs without grad mode: it takes the branch that was meant for evaluation."""
    return Lean(4), (torch.randn(3, 4, requires_grad=True),)


class Clipped(nn.Module):
    """Clips the gradient of an intermediate by a hook on it."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = self.mix(x)
        h.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
        return torch.exp(h)


@fault(
    r"hook",
    REPLAYABLE,
    LOUD,
    proven=False,
)
def hook_on_an_intermediate():
    """In reentrant's forward the intermediate requires no grad: torch refuses the hook."""
    return Clipped(4), (torch.randn(3, 4, requires_grad=True),)


class Inspected(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = self.mix(x)
        h.retain_grad()
        return torch.tanh(h)


@fault(
    r"retain_grad",
    REPLAYABLE,
    LOUD,
    proven=False,
)
def gradient_of_an_intermediate_retained():
    return Inspected(4), (torch.randn(3, 4, requires_grad=True),)


@fault(r"container|nested", REPLAYABLE, SILENT, proven=False)
def recurrent_state_in_a_tuple():
    """An LSTM returns (output, (hidden, cell)): the state comes out without a graph."""
    return nn.LSTM(3, 4, batch_first=True), (torch.randn(2, 5, 3, requires_grad=True),)
