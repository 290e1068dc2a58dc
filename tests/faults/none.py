"""Nothing is wrong with these: both implementations replay them, and a diagnosis has nothing to say."""

from __future__ import annotations

import functools
import logging
import random
import weakref

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from faults import harmless

LOG = logging.getLogger(__name__)


@harmless()
def dropout_replayed():
    return nn.Sequential(nn.Linear(5, 12), nn.Dropout(0.5), nn.Linear(12, 3)), (torch.randn(6, 5, requires_grad=True),)


@harmless()
def encoder_layer():
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, dropout=0.2, batch_first=True)
    return layer, (torch.randn(2, 5, 8, requires_grad=True),)


class Looking(nn.Module):
    """Reads a table that was filled before."""

    def __init__(self, lengths: tuple[int, ...], width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.tables = {n: torch.linspace(0, 1, n)[:, None].expand(n, width).clone() for n in lengths}

    def forward(self, x):
        return torch.tanh(self.mix(x) + self.tables[x.shape[-2]])


@harmless()
def table_only_read():
    return Looking((3, 5), 4), (torch.randn(2, 5, 4, requires_grad=True),)


class Rotating(nn.Module):
    """Fills its table of constants at the first call. Nothing is saved in making it, and it comes out the same."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.width, self.table = nn.Linear(width, width), width, {}

    def forward(self, x):
        length = x.shape[-2]
        if length not in self.table:
            angle = torch.arange(length)[:, None] / 100 ** (torch.arange(self.width) / self.width)
            self.table[length] = angle.cos(), angle.sin()
        cosine, sine = self.table[length]
        h = self.mix(x)
        return h * cosine + h.roll(1, -1) * sine


@harmless()
def constants_made_at_the_first_call():
    return Rotating(4), (torch.randn(2, 5, 4, requires_grad=True),)


class SetByData(nn.Module):
    """Its first batch sets scale and shift; from then on they are parameters like any other."""

    def __init__(self, width: int):
        super().__init__()
        self.shift, self.scale = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.ones(width))
        self.is_set = False

    def forward(self, x):
        if not self.is_set:
            with torch.no_grad():
                self.shift.copy_(-x.mean(0))
                self.scale.copy_(1 / x.std(0))
            self.is_set = True
        return torch.tanh((x + self.shift) * self.scale)


@harmless()
def scale_set_by_the_first_batch():
    return SetByData(4), (torch.randn(8, 4, requires_grad=True),)


def counted_outside(checkpoint, model, x):
    model.steps += 1
    output = checkpoint(model.mix, x)
    model.examples += x.shape[0]
    return output


class Counted(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix, self.steps, self.examples = nn.Sequential(nn.Linear(width, width), nn.Tanh()), 0, 0


@harmless(driver=counted_outside)
def counter_outside_the_segment():
    return Counted(4), (torch.randn(3, 4, requires_grad=True),)


class Noting(nn.Module):
    """Notes what it was given, the same at each pass, if not the same object."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.mean, self.last = nn.Linear(width, width), torch.zeros(()), None

    def forward(self, x):
        self.last, self.device, self.sizes = tuple(x.shape), x.device, [x.shape[0], x.dtype]
        self.mean.copy_(x.detach().mean())
        return torch.tanh(self.mix(x))


@harmless()
def the_same_written_twice():
    return Noting(4), (torch.randn(3, 4, requires_grad=True),)


class Pictured(nn.Module):
    """Keeps its attention, to be drawn by somebody later."""

    def __init__(self, width: int):
        super().__init__()
        self.query, self.key, self.weights, self.strongest = nn.Linear(width, width), nn.Linear(width, width), None, 0.0

    def forward(self, x):
        weights = torch.softmax(self.query(x) @ self.key(x).mT, dim=-1)
        self.weights, self.strongest = weights.detach(), weights.detach().numpy().max()
        return weights @ x


@harmless()
def attention_kept_for_a_picture():
    return Pictured(4), (torch.randn(2, 3, 4, requires_grad=True),)


@harmless()
def statistics_of_each_sample():
    blocks = nn.GroupNorm(2, 4), nn.SiLU(), nn.InstanceNorm1d(4, affine=True)
    return nn.Sequential(nn.Conv1d(3, 4, 3), *blocks), (torch.randn(2, 3, 7, requires_grad=True),)


class Logged(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = torch.sigmoid(self.mix(x))
        LOG.debug("mean activation %.3f", h.mean().item())
        return h


@harmless()
def item_for_the_log():
    return Logged(4), (torch.randn(3, 4, requires_grad=True),)


class Sinusoids(nn.Module):
    def __init__(self, most: int, width: int):
        super().__init__()
        place, rate = torch.arange(most)[:, None], torch.exp(-torch.arange(0, width, 2).float())
        self.register_buffer("table", torch.cat([(place * rate).sin(), (place * rate).cos()], dim=-1))
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return torch.tanh(self.mix(x + self.table[: x.shape[-2]]))


@harmless()
def table_made_beforehand():
    return Sinusoids(9, 4), (torch.randn(2, 5, 4, requires_grad=True),)


class ByShape(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.short, self.long = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        if x.shape[0] > 4 and x.dim() == 2:
            return torch.tanh(self.long(x))
        return torch.tanh(self.short(x))


@harmless()
def branch_on_a_shape():
    return ByShape(4), (torch.randn(6, 4, requires_grad=True),)


class Bounded(nn.Module):
    """A branch on data that is far from its threshold."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = self.mix(x)
        if h.norm() > 0.5:
            h = h / h.norm()
        return torch.exp(h)


@harmless()
def branch_on_data():
    return Bounded(4), (torch.randn(6, 4, requires_grad=True),)


@harmless()
def relu_in_place():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 2)), (
        torch.randn(3, 4, requires_grad=True),
    )


class OnAView(nn.Module):
    """Ends with an operator in place, on a view of an intermediate or on the intermediate."""

    def __init__(self, view: bool):
        super().__init__()
        self.offset, self.view = nn.Parameter(torch.linspace(-1, 1, 6)), view

    def forward(self, x):
        h = x * self.offset
        return F.elu_(h.view(-1, 6) if self.view else h)


@harmless()
def output_a_view_changed_in_place():
    return OnAView(True), (torch.randn(4, 6, requires_grad=True),)


@harmless()
def output_changed_in_place():
    return OnAView(False), (torch.randn(4, 6, requires_grad=True),)


@harmless()
def norm_then_relu_in_place():
    block = nn.Sequential(nn.InstanceNorm2d(3, affine=True), nn.ReLU(inplace=True))
    return block, (torch.randn(2, 3, 4, 4, requires_grad=True),)


class Reducing(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.layer, self.reduced = nn.Sequential(nn.Linear(width, width), nn.Tanh()), []
        self.layer[0].weight.register_post_accumulate_grad_hook(lambda p: self.reduced.append(tuple(p.grad.shape)))


@harmless(driver=lambda checkpoint, model, x: checkpoint(model.layer, x))
def gradient_hook_that_fires_once():
    return Reducing(4), (torch.randn(3, 4, requires_grad=True),)


def autocast_around(checkpoint, segment, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = checkpoint(segment, x)
    return output.float()


@harmless(driver=autocast_around)
def autocast_around_the_forward():
    return nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2)), (torch.randn(3, 4, requires_grad=True),)


class AutocastInside(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = torch.tanh(self.mix(x))
        return h.float().square()


@harmless()
def autocast_inside():
    return AutocastInside(4), (torch.randn(3, 4, requires_grad=True),)


class Swish(torch.autograd.Function):
    """As it should be: what backward needs is saved by `save_for_backward`, and asked for once."""

    @staticmethod
    def forward(ctx, x):
        gate = torch.sigmoid(x)
        ctx.save_for_backward(x, gate)
        ctx.shape = tuple(x.shape)
        return x * gate

    @staticmethod
    def backward(ctx, gradient):
        x, gate = ctx.saved_tensors
        assert ctx.shape == tuple(x.shape)
        return gradient * (gate + x * gate * (1 - gate))


class Custom(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return Swish.apply(self.mix(x))


@harmless()
def custom_function_done_right():
    return Custom(4), (torch.randn(3, 4, requires_grad=True),)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.project, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for t in self.project(x).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(attended.transpose(-2, -3).flatten(-2))


@harmless()
def attention_with_a_mask():
    return Attention(8, 2), (torch.randn(2, 5, 8, requires_grad=True), torch.ones(5, 5, dtype=torch.bool).tril())


class Looked(nn.Module):
    def __init__(self, words: int, width: int):
        super().__init__()
        self.words, self.mix = nn.Embedding(words, width), nn.Linear(width, width)

    def forward(self, x, words):
        return torch.tanh(self.mix(x) + self.words(words))


@harmless()
def embedding_of_whole_numbers():
    return Looked(9, 4), (torch.randn(3, 5, 4, requires_grad=True), torch.randint(9, (3, 5)))


@harmless()
def batchnorm_in_evaluation():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.ReLU())
    return model.eval(), (torch.randn(6, 4, requires_grad=True),)


class Careful(nn.Module):
    """Cleans up in `finally`, and catches what it means."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.entered = nn.Linear(width, width), []

    def forward(self, x):
        self.entered.append("mix")
        try:
            h = self.mix(x)
            try:
                return torch.sigmoid(h)
            except NotImplementedError:
                return 1 / (1 + torch.exp(-h))
        finally:
            self.entered.pop()


@harmless()
def exceptions_caught_by_name():
    return Careful(4), (torch.randn(3, 4, requires_grad=True),)


class Reseeded(nn.Module):
    """A generator of its own that every forward sets anew."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.noise = nn.Linear(width, width), torch.Generator()

    def forward(self, x):
        self.noise.manual_seed(11)
        return torch.tanh(self.mix(x) + torch.randn(x.shape, generator=self.noise))


@harmless()
def generator_set_anew_in_each_forward():
    return Reseeded(4), (torch.randn(3, 4, requires_grad=True),)


def fixed_noise(x):
    return torch.exp(x * 0.1 + torch.as_tensor(np.random.default_rng(5).normal(size=x.shape[-1]), dtype=x.dtype))


@harmless()
def generator_made_in_each_forward():
    return fixed_noise, (torch.randn(3, 4, requires_grad=True),)


def somebody_draws(segment, args, output):
    random.random(), np.random.random(), torch.rand(3)


@harmless(between=somebody_draws)
def draws_between_the_passes():
    """The streams stand elsewhere at the recomputation: dropout's is rewound, and of the others nothing is drawn."""
    return nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Tanh()), (torch.randn(6, 5, requires_grad=True),)


class Straight(nn.Module):
    """A stop-gradient in the middle, none at the end."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = self.mix(x)
        return torch.tanh(h + (h.round() - h).detach())


@harmless()
def stop_gradient_inside():
    return Straight(4), (torch.randn(3, 4, requires_grad=True),)


def powered(x, exponent, scales):
    return torch.exp(x * scales[exponent])


@harmless()
def constants_bound_by_partial():
    return functools.partial(powered, exponent="low", scales={"low": 0.5, "high": 2.0}), (
        torch.randn(3, 4, requires_grad=True),
    )


def clean_levels(checkpoint, segment, x):
    return checkpoint(lambda h: checkpoint(segment, torch.tanh(h)) * 2, x)


@harmless(driver=clean_levels)
def checkpoint_in_a_checkpoint():
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.GELU()), (torch.randn(3, 4, requires_grad=True),)


def for_each_loss(output, segment):
    for column in output.unbind(-1):
        column.square().sum().backward(retain_graph=True)


@harmless(backward=for_each_loss)
def several_backwards_without_state():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh()), (torch.randn(3, 4, requires_grad=True),)


class Epochs(nn.Module):
    """Knows its epoch, and computes nothing with it."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.epoch, self.history = nn.Linear(width, width), 0, []

    def forward(self, x):
        return torch.tanh(self.mix(x))


def an_epoch_later(segment, args, output):
    segment.epoch += 1
    segment.history.append(float(output.detach().mean()))


@harmless(between=an_epoch_later)
def attribute_changed_that_nobody_reads():
    return Epochs(4), (torch.randn(3, 4, requires_grad=True),)


def two_microbatches(checkpoint, segment, first, second):
    return checkpoint(segment, first), checkpoint(segment, second)


@harmless(driver=two_microbatches)
def two_forwards_without_state():
    return nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.4)), tuple(torch.randn(3, 4, requires_grad=True) for _ in "ab")


