"""The digest of an engine that runs without our worker, from its own metrics.

In: the page that the engine serves at `/metrics`. Out: a `Digest`. `workers`
asks for it where nobody serves a digest. Pure.
"""

from typing import Final

from pydantic import ValidationError

from speculative_api.engine_metrics import cache_usage, counters, latencies, reading
from speculative_api.worker import Digest
from speculative_operator.errors import NotReadable
from speculative_operator.metrics.source import Target

LARGEST_PAGE: Final = 1024 * 1024
"""Bytes; four engines behind one page have about 200 KiB."""
LONGEST_LINE: Final = 4096
"""Characters; a longer one is none of the series that are read."""


def digest_of(page: bytes, target: Target, *, at: float) -> Digest:
    """What the page says, read at `at` (unix seconds).

    It speaks for an engine that serves: whether it is stuck only a worker sees.

    Raises:
        NotReadable: no page of this engine, half a page, or figures that can't be true.
    """
    if not page.endswith(b"\n"):
        raise NotReadable("the page ends in the middle of a line")
    try:
        lines = page.decode().splitlines()
    except UnicodeDecodeError as error:
        raise NotReadable("the page is no text") from error
    # Thousands of series of others are not worth parsing.
    ours = [line for line in lines if line.startswith(("vllm:", "process_start_"))]
    found = reading("\n".join(line for line in ours if len(line) <= LONGEST_LINE))
    if found.torn:
        raise NotReadable("some counters lack an engine that others have")
    if found.generated_tokens is None or found.running is None:
        raise NotReadable("no metrics of an engine")
    try:
        return Digest(
            ready=True,
            engine_started_at=found.started_at or 0.0,
            sampled_at=at,
            method=target.method,
            num_speculative_tokens=target.num_speculative_tokens,
            **counters(found, num_speculative_tokens=target.num_speculative_tokens),
            **cache_usage(found),
            **latencies(found),
        )
    except (ValidationError, ValueError, OverflowError) as error:
        raise NotReadable("figures that can not be true") from error
