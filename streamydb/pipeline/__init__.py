"""The query: the stages assembled, hosted on Spark, run and watched.

`stages` and `shard` are pure; `hosts` adapts them to Spark; `query` puts them together.
"""

from __future__ import annotations
