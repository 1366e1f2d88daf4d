"""The contract: what users write, and what the programs tell each other.

Pure data types without IO, but for `model_files`. The CRD YAML is generated from `v1alpha1`; the
operator, gateway, worker and cli know each other only through this package.
"""
