"""What the workers of a trial say, followed to each pod's end: generations counted where they are
made."""

import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from e2e.dsl import BUILD, Trial
from e2e.kubectl import KubectlError, kubeconfig

GENERATION = re.compile(r"generation request=([^\s-]\S*)")
"""The simulated engine's line for each generation that it begins; warm-up has no id."""
FLUSH_SECONDS = 30


@contextmanager
def following(trial: Trial) -> Iterator[Callable[[], list[str]]]:
    """Follows the log of every worker pod that appears meanwhile.

    The callable, to be used after the block, gives the request id of every
    generation, once for each time that a worker began it.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    followers: dict[str, subprocess.Popen[bytes]] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            try:
                pods = trial.pods()
            except KubectlError:
                continue
            for uid, pod in pods.items():
                if uid in followers or pod["status"].get("phase") != "Running":
                    continue
                name = pod["metadata"]["name"]
                with (BUILD / f"{trial.namespace}-{uid}.log").open("wb") as log:
                    followers[uid] = subprocess.Popen(
                        [
                            *("kubectl", "--kubeconfig", str(kubeconfig()), "logs", "-f"),
                            *("-n", trial.namespace, name),
                        ],
                        stdout=log,
                        stderr=subprocess.DEVNULL,
                    )

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: _generations(trial, list(followers))
    finally:
        over.set()
        thread.join()
        for follower in followers.values():
            follower.terminate()
            follower.wait(FLUSH_SECONDS)


def _generations(trial: Trial, uids: list[str]) -> list[str]:
    texts = ((BUILD / f"{trial.namespace}-{uid}.log").read_text("utf-8") for uid in uids)
    return [found for text in texts for found in GENERATION.findall(text)]
