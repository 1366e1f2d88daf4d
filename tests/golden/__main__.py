"""`python -m tests.golden`: writes the expected output of every case anew."""

import sys

from tests.golden import cases

for case in cases.names():
    file = cases.FOLDER / case / "output.yaml"
    text = cases.rendered(case)
    if not file.exists() or file.read_text("utf-8") != text:
        file.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{file.relative_to(cases.FOLDER)} written\n")
