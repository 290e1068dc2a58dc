import torch


class Processor:
    def __init__(self, eos_token_id: int | list[int], min_length: int):
        if isinstance(eos_token_id, int):
            eos_token_id = [eos_token_id]
        if min(eos_token_id) < 0 or not all(isinstance(i, int) for i in eos_token_id):
            raise ValueError("token numbers are positive")
        self.eos_token_id = eos_token_id
        self.min_length = min_length

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor):
        current = input_ids.shape[-1]
        if current < self.min_length:
            scores = scores.clone()
            for i in self.eos_token_id:
                scores[:, i] = -float("inf")
        return scores


def build():
    return Processor(1, 5)


def inputs(flip=False):
    return torch.tensor([[0, 2 if flip else 1]]), torch.zeros(1, 4)
