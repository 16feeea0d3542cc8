# Written by tools/blocking.py from `awaiting`: change that one.
"""The client for threads: what performs the flows of the core, and the methods around them.

`tools/blocking.py` wrote it from the package `awaiting`.
"""