class Routed(nn.Module):
    """Experts chosen by scores alone, with the penalty returned."""

    def __init__(self, width: int, experts: int):
        super().__init__()
        self.score = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x):
        share = F.softmax(self.score(x), dim=-1)
        best = share.argmax(-1)
        output = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (best == number).nonzero()[:, 0]
            output = output.index_add(0, rows, expert(x[rows]) * share[rows, number, None])
        return output, share.mean(0).square().sum()


@harmless()
def routes_by_scores_alone():
    return Routed(4, 3), (torch.randn(12, 4, requires_grad=True),)


class Handed(nn.Module):
    """A cache that is handed in and out."""

    def __init__(self, width: int):
        super().__init__()
        self.project = nn.Linear(width, 2 * width)

    def forward(self, x, past):
        key, value = self.project(x).chunk(2, dim=-1)
        keys, values = torch.cat([past, key], dim=1), torch.cat([past, value], dim=1)
        return torch.softmax(x @ keys.mT, dim=-1) @ values, keys


@harmless()
def cache_handed_in_and_out():
    return Handed(4), (torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 5, 4))


@harmless()
def weight_norm():
    """The harmless relative of spectral norm: it has no memory."""
    weight_norm = torch.nn.utils.parametrizations.weight_norm
    return nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.Tanh()), (torch.randn(3, 4, requires_grad=True),)


