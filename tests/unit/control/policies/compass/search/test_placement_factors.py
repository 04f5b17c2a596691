"""Latency factors of a session's deployment."""

from dataclasses import replace

import numpy as np

from control.policies.compass.search.placement_factors import model_bytes, session_deployment
from tests.session_world import a_space


def test_every_hop_takes_the_time_between_processes_beside_its_link() -> None:
    """Two stages have a hop into each and one back; the producer's to ingress comes before them."""
    space = a_space()
    known = np.zeros((space.space.configuration_count, 2))
    bare = session_deployment(space, known)
    with_hops = session_deployment(replace(space, comm_s=0.002), known)
    seconds, sent = np.full(known.shape, 0.01), np.zeros((len(known), 3))
    before, after = bare.latency(seconds, sent), with_hops.latency(seconds, sent)
    linked = before < 10  # the others need a link that is missing
    assert linked.any()
    np.testing.assert_allclose(after[linked] - before[linked], 4 * 0.002)


def test_models_have_the_memory_of_their_variant() -> None:
    space = replace(a_space(), memory={"scan/v": 2e9, "read/w": 5e9})
    found = model_bytes(space)
    for configuration, row in enumerate(found):
        variant = space.space.named(configuration)["read.variant"]
        assert row.tolist() == [2e9, 5e9 if variant == "w" else 0.0]
    assert not model_bytes(a_space()).any()
