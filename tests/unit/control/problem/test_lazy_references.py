"""References of the form "package.module:name"."""

import pytest

from control.problem.lazy_references import object_named, parts


def test_a_reference_names_a_module_and_what_it_holds() -> None:
    assert parts("control.problem.problem:Problem") == ("control.problem.problem", "Problem")
    assert object_named("control.problem.lazy_references:parts") is parts


@pytest.mark.parametrize("wrong", ["", "module", "module:", ":name"])
def test_another_form_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"write it as package\.module:name"):
        parts(wrong)
