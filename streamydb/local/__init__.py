"""This machine: the files, jars, Java and processes that a database needs.

In: a home folder. Out: jars (`jars`), a Java (`java`), a broker (`broker`), background processes
(`processes`), and where a database's files lie (`folder`).

Invariants: a process is known by number and birth, so that a stale record never ends a stranger; a
record is replaced as a whole; nothing here knows what a transaction is.
"""
