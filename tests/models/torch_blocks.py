"""Blocks made of torch's own modules: name -> (block, args, kwargs), tiny, in train mode, dropout on."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

Built = tuple[nn.Module, tuple, dict]
BLOCKS: dict[str, Callable[[], Built]] = {}


def block(make: Callable[[], Built]) -> Callable[[], Built]:
    @functools.wraps(make)
    def seeded() -> Built:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return make()

    BLOCKS["torch/" + make.__name__] = seeded
    return seeded


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_()


def ids(*shape: int, high: int = 11) -> torch.Tensor:
    return torch.randint(high, shape)


def causal(n: int) -> torch.Tensor:
    return torch.triu(torch.full((n, n), float("-inf")), 1)


def padding(*lengths: int) -> torch.Tensor:
    """bool [rows, longest]: True where there is no token."""
    return torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]


def image() -> torch.Tensor:
    return rows(2, 8, 6, 6)


# Attention and transformers


@block
def encoder_layer():
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.2, batch_first=True)
    return layer, (rows(2, 5, 16),), {"src_key_padding_mask": padding(5, 3)}


@block
def encoder_layer_norm_first():
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.2, activation="gelu", batch_first=True, norm_first=True)
    return layer, (rows(2, 5, 16),), {"src_mask": causal(5), "is_causal": True}


@block
def decoder_layer():
    layer = nn.TransformerDecoderLayer(16, 4, 32, dropout=0.2, batch_first=True)
    return layer, (rows(2, 5, 16), rows(2, 7, 16)), {"tgt_mask": causal(5), "tgt_is_causal": True}


@block
def decoder_layer_memory_by_keyword():
    layer = nn.TransformerDecoderLayer(16, 4, 32, dropout=0.2, batch_first=True)
    return layer, (rows(2, 5, 16),), {"memory": rows(2, 7, 16), "memory_key_padding_mask": padding(7, 4)}


@block
def whole_transformer():
    model = nn.Transformer(16, 4, 1, 1, 32, dropout=0.2, batch_first=True)
    return model, (rows(2, 6, 16), rows(2, 5, 16)), {"tgt_mask": causal(5), "src_key_padding_mask": padding(6, 4)}


@block
def encoder_of_two_layers():
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.2)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (rows(5, 2, 16),), {"mask": causal(5)}


@block
def attention_that_gives_its_weights():
    layer = nn.MultiheadAttention(16, 4, dropout=0.2, batch_first=True)
    return layer, (rows(2, 5, 16), rows(2, 7, 16), rows(2, 7, 16)), {"key_padding_mask": padding(7, 4)}


@block
def attention_with_extra_keys():
    layer = nn.MultiheadAttention(16, 4, dropout=0.2, add_bias_kv=True, add_zero_attn=True, kdim=12, vdim=12)
    return layer, (rows(5, 2, 16), rows(7, 2, 12), rows(7, 2, 12)), {"need_weights": False}


class CausalBlock(nn.Module):
    """A decoder block as it is written today: rotary positions, RMSNorm, a gated MLP."""

    def __init__(self, width: int = 16, heads: int = 2, p: float = 0.2):
        super().__init__()
        self.heads, self.p = heads, p
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(p)
        angles = torch.outer(torch.arange(32.0), 10_000 ** -torch.linspace(0, 1, width // heads // 2))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * self.turns[: x.shape[-2]]).flatten(-2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        )
        q, k = self.rotated(q), self.rotated(k)
        attended = F.scaled_dot_product_attention(q, k, v, mask, self.p if self.training else 0.0, mask is None)
        x = x + self.dropout(self.out(attended.transpose(1, 2).flatten(2)))
        gate, value = self.up(self.norms[1](x)).chunk(2, dim=-1)
        return x + self.dropout(self.down(F.silu(gate) * value))


@block
def causal_block():
    return CausalBlock(), (rows(2, 5, 16),), {}


@block
def causal_block_with_a_mask():
    return CausalBlock(), (rows(2, 5, 16), torch.rand(2, 1, 5, 5) < 0.7), {}


class InBfloat16(nn.Module):
    """The block under autocast of its own."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.inner(x)


@block
def causal_block_under_autocast():
    return InBfloat16(CausalBlock()), (rows(2, 5, 16),), {}


# Recurrent networks


@block
def lstm():
    return nn.LSTM(8, 6, num_layers=2, dropout=0.3, batch_first=True), (rows(2, 5, 8),), {}


@block
def lstm_with_projection_and_state():
    state = rows(1, 2, 3), rows(1, 2, 6)
    return nn.LSTM(8, 6, proj_size=3), (rows(5, 2, 8), state), {}


@block
def gru_both_ways():
    return nn.GRU(8, 6, num_layers=2, dropout=0.3, bidirectional=True), (rows(5, 2, 8),), {}


