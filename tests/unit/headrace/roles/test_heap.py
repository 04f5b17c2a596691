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


def test_trimming_takes_no_memory_itself() -> None:
    trim()
    gc.disable()  # roles collect cycles seldom
    tracemalloc.start()
    try:
        for _ in range(100):
            trim()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert taken < 10_000
