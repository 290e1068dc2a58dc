"""Two models of the `transformers` package in which checkpointing goes wrong. Tiny, random weights: nothing is loaded.

The package is imported when one of them is made; ImportError where it is not installed.
"""

from __future__ import annotations

import torch
from torch import nn

from recompute_lab.specimens.steps import NON_REENTRANT, Run, power


def half_power(hidden: torch.Tensor) -> torch.Tensor:
    """The mean square of half of the columns: of all columns, a layer norm has made it the same for every row."""
    return power(hidden[..., ::2])


class PublicModel:
    """`model` in train mode, and `step(run)`: a forward and a backward."""

    def __init__(self):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = self.made().train()
            self.inputs = self.batch()

    def made(self) -> nn.Module:
        raise NotImplementedError

    def batch(self) -> torch.Tensor:
        raise NotImplementedError

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        raise NotImplementedError


class Mixtral(PublicModel):
    """A mixture of experts, whose loss has a term that keeps the load of the experts balanced.

    The routers' outputs for it are collected on the way, by hooks in the layers. The model checkpoints its layers
    itself; `step(run)` hands it `run` for that. `share` is the factor of the term.
    """

    def __init__(self, share: float = 1.0):
        self._share = share
        super().__init__()

    def made(self) -> nn.Module:
        from transformers import MixtralConfig, MixtralForCausalLM

        config = MixtralConfig(
            vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64,
            output_router_logits=True, router_aux_loss_coef=self._share, use_cache=False,
        )  # fmt: skip
        return MixtralForCausalLM(config)

    def batch(self) -> torch.Tensor:
        return torch.randint(3, 50, (4, 8))

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        from transformers.modeling_layers import GradientCheckpointingLayer

        for layer in self.model.modules():
            if isinstance(layer, GradientCheckpointingLayer):
                layer.gradient_checkpointing, layer._gradient_checkpointing_func = True, run
        self.output = self.model(input_ids=self.inputs, labels=self.inputs)
        self.output.loss.backward()
        return self.output.loss.detach()


class Wav2Vec2(PublicModel):
    """A speech model that masks its features at random, checkpointed as a whole, as the encoder of a larger model is.

    The masks are drawn with NumPy.
    """

    def made(self) -> nn.Module:
        from transformers import Wav2Vec2Config, Wav2Vec2Model

        config = Wav2Vec2Config(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, conv_dim=(8, 8),
            conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2, num_conv_pos_embeddings=4,
            num_conv_pos_embedding_groups=2, vocab_size=50, mask_time_prob=0.3, mask_time_length=2, layerdrop=0.0,
        )  # fmt: skip
        return Wav2Vec2Model(config)

    def batch(self) -> torch.Tensor:
        return torch.randn(2, 400)

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        loss = half_power(run(self.encoded, self.inputs))
        loss.backward()
        return loss.detach()

    def encoded(self, sound: torch.Tensor) -> torch.Tensor:
        return self.model(sound).last_hidden_state


class Wav2Vec2Told(Wav2Vec2):
    """The mask is drawn outside, and is an argument."""

    def step(self, run: Run = NON_REENTRANT) -> torch.Tensor:
        frames = int(self.model._get_feat_extract_output_lengths(self.inputs.shape[1]))
        loss = half_power(run(self.encoded, self.inputs, torch.rand(2, frames) < 0.3))
        loss.backward()
        return loss.detach()

    def encoded(self, sound: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.model(sound, mask_time_indices=mask).last_hidden_state
