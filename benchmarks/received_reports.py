"""The reports that a rig has received: the newest of each node, and what they add up to."""

from schemas.records import Report


class Reports(dict[str, Report]):
    """The newest report of each node; grows by ``take`` only.

    ``epochs`` holds the epochs that a node followed, by node and incarnation; ``slot_readers`` the
    workers that reported a slot, by (epoch, task, slot); ``silences`` the seconds between two
    reports of one incarnation, by node.
    """

    def __init__(self) -> None:
        super().__init__()
        self.epochs: dict[tuple[str, float], list[int]] = {}
        self.slot_readers: dict[tuple[int, str, int], set[str]] = {}
        self.silences: dict[str, list[float]] = {}

    def take(self, report: Report) -> None:
        """Add a report."""
        before = self.get(report.node)
        if before is not None and before.incarnation == report.incarnation:
            self.silences.setdefault(report.node, []).append(report.sent_s - before.sent_s)
        self[report.node] = report
        followed = self.epochs.setdefault((report.node, report.incarnation), [])
        if followed[-1:] != [report.epoch]:
            followed.append(report.epoch)
        for each in report.slots:
            slot = report.epoch, each.task, each.slot
            self.slot_readers.setdefault(slot, set()).add(report.node)
