"""Which operator acts on which namespaces where several share a cluster. Pure.

Whole namespaces are divided and never their resources: what resources of one namespace
have in common is then written by one operator. A namespace has a place in [0, 1) by a
hash of its name, and shard i of n has the places from i/n to (i + 1)/n: from n to n + 1
shards only neighbours hand namespaces over.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

MOST_SHARDS: Final = 32
"""The chart grants that many Leases by name."""
_PLACES: Final = 2**64


@lru_cache(maxsize=65_536)
def place(namespace: str) -> int:
    """The namespace's place, in 1/2**64: the same in every process and version."""
    return int.from_bytes(hashlib.sha256(namespace.encode()).digest()[:8])


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard `index` of `count`; by itself the whole.

    Raises:
        ValueError: there is no such shard.
    """

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not (1 <= self.count <= MOST_SHARDS and 0 <= self.index < self.count):
            raise ValueError(
                f"there is no shard {self.index} of {self.count}: of 1 to {MOST_SHARDS} shards "
                "the first is 0"
            )

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """The inverse of `str`; whatever is no shard counts as the whole, which excludes all."""
        index, _, count = text.partition("/")
        try:
            return cls(int(index), int(count))
        except ValueError:
            return cls()

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def is_whole(self) -> bool:
        """Whether there is no other."""
        return self.count == 1

    @property
    def start(self) -> Fraction:
        """The first place."""
        return Fraction(self.index, self.count)

    @property
    def end(self) -> Fraction:
        """Where the next shard starts."""
        return Fraction(self.index + 1, self.count)

    def owns(self, namespace: str) -> bool:
        """Whether this namespace is its own."""
        return self.is_whole or place(namespace) * self.count // _PLACES == self.index

    def overlaps(self, other: "Shard") -> bool:
        """Whether some namespace would be both's, which no two at work may be."""
        ours, theirs = self.index * other.count, other.index * self.count
        return ours < theirs + self.count and theirs < ours + other.count

    def is_covered(self, held: Iterable["Shard"]) -> bool:
        """Whether each of its namespaces is owned by one of these."""
        reached = self.start
        for each in sorted(held, key=lambda shard: shard.start):
            if each.start <= reached:
                reached = max(reached, each.end)
        return reached >= self.end
