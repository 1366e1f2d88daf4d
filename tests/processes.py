"""Child processes of tests and benchmarks: ended by their own pid, gone afterwards."""

import signal
import subprocess


def end(
    process: "subprocess.Popen[bytes]",
    *,
    by: signal.Signals = signal.SIGTERM,
    seconds: float = 15,
) -> None:
    """Asks it to end, and kills one that has not after so long; nothing for one that ended."""
    process.send_signal(by)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
