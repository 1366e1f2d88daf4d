"""One line per change, `key=value`, on standard error; never a secret."""

import json
import sys
from datetime import UTC, datetime


def log(event: str, **fields: object) -> None:
    """Writes one line; text with spaces or quotes is written as a JSON string."""
    words = [f"time={datetime.now(UTC).isoformat(timespec='milliseconds')}", f"event={event}"]
    words += [f"{name}={_word(value)}" for name, value in fields.items()]
    print("speculative-worker", *words, file=sys.stderr, flush=True)


def _word(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    plain = bool(text) and not any(mark.isspace() or mark in '"=' for mark in text)
    return text if plain else json.dumps(text)
