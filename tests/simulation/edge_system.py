"""A system in virtual time with an ingress at the edge that reads its first partitions."""

from collections.abc import Mapping
from typing import Any

from control.problem.seats import bound_device, seat_device, seat_worker
from operators.edge.edge_nodes import edge_nodes
from operators.ingress.ingress import Ingress
from operators.input_place import InputPlaces, place_of
from operators.serving.worker import Worker
from schemas.effects import QUERIES, Node, work_topic
from schemas.records import Query, Work
from tests.session_world import TIERS
from tests.simulation.session_system import World

EDGE = bound_device("handheld", "cam")
EDGE_PARTITIONS = (0, 1)
OTHER_PARTITIONS = (2, 3)
INGRESS = f"ingress-{EDGE}"


class EdgeWorld(World):
    """The system of sessions, with an edge for the session "cam"."""

    def __init__(self, counts: Mapping[str, int] | None = None, **changes: Any) -> None:
        super().__init__(counts or {"handheld": 1, "depot": 1, "cloud": 1}, **changes)
        central = Ingress("ingress", self.pipeline, OTHER_PARTITIONS, incarnation=0.0, share=0.5)
        self.system.start("ingress", central)
        self.start_edge()

    def edge(self) -> dict[str, Node]:
        """Return the nodes of the edge's process, as its role creates them at start-up."""
        now, committed = self.system.now, self.system.committed(QUERIES)
        places = InputPlaces({p: place_of(*committed.get(p, (0, ""))) for p in EDGE_PARTITIONS})
        ingress = Ingress(
            INGRESS, self.pipeline, EDGE_PARTITIONS, incarnation=now, share=0.5, places=places
        )
        workers = {
            seat_worker(EDGE, task): Worker(
                seat_worker(EDGE, task), self.pipeline, seat_device(task, "handheld"),
                incarnation=now, links=self.links,
            )
            for task in TIERS["handheld"]
        }  # fmt: skip
        return edge_nodes(ingress, INGRESS, places, workers, self.pipeline, "cam")

    def start_edge(self) -> None:
        for name, node in self.edge().items():
            self.system.start(name, node)

    def kill_edge(self) -> None:
        """End the edge's process like a power failure."""
        for name in self.edge():
            self.system.kill(name)

    def ask_at(self, partition: int, session: str, at_s: float, payload: str = "scan") -> str:
        """Send a query to a partition; return its id."""
        name = f"{session}-{partition}-{at_s:.4f}"
        query = Query(payload=payload, id=name, session=session)
        self.system.input(at_s, QUERIES, partition, query)
        return name

    def sent(self, task: str) -> list[Work]:
        """Return the work for a task that has crossed the broker."""
        return [each for each in self.records(work_topic(task)) if isinstance(each, Work)]
