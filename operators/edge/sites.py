"""The partitions of sites: inputs that lie on brokers of their own have numbers of their own.

A query is identified by its partition and place, wherever its input topic lies. Partition ``p`` of
site ``n``, counted from 1, counts as ``n * SITE_PARTITIONS + p``; the central topic is site 0.
"""

SITE_PARTITIONS = 4096
MOST_SITES = (2**31 - 1) // SITE_PARTITIONS - 1  # partitions are 32-bit numbers


def first_partition(site: int) -> int:
    """Return the number of a site's first partition."""
    return site * SITE_PARTITIONS
