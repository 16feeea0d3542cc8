"""Several pipelines over one log: who leads, who follows, and whether they agree.

`core` decides (pure); `records.control` has what pipelines tell each other in `<db>.control`;
`agreement` compares the digests in `<db>.digests` (pure); `kafka` reads and writes the topics;
`coordinator` runs it all in a thread of the driver. Nothing here can make an output wrong: whoever
writes, writes the same bytes. What is at stake is only that somebody does, and soon.
"""

from __future__ import annotations
