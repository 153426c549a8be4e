"""What the C library does with the memory that a training step frees: glibc's allocator, told what suits training.

Does nothing where the C library is another one. Numbers do not change.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache

SURPLUS = 7 * 2**30  # bytes; what a step takes and its gaps, where autograd keeps all that it may


class _Usage(ctypes.Structure):
    """glibc's `struct mallinfo2`, in its order."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in _names]


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library, where it has what is needed."""
    if sys.platform != "linux":
        return None
    try:
        library = ctypes.CDLL("libc.so.6")
        library.mallinfo2.restype = _Usage  # since glibc 2.33
        library.malloc_trim.argtypes = [ctypes.c_size_t]
        library.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    except (OSError, AttributeError):
        return None
    return library


def keep_freed_memory() -> None:
    """Tell glibc to keep freed blocks instead of returning them to the kernel after each step.

    A step frees and asks again for the same hundreds of megabytes; page faults were a quarter of its time
    (CIFAR focus network, 1,280 pictures, one thread of an AMD EPYC: 1,033 against 750 ms).
    """
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # mallopt(3)
    if library := _glibc():
        for option, value in ((mmap_max, 0), (trim_threshold, -1), (top_pad, 2**28)):  # -1: at no size
            library.mallopt(option, value)


def give_back_surplus() -> None:
    """Return freed memory to the kernel where more than `SURPLUS` of the process's memory is not in use.

    Blocks whose size changes from step to step, as the number of distinct segments does, leave gaps that the next ones
    do not fit into, and what is kept would grow without end.
    """
    if (library := _glibc()) and _resident() - library.mallinfo2().uordblks > SURPLUS:
        library.malloc_trim(0)


def _resident() -> int:
    """Bytes that the process has in memory; what glibc counts as free includes what it has given back already."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * mmap.PAGESIZE
