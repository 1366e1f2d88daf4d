"""Pre-flight over what checkpoints say: tokens, widths, layers, contexts, sizes, memory."""

import json
import struct

import pytest

from speculative_api.engine_request import EngineRequest
from speculative_api.model_facts import Unreadable, facts_of
from speculative_api.preflight import preflight
from speculative_api.weight_files import header

GIB = 2**30
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 4000,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
HEAD = {**LLAMA, "num_hidden_layers": 1}
TOKENS = [f"t{number}" for number in range(4000)]


class Files:
    """`ModelFiles` in memory; a number stands for a file of that many bytes."""

    def __init__(self, **files):
        self._files = {name.replace("__", "."): content for name, content in files.items()}

    def sizes(self):
        return {n: c if isinstance(c, int) else len(c) for n, c in self._files.items()}

    def text(self, name):
        if name not in self._files:
            raise Unreadable(f"{name} does not exist")
        return self._files[name]

    def head(self, name, size):
        content = self._files[name]
        return b"" if isinstance(content, int) else content[:size]


def a_header(*names):
    text = json.dumps({"__metadata__": {}, **{name: {} for name in names}}).encode()
    return struct.pack("<Q", len(text)) + text


def a_model(source="hf://org/target", *, config=LLAMA, tokens=TOKENS, weights=16 * GIB, **files):
    vocabulary = {token: number for number, token in enumerate(tokens)}
    held = {
        "config__json": json.dumps(config),
        "tokenizer__json": json.dumps({"model": {"vocab": vocabulary}}),
    }
    if not any(name.endswith("__safetensors") for name in files):
        held["pytorch_model__bin"] = weights
    return facts_of(Files(**(held | files)), source)


