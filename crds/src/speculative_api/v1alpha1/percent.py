"""Percentages with decimals: a whole number, or a decimal one as text, like `"0.1"`.

Kubernetes' API conventions ask for no floating-point numbers, which do not survive every
client; elsewhere in it a number with decimals is text (`resource.Quantity`), and a field that
may be either is an int-or-string. What was written stays as it was written.
"""

import re
from typing import Annotated, Any, Final

from pydantic import PlainValidator, WithJsonSchema

_DECIMALS: Final = r"(\.[0-9]{1,4})?"
_BELOW_ONE: Final = r"0\.[0-9]{0,3}[1-9]0{0,3}"
_TO_50: Final = rf"^(([1-9]|[1-4][0-9]){_DECIMALS}|50(\.0{{1,4}})?|{_BELOW_ONE})$"
_TO_99: Final = rf"^(([1-9]|[1-8][0-9]|9[0-8]){_DECIMALS}|99(\.0{{1,4}})?|{_BELOW_ONE})$"
_TO_100: Final = rf"^([1-9][0-9]?{_DECIMALS}|100(\.0{{1,4}})?|{_BELOW_ONE})$"
_FROM_100: Final = rf"^([1-9][0-9]{{2,3}}{_DECIMALS}|10000(\.0{{1,4}})?)$"


def _read(pattern: str, least: int, most: int) -> PlainValidator:
    text = re.compile(pattern)
    lowest = "more than 0" if least == 1 else f"at least {least}"
    words = (
        f"needs a whole number, or one with at most four decimals in quotes, {lowest} and at "
        f"most {most}"
    )

    def read(value: Any) -> int | str:
        if isinstance(value, str) and text.fullmatch(value):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        quotes = f': write "{value}"' if isinstance(value, float) else ""
        raise ValueError(words + quotes)

    return PlainValidator(read)


def _schema(pattern: str, least: int, most: int) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": least,
            "maximum": most,
            "pattern": pattern,
            "maxLength": 10,
        }
    )


PercentTo50 = Annotated[int | str, _read(_TO_50, 1, 50), _schema(_TO_50, 1, 50)]
PercentTo99 = Annotated[int | str, _read(_TO_99, 1, 99), _schema(_TO_99, 1, 99)]
PercentTo100 = Annotated[int | str, _read(_TO_100, 1, 100), _schema(_TO_100, 1, 100)]
PercentFrom100 = Annotated[
    int | str, _read(_FROM_100, 100, 10_000), _schema(_FROM_100, 100, 10_000)
]


def share_of(percent: int | str) -> float:
    """The percentage as a part of one."""
    return float(percent) / 100
