import argparse

import torch


def parse(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    return parser.parse_args(argv)


def main(x, argv=()):
    args = parse(list(argv))
    if args.scale > 1 and not args.all:
        x = x * args.scale
    for _ in range(int(args.steps)):
        x = x + 1
    return x


def build():
    return main


def inputs(flip=False):
    return (torch.tensor(-1.0 if flip else 1.0),)