def a_draft(**changes):
    return a_model("hf://org/draft", **({"weights": GIB // 2} | changes))


def a_request(method="DraftModel", **changes):
    return EngineRequest(**({"method": method, "num_speculative_tokens": 4} | changes))


def said(request, target, draft=None, **more):
    return [(found.severity, found.message) for found in preflight(request, target, draft, **more)]


def refused(*arguments, **more):
    return " | ".join(text for severity, text in said(*arguments, **more) if severity == "refuse")


def warned(*arguments, **more):
    found = said(*arguments, **more)
    assert {severity for severity, _ in found} <= {"warn"}, found
    return " | ".join(text for _, text in found)


def test_a_fitting_pair_has_no_finding():
    assert said(a_request(), a_model(), a_draft()) == []


def test_a_token_in_a_thousand_may_differ_with_a_warning():
    tokens = ["x", *TOKENS[1:]]
    found = warned(a_request(), a_model(), a_draft(tokens=tokens))
    assert "token 0 is 'x' in the draft and 't0' in the target" in found
    assert "1 differ" in found


def test_more_than_that_is_refused():
    tokens = [*(f"x{number}" for number in range(5)), *TOKENS[5:]]
    assert "5 differ" in refused(a_request(), a_model(), a_draft(tokens=tokens))


def test_sizes_alone_are_refused_with_both_numbers():
    config = {**LLAMA, "vocab_size": 151936}
    target = a_model(config={**LLAMA, "vocab_size": 152064})
    found = refused(a_request(), target, a_draft(config=config))
    assert "vocab_size is 151936 in the draft and 152064 in the target" in found
    assert "only the padding differs" in found


def test_unequal_vocabularies_may_be_asked_for():
    request = a_request(extra={"use_heterogeneous_vocab": True})
    assert "not compared" in warned(request, a_model(), a_draft(tokens=["a"]))


def test_special_tokens_that_differ_are_warned_of():
    ours = {"tokenizer_config__json": '{"eos_token": {"content": "</s>"}, "bos_token": "<s>"}'}
    theirs = {"tokenizer_config__json": '{"eos_token": "<|im_end|>", "bos_token": "<s>"}'}
    found = warned(a_request(), a_model(**ours), a_draft(**theirs))
    assert "eos_token is '<|im_end|>' in the draft and '</s>' in the target" in found


SHORT = {**HEAD, "max_position_embeddings": 2048}


@pytest.mark.parametrize(
    "method, version, severity",
    [
        ("Eagle", "0.26.0", "refuse"),
        ("Eagle3", "0.27.0", "warn"),
        ("Eagle", "0.32.0", "warn"),
        ("DraftModel", "0.32.0", "refuse"),
    ],
)
def test_a_short_draft_context_by_method_and_version(method, version, severity):
    found = said(a_request(method, version=version), a_model(), a_draft(config=SHORT))
    (judged,) = [each for each, text in found if "2048" in text and "131072" in text]
    assert judged == severity


def test_a_length_for_the_draft_above_its_limit_is_refused():
    request = a_request("Eagle", max_model_len=2048, extra={"max_model_len": 4096})
    assert "4096 is above the 2048" in refused(request, a_model(), a_draft(config=SHORT))


@pytest.mark.parametrize(
    "method, config, says",
    [
        ("Eagle3", {**HEAD, "hidden_size": 1024}, "width 1024, hf://org/target has 4096"),
        (
            "Eagle3",
            {**HEAD, "hidden_size": 1024, "target_hidden_size": 2048},
            "width 2048, hf://org/target has 4096",
        ),
        (
            "Eagle3",
            {**HEAD, "eagle_aux_hidden_state_layer_ids": [2, 16, 61]},
            "reads layer 61 (eagle_aux_hidden_state_layer_ids), hf://org/target has 32 layers",
        ),
        ("Eagle3", {**HEAD, "draft_vocab_size": 5000}, "draft_vocab_size is 5000"),
        ("DFlash", HEAD, "says no mask_token_id"),
        (
            "Medusa",
            {"hidden_size": 4096, "num_heads": 3},
            "4 is more than the 3 heads",
        ),
        (
            "DFlash",
            {
                **HEAD,
                "mask_token_id": 1,
                "speculators_config": {"algorithm": "eagle3"},
            },
            "made for eagle3, speculation.method is DFlash; set it to Eagle3",
        ),
        (
            "Eagle3",
            {
                **HEAD,
                "speculators_config": {
                    "algorithm": "eagle3",
                    "verifier": {"architectures": ["Qwen3ForCausalLM"]},
                },
            },
            "made for Qwen3ForCausalLM, hf://org/target is LlamaForCausalLM",
        ),
    ],
)
def test_a_head_of_another_target_is_refused(method, config, says):
    assert says in refused(a_request(method), a_model(), a_draft(config=config))


def test_a_head_with_fewer_tokens_needs_the_map_of_them():
    config = {**HEAD, "draft_vocab_size": 1000}
    without = a_draft(config=config, model__safetensors=a_header("fc.weight"))
    assert "has no tensor d2t" in refused(a_request("Eagle3"), a_model(), without)
    whole = a_draft(config=config, model__safetensors=a_header("fc.weight", "d2t"))
    assert said(a_request("Eagle3"), a_model(), whole) == []


@pytest.mark.parametrize(
    "config, tokens, says",
    [
        ({}, 1, "has no multi-token layers"),
        ({"num_nextn_predict_layers": 0}, 1, "has 0 multi-token layers"),
        ({"mtp_num_hidden_layers": 2}, 3, "3 is no multiple of the 2 multi-token layers"),
        ({"model_type": "deepseek_v41"}, 1, "use method DSpark"),
    ],
)
def test_multi_token_layers_have_to_be_there(config, tokens, says):
    request = a_request("MTP", num_speculative_tokens=tokens)
    assert says in refused(request, a_model(config={**LLAMA, **config}))


@pytest.mark.parametrize(
    "config, tokens", [({"num_nextn_predict_layers": 1}, 3), ({"num_mtp_modules": 3}, 2)]
)
def test_multi_token_layers_that_fit(config, tokens):
    request = a_request("MTP", num_speculative_tokens=tokens)
    assert said(request, a_model(config={**LLAMA, **config})) == []


def test_a_draft_of_more_than_a_twentieth_is_warned_of_with_both_sizes():
    found = warned(a_request(), a_model(), a_draft(weights=2 * GIB))
    assert "2.0 GiB of weights, 1/8 of the target's 16.0 GiB" in found


def test_number_formats_that_differ_are_warned_of():
    found = warned(a_request(), a_model(), a_draft(config={**LLAMA, "torch_dtype": "float16"}))
    assert "is float16, the target bfloat16" in found


def test_a_quantised_target_under_a_plain_head_is_warned_of():
    config = {**LLAMA, "quantization_config": {"quant_method": "fp8"}}
    found = warned(a_request("Eagle3"), a_model(config=config), a_draft(config=HEAD))
    assert "the target is quantised (fp8)" in found


def test_heads_are_shared_evenly():
    request = a_request("NGram", tensor_parallel_size=3)
    assert "32 attention heads, which 3 GPUs" in refused(request, a_model())


def test_weights_beyond_the_gpu_are_refused_with_the_arithmetic():
    found = refused(a_request(), a_model(weights=40 * GIB), a_draft(), gpu_bytes=24 * GIB)
    assert (
        "weights take 40.0 GiB and the draft 0.5 GiB of 21.6 GiB (90 percent of 24.0 GiB)" in found
    )


def test_a_cache_for_less_than_one_request_is_warned_of():
    found = warned(a_request(), a_model(weights=16 * GIB), a_draft(), gpu_bytes=24 * GIB)
    assert "0.2 requests of 131072 tokens" in found


def test_a_cache_for_many_requests_is_not():
    request = a_request(max_model_len=4096)
    assert said(request, a_model(), a_draft(), gpu_bytes=80 * GIB) == []


def test_weights_that_are_there_twice_count_once():
    index = json.dumps({"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}})
    found = facts_of(
        Files(
            **{
                "config__json": json.dumps(LLAMA),
                "part-1__safetensors": GIB,
                "part-2__safetensors": GIB,
                "consolidated__safetensors": 2 * GIB,
                "model__safetensors__index__json": index,
            }
        ),
        "hf://a/b",
    )
    assert (found.weight_bytes, found.tensors) == (2 * GIB, frozenset({"a", "b"}))


@pytest.mark.parametrize(
    "head", [b"", b"\x01", struct.pack("<Q", 2**60), struct.pack("<Q", 4) + b"nope", b"\xff" * 32]
)
def test_a_broken_safetensors_head_is_unreadable(head):
    with pytest.raises(Unreadable):
        header(head)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_a_broken_config_is_unreadable(text):
    with pytest.raises(Unreadable, match=r"config\.json"):
        facts_of(Files(config__json=text), "hf://a/b")
