"""The command line: recompute-lab audit PATH..., recompute-lab cards, recompute-lab progress."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time

from recompute_lab.instruments.audit import audit, formats

FOUND, NOTHING_FOUND, WRONG_USE = 1, 0, 2


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 where nothing is found, 1 where something is, 2 for wrong use or where nothing can be read."""
    parser = argparse.ArgumentParser(
        prog="recompute-lab",
        description="Forward, Twice: what activation checkpointing does behind a training run's back.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    one = commands.add_parser(
        "audit",
        help="find branches on a tensor's value, and lasting writes, in source",
        description="Find branches on a tensor's value, and writes that outlive a forward. Nothing is imported or run.",
        epilog="A line is left out by `# recompute-lab: ignore[tensor-branch] the reason`; the reason is needed.",
    )
    one.add_argument("paths", nargs="+", metavar="PATH", help="a file, a notebook or a folder")
    one.add_argument("--format", choices=("text", "json", "github"), default="text", help="text by default")
    one.add_argument("--checkpointed-only", action="store_true", help="only what a checkpoint is seen to run")
    one.add_argument(
        "--sizes", action="store_true", help="also sizes that depend on values, where nothing branches on them"
    )
    one.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="shell pattern; may be repeated")
    one.add_argument("--processes", type=_positive, metavar="N", help="processes side by side (all cores by default)")
    one.set_defaults(run=_audit)
    cards = commands.add_parser(
        "cards",
        help="print the interview cards as Markdown",
        description="Print the interview cards as Markdown: question, rubric, follow-ups, what to read.",
    )
    cards.add_argument("--topic", default="", metavar="NAME", help="only this topic; a wrong name lists them all")
    cards.add_argument("--level", default="", metavar="NAME", help="only this level: screen, onsite or staff")
    cards.add_argument("--minutes", type=int, metavar="N", help="only cards that take so long at most")
    cards.set_defaults(run=_cards)
    progress = commands.add_parser(
        "progress",
        help="show your checks passed and cards due",
        description="Show the checks passed of each lesson, and the interview cards that are due.",
        epilog="The journal is a file of your own; FORWARD_TWICE_PROGRESS names another one.",
    )
    which = progress.add_mutually_exclusive_group()
    which.add_argument("--export", metavar="PATH", help="copy the journal into a new file")
    which.add_argument("--import", dest="merge", metavar="PATH", help="add what another journal has and yours has not")
    progress.set_defaults(run=_progress)
    given = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows no "−" is shown its number
    try:
        return given.run(given)
    except ModuleNotFoundError as error:
        from recompute_lab.lessons.advice import advice

        return _refused(advice(error) or str(error))


def _audit(given: argparse.Namespace) -> int:
    progress = Progress()
    try:
        found = audit(
            *given.paths,
            exclude=given.exclude,
            checkpointed_only=given.checkpointed_only,
            sizes=given.sizes,
            processes=given.processes,
            progress=progress,
        )
    except FileNotFoundError as error:
        progress.clear()
        print(f"recompute-lab: {error}", file=sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:
        progress.clear()
        print("recompute-lab: interrupted", file=sys.stderr)
        return 130
    progress.clear()
    shape = {"text": formats.text, "json": formats.as_json, "github": formats.github}[given.format]
    try:
        said = shape(found)
        if said:
            print(said)
        sys.stdout.flush()
        if given.format != "text":
            print(formats.summary(found), file=sys.stderr)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not found.files:
        print("recompute-lab: no file could be read: there is no Python script or notebook there", file=sys.stderr)
        return WRONG_USE
    return FOUND if found.findings else NOTHING_FOUND


def _cards(given: argparse.Namespace) -> int:
    from recompute_lab.lessons.cards import load, markdown

    try:
        deck = load()
        chosen = deck.choose(given.topic, given.level, given.minutes)
    except ValueError as error:
        return _refused(str(error))
    if not chosen:
        return _refused("there is no such card")
    return _printed(markdown(chosen, deck.topics).rstrip("\n"))


def _progress(given: argparse.Namespace) -> int:
    from recompute_lab.lessons.overview import overview
    from recompute_lab.lessons.progress import VARIABLE, Journal, chosen_path

    path = chosen_path()
    if path is None:
        return _refused(f"no progress is kept: {VARIABLE} is off, or there is no home folder to keep it in")
    journal = Journal(path)
    try:
        if given.export:
            return _printed(_lines(journal.export(given.export), f"written to {given.export}"))
        if given.merge:
            return _printed(_lines(journal.merge(given.merge), f"added from {given.merge}"))
    except FileExistsError as error:
        return _refused(str(error))
    except OSError as error:
        return _refused(f"{error.filename or path}: {error.strerror or error}")
    return _printed(overview(journal))


def _lines(count: int, what: str) -> str:
    return f"{count} line{'' if count == 1 else 's'} {what}"


def _refused(why: str) -> int:
    print(f"recompute-lab: {why}", file=sys.stderr)
    return WRONG_USE


def _printed(text: str) -> int:
    try:
        print(text)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


class Progress:
    """One line on a terminal, for runs longer than a moment."""

    def __init__(self, quiet_s: float = 1.0):
        self.began, self.quiet_s, self.shown = time.monotonic(), quiet_s, False

    def __call__(self, done: int, total: int) -> None:
        if sys.stderr.isatty() and time.monotonic() - self.began > self.quiet_s:
            print(f"\r{done} of {total} files", end="", file=sys.stderr, flush=True)
            self.shown = True

    def clear(self) -> None:
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self.shown = False


def _positive(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"a number of processes is at least 1, not {text!r}")
    return value
