"""End a pool's process when its parent ends, even if the parent is killed."""

import multiprocessing
import os
import threading  # noqa: TID251  (ends the process with its parent; no decision runs on it)
from multiprocessing.connection import wait


def follow_parent() -> None:
    """End this process when its parent does; a pool's process would otherwise wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
