"""Links, address translation and kernel settings of the local node.

What the machine had before is recorded at the first start and put back: only
chains that Kubernetes' programs made since then are removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .commands import output_of, succeeds
from .settings import NODE_ADDRESS, NODE_LINK, POD_LINK, POD_SUBNET, Settings

_COMMENT = "speculative local cluster"
_OURS = re.compile(r"^(KUBE|CNI)-")
_KERNEL_SETTINGS = (
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv6/conf/all/forwarding",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_tcp_timeout_established",
    "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
    "net/netfilter/nf_conntrack_tcp_be_liberal",
)
"""What kubelet, kube-proxy and the bridge plugin may write."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of iptables-save that appends a rule."""

    table: str
    chain: str
    text: str


@dataclass(frozen=True, slots=True)
class Tables:
    """What iptables-save printed, as sets."""

    chains: frozenset[tuple[str, str]]
    """Table and chain; chains made by someone, not the built-in ones."""
    rules: tuple[Rule, ...]


def parse_tables(saved: str) -> Tables:
    """Return the chains and rules in the output of iptables-save."""
    table, chains, rules = "", set(), []
    for line in saved.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif line.startswith(":"):
            name, policy = line[1:].split()[:2]
            if policy == "-":
                chains.add((table, name))
        elif line.startswith("-A "):
            rules.append(Rule(table=table, chain=line.split()[1], text=line))
    return Tables(chains=frozenset(chains), rules=tuple(rules))


def removal_script(tables: Tables, *, before: frozenset[tuple[str, str]]) -> str:
    """Return the iptables-restore input that removes what Kubernetes' programs made.

    Chains there `before` the cluster stay, with the rules in and to them.
    """
    ours = {entry for entry in tables.chains if _OURS.match(entry[1]) and entry not in before}
    lines: list[str] = []
    for table in sorted({table for table, _ in tables.chains} | {r.table for r in tables.rules}):
        chains = sorted(chain for where, chain in ours if where == table)
        rules = [rule for rule in tables.rules if rule.table == table]
        foreign = [rule for rule in rules if rule.chain not in chains]
        drops = [rule.text for rule in foreign if _refers(rule, chains)]
        if not chains and not drops:
            continue
        lines.append(f"*{table}")
        lines += ["-D " + text[len("-A ") :] for text in drops]
        lines += [f"-F {chain}" for chain in chains]
        lines += [f"-X {chain}" for chain in chains]
        lines.append("COMMIT")
    return "\n".join([*lines, ""]) if lines else ""


def _refers(rule: Rule, chains: Iterable[str]) -> bool:
    words = rule.text.split()
    return _COMMENT in rule.text or any(chain in words for chain in chains)


def _before_file(settings: Settings) -> Path:
    return settings.cluster / "before.json"


def saved_tables(program: str) -> Tables:
    """Return the rules of `iptables` or `ip6tables` now."""
    return parse_tables(output_of([f"{program}-save"]))


def record_before(settings: Settings) -> None:
    """Record what the machine had before the cluster; keeps an earlier record."""
    path = _before_file(settings)
    if path.exists():
        return
    record = {
        "kernel": {name: value for name in _KERNEL_SETTINGS if (value := _kernel(name))},
        "chains": {
            program: sorted(saved_tables(program).chains) for program in ("iptables", "ip6tables")
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(record), encoding="utf-8")
    temporary.replace(path)


def _kernel(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def start_network(settings: Settings) -> None:
    """Make the node's link, and let the pods' packets through."""
    record_before(settings)
    if not succeeds(["ip", "link", "show", NODE_LINK]):
        output_of(["ip", "link", "add", NODE_LINK, "type", "bridge"])
    output_of(["ip", "address", "replace", f"{NODE_ADDRESS}/32", "dev", NODE_LINK])
    output_of(["ip", "link", "set", NODE_LINK, "up"])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n", encoding="utf-8")
    # Another container engine may have set the policy of FORWARD to DROP.
    for direction in ("-s", "-d"):
        rule = [direction, POD_SUBNET, "-m", "comment", "--comment", _COMMENT, "-j", "ACCEPT"]
        if not succeeds(["iptables", "-w", "-C", "FORWARD", *rule]):
            output_of(["iptables", "-w", "-I", "FORWARD", *rule])


def stop_network(settings: Settings) -> None:
    """Remove links and rules, and put kernel settings back."""
    path = _before_file(settings)
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for program in ("iptables", "ip6tables"):
        known = record.get("chains", {}).get(program, [])
        before = frozenset((table, chain) for table, chain in known)
        script = removal_script(saved_tables(program), before=before)
        if script:
            output_of([f"{program}-restore", "--noflush", "-w"], input_text=script)
    for link in (POD_LINK, NODE_LINK):
        if succeeds(["ip", "link", "show", link]):
            output_of(["ip", "link", "delete", link])
    for name, value in record.get("kernel", {}).items():
        if _kernel(name) != value:
            Path("/proc/sys", name).write_text(value + "\n", encoding="utf-8")
