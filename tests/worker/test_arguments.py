"""The engine's command line, for vLLM 0.32.0."""

import itertools
import json

import pytest

from speculative_api.worker import WorkerConfig
from speculative_worker.arguments import engine_command
from speculative_worker.errors import WorkerFailure

OLD_FLAGS = ("--speculative-model", "--num-speculative-tokens", "--ngram-prompt-lookup-max")


def a_config(**changes):
    words = {
        "model": "file:///models/target",
        "servedModelName": "chat",
        "speculation": {"method": "None"},
        "engineVersion": "0.32.0",
        "maxNumSeqs": 64,
        "gpuMemoryUtilizationPercent": 90,
    }
    return WorkerConfig.model_validate(words | changes)


def draft(**changes):
    words = {"method": "DraftModel", "numSpeculativeTokens": 5, "draft": {"model": "file:///d"}}
    return words | changes


def command(config, draft_path=None):
    return engine_command(
        config, target_path="/models/target", draft_path=draft_path, port=8000, python="python"
    )


def speculative(config, draft_path=None):
    words = command(config, draft_path)
    return json.loads(words[words.index("--speculative-config") + 1])


def test_plain_decoding():
    assert command(a_config()) == [
        *("python", "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", "/models/target", "--served-model-name", "chat", "--port", "8000"),
        *("--tensor-parallel-size", "1", "--pipeline-parallel-size", "1"),
        *("--max-num-seqs", "64", "--gpu-memory-utilization", "0.90"),
        *("--shutdown-timeout", "5"),
    ]


def test_every_field_has_its_flag():
    words = command(
        a_config(
            tensorParallelSize=4,
            pipelineParallelSize=2,
            dtype="bfloat16",
            quantization="awq",
            kvCacheDtype="fp8",
            maxModelLen=8192,
            trustRemoteCode=True,
            gpuMemoryUtilizationPercent=7,
            drainSeconds=3,
            extraArgs=["--enforce-eager", "--seed", "-1"],
        )
    )
    flags = dict(itertools.pairwise(words))
    assert flags["--tensor-parallel-size"] == "4"
    assert flags["--pipeline-parallel-size"] == "2"
    assert flags["--dtype"] == "bfloat16"
    assert flags["--quantization"] == "awq"
    assert flags["--kv-cache-dtype"] == "fp8"
    assert flags["--max-model-len"] == "8192"
    assert flags["--gpu-memory-utilization"] == "0.07"
    assert flags["--shutdown-timeout"] == "3"
    assert "--trust-remote-code" in words
    assert words[-3:] == ["--enforce-eager", "--seed", "-1"]


def test_draft_model_is_one_json_flag_and_none_of_the_old():
    config = a_config(speculation=draft())
    assert speculative(config, "/models/draft") == {
        "method": "draft_model",
        "model": "/models/draft",
        "num_speculative_tokens": 5,
        "draft_tensor_parallel_size": 1,
    }
    assert not set(OLD_FLAGS) & set(command(config, "/models/draft"))


def test_ngram_has_its_window():
    window = {"promptLookupMin": 3, "promptLookupMax": 9}
    config = a_config(speculation={"method": "NGram", "numSpeculativeTokens": 4, "ngram": window})
    assert speculative(config) == {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 3,
        "prompt_lookup_max": 9,
    }


def test_ngram_without_a_window_gets_the_documented_one():
    found = speculative(a_config(speculation={"method": "NGram", "numSpeculativeTokens": 4}))
    assert (found["prompt_lookup_min"], found["prompt_lookup_max"]) == (2, 4)


def test_paths_and_values_arrive_unmangled():
    config = a_config(speculation=draft(extra={"disable_padded_drafter_batch": True}))
    words = command(config, '/models/it\'s "new" draft$HOME')
    text = words[words.index("--speculative-config") + 1]
    assert text[0] + text[-1] == "{}"
    assert '"disable_padded_drafter_batch": true' in text
    assert json.loads(text)["model"] == '/models/it\'s "new" draft$HOME'
    assert "-c" not in words


@pytest.mark.parametrize(
    "changes, says",
    [
        pytest.param({"engineVersion": "0.6.6"}, "0.6.6", id="unknown version"),
        pytest.param({"extraArgs": ["--max-num-seqs", "4"]}, "engine.maxNumSeqs", id="flag twice"),
        pytest.param(
            {"speculation": draft(extra={"num_speculative_tokens": 3})},
            "speculation.numSpeculativeTokens",
            id="key twice",
        ),
        pytest.param(
            {
                "tensorParallelSize": 2,
                "speculation": draft(draft={"model": "x", "tensorParallelSize": 4}),
            },
            "speculation.draft.tensorParallelSize 4",
            id="draft split more than its target",
        ),
        pytest.param(
            {"speculation": {"method": "NGram"}}, "numSpeculativeTokens", id="no token count"
        ),
    ],
)
def test_refused_before_the_engine_starts(changes, says):
    with pytest.raises(WorkerFailure, match=says) as caught:
        command(a_config(**changes), "/models/draft")
    assert (caught.value.reason, caught.value.retryable) == ("InvalidArguments", False)
