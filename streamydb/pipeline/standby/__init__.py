"""Several pipelines over one log: who leads, who follows, and whether they agree.

`core` decides (pure); `records.control` has what pipelines tell each other in `<db>.control`;
`agreement` compares the digests in `<db>.digests` (pure), which `digest_watch` reads;
`kafka.shared_topics` has the topics; `coordinator` runs it all in a thread of the driver. Nothing
here can make an output wrong, because every pipeline writes the same bytes. It only decides that
some pipeline writes, and soon.
"""

from __future__ import annotations
