import torch


def fetch(table, key, where):
    try:
        level = where[key]
    except KeyError:
        level = torch.zeros(())
    if level > 0:
        return table * level
    return table.neg()


def build():
    return fetch


def inputs(flip=False):
    return torch.ones(2), "a", {"a": torch.tensor(2.0)} if flip else {}
