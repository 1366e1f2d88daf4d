"""Edge: the memory of this pod's GPU."""

import shutil
import subprocess
from typing import Final

_MEBIBYTE: Final = 2**20
_LOOK_SECONDS: Final = 20


def gpu_bytes() -> int | None:
    """Memory of the smallest GPU of this pod; None where nobody can say (no NVIDIA tool).

    Asked of `nvidia-smi`, which the GPU runtime mounts: the worker's own
    environment has no CUDA.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    query = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        # Its path comes from PATH of the image, its arguments from here.
        done = subprocess.run(  # noqa: S603
            query, capture_output=True, text=True, timeout=_LOOK_SECONDS, check=True
        )
        found = [int(line) for line in done.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return min(found) * _MEBIBYTE if found else None
