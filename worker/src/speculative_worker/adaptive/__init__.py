"""Draft length that follows what is accepted and what it costs, inside vLLM's scheduler.

The engine's own interpreter imports this package by another name and without
the rest of the worker, so its modules import only each other, by relative
imports, and `scheduler` alone imports vLLM.
"""
