"""Every file that a document names is in the repository; the README is short."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
# The changelog names files that existed at the time.
NAMED = sorted(page for page in PAGES if page.name != "CHANGELOG.md")
TOPS = "schemas|profiles|control|operators|streams|headrace|tests|benchmarks|examples|docs"
FILE = re.compile(rf"(?<![\w/.-])((?:{TOPS})/[\w/.-]+\.(?:py|md|yaml|yml|toml|avsc|json))\b")
# A test is named by its path below tests/, or by its file name alone.
TEST = re.compile(r"(?<![\w/.-])((?:\w+/)*test_\w+\.py)\b")
MADE_OR_MEANT = re.compile(r"[A-Z]{2,}|\bmypipeline\b")  # placeholders such as NAME.avsc


def test_the_readme_is_read_in_one_sitting() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", NAMED, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_document_names_exist(page: Path) -> None:
    names = set(FILE.findall(page.read_text(encoding="utf-8")))
    missing = [n for n in names if not (ROOT / n).exists() and not MADE_OR_MEANT.search(n)]
    assert sorted(missing) == []


@pytest.mark.parametrize("page", NAMED, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_a_document_names_exist(page: Path) -> None:
    names = {n.removeprefix("tests/") for n in TEST.findall(page.read_text(encoding="utf-8"))}
    tests = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    there = {str(path) for path in tests} | {path.name for path in tests}
    assert sorted(names - there) == []


def test_names_of_code_in_the_architecture_exist() -> None:
    """A name is a word in backticks: a module, a function, a class, a constant or a method."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    names = set(re.findall(r"(?<!`)`(\w+(?:\.\w+)?)`(?!`)", text)) - {"run_ROLE"}
    files = {name for name in names if re.search(r"\.(py|md|toml|avsc)$", name)}
    words = {word for name in names - files for word in name.split(".")}
    sources = [path for top in TOPS.split("|")[:6] for path in (ROOT / top).rglob("*.*")]
    there = {path.name for path in (*sources, *ROOT.iterdir())}
    text = "".join(path.read_text("utf-8") for path in sources if path.suffix == ".py")
    assert (sorted(files - there), sorted(words - set(re.findall(r"\w+", text)))) == ([], [])
