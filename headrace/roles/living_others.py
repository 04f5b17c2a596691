"""Tell the reports of living nodes from those that an ended process left behind. Pure.

A broker that delays requests by a quota may append the last reports of a process after its end.
"""

from dataclasses import dataclass, field

from schemas.records import Report

LEFT_BEHIND_S = 1.0  # a report not sent within this time expires (streams/kafka/kafka_client.py)


@dataclass(slots=True)
class LivingOthers:
    """The reports of other nodes that were heard since ``began_s`` of this process' clock."""

    began_s: float
    _first_s: dict[tuple[str, float], float] = field(default_factory=dict)

    def lives(self, report: Report) -> bool:
        """Return whether a report shows that its sender lives.

        It does if it was sent since ``began_s``. The clock of the sender's host may be behind, so
        it also does if the sender's reports cover more time than an ended process leaves behind.
        """
        if report.sent_s >= self.began_s:
            return True
        sender = (report.node, report.incarnation)
        first_s = self._first_s.setdefault(sender, report.sent_s)
        return report.sent_s - first_s > LEFT_BEHIND_S
