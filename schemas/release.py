"""The schema release of this code, and how nodes of several releases find one that all can read.

A node reports the newest release that it reads, among its counts: there nodes of every release can
read it. The controller puts the least of them into its plans, and every node writes in it
(``control/controller/node_releases.py``). So in a rolling upgrade no node writes
what another cannot read, and the additions of a release are written once every node reads them.
"""

RELEASE = 7  # the newest folder under schemas/avro/released
WITH_SESSIONS = 7  # the first release whose plans and work name sessions
UNDECLARED = 6  # what nodes read that do not report it, and what is written before a plan
READS = "reads_release"  # the name among a report's counts
