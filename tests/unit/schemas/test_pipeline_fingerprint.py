"""Fingerprints distinguish pipeline files only by settings that roles share."""

from dataclasses import replace

import pytest

from schemas.pipeline import Pipeline, Policy
from schemas.pipeline_fingerprint import fingerprint
from tests.builders import a_pipeline

FIRST = a_pipeline({"locate": ["read"], "read": []})


@pytest.mark.parametrize(
    "other",
    [
        replace(FIRST, egress_partitions=FIRST.egress_partitions + 1),
        replace(FIRST, slo_s=FIRST.slo_s + 1),
        replace(FIRST, input="confluent"),
        replace(FIRST, slo_classes={"gold": 1.0}),
        replace(FIRST, tasks=(replace(FIRST.tasks[0], slots=65), FIRST.tasks[1])),
    ],
)
def test_settings_shared_by_roles_distinguish_files(other: Pipeline) -> None:
    assert fingerprint(other) != fingerprint(FIRST)


def test_policies_are_the_control_apps_own() -> None:
    other = replace(FIRST, policy="loki", policies=(Policy(name="loki", kind="loki"),))
    assert fingerprint(other) == fingerprint(FIRST)


def test_a_key_with_its_default_value_changes_nothing() -> None:
    # A release with a new key must not differ from one without it.
    assert fingerprint(replace(FIRST, slo_classes={})) == fingerprint(FIRST)
    assert len(fingerprint(FIRST)) == 12
