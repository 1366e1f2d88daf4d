"""A load generator that counts what users would notice.

`Load` runs streams of chat completions against one address and counts, by
revision, what was answered, failed or cut. Used by the demo, by tests, and
from the command line (`python -m e2e.load --help`).
"""

from .counts import Outcome, Report, Result, report_of
from .generator import Load, LoadError
from .prompts import PROMPTS

__all__ = ["PROMPTS", "Load", "LoadError", "Outcome", "Report", "Result", "report_of"]
