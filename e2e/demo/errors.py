"""How the demo ends when it does not end well."""


class DemoError(Exception):
    """Something the demo shows did not happen; the message says what was seen instead."""
