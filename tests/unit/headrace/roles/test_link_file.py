"""Links that a user changes for one session through a file that the workers follow."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.config.pipeline_file import read_pipeline_file, search_space
from headrace.errors import PipelineError
from headrace.roles.link_file import (
    change_link,
    file_links,
    link_file,
    modified_ns,
    read_links,
    session_links,
)

FILE = read_pipeline_file(Path(__file__).parents[4] / "examples" / "postcode" / "planned.yaml")
HOP = ("handheld", "cloud")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    link_file(FILE.pipeline.name).parent.mkdir(parents=True)


def test_a_changed_link_is_that_of_one_session_in_both_directions() -> None:
    said = change_link(FILE, "cam-17", "handheld>cloud", "0.2Mbps", None)
    assert said == "session 'cam-17': handheld>cloud has 0.2 Mbps"
    links = file_links(FILE)
    assert links is not None
    links.changed = read_links(link_file(FILE.pipeline.name))
    for hop in (HOP, HOP[::-1]):
        found, planned = links.link("cam-17", hop), links.link("cam-18", hop)
        assert found is not None
        assert planned is not None
        assert (found.bytes_per_s, found.delay_s) == (25_000.0, 0.04)
        assert planned == search_space(FILE).links[hop]


def test_without_a_rate_the_link_is_that_of_the_file_again() -> None:
    change_link(FILE, "cam-17", "handheld>cloud", "0.2Mbps", None)
    change_link(FILE, "cam-17", "handheld>cloud", None, None)
    assert read_links(link_file(FILE.pipeline.name)) == {}


def test_links_of_real_tiers_cannot_be_changed() -> None:
    """No worker would read the change."""
    tiers = tuple(replace(tier, emulated=False) for tier in FILE.cluster.tiers)
    real = replace(FILE, cluster=replace(FILE.cluster, tiers=tiers))
    with pytest.raises(PipelineError, match="no tier is emulated"):
        change_link(real, "cam-17", "handheld>cloud", "0.2Mbps", None)


@pytest.mark.parametrize(
    ("hop", "rate", "message"),
    [
        ("handheld>moon", "1Mbps", "there is no link 'handheld>moon'; its links are: cloud>depot"),
        ("handheld>cloud", "fast", "the link is 'fast', which is no rate"),
        ("handheld>cloud", "0Mbps", "a link of 0 bytes/s carries nothing"),
    ],
)
def test_a_link_that_cannot_be_is_refused(hop: str, rate: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        change_link(FILE, "cam-17", hop, rate, None)


def test_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "links.json"
    assert read_links(path) == {}
    path.write_text('{"cam-17": {"handheld>cloud": 7}}')
    assert read_links(path) == {}


def test_a_file_that_is_gone_when_it_is_looked_at_has_no_time(tmp_path: Path) -> None:
    path = tmp_path / "links.json"
    assert modified_ns(path) is None
    path.write_text("{}")
    assert modified_ns(path) == path.stat().st_mtime_ns


def test_links_are_emulated_only_where_a_tier_is() -> None:
    real = session_links(FILE.sessions, emulated=False)
    assert real is not None
    assert real.link("cam-17", HOP) is None
    assert session_links(None, emulated=True) is None
