"""The files and sockets that a process may have open: more than the usual 1,024, if possible."""

from __future__ import annotations

import resource


def take_file_handles(wanted: int) -> int:
    """Raise this process's limit of open files to what it needs, if possible.

    Returns:
        How many of them it may have open.

    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
