"""Last words of real engines, by the reason that they should get.

The machine's own lines, with the frames and prefixes that stand around them
in public reports cut to a few; each with where it was seen. `served` says
that the engine had answered requests before it ended.
"""

from dataclasses import dataclass

VLLM = "vllm-project/vllm#"
ROOT = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
)
CORE = "(EngineCore_DP0 pid=585) ERROR 09-16 17:46:22 [core.py:718] "


@dataclass(frozen=True, slots=True)
class Crash:
    """How one engine ended, and what it should be called."""

    name: str
    reason: str
    retryable: bool
    source: str
    tail: str
    exit_code: int = 1
    served: bool = False
    kernel_kill: bool = False


def _core(*lines: str) -> str:
    """As the second generation prints it: the cause from a child, then its consequence."""
    return "\n".join([*(CORE + line for line in lines), "Traceback (most recent call last):", ROOT])


def _invalid(config: str, said: str) -> str:
    return (
        f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {config}\n"
        f"  Value error, {said} [type=value_error, input_value=ArgsKwargs((), {{'model': "
        "'/models/x'}), input_type=ArgsKwargs]\n"
        "    For further information visit https://errors.pydantic.dev/2.11/v/value_error"
    )


CRASHES: tuple[Crash, ...] = (
    # Arguments.
    Crash(
        "heads not divided, first generation",
        "InvalidArguments",
        False,
        VLLM + "2652",
        "ValueError: Total number of attention heads (52) must be divisible by tensor parallel "
        "size (8).",
    ),
    Crash(
        "heads not divided, second generation",
        "InvalidArguments",
        False,
        VLLM + "52435",
        _invalid(
            "VllmConfig",
            "Total number of attention heads (64) must be divisible by tensor parallel size (3).",
        ),
    ),
    Crash(
        "fewer GPUs than the world",
        "InvalidArguments",
        False,
        "vLLM 0.32.0, config/parallel.py",
        _invalid(
            "ParallelConfig",
            "World size (8) is larger than the number of available GPUs (4) in this node. If this "
            "is intentional and you are using:\n- ray, set '--distributed-executor-backend ray'.",
        ),
    ),
    Crash(
        "tool parser of another version",
        "InvalidArguments",
        False,
        "vLLM 0.32.0, entrypoints/launchers/launcher.py",
        "KeyError: 'invalid tool call parser: gemma4 (chose from { hermes,jamba,llama3_json })'",
    ),
    Crash(
        "another quantisation than the model's",
        "InvalidArguments",
        False,
        "vLLM 0.32.0, config/model.py",
        "ValueError: Quantization method specified in the model config (awq) does not match the "
        "quantization method specified in the `quantization` argument (gptq).",
    ),
    Crash(
        "a quantisation that nobody knows",
        "InvalidArguments",
        False,
        "vLLM 0.32.0, config/model.py",
        "ValueError: Unknown quantization method: fp9. Must be one of ['awq', 'fp8', 'gptq'].",
    ),
    Crash(
        "longer than the model, second generation",
        "InvalidArguments",
        False,
        "vLLM 0.32.0, config/model.py",
        _invalid(
            "ModelConfig",
            "User-specified max_model_len (262144) is greater than the derived max_model_len "
            "(max_position_embeddings=131072 or model_max_length=None in model's config.json).",
        ),
    ),
    Crash(
        "no chat template where it is said to be",
        "InvalidArguments",
        False,
        "vLLM 0.32.0, entrypoints/chat_utils.py",
        "ValueError: The supplied chat template (/etc/t.jinja) looks like a file path, but it "
        "failed to be opened. Reason: [Errno 2] No such file or directory: '/etc/t.jinja'",
    ),
    Crash(
        "JSON that a shell ate",
        "InvalidArguments",
        False,
        "eugr/spark-vllm-docker#111",
        "usage: vllm serve [model_tag] [options]\nvllm serve: error: argument "
        "--speculative-config/-sc: Value {method:ngram} cannot be converted to <function loads>.",
        exit_code=2,
    ),
    Crash(
        "no pipeline for this model",
        "InvalidArguments",
        False,
        VLLM + "14117",
        "NotImplementedError: Pipeline parallelism is not supported for this model. Supported "
        "models implement the `SupportsPP` interface.",
    ),
    # The model and what this engine can do with it.
    Crash(
        "an architecture that this version has not",
        "ModelUnsupported",
        False,
        VLLM + "32338",
        _invalid(
            "ModelConfig",
            "Model architectures ['LlavaQwenForCausalLM'] are not supported for now. Supported "
            "architectures: dict_keys(['AfmoeForCausalLM', 'ApertusForCausalLM'])",
        ),
    ),
    Crash(
        "an architecture that the first generation had not",
        "ModelUnsupported",
        False,
        VLLM + "22231",
        "ValueError: Model architectures ['Qwen3ForCausalLM'] are not supported for now. Supported "
        "architectures: ['AquilaModel', 'AquilaForCausalLM']",
    ),
    Crash(
        "a model type that the library has not",
        "ModelUnsupported",
        False,
        "hiyouga/LlamaFactory#10122",
        _invalid(
            "ModelConfig",
            "The checkpoint you are trying to load has model type `qwen4` but Transformers does "
            "not recognize this architecture. This could be because of an issue with the "
            "checkpoint, or because your version of Transformers is out of date.",
        ),
    ),
    Crash(
        "code of the model's own",
        "ModelUnsupported",
        False,
        "transformers, dynamic_module_utils.py",
        "ValueError: The repository /models/x contains custom code which must be executed to "
        "correctly load the model. Please pass the argument `trust_remote_code=True` to allow "
        "custom code to be run.",
    ),
    Crash(
        "a tokenizer class that is not there",
        "ModelUnsupported",
        False,
        "vLLM 0.32.0, tokenizers/hf.py",
        "ValueError: Tokenizer class Qwen9Tokenizer does not exist or is not currently imported.",
    ),
    Crash(
        "a tokenizer file of a newer library",
        "ModelUnsupported",
        False,
        "huggingface/tokenizers",
        "Exception: data did not match any variant of untagged enum ModelWrapper at line 757479 "
        "column 3",
    ),
    # Files.
    Crash(
        "pointers instead of weights",
        "ModelDamaged",
        False,
        "huggingface/safetensors, HeaderTooLarge",
        _core(
            "EngineCore failed to start.",
            "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
        ),
    ),
    Crash(
        "weights cut short",
        "ModelDamaged",
        False,
        "huggingface/safetensors, MetadataIncompleteBuffer",
        _core(
            "safetensors_rust.SafetensorError: Error while deserializing header: "
            "MetadataIncompleteBuffer"
        ),
    ),
    Crash(
        "weights that the checkpoint has not",
        "ModelDamaged",
        False,
        "vLLM 0.32.0, model_loader/default_loader.py",
        _core(
            "ValueError: Following weights were not initialized from checkpoint: "
            "{'model.layers.31.mlp.down_proj.weight'}"
        ),
    ),
    Crash(
        "a config.json that is none",
        "ModelDamaged",
        False,
        "transformers, configuration_utils.py",
        "OSError: It looks like the config file at '/models/x/config.json' is not a valid JSON "
        "file.",
    ),
    Crash(
        "a shard that is not there",
        "ModelNotFound",
        False,
        "huggingface/safetensors, safe_open",
        _core(
            "FileNotFoundError: No such file or directory: "
            '"/models/x/model-00003-of-00004.safetensors"'
        ),
    ),
    Crash(
        "gated, as transformers says it",
        "ModelNotFound",
        False,
        "Alpha-VLLM/Lumina-Video#3",
        "[rank0]: OSError: You are trying to access a gated repo.\n[rank0]: Make sure to have "
        "access to it at https://hub.example/org/x.",
    ),
    Crash(
        "gated, as the hub's library says it",
        "ModelNotFound",
        False,
        "kyegomez/NeoSapiens#3",
        "huggingface_hub.utils._errors.GatedRepoError: 401 Client Error. (Request ID: 1-66)\n\n"
        "Cannot access gated repo for url https://hub.example/org/x/resolve/main/config.json.",
    ),
    Crash(
        "a private or misspelt repository",
        "ModelNotFound",
        False,
        "huggingface/huggingface_hub, RepositoryNotFoundError",
        "OSError: org/x is not a local folder and is not a valid model identifier listed on "
        "'https://hub.example/models'\nIf this is a private repository, make sure to pass a token",
    ),
    Crash(
        "a hub that has too much to do",
        "HubUnreachable",
        True,
        "huggingface/huggingface_hub, HfHubHTTPError",
        "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: "
        "https://hub.example/api/models/org/x",
    ),
    Crash(
        "no name server",
        "HubUnreachable",
        True,
        "huggingface/huggingface_hub 1.x over httpx",
        '  File "huggingface_hub/utils/_http.py", line 486, in http_backoff\n'
        "httpx.ConnectError: [Errno -3] Temporary failure in name resolution",
    ),
    Crash(
        "hub not reached, as transformers says it",
        "HubUnreachable",
        True,
        "transformers, utils/hub.py",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't "
        "find them in the cached files.",
    ),
    # The disk.
    Crash(
        "disk full",
        "DiskTooSmall",
        False,
        "huggingface/diffusers#4957",
        _core("OSError: [Errno 28] No space left on device"),
    ),
    Crash(
        "disk full while fetching through Xet",
        "DiskTooSmall",
        False,
        "huggingface/xet-core",
        "RuntimeError: Data processing error: CAS service error : IO Error: No space left on "
        "device (os error 28)",
    ),
    Crash(
        "disk full while compiling",
        "DiskTooSmall",
        False,
        "bentoml/OpenLLM#754",
        _core(
            "safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, "
            'kind: StorageFull, message: "No space left on device" })'
        ),
    ),
    Crash(
        "disk full after hours",
        "DiskTooSmall",
        True,
        "huggingface/diffusers#4957",
        "OSError: [Errno 28] No space left on device: '/root/.cache/vllm/torch_compile_cache/x'",
        served=True,
    ),
    Crash(
        "quota of the volume",
        "DiskTooSmall",
        False,
        "Linux, EDQUOT",
        "OSError: [Errno 122] Disk quota exceeded: '/models/hub/tmp1'",
    ),
    Crash(
        "a cache of another user",
        "CacheUnwritable",
        False,
        "Linux, EACCES",
        "PermissionError: [Errno 13] Permission denied: '/.cache/vllm'",
    ),
    Crash(
        "a read-only root",
        "CacheUnwritable",
        False,
        "Linux, EROFS",
        "OSError: [Errno 30] Read-only file system: '/root/.triton/cache'",
    ),
    # GPU memory.
    Crash(
        "context longer than the cache, first generation",
        "GpuMemory",
        False,
        VLLM + "2418",
        "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens "
        "that can be stored in KV cache (3664). Try increasing `gpu_memory_utilization`",
    ),
    Crash(
        "context longer than the cache, second generation",
        "GpuMemory",
        False,
        "vLLM 0.32.0, v1/core/kv_cache_utils.py",
        _core(
            "ValueError: To serve at least one request with the model's max seq len (131072), "
            "(16.00 GiB KV cache is needed, which is larger than the available KV cache memory "
            "(9.61 GiB)."
        ),
    ),
    Crash(
        "not even one token",
        "GpuMemory",
        False,
        "vLLM 0.32.0, v1/core/kv_cache_utils.py",
        _core(
            "ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve "
            "even a single token. Try increasing `gpu_memory_utilization`."
        ),
    ),
    Crash(
        "the GPU is somebody else's too",
        "GpuMemory",
        False,
        VLLM + "17366",
        _core(
            "ValueError: Free memory on device (5.3/23.64 GiB) on startup is less than desired GPU "
            "memory utilization (0.9, 21.28 GiB). Decrease GPU memory utilization"
        ),
    ),
    Crash(
        "as CUDA itself says it",
        "GpuMemory",
        False,
        "PyTorch, CUDAException",
        _core("RuntimeError: CUDA error: out of memory"),
    ),
    Crash(
        "as AcceleratorError says it",
        "GpuMemory",
        False,
        "PyTorch 2.8, AcceleratorError",
        _core("torch.AcceleratorError: CUDA error: out of memory"),
    ),
    Crash(
        "as NCCL meets it",
        "GpuMemory",
        False,
        VLLM + "20226",
        "node1:81:97 [0] enqueue.cc:1402 NCCL WARN Cuda failure 2 'out of memory'\n"
        + _core("RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO)"),
    ),
    Crash(
        "as cuBLAS meets it",
        "GpuMemory",
        False,
        "PyTorch, CUDABlas",
        _core(
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
            "`cublasCreate(handle)`"
        ),
    ),
    # Host memory.
    Crash(
        "as the CPU's allocator says it",
        "HostMemory",
        False,
        "PyTorch, alloc_cpu.cpp",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't "
        "allocate memory: you tried to allocate 1179648 bytes. Error code 12 (Cannot allocate "
        "memory)",
    ),
    Crash(
        "as the CPU's allocator says it elsewhere",
        "HostMemory",
        False,
        "PyTorch, alloc_cpu.cpp",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:116] data. DefaultCPUAllocator: not enough "
        "memory: you tried to allocate 9663676416 bytes.",
    ),
    Crash(
        "as C++ says it",
        "HostMemory",
        False,
        "libstdc++",
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  "
        "std::bad_alloc",
        exit_code=-6,
    ),
    Crash(
        "the kernel took a child",
        "HostMemory",
        False,
        VLLM + "8879",
        "(VllmWorkerProcess pid=288) INFO 04-15 19:31:59 [loader.py:429] Loading weights\n"
        "ERROR 04-15 19:32:10 [multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 288 "
        "died, exit code: -9\n" + ROOT,
        kernel_kill=True,
    ),
    Crash(
        "the kernel took the engine's core under load",
        "HostMemory",
        True,
        VLLM + "34643",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack "
        "trace (above) for the root cause.",
        served=True,
        kernel_kill=True,
    ),
    # Between GPUs, and between processes.
    Crash(
        "NCCL, unhandled system error",
        "GpuCommunication",
        True,
        VLLM + "10626",
        "(VllmWorkerProcess pid=55933) ERROR 11-25 08:17:34 multiproc_worker_utils.py:229] "
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)\n"
        "RuntimeError: Engine process failed to start. See stack trace for the root cause.",
    ),
    Crash(
        "NCCL over nodes",
        "GpuCommunication",
        True,
        "gpustack/gpustack#2023",
        "(RayWorkerWrapper pid=1364940, ip=172.17.139.128) ERROR 05-13 11:32:52 RuntimeError: NCCL "
        "error: remote process exited or there was a network error",
    ),
    Crash(
        "a collective that nobody finished",
        "GpuCommunication",
        True,
        "PyTorch, ProcessGroupNCCL",
        "[rank0]:[E519 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE) ran for 600012 milliseconds",
        exit_code=-6,
        served=True,
    ),
    Crash(
        "a rank that never came",
        "GpuCommunication",
        True,
        "PyTorch, TCPStore",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 "
        "clients joined.",
    ),
    Crash(
        "a rank that finds nobody",
        "GpuCommunication",
        True,
        "PyTorch, TCPStore",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while "
        "trying to connect to (chat-0.chat, 29500).",
    ),
    Crash(
        "/dev/shm too small for NCCL",
        "GpuCommunication",
        False,
        "MiniMax-AI/MiniMax-01#42",
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ab1xyz (size 7340384)\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed",
    ),
    Crash(
        "/dev/shm too small for an older NCCL",
        "GpuCommunication",
        False,
        "NVIDIA/nccl#290",
        "gpu2:2143:2561 [1] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space "
        "left on device\ngpu2:2143:2561 [1] NCCL INFO include/shm.h:41 -> 2\n"
        + _core("RuntimeError: NCCL error: unhandled system error"),
    ),
    Crash(
        "/dev/shm too small for Python",
        "GpuCommunication",
        False,
        "CPython, multiprocessing.shared_memory",
        _core("OSError: [Errno 28] No space left on device: '/psm_4c2d1a6e'"),
    ),
    Crash(
        "/dev/shm too small for torch",
        "GpuCommunication",
        False,
        "PyTorch, MapAllocator",
        _core(
            "RuntimeError: unable to write to file </torch_585_3157404405_0>: No space left on "
            "device (28)"
        ),
    ),
    Crash(
        "/dev/shm too small, met as a signal",
        "GpuCommunication",
        False,
        VLLM + "1091",
        "*** SIGBUS received at time=1695144916 on cpu 2 ***\nFatal Python error: Bus error",
        exit_code=-7,
    ),
    # The driver, and the GPU itself.
    Crash(
        "CUDA newer than the driver",
        "GpuDriver",
        False,
        "nagadomi/nunif#702",
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
    ),
    Crash(
        "a combination that the driver refuses",
        "GpuDriver",
        False,
        "CUDA, error 803",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has "
        "unsupported display driver / cuda driver combination",
    ),
    Crash(
        "forward compatibility on a GPU that has none",
        "GpuDriver",
        False,
        "CUDA, error 804",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward "
        "compatibility was attempted on non supported HW",
    ),
    Crash(
        "kernels newer than the driver",
        "GpuDriver",
        False,
        "CUDA, error 222",
        _core(
            "torch.AcceleratorError: CUDA error: the provided PTX was compiled with an unsupported "
            "toolchain."
        ),
    ),
    Crash(
        "no GPU in the container",
        "GpuDriver",
        True,
        VLLM + "26774",
        '  File "torch/cuda/__init__.py", line 372, in _lazy_init\n    torch._C._cuda_init()\n'
        "RuntimeError: No CUDA GPUs are available",
    ),
    Crash(
        "no driver library in the container",
        "GpuDriver",
        True,
        VLLM + "8243",
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
    ),
    Crash(
        "the fabric is not up yet",
        "GpuDriver",
        True,
        "CUDA, error 802",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet "
        "initialized",
    ),
    Crash(
        "a GPU that broke",
        "GpuDriver",
        True,
        "CUDA, error 214",
        _core("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"),
        served=True,
    ),
    Crash(
        "a GPU that is taken exclusively",
        "GpuDriver",
        True,
        "CUDA, error 46",
        _core(
            "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"
        ),
    ),
    Crash(
        "no bfloat16 on this GPU",
        "GpuUnsupported",
        False,
        VLLM + "1157",
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. "
        "Your Tesla T4 GPU has compute capability 7.5.",
    ),
    Crash(
        "no such quantisation on this GPU",
        "GpuUnsupported",
        False,
        VLLM + "4327",
        "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum "
        "capability: 90. Current capability: 86.",
    ),
    Crash(
        "no such quantisation scheme on this GPU",
        "GpuUnsupported",
        False,
        VLLM + "14040",
        _core(
            "RuntimeError: ('Quantization scheme is not supported for ', 'the current GPU. Min "
            "capability: 80. ', 'Current capability: 75.')"
        ),
    ),
    Crash(
        "too old a GPU altogether",
        "GpuUnsupported",
        False,
        VLLM + "1284",
        "RuntimeError: GPUs with compute capability below 7.0 are not supported.",
    ),
    Crash(
        "no kernels for a new GPU",
        "GpuUnsupported",
        False,
        VLLM + "629",
        _core(
            "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the "
            "device"
        ),
    ),
    Crash(
        "a compiler that does not know the GPU",
        "GpuUnsupported",
        False,
        "Triton, ptxas",
        _core("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"),
    ),
    # Ports.
    Crash(
        "the engine's own port",
        "PortTaken",
        True,
        VLLM + "7514",
        '  File "vllm/entrypoints/openai/api_server.py", line 530, in run_server\n'
        '    temp_socket.bind(("", args.port))\nOSError: [Errno 98] Address already in use',
    ),
    Crash(
        "the port where ranks meet",
        "PortTaken",
        True,
        VLLM + "11617",
        "RuntimeError: The server socket has failed to listen on any local network address. "
        "useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use",
    ),
    Crash(
        "the port between its processes",
        "PortTaken",
        True,
        "pyzmq, bind",
        _core("zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:5557')"),
    ),
    # Vocabularies and drafts.
    Crash(
        "vocabularies, second generation",
        "VocabularyMismatch",
        False,
        VLLM + "13849",
        _invalid(
            "SpeculativeConfig",
            "Target and draft model should have the same vocabulary size. Target model "
            "vocab_size=152064. Draft model vocab_size=151936.",
        ),
    ),
    Crash(
        "a head of another target",
        "DraftMismatch",
        False,
        VLLM + "38073",
        _core(
            '  File "vllm/model_executor/models/llama_eagle3.py", line 163, in forward',
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8192x6144 and 3072x1024)",
        ),
    ),
    # What only looks like a reason.
    Crash(
        "a free port was looked for",
        "EngineCrashed",
        True,
        "vLLM 0.32.0, utils/network_utils.py",
        "(APIServer pid=1) INFO 09-16 17:46:01 [network_utils.py:36] Port 5600 is already in use, "
        "trying port 5601\n" + _core("KeyError: 'layers.9'"),
    ),
    Crash(
        "an image of a request was forbidden",
        "EngineCrashed",
        True,
        "vLLM, multimodal/media/connector.py",
        "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://a.example/b\n"
        'INFO:     10.0.0.9:5000 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request\n'
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        served=True,
    ),
    Crash(
        "a warning about memory, then something else",
        "EngineCrashed",
        True,
        "vLLM, worker logs",
        "(EngineCore pid=7) WARNING 09-16 17:46:01 [profiler.py:9] CUDA out of memory while "
        "profiling graphs; falling back\n" + _core("KeyError: 'layers.9'"),
    ),
    Crash(
        "a chat without a template is a request's fault",
        "EngineCrashed",
        True,
        VLLM + "39279",
        "vllm.entrypoints.chat_utils.ChatTemplateResolutionError: As of transformers v4.44, "
        "default chat template is no longer allowed, so you must provide a chat template\n"
        "Fatal Python error: Segmentation fault",
        exit_code=-11,
        served=True,
    ),
    Crash(
        "an illegal access under load",
        "EngineCrashed",
        True,
        VLLM + "57941",
        _core("torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
        served=True,
    ),
)
