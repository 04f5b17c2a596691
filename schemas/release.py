"""The schema release of this code, and how nodes of several releases agree on one.

A node reports the newest release that it reads as one of its counts, where nodes of every release
can read it. The controller puts the lowest of them into its plans, and every node writes in that
release (``control/controller/node_releases.py``). So in a rolling upgrade no node writes what
another cannot read, and the additions of a release are written once every node can read them.
"""

RELEASE = 7  # the newest folder under schemas/avro/released
WITH_SESSIONS = 7  # the first release whose plans and work name sessions
UNDECLARED = 6  # release of nodes that report none, and of records written before a plan
READS = "reads_release"  # the name among a report's counts
