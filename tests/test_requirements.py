"""pyproject.toml, requirements.lock and environment.yml say the same.

The first names what the lab needs, the second pins it for make, the third names it
for conda and repo2docker.
"""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

HOUSE = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((HOUSE / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
RUNTIME = [Requirement(text) for text in PROJECT["dependencies"]]
DEV = [Requirement(text) for text in PROJECT["optional-dependencies"]["dev"]]
MODELS = [Requirement(text) for text in PROJECT["optional-dependencies"]["models"]]
LOCK = [
    Requirement(line)
    for line in (HOUSE / "requirements.lock").read_text().splitlines()
    if line and not line.startswith("#")
]
ENVIRONMENT = yaml.safe_load((HOUSE / "environment.yml").read_text())
CONDA = [item for item in ENVIRONMENT["dependencies"] if isinstance(item, str)]

# Where conda-forge has another name for a package.
CONDA_NAME = {"torch": "pytorch-cpu", "matplotlib": "matplotlib-base"}
ONLY_ON_PYPI = {"fsrs"}  # pip brings it, with the package itself

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
PLATFORMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "macos": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
}


def locked(python: str = "3.12", platform: str = "linux") -> dict[str, str]:
    """What the lock installs there: canonical name to version."""
    here = default_environment() | PLATFORMS[platform]
    here |= {"python_version": python, "python_full_version": f"{python}.9"}
    chosen = [r for r in LOCK if r.marker is None or r.marker.evaluate(here)]
    names = [canonicalize_name(r.name) for r in chosen]
    assert len(names) == len(set(names)), "a package is pinned twice for one Python"
    return dict(zip(names, (str(r.specifier)[2:] for r in chosen), strict=True))


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_satisfies_pyproject(python, platform):
    pins = locked(python, platform)
    build = [Requirement(text) for text in PYPROJECT["build-system"]["requires"]]
    for need in RUNTIME + DEV + MODELS + build + [Requirement("editables")]:
        assert need.name in pins, f"{need.name} is not in requirements.lock: run make lock"
        assert need.specifier.contains(pins[need.name]), f"{need}, but {pins[need.name]} is locked"


def test_what_the_package_imports_is_declared():
    distribution = {"PIL": "pillow", "sklearn": "scikit-learn"}
    imported = set()
    for path in (HOUSE / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            imported |= {name.partition(".")[0] for name in names}
    imported -= set(sys.stdlib_module_names) | {"recompute_lab"}
    declared = {canonicalize_name(requirement.name) for requirement in RUNTIME + MODELS}
    assert {canonicalize_name(distribution.get(name, name)) for name in imported} <= declared


def test_the_lock_pins_one_public_version_of_everything():
    for pin in LOCK:
        (one,) = pin.specifier
        assert one.operator == "==" and "*" not in one.version and "+" not in one.version, pin
        assert not pin.url, pin


def test_the_lock_leaves_gpu_packages_to_torch():
    assert not [pin.name for pin in LOCK if re.match("nvidia|cuda|triton", pin.name)]


def test_make_knows_the_locked_torch():
    (version,) = re.findall(r"^TORCH := (\S+)$", (HOUSE / "Makefile").read_text(), re.M)
    assert version == locked()["torch"]


def test_conda_has_every_runtime_dependency_and_nothing_else():
    expected = {CONDA_NAME.get(need.name, need.name) + str(need.specifier) for need in RUNTIME + MODELS}
    expected -= {item for item in expected if Requirement(item).name in ONLY_ON_PYPI}
    assert {item for item in CONDA if not re.match("python=|pip$", item)} == expected


def test_conda_installs_the_package_itself():
    assert {"pip": ["-e ."]} in ENVIRONMENT["dependencies"] and "pip" in CONDA


def test_python_is_named_as_repo2docker_reads_it_and_allowed_by_pyproject():
    (python,) = [item for item in CONDA if item.startswith("python")]
    match = re.fullmatch(r"python=(3\.\d+)", python)
    assert match, f"repo2docker reads 'python=3.x' only, not '{python}'"
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert all(allowed.contains(version) for version in [match[1], *PYTHONS])
    assert match[1] in PYTHONS
