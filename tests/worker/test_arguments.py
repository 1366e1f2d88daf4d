"""The engine's command line, by method and by version of vLLM."""

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
        pytest.param({"engineVersion": "0.5.4"}, "0.5.4", id="unknown version"),
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


METHODS = [
    ("NGramGPU", {}, {"method": "ngram_gpu", "prompt_lookup_min": 2, "prompt_lookup_max": 4}),
    ("Suffix", {}, {"method": "suffix"}),
    ("Eagle", {"draft": {"model": "file:///d"}}, {"method": "eagle"}),
    ("Eagle3", {"draft": {"model": "file:///d"}}, {"method": "eagle3"}),
    ("MTP", {}, {"method": "mtp"}),
    ("MTP", {"draft": {"model": "file:///d"}}, {"method": "mtp"}),
    ("Medusa", {"draft": {"model": "file:///d"}}, {"method": "medusa"}),
    ("DFlash", {"draft": {"model": "file:///d"}}, {"method": "dflash"}),
    ("DSpark", {}, {"method": "dspark"}),
    ("Custom", {"customClass": "my.Proposer"}, {"method": "custom_class", "model": "my.Proposer"}),
]


@pytest.mark.parametrize("method, words, expected", METHODS, ids=[each[0] for each in METHODS])
def test_every_method_always_says_its_name(method, words, expected):
    config = a_config(speculation={"method": method, "numSpeculativeTokens": 3, **words})
    path = "/models/draft" if "draft" in words else None
    of_draft = {"model": path, "draft_tensor_parallel_size": 1} if path else {}
    assert speculative(config, path) == {"num_speculative_tokens": 3, **of_draft, **expected}


def test_old_engines_get_a_flag_for_each_value_and_no_json():
    config = a_config(
        engineVersion="0.6.6", speculation=draft(extra={"max_model_len": 4096}), maxModelLen=8192
    )
    words = command(config, "/models/draft")
    flags = dict(itertools.pairwise(words))
    assert flags["--speculative-model"] == "/models/draft"
    assert flags["--num-speculative-tokens"] == "5"
    assert flags["--speculative-draft-tensor-parallel-size"] == "1"
    assert flags["--speculative-max-model-len"] == "4096"
    assert "--speculative-config" not in words
    assert "--shutdown-timeout" not in words


def test_old_engines_spell_ngram_as_a_model_that_is_none():
    window = {"promptLookupMin": 3, "promptLookupMax": 9}
    speculation = {"method": "NGram", "numSpeculativeTokens": 4, "ngram": window}
    flags = dict(
        itertools.pairwise(command(a_config(engineVersion="0.6.6.post1", speculation=speculation)))
    )
    assert flags["--speculative-model"] == "[ngram]"
    assert (flags["--ngram-prompt-lookup-min"], flags["--ngram-prompt-lookup-max"]) == ("3", "9")


@pytest.mark.parametrize("version, drains", [("0.12.0", False), ("0.18.0", True), ("0.32.0", True)])
def test_the_engines_own_drain_is_asked_for_where_there_is_one(version, drains):
    assert ("--shutdown-timeout" in command(a_config(engineVersion=version))) is drains


def test_a_multi_token_head_is_named_by_its_family_before_there_was_one_name():
    speculation = {"method": "MTP", "numSpeculativeTokens": 1}
    found = speculative(a_config(engineVersion="0.10.2", speculation=speculation))
    assert found["method"] == "deepseek_mtp"


def test_an_unknown_version_runs_only_if_that_is_said():
    config = a_config(engineVersion="0.99.1", allowUnknownVersion=True, speculation=draft())
    assert "--speculative-config" in command(config, "/models/draft")


def test_adapters_and_copies_of_the_model():
    adapters = [{"name": "sql", "model": "file:///a"}, {"name": "org/de", "model": "file:///b"}]
    words = engine_command(
        a_config(lora={"adapters": adapters, "maxAdapters": 2, "maxRank": 32}, dataParallelSize=2),
        target_path="/t",
        draft_path=None,
        port=8000,
        adapter_paths={"sql": "/a", "org/de": "/b"},
    )
    at = words.index("--enable-lora")
    assert words[at:] == [
        *("--enable-lora", "--max-loras", "2", "--max-lora-rank", "32"),
        *("--lora-modules", "sql=/a", "org/de=/b"),
    ]
    assert words[words.index("--data-parallel-size") + 1] == "2"


def test_none_really_starts_without_speculation():
    for version in ("0.6.6", "0.32.0"):
        assert not [word for word in command(a_config(engineVersion=version)) if "spec" in word]


def test_processes_are_bound_where_the_engine_can():
    assert "--numa-bind" in command(a_config(numaBind=True))
    with pytest.raises(WorkerFailure, match=r"pod\.numaBind: engine 0\.18\.1 can't bind"):
        command(a_config(numaBind=True, engineVersion="0.18.1"))


@pytest.mark.parametrize(
    ("version", "renews"), [("0.6.6", False), ("0.8.5", True), ("0.32.0", True)]
)
def test_an_engine_with_tls_watches_its_files_where_it_can(version, renews):
    config = a_config(engineVersion=version)
    words = engine_command(config, target_path="/m", draft_path=None, port=8000, tls_folder="/tls")
    flags = dict(itertools.pairwise(words))
    assert flags["--ssl-keyfile"] == "/tls/tls.key"
    assert flags["--ssl-certfile"] == "/tls/tls.crt"
    assert ("--enable-ssl-refresh" in words) == renews


@pytest.mark.parametrize("flag", ["--ssl-keyfile", "--ssl-certfile", "--enable-ssl-refresh"])
def test_tls_is_asked_for_by_its_field_only(flag):
    with pytest.raises(WorkerFailure, match=r"engine\.tls says this already"):
        command(a_config(extraArgs=[f"{flag}=x"]))
