"""How many pods: bounds by the time of day, and what the autoscaler is told about the load.

Pure: no IO, no clock (`now` is passed in), no log.
"""
