"""Checkpoints that no engine loads, and pairs that only look alike."""

import json
import os
import struct

import pytest
from tests.api.test_preflight import (
    GIB,
    HEAD,
    LLAMA,
    TOKENS,
    Files,
    a_draft,
    a_model,
    a_request,
    refused,
    said,
    warned,
)

from speculative_api.model_facts import Unreadable, facts_of
from speculative_api.model_files import FolderFiles
from speculative_api.preflight import preflight
from speculative_api.tokenizer_files import numbers_of
from speculative_api.weight_files import HEADER_BYTES


def a_file(*, missing=0, **shapes):
    """A safetensors file with these tensors of bytes, `missing` bytes short."""
    entries, at = {}, 0
    for name, shape in shapes.items():
        size = 1
        for number in shape:
            size *= number
        entries[name.replace("__", ".")] = {
            "dtype": "U8",
            "shape": shape,
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(entries).encode()
    whole = struct.pack("<Q", len(text)) + text + bytes(at)
    return whole[: len(whole) - missing]


def an_index(**placed):
    return json.dumps({"weight_map": {name.replace("__", "."): at for name, at in placed.items()}})


def refusals(request, target, draft=None):
    return [
        (each.reason.value, each.message)
        for each in preflight(request, target, draft)
        if each.severity == "refuse"
    ]


@pytest.mark.parametrize(
    "files, reason, says",
    [
        pytest.param(
            {"model__safetensors": b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\n"},
            "ModelDamaged",
            "is a Git LFS pointer",
            id="pointer",
        ),
        pytest.param({"model__safetensors": b""}, "ModelDamaged", "is empty", id="empty"),
        pytest.param({"model__safetensors": b"abc"}, "ModelDamaged", "too short", id="three bytes"),
        pytest.param(
            {"model__safetensors": a_file(a=[1000], missing=10)},
            "ModelDamaged",
            "is cut short: its tensors take",
            id="cut in its tensors",
        ),
        pytest.param(
            {"model__safetensors": a_file(a=[10])[:20]},
            "ModelDamaged",
            "is cut short: its header alone",
            id="cut in its header",
        ),
        pytest.param(
            {"model__safetensors": struct.pack("<Q", 2**62) + b"{}"},
            "ModelDamaged",
            f"more than {HEADER_BYTES}",
            id="a header of four exabytes",
        ),
        pytest.param(
            {"model__safetensors": struct.pack("<Q", 4) + b"nope"},
            "ModelDamaged",
            "header cannot be read",
            id="no JSON",
        ),
        pytest.param(
            {"model__safetensors": struct.pack("<Q", 2**18) + b"[" * 2**18},
            "ModelDamaged",
            "nested too deeply",
            id="nested",
        ),
        pytest.param(
            {
                "a__safetensors": a_file(x=[1]),
                "model__safetensors__index__json": an_index(x="a.safetensors", y="b.safetensors"),
            },
            "ModelNotFound",
            "names 1 files that are not there, the first is 'b.safetensors'",
            id="a shard is missing",
        ),
        pytest.param(
            {
                "a__safetensors": a_file(x=[1]),
                "model__safetensors__index__json": an_index(
                    x="a.safetensors", y="../../etc/passwd"
                ),
            },
            "ModelNotFound",
            "the first is '../../etc/passwd'",
            id="an index that leads out",
        ),
        pytest.param(
            {
                "a__safetensors": a_file(x=[1]),
                "b__safetensors": a_file(y=[50], missing=1),
                "model__safetensors__index__json": an_index(x="a.safetensors", y="b.safetensors"),
            },
            "ModelDamaged",
            "b.safetensors: it is cut short",
            id="the second shard is cut",
        ),
        pytest.param(
            {"model__safetensors": a_file(model__embed_tokens__weight=[3, 1])},
            "ModelDamaged",
            "embedding has 3 rows and config.json says vocab_size 4000",
            id="rows and vocab_size",
        ),
    ],
)
def test_weights_that_no_engine_loads(files, reason, says):
    (found,) = refusals(a_request("NGram"), a_model(**files))
    assert found[0] == reason
    assert says in found[1]


def test_files_beside_the_ones_that_are_loaded_do_not_count():
    model = a_model(
        **{
            "model__safetensors": a_file(a=[10]),
            "consolidated__safetensors": a_file(a=[10], missing=5),
        }
    )
    assert said(a_request("NGram"), model) == []


def test_a_size_that_a_hub_does_not_say_is_no_damage():
    class Unsized(Files):
        def sizes(self):
            return dict.fromkeys(super().sizes(), 0)

    files = Unsized(config__json="{}", model__safetensors=a_file(a=[10]))
    assert facts_of(files, "hf://a/b").weights.damaged == ()


@pytest.mark.parametrize(
    "text",
    [
        '{"model": {"vocab": {"a": "x"}}}',
        '{"model": {"vocab": {"a": -1}}}',
        '{"model": {"vocab": {"a": true}}}',
        '{"model": {"vocab": [1, 2]}}',
        '{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1}]}',
        '{"model": {"vocab": {"a": 0}}, "added_tokens": [{"content": "b", "id": null}]}',
        "[" * 100_000,
        "[]",
    ],
)
def test_a_hostile_tokenizer_is_unreadable(text):
    with pytest.raises(Unreadable, match=r"tokenizer\.json"):
        a_model(tokenizer__json=text)


def a_piece_model(*pieces):
    """A sentencepiece model: pieces with a score and a kind, then a trainer's part."""
    message = b""
    for piece in pieces:
        text = piece.encode()
        inner = b"\x0a" + bytes([len(text)]) + text + b"\x15\0\0\x80\xbf" + b"\x18\x01"
        message += b"\x0a" + bytes([len(inner)]) + inner
    return message + b"\x12\x02\x08\x01"


def test_pieces_are_read_in_the_order_of_their_numbers(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(a_piece_model("<unk>", "\u2581the", "a"))
    (tmp_path / "added_tokens.json").write_text('{"<pad>": 3}')
    found = {"<unk>": 0, "\u2581the": 1, "a": 2, "<pad>": 3}
    assert numbers_of(FolderFiles(tmp_path)) == ("tokenizer.model", found)


@pytest.mark.parametrize("cut", [1, 5, 9, 14, 20])
def test_a_damaged_piece_model_does_not_raise(tmp_path, cut):
    (tmp_path / "tokenizer.model").write_bytes(a_piece_model("<unk>", "the", "a")[:cut])
    numbers_of(FolderFiles(tmp_path))


@pytest.mark.parametrize("name", ["vocab.json", "tekken.json", "tokenizer.model"])
def test_tokens_are_compared_without_a_tokenizer_json(tmp_path, name):
    contents = {
        "vocab.json": [b'{"a": 0, "b": 1, "c": 2}', b'{"a": 0, "c": 1, "b": 2}'],
        "tekken.json": [
            json.dumps(
                {"vocab": [{"rank": at, "token_bytes": each} for at, each in enumerate(order)]}
            ).encode()
            for order in (["YQ==", "Yg==", "Yw=="], ["YQ==", "Yw==", "Yg=="])
        ],
        "tokenizer.model": [a_piece_model("a", "b", "c"), a_piece_model("a", "c", "b")],
    }
    models = []
    for number, content in enumerate(contents[name]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_bytes(content)
        (folder / "config.json").write_text(json.dumps({**LLAMA, "vocab_size": 3}))
        (folder / "model.safetensors").write_bytes(a_file(a=[1]))
        models.append(facts_of(FolderFiles(folder), f"file://{folder}"))
    assert "token 1 is" in refused(a_request(), *models)
    assert refused(a_request(), models[0], models[0]) == ""


def test_a_pipe_is_no_configuration(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(Unreadable, match="is no file"):
        FolderFiles(tmp_path).text("config.json")


@pytest.mark.parametrize(
    "request_, target, draft, says",
    [
        pytest.param(
            a_request(draft_tensor_parallel_size=4, tensor_parallel_size=4),
            {},
            {"config": {**LLAMA, "num_attention_heads": 9, "num_key_value_heads": 3}},
            "org/draft has 9 attention heads, which 4 GPUs",
            id="heads of the draft",
        ),
        pytest.param(
            a_request("NGram", tensor_parallel_size=4),
            {"config": {**LLAMA, "num_attention_heads": 12, "num_key_value_heads": 3}},
            None,
            "3 key-value heads, which 4 GPUs can neither share nor copy",
            id="key-value heads",
        ),
        pytest.param(
            a_request("NGram", max_model_len=200_000),
            {},
            None,
            "target.maxModelLen is 200000, hf://org/target takes 131072 tokens",
            id="longer than the target",
        ),
        pytest.param(
            a_request("NGram", max_model_len=100_000),
            {"tokenizer_config__json": '{"model_max_length": 8192}'},
            None,
            "takes 8192 tokens",
            id="longer than the target's tokenizer",
        ),
        pytest.param(
            a_request("NGram", quantization="gptq"),
            {"config": {**LLAMA, "quantization_config": {"quant_method": "awq"}}},
            None,
            "target.quantization is gptq, the weights of hf://org/target are awq",
            id="quantised otherwise",
        ),
        pytest.param(
            a_request(extra={"quantization": "fp8"}),
            {},
            {"config": {**LLAMA, "quantization_config": {"quant_method": "gptq"}}},
            "speculation.extra.quantization is fp8",
            id="a draft quantised otherwise",
        ),
        pytest.param(
            a_request("MTP", num_speculative_tokens=1),
            {
                "config": {**LLAMA, "num_nextn_predict_layers": 1},
                "model__safetensors": a_file(model__layers__31__mlp=[1], lm_head__weight=[1]),
            },
            None,
            "says 1 multi-token layers and has no tensor of them",
            id="multi-token layers left out",
        ),
        pytest.param(
            a_request("Eagle3"),
            {},
            {"config": HEAD, "model__safetensors": a_file(model__layers__0__mlp=[1])},
            "has no tensor fc, by which a head reads its target",
            id="a whole model as a head",
        ),
        pytest.param(
            a_request(),
            {},
            {"model__safetensors": a_file(fc__weight=[1], midlayer__mlp=[1])},
            "has the tensor fc or d2t of a head",
            id="a head as a whole model",
        ),
        pytest.param(
            a_request("Eagle"),
            {},
            {"config": {**HEAD, "architectures": ["LlamaForCausalLMEagle3"]}},
            "is a LlamaForCausalLMEagle3, speculation.method is Eagle; set it to Eagle3",
            id="a head of the third kind",
        ),
        pytest.param(
            a_request("Eagle3"),
            {},
            {"config": {**HEAD, "speculators_model_type": "dflash"}},
            "was made for dflash, speculation.method is Eagle3; set it to DFlash",
            id="speculators' type without its configuration",
        ),
        pytest.param(
            a_request("Eagle3"),
            {},
            {"config": {**HEAD, "eagle_aux_hidden_state_layer_ids": [-1, 3]}},
            "reads layer -1",
            id="a layer before the first",
        ),
        pytest.param(
            a_request("Eagle3"),
            {},
            {
                "config": {**HEAD, "draft_vocab_size": 100},
                "model__safetensors": a_file(fc__weight=[1], d2t=[64]),
            },
            "draft_vocab_size is 100 in hf://org/draft, its tensor d2t maps 64",
            id="a map of another version",
        ),
        pytest.param(
            a_request("Eagle"),
            {},
            {
                "config": HEAD,
                "model__safetensors": a_file(fc__weight=[1], embed_tokens__weight=[3999, 1]),
            },
            "has an embedding of 3999 tokens, hf://org/target has tokens up to number 3999",
            id="a head with fewer tokens than its target",
        ),
    ],
)
def test_pairs_and_settings_that_can_not_work(request_, target, draft, says):
    models = [a_model(**target)] + ([a_draft(**draft)] if draft is not None else [])
    assert says in refused(request_, *models)


@pytest.mark.parametrize(
    "request_, target, draft, says",
    [
        pytest.param(
            a_request("NGram"),
            {"tokens": [*TOKENS, "<new>", "<more>"]},
            None,
            "2 tokens have numbers beyond its vocab_size 4000, the last is '<more>' with 4001",
            id="added tokens beyond the embedding",
        ),
        pytest.param(
            a_request(),
            {"config": {**LLAMA, "eos_token_id": 2}},
            {"config": {**LLAMA, "eos_token_id": [7, 9]}},
            "eos_token_id is 7 in the draft's config.json and 2 in the target's",
            id="other ends",
        ),
        pytest.param(
            a_request("NGram"),
            {
                "config": {**LLAMA, "tie_word_embeddings": False},
                "model__safetensors": a_file(model__layers__0__mlp=[1]),
            },
            None,
            "says tie_word_embeddings false, and no tensor is an output",
            id="no output",
        ),
        pytest.param(
            a_request("Eagle3"),
            {},
            {
                "config": {
                    **HEAD,
                    "speculators_version": "9.0",
                    "speculators_config": {"algorithm": "hydra9"},
                }
            },
            "was made for 'hydra9' (speculators 9.0), which is not known here",
            id="an algorithm of a later version",
        ),
    ],
)
def test_pairs_that_often_disappoint(request_, target, draft, says):
    models = [a_model(**target)] + ([a_draft(**draft)] if draft is not None else [])
    assert says in warned(request_, *models)


@pytest.mark.parametrize(
    "request_, target, draft",
    [
        pytest.param(
            a_request("NGram", max_model_len=200_000, long_context=True), {}, None, id="meant long"
        ),
        pytest.param(
            a_request("NGram", max_model_len=200_000, extra_args=("--hf-overrides={}",)),
            {},
            None,
            id="configured otherwise",
        ),
        pytest.param(
            a_request("NGram", max_model_len=200_000),
            {"config": {**LLAMA, "model_max_length": 262_144}},
            None,
            id="a longer limit beside",
        ),
        pytest.param(
            a_request("NGram", quantization="awq_marlin"),
            {"config": {**LLAMA, "quantization_config": {"quant_method": "awq"}}},
            None,
            id="a faster kernel for the same format",
        ),
        pytest.param(
            a_request("NGram", tensor_parallel_size=16), {}, None, id="key-value heads copied"
        ),
        pytest.param(
            a_request(),
            {"config": {**LLAMA, "eos_token_id": [2, 7]}},
            {"config": {**LLAMA, "eos_token_id": 7}},
            id="one end in common",
        ),
        pytest.param(
            a_request("MTP", num_speculative_tokens=1),
            {
                "config": {**LLAMA, "num_nextn_predict_layers": 1},
                "model__safetensors": a_file(model__layers__32__mlp=[1]),
            },
            None,
            id="multi-token layers after the last",
        ),
        pytest.param(
            a_request("Eagle3"),
            {},
            {
                "config": {
                    **HEAD,
                    "draft_vocab_size": 64,
                    "architectures": ["LlamaForCausalLMEagle3"],
                },
                "model__safetensors": a_file(fc__weight=[1], d2t=[64]),
            },
            id="a head as it should be",
        ),
    ],
)
def test_pairs_that_fit_have_no_finding(request_, target, draft):
    models = [a_model(**target)] + ([a_draft(**draft)] if draft is not None else [])
    assert said(request_, *models) == []


def test_a_kind_of_layer_with_its_own_stretching_counts():
    rope = {"full_attention": {"rope_type": "linear", "factor": 4.0}, "sliding_attention": {}}
    config = {**LLAMA, "max_position_embeddings": 1024, "rope_parameters": rope}
    assert a_model(config=config).context_tokens == 4096


@pytest.mark.parametrize("factor", [float("inf"), 1e300, -2, "4", None, True])
def test_a_factor_that_is_none_stretches_nothing(factor):
    config = {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": factor}}
    assert a_model(config=config).context_tokens == 131_072


def test_weights_count_only_what_is_loaded():
    model = a_model(
        **{
            "a__safetensors": a_file(x=[100]),
            "model__safetensors__index__json": an_index(x="a.safetensors"),
            "b__safetensors": GIB,
        }
    )
    assert model.weight_bytes == len(a_file(x=[100]))
