"""`lint --with-models`: folders and a hub on loopback; weights are never fetched."""

import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.builders import a_raw_spec
from tests.cli.test_lint import GOOD, a_file

from speculative_api.v1alpha1 import SpeculativeDeploymentSpec
from speculative_cli.__main__ import main
from speculative_cli.models import model_problems

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 4,
    "max_position_embeddings": 4096,
}
SHA = "a" * 40


def a_tokenizer(*tokens: str) -> str:
    return json.dumps({"model": {"vocab": {token: i for i, token in enumerate(tokens)}}})


def a_safetensors(*names: str, weights: int) -> bytes:
    head = json.dumps({name: {} for name in names}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(weights)


def a_checkpoint(*tokens: str, weights: int = 1000, **config: Any) -> dict[str, bytes]:
    return {
        "config.json": json.dumps({**CONFIG, **config}).encode(),
        "tokenizer.json": a_tokenizer(*tokens).encode(),
        "model.safetensors": a_safetensors("a", weights=weights),
    }


def written(folder: Path, files: dict[str, bytes]) -> str:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return f"file://{folder}"


def a_pair(target: str, draft: str) -> dict[str, Any]:
    return a_raw_spec(
        target={"model": target},
        speculation={
            "method": "DraftModel",
            "numSpeculativeTokens": 4,
            "draft": {"model": draft},
        },
    )


def test_another_token_is_an_error_with_its_field(tmp_path: Path, capsys: Any) -> None:
    target = written(tmp_path / "target", a_checkpoint("a", "b", "c", "d", weights=100_000))
    draft = written(tmp_path / "draft", a_checkpoint("a", "b", "X", "d"))
    path = a_file(tmp_path, GOOD | {"spec": a_pair(target, draft)})
    assert main(["lint", path]) == 0
    capsys.readouterr()
    assert main(["lint", path, "--with-models"]) == 6
    out = capsys.readouterr().out
    assert "error: spec.speculation.draft.model token 2 is 'X' in the draft" in out


def test_memory_is_held_against_a_gpu(tmp_path: Path, capsys: Any) -> None:
    target = written(tmp_path / "target", a_checkpoint("a", "b", "c", "d", weights=2**21))
    spec = a_raw_spec(target={"model": target})
    path = a_file(tmp_path, GOOD | {"spec": spec})
    assert main(["lint", path, "--with-models", "--gpu-memory-gib", "0.001"]) == 6
    assert "(90 percent of 0.0 GiB)" in capsys.readouterr().out


def test_a_model_that_is_not_here_is_a_warning(tmp_path: Path, capsys: Any) -> None:
    spec = a_raw_spec(target={"model": "pvc://models/x"})
    assert main(["lint", a_file(tmp_path, GOOD | {"spec": spec}), "--with-models"]) == 0
    assert "which only a pod can read" in capsys.readouterr().out


class Hub(ThreadingHTTPServer):
    """A hub of some models that counts the bytes it sends of each file."""

    def __init__(self, models: dict[str, dict[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.models = models
        self.sent: dict[str, int] = {}

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        parts = self.path.strip("/").partition("?")[0].split("/")
        if parts[:2] == ["api", "models"]:
            return self._information("/".join(parts[2:4]))
        repository, name = "/".join(parts[:2]), "/".join(parts[4:])
        assert parts[3] == SHA, "files are read at the commit that was found"
        content = self.server.models[repository][name]
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        piece = content[int(first) : int(last) + 1]
        self.server.sent[name] = self.server.sent.get(name, 0) + len(piece)
        return self._send(206, piece)

    def _information(self, repository: str) -> None:
        files = self.server.models.get(repository)
        if files is None:
            return self._send(404, b"{}", ("X-Error-Code", "RepoNotFound"))
        siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
        found = {"id": repository, "sha": SHA, "siblings": siblings}
        return self._send(200, json.dumps(found).encode())

    def _send(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub() -> Any:
    server = Hub(
        {
            "org/target": a_checkpoint("a", "b", "c", "d", weights=1_000_000),
            "org/draft": a_checkpoint("a", "b", "c", "X", weights=10_000),
        }
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def asked(hub: Hub, target: str, draft: str) -> list[str]:
    spec = SpeculativeDeploymentSpec.model_validate(a_pair(target, draft))
    found = model_problems(spec, gpu_gibibytes=None, endpoint=hub.endpoint)
    return [f"{each.severity} {each.field} {each.message}" for each in found]


@pytest.mark.slow
def test_a_hub_is_read_by_ranges_and_never_its_weights(hub: Hub) -> None:
    (found,) = asked(hub, "hf://org/target@main", "hf://org/draft")
    assert found.startswith("error spec.speculation.draft.model token 3 is 'X' in the draft")
    assert hub.sent["model.safetensors"] < 200


def test_a_model_that_the_hub_does_not_have_is_a_warning(hub: Hub) -> None:
    (found,) = asked(hub, "hf://org/gone", "hf://org/draft")
    assert found.startswith("warning spec.target.model models are not compared: hf://org/gone")
    assert "HF_TOKEN" in found


def test_a_hub_that_is_away_is_a_warning(hub: Hub) -> None:
    spec = SpeculativeDeploymentSpec.model_validate(a_pair("hf://o/t", "hf://o/d"))
    (found,) = model_problems(spec, gpu_gibibytes=None, endpoint="http://127.0.0.1:1")
    assert found.severity == "warning"
