"""The demo: the main job from a bare machine to a rollback and a promotion.

`python -m e2e.demo` (make demo). It reads like a story in `phases.py`; what it
saw is printed as a timeline and written to build/demo-report.json.
"""