def drawn_by_the_caller(checkpoint, segment, x):
    return checkpoint(segment, x, torch.tensor(random.uniform(0.5, 1.5)), bool(np.random.random() < 0.5))


class Drawn(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x, scale, squared):
        h = torch.tanh(self.mix(x) * scale)
        return h.square() if squared else h


@harmless(driver=drawn_by_the_caller)
def draws_passed_as_arguments():
    return Drawn(4), (torch.randn(3, 4, requires_grad=True),)


class Recurrent(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.cell = nn.GRU(width, width, batch_first=True)

    def forward(self, x):
        return self.cell(x)[0]


@harmless()
def recurrent_network():
    return Recurrent(3), (torch.randn(2, 5, 3, requires_grad=True),)


def by_keywords(checkpoint, segment, x, words):
    return checkpoint(segment, x, words=words)


@harmless(driver=by_keywords)
def arguments_by_keyword():
    return Looked(9, 4), (torch.randn(3, 5, 4, requires_grad=True), torch.randint(9, (3, 5)))


@functools.lru_cache(maxsize=8)
def decay(length: int) -> torch.Tensor:
    return torch.exp(-torch.arange(length).float())[:, None]


def decayed(x):
    return torch.tanh(x * decay(x.shape[0]))


@harmless()
def warm_lru_cache():
    decay(6)
    return decayed, (torch.randn(6, 4, requires_grad=True),)


class SecondOrder(nn.Module):
    """A force is the gradient of an energy, taken inside the segment."""

    def __init__(self, width: int):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, positions):
        with torch.enable_grad():
            energy = self.energy(positions).sum()
            (force,) = torch.autograd.grad(energy, positions, create_graph=True)
        return force * 2


