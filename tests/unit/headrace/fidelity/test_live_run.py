"""The folder of a live run: its logs outlive an error that names them."""

import tempfile
from pathlib import Path

import pytest

from headrace.errors import Unsuccessful
from headrace.fidelity.live_run import run_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def use(error: BaseException | None = None) -> None:
    """Leave files in a folder as a live run does; end with the error."""
    with run_folder() as folder:
        for path in ("run/cpu-0.log", "broker/data/p-0/0.log", "broker/broker.log"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text("x")
        if error is not None:
            raise error


def test_an_error_names_logs_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unsuccessful):
        use(Unsuccessful("it did not come up; see the logs"))
    (folder,) = tmp_path.iterdir()
    assert capsys.readouterr().err == f"the logs are in {folder}\n"
    found = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert found == {"run/cpu-0.log", "broker/broker.log"}


def test_a_run_that_succeeds_or_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    use()
    with pytest.raises(KeyboardInterrupt):
        use(KeyboardInterrupt())
    assert [*tmp_path.iterdir()] == []
