"""The small world with what capacity is about: GPUs, pods that load, drain and die."""

from dataclasses import dataclass, field, replace
from itertools import count

from tests.rollout.world import World

from speculative_operator.decision import Decision
from speculative_operator.snapshot import DeploymentView, Snapshot, WorkerPod

_numbers = count()


@dataclass
class Pod:
    """One pod; `left` counts looks until it is ready, or gone."""

    hash: str
    scheduled: bool = False
    ready: bool = False
    terminating: bool = False
    left: int = 1
    number: int = field(default_factory=lambda: next(_numbers))


@dataclass
class ClusterWorld(World):
    """Pods wait for one of `gpus`, load for `loading` looks and drain for `draining`."""

    gpus: int = 1000
    loading: int = 1
    draining: int = 2
    things: list[Pod] = field(default_factory=list)

    def snapshot(self) -> Snapshot:
        found = super().snapshot()
        pods = tuple(
            WorkerPod(
                name=f"{pod.hash}-{pod.number}",
                uid=f"{pod.hash}-{pod.number}",
                revision=pod.hash,
                ready=pod.ready,
                terminating=pod.terminating,
                termination=self.ends.get(pod.hash),
                waiting_reason="" if pod.scheduled else "Unschedulable: no GPU is free",
            )
            for pod in self.things
        )
        asked = self.decisions[-1].scales if self.decisions else ()
        views = {
            scale.hash: DeploymentView(
                name=scale.hash,
                hash=scale.hash,
                track=scale.track,
                replicas=scale.replicas,
                ready_replicas=self.ready(scale.hash),
            )
            for scale in asked
        }
        return replace(found, pods=pods, deployments=views)

    def ready(self, revision: str) -> int:
        """Ready pods of a revision, those on their way out not counted."""
        return sum(pod.ready and not pod.terminating for pod in self.things if pod.hash == revision)

    def settle(self, looks: int = 40, seconds: float = 1.0) -> None:
        """Looks so often: a pod that loads or drains changes nothing for a while."""
        for _ in range(looks):
            self.look(seconds)

    def kill(self, revision: str, pods: int = 1) -> None:
        """So many of its pods die and have to load anew."""
        for pod in [p for p in self.things if p.hash == revision and p.ready][:pods]:
            pod.ready, pod.left = False, self.loading

    def _kubernetes(self, decision: Decision) -> None:
        asked = {scale.hash: scale.replicas for scale in decision.scales}
        for revision in {pod.hash for pod in self.things} | set(asked):
            here = [p for p in self.things if p.hash == revision and not p.terminating]
            here.sort(key=lambda pod: (not pod.ready, not pod.scheduled))
            for pod in here[asked.get(revision, 0) :]:
                pod.terminating, pod.left = True, self.draining if pod.scheduled else 0
            missing = asked.get(revision, 0) - len(here)
            self.things += [Pod(revision, left=self.loading) for _ in range(missing)]
        self._pass_time()
        self.pods = {
            revision: [p.ready for p in self.things if p.hash == revision and not p.terminating]
            for revision in asked
        }

    def _pass_time(self) -> None:
        for pod in list(self.things):
            held = pod.hash in self.unready or pod.hash in self.ends
            if pod.terminating:
                pod.left -= 1
                if pod.left < 0:
                    self.things.remove(pod)
            elif pod.scheduled and held:
                pod.ready = False
            elif pod.scheduled and not pod.ready:
                pod.left -= 1
                pod.ready = pod.left < 0
        for pod in self.things:
            if not pod.scheduled and sum(p.scheduled for p in self.things) < self.gpus:
                pod.scheduled = not pod.terminating
