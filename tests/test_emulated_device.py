"""The lab on a device that is not the CPU: an emulated one, since our machines have no GPU (see emulated_device)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import emulated_device
import pytest

HOUSE = Path(__file__).resolve().parent.parent
# A process of its own: a device, once registered, stays, and other tests would see it.
PROGRAM = """
import json, sys
from pathlib import Path
import emulated_device
device = emulated_device.register(Path(sys.argv[1]))
import device_checks, gpu_check, torch
from recompute_lab import Witness, divergence
from recompute_lab.instruments.checkpointing import NON_REENTRANT
from recompute_lab.instruments.device import accelerator, device_name, lab_device, races_on
from recompute_lab.instruments.own_checkpoint import OWN
from recompute_lab.instruments.timing import seconds
from recompute_lab.lessons import loud_or_silent
from recompute_lab.specimens.draws import MaskedLayers, TorchDefault

told = {name: gpu_check.line(name, check, device).__dict__ for name, check in gpu_check.checks_for(device).items()}

def mixed():
    try:
        torch.nn.Linear(16, 16).to(device)(torch.ones(2, 16))
    except RuntimeError as error:
        return str(error)

masked, x = MaskedLayers(TorchDefault(device=device)).to(device), torch.ones(8, 16, device=device, requires_grad=True)
witness = Witness()
y = torch.utils.checkpoint.checkpoint(masked, x, use_reentrant=False, context_fn=witness.context_fn)
y.sum().backward()
case = loud_or_silent.flip("gate", "false, then true", device=device)
told["other"] = dict(
    mixed=mixed(),
    device=[str(lab_device()), device_name(device), accelerator().__name__, races_on(device)],
    masks=[divergence(masked, x, strategy=way).equal for way in (NON_REENTRANT, OWN)],
    witness=witness.report().verdict,
    flip=divergence(case.segment, case.x).outcome,
    seconds=seconds(lambda: masked(x), rounds=1)[0] > 0,
)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(pytestconfig, tmp_path_factory) -> dict:
    """What the checks say on the emulated device; one process for all of them."""
    cache = getattr(pytestconfig, "cache", None)  # none with -p no:cacheprovider
    folder = cache.mkdir("emulated_device") if cache else tmp_path_factory.mktemp("emulated_device")
    try:
        library = emulated_device.build(Path(folder))
    except RuntimeError as error:
        pytest.skip(str(error))
    path = os.pathsep.join([str(HOUSE / "tests"), str(HOUSE / "tools"), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path, "FORWARD_TWICE_DEVICE": emulated_device.NAME}
    command = [sys.executable, "-c", PROGRAM, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "name",
    [
        "162, then 161",
        "the repair",
        "device dropout",
        "a private generator",
        "witness, writes, memory",
        "run_twice",
        "a foreign generator",
    ],
)
def test_the_lab_holds_on_a_device_that_is_not_the_cpu(told, name):
    assert told[name]["status"] == "ok", told[name]["text"]


def test_only_cuda_is_asked_for_what_only_cuda_has(told):
    assert set(told) - {"other"} and "cuBLAS products" not in told and "real atomics" not in told


def test_the_device_is_one(told):
    """Without this the tests above would say nothing."""
    assert "Expected all tensors to be on the same device" in told["other"]["mixed"]


def test_the_lessons_choose_it_and_the_instruments_know_it(told):
    other = told["other"]
    assert other["device"] == ["emulated", "emulated", "emulated_device", False]
    assert other["masks"] == [True, True] and other["witness"] == "replayable"
    assert other["flip"] == "silent" and other["seconds"]