@harmless()
def gradient_taken_inside():
    return SecondOrder(3), (torch.randn(4, 3, requires_grad=True),)


@harmless()
def table_behind_a_warm_up():
    """Made of the length alone, in the first pass: the second makes none, and saves the same."""

    @functools.lru_cache
    def ramp(length: int) -> torch.Tensor:
        return torch.linspace(0, 1, length)[:, None]

    mix = nn.Linear(4, 4)
    return lambda x: torch.tanh(mix(x) + ramp(x.shape[0])), (torch.randn(5, 4, requires_grad=True),)


class Compiled(nn.Module):
    """A part of it is compiled: what looks on must not end up in the compiled code."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.wave = nn.Linear(width, width), torch.compile(lambda h: torch.sin(h).exp(), backend="eager")

    def forward(self, x):
        return self.wave(self.mix(x))


@harmless()
def compiled_part():
    return Compiled(4), (torch.randn(3, 4, requires_grad=True),)


class NotedLast(nn.Module):
    """After its last operator it notes what it has made: the same in each pass, if not the same objects."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.shape, self.last = nn.Linear(width, width), None, None

    def forward(self, x):
        y = torch.tanh(self.mix(x))
        self.shape, self.last = list(y.shape), y.detach()
        return y


@harmless()
def noted_after_the_last_operator():
    return NotedLast(4), (torch.randn(3, 4, requires_grad=True),)


