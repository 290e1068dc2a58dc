import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, vocab=5):
        super().__init__()
        self.emb = nn.Embedding(vocab, vocab)
        nn.init.eye_(self.emb.weight)
        self.eos_token_id = 3

    def forward(self, ids, max_length=4):
        done = torch.zeros(ids.shape[0], dtype=torch.bool)
        length = ids.shape[1]
        while length < max_length and not done.all():
            logits = self.emb(ids[:, -1])
            token = logits.argmax(-1)
            done = done | token.eq(self.eos_token_id)
            ids = torch.cat([ids, token[:, None]], dim=1)
            length += 1
        return ids


def build():
    return Decoder()


def inputs(flip=False):
    return (torch.tensor([[3 if flip else 1]]),)
