"""The dashboard of `up`: its address and the readers of its token."""

import stat
from pathlib import Path

from headrace.cluster.page_address import PageAddress, page_address, with_address
from headrace.config.cluster import Cluster
from headrace.config.topology import roles
from headrace.dashboard.page_access import page_access


def cluster(port: int | None) -> Cluster:
    return Cluster((("cpu", 1),), metrics_port=9400, dashboard_port=port)


def test_without_the_key_there_is_no_dashboard() -> None:
    assert "dashboard" not in {role.kind for role in roles(cluster(None))}
    assert page_address(None) is None


def test_its_role_has_the_port_and_the_token_and_no_port_for_metrics() -> None:
    page = PageAddress(8080, "t" * 32)
    (role,) = [r for r in with_address(roles(cluster(8080)), page, Path("/run/p"))
               if r.kind == "dashboard"]  # fmt: skip
    assert role.arguments == ("--port", "8080", "--token-file", "/run/p/dashboard.token")
    assert (role.metrics_port, role.nodes) == (None, ())
    assert page.url == f"http://127.0.0.1:8080/?token={'t' * 32}"


def test_port_0_is_a_free_one() -> None:
    page = page_address(0)
    assert page is not None
    assert page.port > 1023


def test_token_file_is_private_and_its_token_opens_the_dashboard(tmp_path: Path) -> None:
    for page in (PageAddress(1, "a" * 32), PageAddress(1, "b" * 32)):  # the second takes its place
        page.keep(tmp_path)
        path = tmp_path / "dashboard.token"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert page_access("127.0.0.1", path).admits(page.token)
