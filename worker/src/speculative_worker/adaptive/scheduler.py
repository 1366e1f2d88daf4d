"""The classes that `--scheduler-cls` names: ours over vLLM's. Imported by the engine alone.

vLLM calls this interface not public, so it is used with the versions that
`speculative_api.adaptive` lists and no others.
"""

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from .hook import AdaptiveMixin


class Adaptive(AdaptiveMixin, Scheduler):  # type: ignore[misc]
    """For methods that vLLM drafts for on the CPU (n-gram): it schedules those step by step."""


class AdaptiveAsync(AdaptiveMixin, AsyncScheduler):  # type: ignore[misc]
    """For draft models: a subclass of `Scheduler` would turn asynchronous scheduling off."""
