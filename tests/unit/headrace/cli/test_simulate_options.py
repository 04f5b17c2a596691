"""Options of ``headrace simulate`` that take several values."""

import pytest

from headrace.cli.shared_options import spread


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("f.yaml --seed 1 2 3", "f.yaml --seed 1 --seed 2 --seed 3"),
        ("f.yaml --seed 1,2 --json", "f.yaml --seed 1 --seed 2 --json"),
        ("--policy a b f.yaml", "--policy a --policy b f.yaml"),
        ("--policy=a,b f.yaml", "--policy a --policy b f.yaml"),
        ("--policy a:b=c:d=1.5 e --json", "--policy a:b=c:d=1.5 --policy e --json"),
        ("f.yaml --policy a b --json", "f.yaml --policy a --policy b --json"),
        ("--seed f.yaml", "--seed f.yaml"),
        ("f.yaml --rate 10 20.5 --slo 1ms,2s", "f.yaml --rate 10 --rate 20.5 --slo 1ms --slo 2s"),
        ("--devices 4 8,16 f.yaml", "--devices 4 --devices 8 --devices 16 f.yaml"),
        ("--devices cpu=4,cuda:0=2 cpu=8", "--devices cpu=4,cuda:0=2 --devices cpu=8"),
        ("f.yaml --seed", "f.yaml --seed"),
        ("f.yaml --policy a --seed 1", "f.yaml --policy a --seed 1"),
        ("f.yaml --seed --policy a", "f.yaml --seed --policy a"),
    ],
)  # fmt: skip
def test_each_value_gets_its_option(given: str, read: str) -> None:
    assert " ".join(spread(given.split())) == read
