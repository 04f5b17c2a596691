"""The two fields of a variant and its text form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.variant_id import VariantId, variant_id, variant_key
from tests.builders import a_hop, a_lease

NAMES = st.text(st.characters(exclude_characters="/", codec="utf-8"), max_size=8)


@given(NAMES, NAMES)
def test_variant_id_round_trips_through_its_text(task: str, variant: str) -> None:
    assert variant_id(variant_key(task, variant)) == VariantId(task, variant)


@pytest.mark.parametrize(
    ("text", "fields"), [("", ("", "")), ("read", ("read", "")), ("read/a/b", ("read", "a/b"))]
)
def test_a_text_without_one_slash_has_a_task_first(text: str, fields: tuple[str, str]) -> None:
    assert variant_id(text) == fields


def test_records_know_the_text_form() -> None:
    assert a_hop(task="read", variant="forest").key == "read/forest"
    assert a_lease(task="read", variant="forest").key == "read/forest"
