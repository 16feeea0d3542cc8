"""Thread dumps of a JVM, added up."""

from __future__ import annotations

from bench.dumps import Moments

BUSY = """"Executor task launch worker for task {n}.0 in stage 3.0 (TID {n})" #71 [9] daemon
   java.lang.Thread.State: RUNNABLE
\tat sun.nio.ch.EPoll.wait(java.base@17/Native Method)
\tat org.apache.spark.scheduler.Task.run(Task.scala:147)
\tat java.lang.Thread.run(java.base@17/Thread.java:840)
"""
IDLE = """"Executor task idle worker#2" #72 daemon
   java.lang.Thread.State: TIMED_WAITING (parking)
\tat jdk.internal.misc.Unsafe.park(java.base@17/Native Method)
\tat java.util.concurrent.ThreadPoolExecutor.getTask(java.base@17/ThreadPoolExecutor.java:1062)
\tat java.lang.Thread.run(java.base@17/Thread.java:840)
"""


def test_a_share_for_each_method_of_each_kind_of_thread() -> None:
    moments = Moments()
    for n in range(3):
        moments.add(f'Full thread dump\n\n{BUSY.format(n=n)}\n{IDLE}\n"VM Thread" os_prio=0\n')
    moments.add(f"Full thread dump\n\n{IDLE}\n")
    assert moments.count == 4
    name = "Executor task launch worker for task N in stage N (TID N)"
    assert [*moments.threads] == [name]
    told = moments.report(0.5)
    assert told[0] == name
    assert sorted(told[1:]) == [
        "  75.0%  java.lang.Thread.run",
        "  75.0%  org.apache.spark.scheduler.Task.run",
        "  75.0%  sun.nio.ch.EPoll.wait",
    ]
    assert moments.report(0.8) == []


def test_only_numbers_and_ids_are_left_out_of_a_name() -> None:
    moments = Moments()
    one = "4a39d0d4-bad3-4c11-9e0f-0123456789ab"
    for name in ("Thread-8", f"stream for bank [id = {one}]"):
        moments.add(f'"{name}" #1\n\tat org.apache.spark.Some.run(Some.scala:1)\n')
    assert [*moments.threads] == ["Thread-N", "stream for bank [id = N]"]
