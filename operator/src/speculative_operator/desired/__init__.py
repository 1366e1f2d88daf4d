"""What should exist: Kubernetes objects derived from a snapshot and a decision.

Pure: dicts out, no IO, no clock. `objects.desired_objects` is the way in; the
other modules render one kind of thing each.
"""
