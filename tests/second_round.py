"""A plugin for nbval: each notebook's cells run twice in one kernel, once as they stand and once in a random order.

    PYTHONPATH=tests python -m pytest -p second_round --nbval --orders=in-order,shuffled notebooks/01_the_crash.ipynb

`--orders` says which round comes first. Each round is compared with what is stored, as nbval does it. The random order
respects which cells need which (see orders.py); it is the notebook's own, or that of --orders-seed.
"""

from itertools import groupby

import orders
import pytest
from nbval.plugin import IPyNbCell

ROUNDS = ("in-order", "shuffled")


def pytest_addoption(parser):
    parser.addoption("--orders", default=",".join(ROUNDS), help="rounds, in-order or shuffled, separated by commas")
    parser.addoption("--orders-seed", default="", help="another random order than the notebook's own")


def pytest_collection_modifyitems(config, items):
    rounds, seed = config.option.orders.split(","), config.option.orders_seed
    if unknown := set(rounds) - set(ROUNDS):
        raise pytest.UsageError(f"--orders: {', '.join(sorted(unknown))} is none of {', '.join(ROUNDS)}")
    arranged = []
    for file, group in groupby(items, key=lambda item: item.parent):
        cells = list(group)
        before = orders.needs([cell.cell.source for cell in cells])
        for number, name in enumerate(rounds, 1):
            order = range(len(cells)) if name == "in-order" else orders.shuffled(before, file.path.name + seed)
            arranged += [_again(cells[place], f"round {number}, {name}") for place in order]
    items[:] = arranged


def _again(cell: IPyNbCell, told: str) -> IPyNbCell:
    return IPyNbCell.from_parent(
        cell.parent, name=f"{cell.name}, {told}", cell_num=cell.cell_num, cell=cell.cell, options=cell.options
    )
