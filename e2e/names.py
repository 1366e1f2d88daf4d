"""What a cluster's DNS knows about pods behind headless Services, for a test that needs it.

The local cluster has no DNS, but its pods ask for names at the node's address. The
answers are made of the API server's Endpoints, as CoreDNS does it: a pod with a host
name is `<host name>.<service>.<namespace>.svc.cluster.local`.
"""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dns.flags
import dns.message
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
from e2e.cluster.settings import NODE_ADDRESS
from e2e.kubectl import KubectlError, kubectl

DOMAIN = (b"svc", b"cluster", b"local", b"")
SECONDS = 2
"""How long an answer holds; a pod that comes back has another address."""


@contextmanager
def names_answered() -> Iterator[None]:
    """Pods can ask for each other's names for as long as the block runs."""
    with socketserver.ThreadingUDPServer((NODE_ADDRESS, 53), _Question) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


class _Question(socketserver.DatagramRequestHandler):
    def handle(self) -> None:
        asked = dns.message.from_wire(self.rfile.read())
        self.wfile.write(_answer(asked).to_wire())


def _answer(asked: dns.message.Message) -> dns.message.Message:
    """Its address; no such name, also for what the cluster does not know."""
    answer = dns.message.make_response(asked, recursion_available=True)
    answer.flags |= dns.flags.AA
    (question,) = asked.question
    names, domain = question.name.labels[:-4], question.name.labels[-4:]
    known = len(names) == 3 and domain == DOMAIN
    addresses = _addresses(*(name.decode() for name in names)) if known else []
    if not addresses:
        answer.set_rcode(dns.rcode.NXDOMAIN)
    elif question.rdtype == dns.rdatatype.A:
        kind = (dns.rdataclass.IN, dns.rdatatype.A)
        answer.answer.append(dns.rrset.from_text(question.name, SECONDS, *kind, *addresses))
    return answer


def _addresses(host: str, service: str, namespace: str) -> list[str]:
    selector = ("-l", f"kubernetes.io/service-name={service}")
    try:
        text = kubectl("get", "endpointslices", "-n", namespace, *selector, "-o", "json")
    except KubectlError:
        return []
    return [
        address
        for part in json.loads(text)["items"]
        for endpoint in part["endpoints"] or ()
        if endpoint.get("hostname") == host and endpoint["conditions"].get("ready", True)
        for address in endpoint["addresses"]
    ]
