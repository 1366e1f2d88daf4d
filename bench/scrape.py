"""What one look at a worker costs, in processor time: `python -m bench.scrape`.

On the engine's side: real vLLM renders its `/metrics`, and the series of it that a worker
asks for (`scrape_engine`; in the local cluster's image, or this machine's vLLM). On the worker's:
the latter is
fetched from a loopback server, read, and answered as digest or as the worker's own
`/metrics`, by the worker's own code, over HTTP; the server that stands in for the
engine, and the client, are other processes, so only the worker's time is counted.
The worker asks its engine at most once a second however many look: the answers from
what was just read are reported apart. JSON goes to build/bench-scrape.json.
"""

import argparse
import asyncio
import http.server
import json
import multiprocessing
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from bench.vllm_here import REPOSITORY, has_vllm, in_a_container, no_image
from tests.ports import free_ports

from speculative_api.engine_metrics import LOAD_SERIES, SERIES
from speculative_api.worker import WorkerConfig
from speculative_worker import engine_client
from speculative_worker.engine_client import EngineClient
from speculative_worker.probes import ProbeServer
from speculative_worker.settings import Settings
from speculative_worker.simulate.metrics import only
from speculative_worker.state import Phase, WorkerState

REPORT = Path("build/bench-scrape.json")
PAGE = Path("build/bench-scrape-page.txt")
ENGINE = Path("build/bench-scrape-engine.json")


class _Page(http.server.BaseHTTPRequestHandler):
    """The engine's `/metrics`, as it was rendered."""

    protocol_version = "HTTP/1.1"
    text = ""

    def do_GET(self) -> None:
        text = self.text
        if names := parse_qs(self.path.partition("?")[2]).get("name[]"):
            text = only(text, frozenset(names))
        self.send_response(200)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def _serve(port: int, text: str, ready: Any) -> None:
    _Page.text = text
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _Page)
    ready.set()
    server.serve_forever()


def _look(port: int, path: str, times: int, encoding: str, answers: Any) -> None:
    """A client in its own process: so many looks over one connection, and what the last held."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = b""
    for _ in range(times):
        connection.request("GET", path, headers={"Accept-Encoding": encoding})
        body = connection.getresponse().read()
    answers.put(len(body))


@contextmanager
def _process(target: Any, *arguments: Any) -> Iterator[Any]:
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join()


async def _of_worker(page: str, times: int) -> dict[str, Any]:
    engine_port, worker_port = free_ports(2)
    speculation = {"method": "NGram", "numSpeculativeTokens": 5}
    told: dict[str, Any] = {
        "model": "file:///m",
        "servedModelName": "chat",
        "engineVersion": "0.32.0",
    }
    told |= {"maxNumSeqs": 64, "gpuMemoryUtilizationPercent": 90}
    config = WorkerConfig.model_validate({**told, "speculation": speculation})
    settings = Settings(config, engine_port=engine_port, worker_port=worker_port, host="127.0.0.1")
    settings = replace(settings, pod="chat-0", revision="a" * 10)
    state = WorkerState(time.time(), phase=Phase.SERVING, engine_alive=True)
    found: dict[str, Any] = {}
    ready = multiprocessing.get_context("spawn").Event()
    with _process(_serve, engine_port, page, ready):
        ready.wait(60)
        async with EngineClient(settings.engine_url) as client:
            server = ProbeServer(settings, state, client)
            await server.start()
            try:
                for path, encoding in (
                    ("/digest", "identity"),
                    ("/metrics", "gzip"),
                    ("/metrics", "identity"),
                ):
                    for name, kept in (("", 0.0), (", just read", 3600.0)):
                        engine_client._CACHE_SECONDS = kept  # type: ignore[misc]
                        found[f"{path} ({encoding}{name})"] = await _looks(
                            worker_port, path, encoding, times
                        )
            finally:
                await server.close()
    return found


async def _looks(port: int, path: str, encoding: str, times: int) -> dict[str, Any]:
    answers: Any = multiprocessing.get_context("spawn").Queue()
    with _process(_look, port, path, times + 20, encoding, answers):
        # The first ones come while the client starts: its time is not ours, theirs is little.
        began = time.process_time()
        size = await asyncio.get_running_loop().run_in_executor(None, answers.get)
        took = (time.process_time() - began) / (times + 20)
    return {"milliseconds": round(1000 * took, 3), "bytes": size}


def _of_engine(times: int) -> dict[str, Any] | None:
    """None, after saying why, where there is no vLLM."""
    words = ["/repository/bench/scrape_engine.py", "/bench-models/SmolLM2-135M-Instruct"]
    words += [f"/repository/{PAGE}", str(times), f"/repository/{ENGINE}"]
    sets = {"what a digest is made of": SERIES, "the load alone": LOAD_SERIES}
    words.append(json.dumps({said: sorted(names) for said, names in sets.items()}))
    if has_vllm():
        local = [str(REPOSITORY / "bench/scrape_engine.py"), "models/SmolLM2-135M-Instruct"]
        local += [str(PAGE), str(times), str(ENGINE), words[-1]]
        code = subprocess.run(["python3", *local], check=False).returncode  # noqa: S603, S607
    elif said := no_image():
        print(said)
        return None
    else:
        code = in_a_container("speculative-bench-scrape", words)
    if code:
        raise SystemExit(f"vLLM's side ended with {code}")
    answer: dict[str, Any] = json.loads(ENGINE.read_text())
    return answer


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=500)
    parser.add_argument("--page", type=Path, help="a saved /metrics instead of vLLM's own")
    arguments = parser.parse_args()
    PAGE.parent.mkdir(exist_ok=True)
    engine = None if arguments.page else _of_engine(arguments.times)
    page: Path = arguments.page or PAGE
    if not page.exists():
        raise SystemExit("no page to read: give one with --page")
    worker = asyncio.run(_of_worker(page.read_text(), arguments.times))
    report = {"engine": engine, "worker": worker, "times": arguments.times}
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
