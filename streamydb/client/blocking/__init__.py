# Written by tools/blocking.py from `awaiting`: change that one.
"""The client for threads: the driver that performs the core's flows, and methods for callers.

`tools/blocking.py` wrote it from the package `awaiting`.
"""
