"""A simulated engine: vLLM's API, metric names and ways to fail, without a model.

For rehearsing rollouts without GPUs and for tests with many pods; the text it
answers is filler. The worker in front of it is the real one.
"""
