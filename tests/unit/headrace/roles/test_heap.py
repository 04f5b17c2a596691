"""The heap of a role's process."""

import gc
import subprocess
import sys
import tracemalloc
from textwrap import dedent

import pytest

from headrace.roles.heap import trim

SCRIPT = dedent("""
    import ctypes, psutil
    from headrace.roles.heap import trim

    resident = psutil.Process().memory_info
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    blocks = [libc.malloc(40_000) for _ in range(2_000)]  # 80 MB; below glibc's limit for mmap
    for block in blocks:
        ctypes.memset(block, 1, 40_000)
    for number, block in enumerate(blocks):
        if number % 20:  # the rest holds the heap's pages in place
            libc.free(ctypes.c_void_p(block))
    before = resident().rss
    can = trim()
    print(can, before - resident().rss > 60e6)
""")


def test_freed_memory_in_the_middle_of_the_heap_returns_to_the_system() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    if ran.stdout.split()[0] == "False":
        pytest.skip("the C library has no malloc_trim")
    assert ran.stdout.split() == ["True", "True"]


MATRICES = dedent("""
    import resource, sys
    import numpy as np
    from headrace.roles.heap import keep_freed

    print(keep_freed() if sys.argv[1] == "kept" else True)
    def round_of_matrices():
        times = np.ones((200, 200)) + np.arange(200.0)
        cost = np.where(times < 100, times * 2, 10.0)
        return float((cost - cost.min(axis=1)[:, None]).sum())
    for _ in range(20):
        round_of_matrices()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        round_of_matrices()
    print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 50)
""")


def faults(how: str) -> float:
    """Return the page faults of a round of matrices in a fresh process."""
    line = [sys.executable, "-c", MATRICES, how]
    can, found = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    if can == "False":
        pytest.skip("the C library has no mallopt")
    return float(found)


def test_matrices_of_a_matching_keep_their_pages() -> None:
    assert faults("kept") < 5


def test_trimming_takes_no_memory_itself() -> None:
    trim()
    gc.disable()  # roles rarely collect cycles
    tracemalloc.start()
    try:
        for _ in range(100):
            trim()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert taken < 10_000
