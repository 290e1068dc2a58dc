"""Which device the lessons choose, and that the checks of `make gpu-check` can fail."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from recompute_lab.instruments import device as chosen
from recompute_lab.instruments.nondeterminism import Nudge
from recompute_lab.specimens.counters import CountedOnce
from recompute_lab.specimens.layers import Layers
from recompute_lab.specimens.norm_cap import GuardedNormCap, RepairedNormCap
from recompute_lab.specimens.trunk import exact

HOUSE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOUSE / "tools"))

import device_checks as checks  # noqa: E402
import gpu_check  # noqa: E402
import reset  # noqa: E402
from small_lesson import write  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture
def asked(monkeypatch):
    """Chooses anew, with this in the environment variable."""

    def choose(word: str | None) -> torch.device:
        monkeypatch.delenv(chosen.VARIABLE, raising=False)
        if word is not None:
            monkeypatch.setenv(chosen.VARIABLE, word)
        chosen.lab_device.cache_clear()
        return chosen.lab_device()

    monkeypatch.setenv(chosen.WORKSPACE, chosen.FIXED[0])  # so that what a choice sets is taken back
    yield choose
    chosen.lab_device.cache_clear()


# --- The choice


def test_a_gpu_is_chosen_where_there_is_one_that_works(asked):
    works = torch.cuda.is_available() and not chosen.trouble(torch.device("cuda"))
    assert asked(None).type == asked("").type == ("cuda" if works else "cpu")
    assert asked(" CPU ") == CPU


def test_a_word_that_is_no_device_is_refused_in_a_sentence(asked):
    with pytest.raises(ValueError, match="FORWARD_TWICE_DEVICE is cpu or cuda, got 'gpu'"):
        asked("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_in_a_sentence(asked):
    with pytest.raises(RuntimeError, match="FORWARD_TWICE_DEVICE=cuda, but that device does not work here .*say cpu"):
        asked("cuda")


def test_a_gpu_that_does_not_work_is_not_chosen(asked, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(chosen, "trouble", lambda device: "out of order")
    assert asked(None) == CPU
    monkeypatch.setattr(chosen, "trouble", lambda device: "")
    assert asked(None) == torch.device("cuda")


def test_cublas_is_given_a_workspace_unless_it_has_one(monkeypatch):
    for before, after in ((None, ":4096:8"), (":16:8", ":16:8")):
        monkeypatch.setenv(chosen.WORKSPACE, "")
        monkeypatch.delenv(chosen.WORKSPACE)
        if before:
            monkeypatch.setenv(chosen.WORKSPACE, before)
        chosen.trouble(torch.device("cuda"))
        assert os.environ[chosen.WORKSPACE] == after


def test_additions_race_on_cuda_and_with_two_threads(two_threads):
    assert chosen.races_on(CPU) and chosen.races_on(torch.device("cuda"))
    torch.set_num_threads(1)
    assert not chosen.races_on(CPU) and chosen.races_on(torch.device("cuda"))


# --- The checks, on the CPU: right as they are, and each with a fault planted


def slightly_off(limit: float) -> nn.Module:
    """A repaired cap that is no identity where it does not bite."""
    cap = RepairedNormCap(limit)
    cap.register_forward_hook(lambda module, args, output: output * (1 + 2**-20))
    return cap


def from_a_generator_of_its_own() -> nn.Module:
    """A dropout that torch does not replay."""
    generator = torch.Generator().manual_seed(0)

    class Own(nn.Module):
        def forward(self, x):
            return x * (torch.rand(x.shape, generator=generator) < 0.5)

    return Own()


class Deaf:
    """An evaluation in which nothing is drawn."""

    def __init__(self, generator=None):
        pass

    def __call__(self, model, rows):
        return {"mean": model(rows).mean().item()}


FAULTS = {
    "162, then 161": lambda: checks.crash(CPU, cap=RepairedNormCap),
    "the repair": lambda: checks.repair(CPU, cap=GuardedNormCap),
    "the repair, off by some ulps": lambda: checks.repair(CPU, cap=slightly_off),
    "device dropout": lambda: checks.dropout(CPU, layer=from_a_generator_of_its_own()),
    "device dropout, none": lambda: checks.dropout(CPU, layer=nn.Identity()),
    "a private generator": lambda: checks.private_generator(CPU, generator=torch.default_generator),
    "witness, writes, memory": lambda: checks.instruments(CPU, faulty=CountedOnce),
    "witness, no fault": lambda: checks.instruments(CPU, faulty=Layers),
    "run_twice": lambda: checks.evaluation(CPU, drawing=Deaf),
    "a foreign generator": lambda: checks.foreign_generator(CPU),  # the CPU is no foreign device
    "real atomics": lambda: checks.atomics(CPU, noise=exact),
    "real atomics, deterministic or not": lambda: checks.atomics(CPU, noise=Nudge(4, seed=0)),
    "a real crash": lambda: checks.real_crash(CPU, noise=exact, tries=2),
}


@pytest.mark.parametrize("name", checks.ANYWHERE)
def test_what_holds_anywhere_holds_on_the_cpu(name):
    found = gpu_check.line(name, checks.ANYWHERE[name], CPU)
    assert found.status == gpu_check.OK, found.text


@pytest.mark.parametrize("name", FAULTS)
def test_each_check_fails_where_a_fault_is_planted(name):
    with checks.streams_kept(CPU):
        assert not FAULTS[name]().right


def test_real_atomics_are_real_with_two_threads(two_threads):
    found = checks.atomics(CPU)
    assert found.right, found.told


def test_a_cpu_has_no_products_that_raise():
    found = checks.products(CPU)
    assert not found.right and found.told.count("passes") == 3


def test_an_error_is_a_line_that_says_so():
    def broken(device):
        raise RuntimeError("CUDA error: out of patience\nmore")

    found = gpu_check.line("broken", broken, CPU)
    assert found.status == gpu_check.BAD and "RuntimeError: CUDA error: out of patience" in found.text


def test_the_streams_stand_where_they_stood_after_a_check():
    before = torch.get_rng_state()
    gpu_check.line("draws", lambda device: checks.Found(bool(torch.rand(3).sum() > 0), ""), CPU)
    assert torch.equal(before, torch.get_rng_state())


# --- The script


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(HOUSE / "tools" / "gpu_check.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=300)


def test_without_a_gpu_it_says_so_and_nothing_fails():
    done = run(FORWARD_TWICE_DEVICE="cpu")
    assert done.returncode == 0 and done.stdout.startswith("No GPU to check: FORWARD_TWICE_DEVICE=cpu."), done
    assert len(done.stdout.splitlines()) == 1 and not done.stderr


def test_a_device_that_is_none_is_a_sentence_and_a_failure():
    done = run(FORWARD_TWICE_DEVICE="tpu9")
    assert done.returncode == 1 and "is cpu or cuda, got 'tpu9'" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(("right", "code"), [(True, 0), (False, 1)])
def test_the_page_says_what_failed(right, code, monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "lab_device", lambda: torch.device("meta"))
    monkeypatch.setattr(gpu_check, "checks_for", lambda device: {"a check": lambda device: checks.Found(right, "seen")})
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--no-lessons"])
    monkeypatch.setattr(gpu_check.signal, "signal", lambda *_: None)
    monkeypatch.setenv("FORWARD_TWICE_PROGRESS", "off")
    monkeypatch.setattr(gpu_check, "line", lambda n, check, device: gpu_check.Line(*_status(check(device))))
    assert gpu_check.main() == code
    page = capsys.readouterr().out
    assert ("OK: all 1 checks hold on meta." if right else "FAILED: 1 of 1 checks.") in page and "seen" in page


def _status(found: checks.Found) -> tuple[str, str]:
    return (gpu_check.OK if found.right else gpu_check.BAD), found.told


def test_lessons_run_on_the_device_and_the_cell_that_does_not_hold_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv(chosen.VARIABLE, "none yet")
    write(tmp_path, "01_right", solved=True)
    wrong = write(tmp_path, "02_wrong", solved=True)
    wrong.write_text(wrong.read_text().replace("The answer is 42", "The answer is 43"))
    todo = [reset.Lesson(tmp_path / "source" / f"{name}.py", solved=True) for name in ("01_right", "02_wrong")]
    right, bad = gpu_check.lessons(todo, CPU, jobs=1, timeout=60)
    assert os.environ[chosen.VARIABLE] == "cpu"
    assert right.status != gpu_check.BAD and bad.status == gpu_check.BAD
    assert "02_wrong" in bad.text and "cell" in bad.text and any("43" in detail for detail in bad.details)


@pytest.mark.parametrize(
    ("module", "used"),
    [
        (SimpleNamespace(is_initialized=lambda: True), True),
        (SimpleNamespace(is_initialized=lambda: False), False),
        (SimpleNamespace(), False),  # torch.mps
    ],
)
def test_a_gpu_is_in_use_where_its_module_says_so(module, used, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("meta"))
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    assert chosen.accelerator() is (module if used else None)


def test_apples_module_is_still_one_that_does_not_say():
    assert not hasattr(torch.mps, "is_initialized")
