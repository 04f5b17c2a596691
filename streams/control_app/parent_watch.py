"""A process of a pool ends with the one that made it, however that ends."""

import multiprocessing
import os
import threading  # noqa: TID251  (ends the process with its parent; no decision runs on it)
from multiprocessing.connection import wait


def follow_parent() -> None:
    """End this process when its parent does. A pool's own processes would go on, then wait for
    work that never comes."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