@block
def rnn():
    return nn.RNN(8, 6, num_layers=2, dropout=0.3, nonlinearity="relu"), (rows(5, 2, 8), rows(2, 2, 6)), {}


class Packed(nn.Module):
    """A recurrent layer over sequences of different lengths."""

    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(8, 6, num_layers=2, dropout=0.3, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]


@block
def gru_over_a_packed_sequence():
    return Packed(), (rows(3, 5, 8), torch.tensor([3, 5, 2])), {}


class CellLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.dropout = nn.LSTMCell(8, 6), nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(x.shape[1], 6)
        outputs = []
        for step in x:
            h, c = self.cell(self.dropout(step), (h, c))
            outputs.append(h)
        return torch.stack(outputs)


@block
def lstm_cell_in_a_loop():
    return CellLoop(), (rows(4, 2, 8),), {}


# Vision


def conv(inner: int, outer: int, size: int = 3, groups: int = 1, norm=nn.BatchNorm2d) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inner, outer, size, padding=size // 2, groups=groups, bias=False), norm(outer))


class Residual(nn.Module):
    """ReLU(x + body(x))"""

    def __init__(self, *body: nn.Module):
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.body(x))


@block
def resnet_basic():
    return Residual(conv(8, 8), nn.ReLU(inplace=True), conv(8, 8)), (image(),), {}


@block
def resnet_bottleneck():
    body = conv(8, 4, 1), nn.ReLU(inplace=True), conv(4, 4), nn.ReLU(inplace=True), conv(4, 8, 1)
    return Residual(*body, nn.Dropout2d(0.2)), (image(),), {}


@block
def resnet_with_group_norm():
    def norm(channels: int) -> nn.Module:
        return nn.GroupNorm(4, channels)

    return Residual(conv(8, 8, norm=norm), nn.ReLU(inplace=True), conv(8, 8, norm=norm)), (image(),), {}


@block
def resnet_with_batch_norm_in_eval():
    made = Residual(conv(8, 8), nn.ReLU(inplace=True), conv(8, 8), nn.Dropout(0.2))
    for part in made.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eval()
    return made, (image(),), {}


@block
def resnet_with_statistics_of_the_batch_only():
    def norm(channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels, track_running_stats=False)

    return Residual(conv(8, 8, norm=norm), nn.ReLU(), conv(8, 8, norm=norm)), (image(),), {}


@block
def resnet_with_cumulative_statistics():
    def norm(channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels, momentum=None)

    return Residual(conv(8, 8, norm=norm), nn.ReLU()), (image(),), {}


class MBConv(nn.Module):
    """EfficientNet's block: expansion, depthwise convolution, squeeze and excitation, projection, stochastic depth."""

    def __init__(self, width: int = 8, expansion: int = 2, p: float = 0.2):
        super().__init__()
        inner = width * expansion
        self.expand, self.depthwise = conv(width, inner, 1), conv(inner, inner, 3, groups=inner)
        self.squeeze, self.excite = nn.Conv2d(inner, 2, 1), nn.Conv2d(2, inner, 1)
        self.project, self.p = conv(inner, width, 1), p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.silu(self.depthwise(F.silu(self.expand(x))))
        y = self.project(y * torch.sigmoid(self.excite(F.silu(self.squeeze(y.mean((2, 3), keepdim=True))))))
        if self.training:
            y = y * torch.empty(len(x), 1, 1, 1).bernoulli_(1 - self.p) / (1 - self.p)
        return x + y


@block
def efficientnet_mbconv():
    return MBConv(), (image(),), {}


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, LayerNorm over channels, MLP, layer scale, stochastic depth."""

    def __init__(self, width: int = 8, p: float = 0.2):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.scale, self.p = nn.LayerNorm(width), nn.Parameter(torch.full((width,), 0.1)), p
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.scale * self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        if self.training and torch.rand(()) < self.p:  # the whole batch, at once: Python decides
            return x
        return x + y.permute(0, 3, 1, 2)


@block
def convnext():
    return ConvNeXtBlock(), (image(),), {}


@block
def instance_norm():
    return Residual(conv(8, 8, norm=lambda c: nn.InstanceNorm2d(c, affine=True)), nn.Dropout2d(0.2)), (image(),), {}


@block
def instance_norm_with_running_statistics():
    def norm(channels: int) -> nn.Module:
        return nn.InstanceNorm2d(channels, affine=True, track_running_stats=True)

    return Residual(conv(8, 8, norm=norm)), (image(),), {}


class UNetLevel(nn.Module):
    """Down, in, up again, and joined with what came in."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.MaxPool2d(2), conv(8, 12), nn.ReLU(inplace=True))
        self.up = nn.Sequential(nn.ConvTranspose2d(12, 8, 2, stride=2), nn.Dropout2d(0.2))
        self.join = nn.Sequential(conv(16, 8), nn.LeakyReLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.join(torch.cat([x, self.up(self.down(x))], dim=1))


@block
def unet_level():
    return UNetLevel(), (image(),), {}


@block
def alexnet_stage():
    stage = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(inplace=True), nn.LocalResponseNorm(3), nn.MaxPool2d(2))
    return stage, (image(),), {}


