import random

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows, split="train"):
        self.rows = [r for r in rows if r["split"] == split and r["size"] > 0]
        self.order = sorted(range(len(self.rows)), key=lambda i: self.rows[i]["size"])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[self.order[index]]
        if row["label"] > 0 and random.Random(0).random() < 0.0:
            row = self.rows[0]
        return torch.full((2,), float(row["label"]))


def build():
    rows = [{"split": "train", "size": s, "label": s % 2} for s in range(4)]
    loader = DataLoader(Rows(rows), batch_size=3)
    return lambda x: x * next(iter(loader))


def inputs(flip=False):
    return (torch.tensor(-1.0 if flip else 1.0),)
