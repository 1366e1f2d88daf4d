"""`python -m bench.adaptive_here [OPTIONS]`: `bench.adaptive` where vLLM is.

Options are those of `bench.adaptive`; nothing is built.
"""

import subprocess
import sys

from bench.vllm_here import REPOSITORY, has_vllm, in_a_container, no_image


def main() -> int:
    """The command; the bench's exit code."""
    options = sys.argv[1:]
    if has_vllm():
        command = ["python3", "bench/adaptive.py", "--clock", "wall", *options]
        return subprocess.run(command, cwd=REPOSITORY, check=False).returncode  # noqa: S603
    if said := no_image():
        print(said)
        return 2
    return in_a_container(
        "speculative-bench-adaptive",
        ["bench/adaptive.py", "--models", "/bench-models", *options],
    )


if __name__ == "__main__":
    sys.exit(main())
