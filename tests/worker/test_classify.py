"""Log tails of engines that ended, and the reasons they get."""

import json

import pytest
from tests.worker.crash_samples import CRASHES, Crash

from speculative_worker.classify import engine_failure
from speculative_worker.crash_rules import RULES
from speculative_worker.errors import WorkerFailure
from speculative_worker.termination import MAX_BYTES, message

VOCABULARY = """\
  File "vllm/config/speculative.py", line 1880, in verify_equal_vocab_size_if_draft_model
ValueError: Target and draft model should have the same vocabulary size. Target model \
vocab_size=152064. Draft model vocab_size=151936. Using models with different tokenizers can \
cause out-of-bounds errors during speculative decoding.
usage: api_server.py [-h]"""
CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ..."
USAGE = """\
usage: api_server.py [-h] [--model MODEL] ...
api_server.py: error: unrecognized arguments: --speculative-model org/d"""
OFFLINE = """\
huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk \
cache and outgoing traffic has been disabled."""
SUFFIX = "ImportError: Arctic Inference is required for suffix decoding. Install via `pip ...`."
SPLIT = (
    "ValueError: Currently, 'draft_tensor_parallel_size' and 'tensor_parallel_size' must be the "
    "same. Got 1 and 2."
)
MULTIPLE = "ValueError: num_speculative_tokens:3 must be divisible by n_predict=2"
GATED = "huggingface_hub.errors.GatedRepoError: 403 Client Error. Access to model x is restricted"
MISSING = """\
OSError: /models/x does not appear to have a file named config.json. Checkout \
'https://huggingface.co//models/x/tree/main' for available files."""
NO_WEIGHTS = "RuntimeError: Cannot find any model weights with `/models/x`"
KV = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
SEGMENT = """\
misc/shmutils.cc:87 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Xk2 (size \
9637888), error: No space left on device (28)
torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3557, unhandled error"""
NCCL = """\
torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3557, unhandled system \
error (run with NCCL_DEBUG=INFO for details), NCCL version 2.29.7
ncclSystemError: System call (e.g. socket, malloc) or external library call failed"""
CUDA_AFTER_NCCL = CUDA + "\ntorch.distributed.DistBackendError: NCCL error: remote process exited"
OLD_DRIVER = """\
RuntimeError: The NVIDIA driver on your system is too old (found version 12040). Please update \
your GPU driver"""
NO_KERNEL = (
    "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device"
)
NO_DRIVER = (
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"
)
NO_DEVICE = "RuntimeError: Failed to infer device type, please set the environment variable ..."
NVML = "pynvml.NVMLError: Failed to initialize NVML: Driver/library version mismatch"
PORT = "OSError: [Errno 98] Address already in use"
DISK = "OSError: [Errno 28] No space left on device: '/tmp/x'"


@pytest.mark.parametrize(
    "tail, exit_code, reason, retryable",
    [
        pytest.param(VOCABULARY, 1, "VocabularyMismatch", False, id="vocabulary"),
        pytest.param(CUDA, 1, "GpuMemory", False, id="cuda out of memory"),
        pytest.param(KV, 1, "GpuMemory", False, id="no room for the cache"),
        pytest.param(USAGE, 2, "InvalidArguments", False, id="usage and exit 2"),
        pytest.param("", 2, "InvalidArguments", False, id="exit 2 alone"),
        pytest.param(SUFFIX, 1, "InvalidArguments", False, id="suffix without its package"),
        pytest.param(SPLIT, 1, "InvalidArguments", False, id="a draft split otherwise"),
        pytest.param(MULTIPLE, 1, "InvalidArguments", False, id="no multiple of the head"),
        pytest.param(OFFLINE, 1, "HubUnreachable", True, id="hub away"),
        pytest.param(GATED, 1, "ModelNotFound", False, id="gated"),
        pytest.param(MISSING, 1, "ModelNotFound", False, id="no config.json"),
        pytest.param(NO_WEIGHTS, 1, "ModelNotFound", False, id="no weights"),
        pytest.param(SEGMENT, 1, "GpuCommunication", False, id="shared memory too small"),
        pytest.param("Bus error (core dumped)", -7, "GpuCommunication", False, id="bus error"),
        pytest.param(NCCL, 1, "GpuCommunication", True, id="nccl"),
        pytest.param(CUDA_AFTER_NCCL, 1, "GpuMemory", False, id="nccl as a consequence"),
        pytest.param(OLD_DRIVER, 1, "GpuDriver", False, id="driver too old"),
        pytest.param(NO_KERNEL, 1, "GpuUnsupported", False, id="no kernels for this GPU"),
        pytest.param(NO_DRIVER, 1, "GpuDriver", True, id="no driver"),
        pytest.param(NO_DEVICE, 1, "GpuDriver", True, id="no device"),
        pytest.param(NVML, 1, "GpuDriver", True, id="driver and library"),
        pytest.param(PORT, 1, "PortTaken", True, id="port"),
        pytest.param(DISK, 1, "DiskTooSmall", False, id="disk full"),
        pytest.param("Segmentation fault", -11, "EngineCrashed", True, id="unknown signal"),
        pytest.param("something new", 1, "EngineCrashed", True, id="unknown text"),
        pytest.param("", -9, "EngineCrashed", True, id="killed by somebody"),
    ],
)
def test_an_engine_that_never_served(tail, exit_code, reason, retryable):
    found = engine_failure(tail, exit_code=exit_code, served=False, out_of_memory_kill=False)
    assert (found.reason, found.retryable) == (reason, retryable)


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.name)
def test_last_words_of_real_engines(crash: Crash):
    found = engine_failure(
        crash.tail,
        exit_code=crash.exit_code,
        served=crash.served,
        out_of_memory_kill=crash.kernel_kill,
    )
    assert (found.reason, found.retryable) == (crash.reason, crash.retryable)


