import torch
import torch.nn as nn


class Config:
    hidden_dropout = 0.1
    layer_norm_eps = 1e-5
    activation = "gelu"
    max_position = 64


class Layer(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.norm = nn.LayerNorm(4, eps=config.layer_norm_eps)

    def forward(self, x, output_attentions=False):
        if self.training and self.config.hidden_dropout > 0:
            x = x * (1 - self.config.hidden_dropout)
        x = torch.nn.functional.gelu(x) if self.config.activation == "gelu" else x.relu()
        if output_attentions or self.config.max_position < x.shape[1]:
            return (x, x)
        return self.norm(x)


def build():
    return Layer(Config())


def inputs(flip=False):
    return (torch.full((1, 4), -1.0 if flip else 1.0),)
