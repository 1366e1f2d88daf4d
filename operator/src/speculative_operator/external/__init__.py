"""external.metrics.k8s.io: what autoscalers ask the operator, through the API server.

`values` answers from caches and a fresh question to the pods, `identity` says who
asks, `server` speaks HTTP. Served by every replica: a standby's caches are warm.
"""
