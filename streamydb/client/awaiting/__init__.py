"""The client for coroutines: what performs the flows of the core, and the methods around them.

`tools/blocking.py` writes the package `blocking`, the same for threads, from these files.
"""
