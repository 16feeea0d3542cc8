"""The client for coroutines: the driver that performs the core's flows, and methods for callers.

The package `blocking` makes the client for threads of these classes.
"""
