"""Audit files and folders: every file read once, on all cores, and the checkpoints followed across files."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from recompute_lab.instruments.audit.checkpoints import Reach
from recompute_lab.instruments.audit.finding import Finding
from recompute_lab.instruments.audit.one_file import FileAudit, audit_source
from recompute_lab.instruments.audit.sources import Unreadable, find, read

# Printed with every result: nothing found is not the same as nothing there.
CANNOT_SEE = (
    "values whose kind no line of the same file shows: results of functions in other files, untyped attributes",
    "a read in one function and the decision in another file; functions looked up by a text (registries, getattr)",
    "files that mention neither torch nor tensors; code that is made at run time (exec, modules that are swapped)",
    "`x in y` and int(x) of values of unknown kind; the order of sets",
    'checkpoints that a trainer or a configuration applies: hence "not seen", never "no"',
    "whether a suggestion fits: it quotes the source, and was not tried; arms must agree in shape and dtype",
    "whether a lasting write differs between the passes: examine(segment, *args) runs them and tells",
)

_FEW = 400_000  # bytes: below, starting other processes takes longer than the work
_BLOCK = 1_500_000  # bytes that a process is given at once, at least
_BLOCKS = 6  # for each process, where there is much: so that they end together, and few interpreters start


@dataclass(frozen=True)
class Audit:
    """`findings` by file and line; `suppressed` with their reasons; `notes`: what was not read, and why."""

    findings: tuple[Finding, ...]
    suppressed: tuple[tuple[Finding, str], ...]
    notes: tuple[str, ...]
    files: int
    lines: int

    def __str__(self) -> str:
        from recompute_lab.instruments.audit.formats import text

        return text(self)


def audit(
    *paths: str | os.PathLike,
    exclude: Iterable[str] = (),
    checkpointed_only: bool = False,
    sizes: bool = False,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Find branches on a tensor's value, and lasting writes, in scripts and notebooks. Nothing is imported or run.

    `exclude`: shell patterns of paths, or of names of files and folders. `checkpointed_only`: only what is seen to be
    run by a checkpoint. `sizes`: also sizes that depend on values and decide nothing ("shape"). `processes`: all
    cores by default. `progress(done, all)` is called with numbers of files. Raises FileNotFoundError where a path is
    not there, and ValueError where none is given.
    """
    if not paths:
        raise ValueError("there is nothing to audit: name a file or a folder")
    files, notes, missing = find(paths, exclude)
    if missing:
        raise FileNotFoundError(f"there is no file or folder {', '.join(map(repr, missing))} to audit")
    jobs = [(os.fspath(file), _dotted(file), sizes) for file in files]
    results: list[FileAudit] = []
    for block in _blocks(jobs, processes, progress):
        results += block
    reach = Reach(result.links for result in results)
    found = [
        replace(one, checkpoint=reach.verdict(key))
        for result in results
        for one, key in zip(result.findings, result.keys, strict=True)
    ]
    if checkpointed_only:
        found = [one for one in found if one.checkpoint != "not seen"]
    notes += [note for result in results for note in result.notes]
    read_files = sum(result.lines > 0 for result in results)
    return Audit(
        tuple(found), tuple(s for result in results for s in result.suppressed), tuple(notes), read_files,
        sum(result.lines for result in results),
    )  # fmt: skip


def _dotted(path: Path) -> str:
    """The module's dotted name, as far up as the folders are packages."""
    names = [] if path.stem == "__init__" else [path.stem]
    try:
        folder = path.resolve().parent
        while (folder / "__init__.py").is_file() and folder.name:
            names.insert(0, folder.name)
            folder = folder.parent
    except (OSError, RuntimeError):
        pass
    # With its path, so that two scripts of the same name are two modules.
    return ".".join(names) if len(names) > 1 else path.as_posix().replace(".", "_")


def _blocks(jobs: list, processes: int | None, progress: Callable[[int, int], None] | None):
    """The results in the order of the files, a block at a time."""
    weights = list(map(_weight, jobs))
    total, size = sum(weights), 0
    most = max(_BLOCK, total // (_BLOCKS * (processes or _cores())))
    blocks = [[]]
    for job, weight in zip(jobs, weights, strict=True):
        if size + weight > most and blocks[-1]:
            blocks.append([])
            size = 0
        blocks[-1].append(job)
        size += weight
    workers = min(processes or _cores(), len(blocks))
    done = 0
    of_block = audit_files if workers == 1 or total < _FEW else _in_another_process
    pool = ThreadPoolExecutor(workers)  # each thread waits for a process of its own
    try:
        for block, results in zip(blocks, pool.map(of_block, blocks), strict=True):
            done += len(block)
            if progress is not None:
                progress(done, len(jobs))
            yield results
    finally:
        pool.shutdown(cancel_futures=True)


def _weight(job: tuple) -> int:
    """The file's size in bytes."""
    try:
        return os.stat(job[0]).st_size
    except OSError:
        return 0


def _in_another_process(jobs: list) -> list[FileAudit]:
    """A fresh interpreter that gets its work by a pipe: no fork of a process with torch's threads in it, and nothing of
    the caller's script runs again. Where it dies (memory), this process does the work."""
    command = [sys.executable, "-c", "from recompute_lab.instruments.audit.audit import worker; worker()"]
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        command, input=pickle.dumps(jobs), capture_output=True, env=os.environ | {"PYTHONPATH": path}, check=False
    )
    if done.returncode == -signal.SIGINT:
        return []  # the user's interrupt, which this process has received as well
    return pickle.loads(done.stdout) if not done.returncode else audit_files(jobs)


def worker() -> None:
    """What the other process runs: files from standard input, results to standard output, both pickled."""
    results = audit_files(pickle.load(sys.stdin.buffer))
    sys.stdout.buffer.write(pickle.dumps(results))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def audit_files(jobs: list[tuple[str, str, bool]]) -> list[FileAudit]:
    """Of (path, dotted name, sizes), each a file; what cannot be read has a note."""
    collecting = gc.isenabled()
    try:
        gc.disable()  # syntax trees are many small objects, and all of them are needed until the file is done
        return [_audit_file(*job) for job in jobs]
    finally:
        if collecting:
            gc.enable()
            gc.collect()


def _audit_file(path: str, dotted: str, sizes: bool) -> FileAudit:
    shown = path.encode("utf-8", "backslashreplace").decode()
    try:
        source = read(Path(path))
    except Unreadable as why:
        return FileAudit(notes=[f"{shown}: {why}"])
    return audit_source(source, shown, dotted, sizes)
