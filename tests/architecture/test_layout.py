"""Rules of the layout that a reader would otherwise have to remember."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for room in ("crds", "operator", "gateway", "worker", "cli")
    for path in (ROOT / room / "src").rglob("*.py")
)


def test_the_project_folder_operator_is_no_package() -> None:
    """It would shadow the standard library's `operator`."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert [path for path in (ROOT / "tests").rglob("operator") if path.is_dir()] == []
    assert "lib" in Path(sys.modules["operator"].__file__ or "").parts


def test_imports_point_one_way() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run(
        [str(linter), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_says_what_it_is_and_stays_readable(path: Path) -> None:
    text = path.read_text("utf-8")
    if path.name != "__init__.py":
        assert text.startswith('"""'), "a module begins with its docstring"
    lines = len(text.splitlines())
    limit = 400
    assert lines <= limit, f"{lines} lines; split it"


def test_shipped_code_does_not_know_tests_and_leaves_nothing_for_later() -> None:
    later = re.compile(r"\b(TODO|FIXME|XXX)\b|if testing\b")
    found = [path for path in SOURCES if later.search(path.read_text("utf-8"))]
    assert found == []
