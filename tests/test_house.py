"""The rules the package and the repository keep, whatever the lessons say."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parent.parent
PACKAGE = HOUSE / "src" / "recompute_lab"

# Which part may import which: lessons stand on views, views on instruments. What is
# measured (specimens) and what measures it (instruments) know nothing of each other; a repair knows nothing of either.
MAY_IMPORT = {
    "lessons": {"lessons", "views", "instruments", "specimens", "repairs"},
    "views": {"views", "instruments"},
    "instruments": {"instruments"},
    "specimens": {"specimens", "repairs"},
    "repairs": {"repairs"},
}


def imported_parts(path: Path) -> set[str]:
    """The package's parts that a module imports, anywhere in its text."""
    package = path.relative_to(PACKAGE.parent).with_suffix("").parts
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: -node.level] if node.level else ())
            module = f"{base}.{node.module or ''}".strip(".")
            # "from recompute_lab import views" names the part after the import.
            modules |= {f"{module}.{alias.name}" for alias in node.names}
    names = [module.split(".") for module in modules]
    return {name[1] for name in names if name[0] == "recompute_lab" and len(name) > 1}


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_imports_only_what_stands_below_it(part):
    for path in sorted((PACKAGE / part).rglob("*.py")):
        wrong = imported_parts(path) & set(MAY_IMPORT) - MAY_IMPORT[part]
        assert not wrong, f"{path.relative_to(HOUSE)} must not import {', '.join(sorted(wrong))}"


def test_imports_of_every_form_are_seen():
    path = PACKAGE / "instruments" / "__init__.py"
    forms = {
        "import recompute_lab.views.plots as p": {"views"},
        "from recompute_lab.lessons.one import x": {"lessons"},
        "from recompute_lab import specimens": {"specimens"},
        "from ..views import plots": {"views"},
        "from .. import views": {"views"},
        "from . import memory": {"instruments"},
        "def f():\n    import torch, recompute_lab.lessons": {"lessons"},
    }
    for text, parts in forms.items():
        stand_in = type("Text", (), {"read_text": lambda self, encoding, text=text: text})()
        stand_in.relative_to = path.relative_to
        assert imported_parts(stand_in) == parts, text


def test_the_package_alone_is_light():
    heavy = "from recompute_lab import *; import sys; print({'matplotlib', 'ipywidgets'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_no_tracked_file_names_a_place_on_somebodys_machine():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=HOUSE, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    place = re.compile(r"(?<![\w.<])/(home|Users|root|tmp|opt|private|mnt|work)/\w")
    examples = {"notebooks/checks.py", "tests/test_checks.py", "tests/test_house.py"}
    found = []
    for name in set(listed.stdout.split("\0")) - examples - {""}:
        if (HOUSE / name).is_file() and (HOUSE / name).suffix not in {".png", ".jpg", ".gif"}:
            lines = (HOUSE / name).read_text(encoding="utf-8").splitlines()
            hits = [(n, line) for n, line in enumerate(lines, 1) if place.search(line)]
            found += [f"{name}:{n}: {line.strip()}" for n, line in hits]
    assert not found, "\n".join(found)
