"""The operator, killed by itself right after its n-th write: a test program, not shipped.

`CRASH_AFTER_WRITES=n python -m e2e.crashing_operator` behaves as the operator
until the n-th writing request was answered, then ends as by `kill -9`.
"""

import os
import signal
import sys
from typing import Any

from speculative_operator.__main__ import main
from speculative_operator.cluster.client import Client

WRITING = {"POST", "PUT", "PATCH", "DELETE"}


def crash_after(writes: int) -> None:
    """Wraps the client's one request method; Lease renewals do not count."""
    original = Client.request
    left = writes

    async def request(self: Client, *arguments: Any, **named: Any) -> tuple[int, dict[str, Any]]:
        nonlocal left
        answer = await original(self, *arguments, **named)
        method, path = arguments[2], arguments[3]
        if method in WRITING and "/leases" not in path:
            left -= 1
            if left == 0:
                sys.stderr.write(f"crash after {method} {path}\n")
                sys.stderr.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        return answer

    Client.request = request  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    crash_after(int(os.environ["CRASH_AFTER_WRITES"]))
    raise SystemExit(main())