def test_every_rule_has_a_real_text():
    rules_met = {
        next((rule.name for rule in RULES if rule.pattern.search(crash.tail)), None)
        for crash in CRASHES
    }
    assert {rule.name for rule in RULES} - rules_met == set()


def test_a_rank_that_the_kernel_killed_is_host_memory_to_the_ranks_that_are_left():
    found = engine_failure(NCCL, exit_code=1, served=False, out_of_memory_kill=True)
    assert found.reason == "HostMemory"


def test_a_kernel_kill_is_host_memory_not_gpu_memory():
    found = engine_failure("", exit_code=-9, served=False, out_of_memory_kill=True)
    assert found.reason == "HostMemory"
    assert "memory limit" in found.detail


def test_gpu_memory_says_what_to_lower():
    found = engine_failure(CUDA, exit_code=1, served=False, out_of_memory_kill=False)
    assert "gpuMemoryUtilizationPercent" in found.detail


def test_memory_that_ran_out_under_load_can_be_retried():
    found = engine_failure(CUDA, exit_code=1, served=True, out_of_memory_kill=False)
    assert (found.reason, found.retryable) == ("GpuMemory", True)


def test_the_line_that_says_why_stands_in_front_of_a_long_traceback():
    tail = CUDA + "\n" + "  File core.py, line 1, in run\n" * 600
    tail += "RuntimeError: Engine core initialization failed. See root cause above."
    found = engine_failure(tail, exit_code=1, served=False, out_of_memory_kill=False)
    assert found.reason == "GpuMemory"
    assert f"The engine said: {CUDA}" in found.detail
    assert CUDA in json.loads(message(found))["detail"]


def test_an_unknown_crash_names_the_cause_not_the_consequence():
    tail = (
        "(EngineCore pid=7) KeyError: 'layers.9'\n"
        "RuntimeError: Engine core initialization failed. See root cause above."
    )
    found = engine_failure(tail, exit_code=1, served=False, out_of_memory_kill=False)
    assert "The engine said: KeyError: 'layers.9'" in found.detail


def test_exit_2_while_serving_says_nothing_about_arguments():
    found = engine_failure("", exit_code=2, served=True, out_of_memory_kill=False)
    assert found.reason == "EngineCrashed"


def test_the_last_words_of_a_crash_are_in_the_detail():
    found = engine_failure("a\nb\nlast", exit_code=1, served=True, out_of_memory_kill=False)
    assert found.detail.endswith("last")
    assert "exit code 1" in found.detail


@pytest.mark.parametrize("filler", ["x", "ü", "\x00", '"', "\n", "\N{GRINNING FACE}"])
def test_a_termination_message_fits_and_keeps_summary_and_end(filler):
    found = engine_failure(
        filler * 20000 + "THE END", exit_code=1, served=False, out_of_memory_kill=False
    )
    text = message(found)
    assert len(text.encode()) <= MAX_BYTES
    detail = json.loads(text)["detail"]
    assert detail.startswith("the engine ended before it served")
    assert detail.endswith("THE END")


def test_secrets_are_taken_out_of_the_termination_message():
    failure = WorkerFailure(
        engine_failure("", exit_code=1, served=False, out_of_memory_kill=False).reason,
        "token hf_abcdefghijklmnop and password correct-horse",
        retryable=True,
    )
    text = message(failure, secrets=("correct-horse",))
    assert "abcdefgh" not in text
    assert "correct-horse" not in text
    assert json.loads(text)["detail"] == "token [hidden] and password [hidden]"
