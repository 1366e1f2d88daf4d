"""A real Kubernetes for the demo and the tests, on one machine.

`python3 -m e2e.cluster up|down|images|engines|model|vllm-pod|status|kubeconfig|plan`.
Standard library only, so that it runs before anything is installed. What it
makes lives in one folder (`SPECULATIVE_HOME`).
"""