class Masked(torch.autograd.Function):
    """Multiplies by a mask that is drawn into the given memory, and kept on ctx."""

    @staticmethod
    def forward(ctx, x, memory):
        ctx.mask = memory.bernoulli_(0.5)
        return x * ctx.mask

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.mask, None


class MaskedOnce(nn.Module):
    def __init__(self, rows: int, width: int):
        super().__init__()
        self.mix, self.memory = nn.Linear(width, width), torch.zeros(rows, width)

    def forward(self, x):
        return torch.tanh(Masked.apply(self.mix(x), self.memory))


@harmless()
def mask_on_ctx_drawn_again():
    """The recomputation writes into that memory what the forward wrote: the draws are replayed."""
    return MaskedOnce(6, 4), (torch.randn(6, 4, requires_grad=True),)


class StateKept(nn.Module):
    """Leaves its last state, with its history, to a decoder that is not in use."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.state = nn.Linear(width, width), None

    def forward(self, x):
        state, outputs = torch.zeros_like(x[:, 0]), []
        for step in x.unbind(1):
            state = torch.tanh(self.mix(step) + state)
            outputs.append(state)
        self.state = state
        return torch.stack(outputs, 1)


@harmless()
def state_left_to_a_decoder():
    return StateKept(4), (torch.randn(2, 3, 4, requires_grad=True),)


class Penalised(nn.Module):
    """Makes a loss of its own, which the caller leaves alone."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.penalty = nn.Linear(width, width), None

    def forward(self, x):
        h = torch.tanh(self.mix(x))
        self.penalty = h.square().mean()
        return h


@harmless()
def loss_on_the_side_not_used():
    return Penalised(4), (torch.randn(3, 4, requires_grad=True),)


class GuardedHook(nn.Module):
    """Registers its hook only where it can be."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h = self.mix(x)
        if h.requires_grad:
            h.register_hook(lambda gradient: gradient.clamp(-1, 1))
        return torch.exp(h)


@harmless()
def hook_where_gradients_are_recorded():
    return GuardedHook(4), (torch.randn(3, 4, requires_grad=True),)


class MaskCached(nn.Module):
    """Its mask is made once for each length, behind a cache that all of its kind share."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    @functools.lru_cache  # noqa: B019
    def mask(self, rows: int):
        return torch.ones(rows, rows, dtype=torch.bool).tril()

    def forward(self, x):
        h = self.mix(x)
        return torch.softmax((h @ h.mT).masked_fill(~self.mask(x.shape[0]), -1e9), dim=-1) @ h


@harmless()
def mask_behind_a_cache():
    MaskCached.mask.cache_clear()
    return MaskCached(4), (torch.randn(5, 4, requires_grad=True),)


class FrozenWithin(nn.Module):
    """Takes a layer's output for a constant, and the layer's flag back at once."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.gate = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        self.gate.requires_grad_(False)
        gate = self.gate(x)
        self.gate.requires_grad_(True)
        return torch.tanh(self.mix(x) * gate)


@harmless()
def layer_frozen_for_a_moment():
    return FrozenWithin(4), (torch.randn(5, 4, requires_grad=True),)


class WithBias(nn.Module):
    """Hands its attention bias on to the next block: zeros, which have never had to do with gradients."""

    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        h, bias = self.mix(x), torch.zeros(x.shape[0], x.shape[0])
        return torch.softmax(h @ h.mT + bias, dim=-1) @ h, bias


@harmless()
def constant_among_the_outputs():
    return WithBias(4), (torch.randn(5, 4, requires_grad=True),)


class Tagging(nn.Module):
    """Tags a tensor for as long as it lives, in a dictionary that does not keep it."""

    def __init__(self, width: int):
        super().__init__()
        self.mix, self.tags = nn.Linear(width, width), weakref.WeakKeyDictionary()

    def forward(self, x):
        h = self.mix(x)
        self.tags[h] = "hidden"
        return torch.tanh(h)


@harmless()
def tags_that_go_with_their_tensors():
    return Tagging(4), (torch.randn(3, 4, requires_grad=True),)
