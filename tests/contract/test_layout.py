"""The packages have common names; these tests are the guards of docs/decisions/0001."""

import importlib
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "profiles", "control", "operators", "streams", "headrace")
# Extras: the control plane installs and runs without them.
HEAVY = ("torch", "torchvision", "transformers", "safetensors", "onnxruntime", "sklearn", "PIL")


@cache
def modules() -> list[Path]:
    """Return every module of the six packages, relative to the root, without the packages
    themselves."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return sorted(path.relative_to(ROOT) for path in found if path.name != "__init__.py")


@cache
def text(path: Path) -> str:
    return (ROOT / path).read_text()


def dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_the_one_in_this_repository(package: str) -> None:
    file = importlib.import_module(package).__file__
    assert file is not None
    assert Path(file) == ROOT / package / "__init__.py"


installed = cache(packages_distributions)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_owns_a_package_of_this_name(package: str) -> None:
    owners = set(installed().get(package, []))
    assert owners <= {"headrace"}, (
        f"{owners - {'headrace'}} installs a package {package!r} over ours; uninstall it "
        "or run in an environment of your own"
    )


def test_there_is_no_further_top_level_package() -> None:
    tops = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert tops == {*PACKAGES, "benchmarks"}


@pytest.mark.thorough
def test_the_control_plane_imports_no_extra() -> None:
    light = [dotted(path) for path in modules() if path.parts[:2] != ("operators", "models")]
    names = [name for name in light if not name.endswith("__main__")]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


# Importing a solver takes up to a second at every start. Solves run in a separate process.
WITHOUT_SOLVERS = (
    *(f"headrace.roles.{role}_role" for role in ("dispatcher", "egress", "ingress", "scorer")),
    "headrace.roles.workers.worker_role",
    "headrace.roles.control_role",
    "streams.control_app.app",
    "headrace.cluster.up",
    "headrace.simulation.batch_runs",
)


@pytest.mark.thorough
def test_nothing_that_starts_often_imports_a_solver() -> None:
    slow = {"pulp", "highspy", "scipy.special", "scipy.sparse", "scipy.fft"}
    code = (
        "import importlib, sys\n"
        f"for name in {WITHOUT_SOLVERS!r}:\n"
        "    importlib.import_module(name)\n"
        f"    assert not (found := {slow!r} & sys.modules.keys()), (name, found)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_import_is_absolute() -> None:
    relative = re.compile(r"^[ \t]*from\s+\.", re.MULTILINE)
    assert [str(path) for path in modules() if relative.search(text(path))] == []


def test_no_two_modules_share_a_file_name() -> None:
    by_name = defaultdict(list)
    for path in modules():
        by_name[path.name].append(str(path))
    assert [paths for paths in by_name.values() if len(paths) > 1] == []


def test_no_two_classes_share_a_name() -> None:
    classes = re.compile(r"^class (\w+)", re.MULTILINE)
    by_name = defaultdict(list)
    for path in modules():
        for name in classes.findall(text(path)):
            by_name[name].append(str(path))
    assert {name: paths for name, paths in by_name.items() if len(paths) > 1} == {}


def test_no_folder_has_more_than_twenty_modules() -> None:
    counts = Counter(str(path.parent) for path in modules())
    assert {folder: count for folder, count in counts.items() if count > 20} == {}


def test_every_folder_has_its_unit_tests_in_the_same_place() -> None:
    folders = {path.parent for path in modules()} - {Path("schemas/records")}  # only data
    tests = {path.parent for path in (ROOT / "tests" / "unit").rglob("test_*.py")}
    assert [str(f) for f in sorted(folders) if ROOT / "tests" / "unit" / f not in tests] == []


def test_every_module_begins_with_its_docstring() -> None:
    begins = re.compile(r'r?"""[^\s"]')
    assert [str(path) for path in modules() if not begins.match(text(path))] == []
