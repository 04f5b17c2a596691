"""How often does Python look for reference cycles? Seldom: records and effects make none.

What a node makes is freed the moment nobody holds it. The collector's own rounds, one for every
700 new objects, found nothing and took an eighth of the time (two stages in simulation: 1.73 s of
CPU with them, 1.52 s without).
"""

import gc

NEW_OBJECTS = 50_000  # between two rounds


def collect_seldom() -> None:
    """Set the collector of this process; what is there by now it leaves alone."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 20, 100)