@block
def fractional_pooling_and_random_slopes():
    return nn.Sequential(nn.Conv2d(8, 8, 3), nn.RReLU(), nn.FractionalMaxPool2d(2, output_size=3)), (image(),), {}


# Norms of weights


@block
def spectral_norm_by_hook():
    return nn.Sequential(spectral_norm(nn.Linear(8, 8)), nn.Tanh(), nn.Dropout(0.2)), (rows(4, 8),), {}


@block
def spectral_norm_by_parametrization():
    made = nn.Sequential(parametrizations.spectral_norm(nn.Conv2d(8, 8, 3)), nn.LeakyReLU(0.2))
    return made, (image(),), {}


@block
def weight_norm_by_hook():
    return nn.Sequential(weight_norm(nn.Linear(8, 8)), nn.Tanh(), nn.Dropout(0.2)), (rows(4, 8),), {}


@block
def weight_norm_by_parametrization():
    return nn.Sequential(parametrizations.weight_norm(nn.Conv2d(8, 8, 3)), nn.ReLU()), (image(),), {}


@block
def orthogonal_weight():
    return nn.Sequential(parametrizations.orthogonal(nn.Linear(8, 8)), nn.Tanh(), nn.Dropout(0.2)), (rows(4, 8),), {}


# Embeddings, and what else torch has


@block
def embedding():
    return nn.Sequential(nn.Embedding(11, 8, padding_idx=0), nn.Dropout(0.2)), (ids(2, 5),), {}


@block
def embedding_bag():
    return nn.EmbeddingBag(11, 8, mode="mean"), (ids(2, 5),), {}


@block
def embedding_with_a_largest_norm():
    return nn.Sequential(nn.Embedding(11, 8, max_norm=1.0), nn.Dropout(0.2)), (ids(2, 5),), {}


class Added(nn.Module):
    """Hidden states, and the embedding of what kind they are: a segment with an input that requires grad."""

    def __init__(self, **options):
        super().__init__()
        self.kinds, self.norm, self.dropout = nn.Embedding(11, 8, **options), nn.LayerNorm(8), nn.Dropout(0.2)

    def forward(self, x: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.norm(x + self.kinds(kinds)))


@block
def embedding_added():
    return Added(), (rows(2, 5, 8), ids(2, 5)), {}


@block
def embedding_added_with_a_largest_norm():
    return Added(max_norm=1.0), (rows(2, 5, 8), ids(2, 5)), {}


@block
def embedding_added_scaled_by_frequency():
    return Added(scale_grad_by_freq=True), (rows(2, 5, 8), ids(2, 5)), {}


@block
def adaptive_softmax():
    return nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10]), (rows(6, 8), ids(6, high=20)), {}


@block
def dropouts_of_all_kinds():
    kinds = nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2), nn.Dropout1d(0.2), nn.Dropout(0.2, inplace=True)
    return nn.Sequential(nn.Linear(8, 8), nn.SELU(inplace=True), *kinds), (rows(4, 3, 8),), {}


@block
def bilinear_and_prelu():
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.act, self.norm = nn.Bilinear(8, 6, 8), nn.PReLU(8), nn.BatchNorm1d(8)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return self.norm(self.act(self.mix(a, b)))

    return Joined(), (rows(4, 8), rows(4, 6)), {}


class Gumbel(nn.Module):
    """A hard choice with a soft gradient; the choice is drawn."""

    def __init__(self):
        super().__init__()
        self.score, self.values = nn.Linear(8, 4), nn.Parameter(torch.randn(4, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gumbel_softmax(self.score(x), hard=True) @ self.values


@block
def gumbel_softmax():
    return Gumbel(), (rows(6, 8),), {}


class QuantisationAware(nn.Module):
    """torch's fake quantisation: the forward widens the range that it has seen, and quantises by it."""

    def __init__(self):
        super().__init__()
        from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver

        self.linear = nn.Linear(8, 8)
        self.quantise = FakeQuantize(MovingAverageMinMaxObserver, quant_min=0, quant_max=255, averaging_constant=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.quantise(self.linear(x)))


@block
def quantisation_aware_training():
    made = QuantisationAware()
    for _ in range(2):
        made(2 * torch.randn(6, 8))  # some range has been seen before
    return made, (rows(6, 8),), {}
