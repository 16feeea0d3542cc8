"""The client for coroutines: the driver that performs the core's flows, and methods for callers.

`tools/blocking.py` writes the package `blocking`, the same for threads, from these files.
"""
