"""The generated parts of docs/reference match the output of docs/generate_reference.py."""

import json
import re
from pathlib import Path

import pytest

from docs.generate_reference import AVRO, FOLDER, PARTS, definitions, filled

PAGES = sorted(FOLDER.glob("*.md"))
MARK = re.compile(r"<!-- generated: ([\w -]+) -->")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_is_as_the_code_writes_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert filled(text) == text, "run `make reference`"


def test_every_part_and_every_record_stands_on_a_page() -> None:
    found = {name for path in PAGES for name in MARK.findall(path.read_text(encoding="utf-8"))}
    schemas = [json.loads(path.read_text()) for path in AVRO.glob("*.avsc")]
    records = {each["name"] for schema in schemas for each in definitions(schema)}
    assert found == {*PARTS} - {"fields"} | {f"fields {name}" for name in records}


def test_a_changed_part_is_written_anew_and_the_rest_stays() -> None:
    page = "before\n<!-- generated: topics -->\nold\n<!-- end -->\nafter\n"
    assert filled(page).startswith("before\n<!-- generated: topics -->\n| topic | partitions |")
    assert filled(page).endswith(" |\n<!-- end -->\nafter\n")
    with pytest.raises(KeyError, match="nothing"):
        filled("<!-- generated: nothing -->\n<!-- end -->")
