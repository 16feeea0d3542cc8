"""The client for threads: the methods of the one for coroutines, run to their ends by the caller.

Its transports, streams and pauses are coroutines that never wait for an event loop: they block the
thread. So a method of `awaiting` runs to its end at its first step, without a loop.
"""
