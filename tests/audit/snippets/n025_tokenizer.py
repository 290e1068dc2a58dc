import torch


class Tokenizer:
    pad_token_id = 0
    model_max_length = 5

    def encode(self, text: str) -> list[int]:
        return [ord(c) % 7 + 1 for c in text]

    def __call__(self, texts, padding=True):
        ids = [self.encode(t) for t in texts]
        longest = max(len(i) for i in ids)
        if padding and longest > self.model_max_length:
            ids = [i[: self.model_max_length] for i in ids]
            longest = self.model_max_length
        if any(t == self.pad_token_id for row in ids for t in row):
            raise ValueError("padding inside a text")
        return {"input_ids": torch.tensor([i + [self.pad_token_id] * (longest - len(i)) for i in ids])}


def build():
    tokenizer = Tokenizer()
    return lambda x: tokenizer(["ab", "abcdefg"])["input_ids"] * x


def inputs(flip=False):
    return (torch.tensor(-1.0 if flip else 1.0),)
