"""Completion: what is offered, by which shell's words, and that it never fails."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.fake_api import FakeApi, serving
from tests.cli.objects import a_resource

from speculative_cli import completion
from speculative_cli.__main__ import main
from speculative_cli.completion import Question, answer

ANSWERS = {
    "names": ["chat", "chat-large", "code"],
    "contexts": ["blue", "green"],
    "namespaces": ["llm"],
    "revisions": ["1", "2", "spec"],
}


def offered(line: str) -> list[str]:
    asked: list[Question] = []

    def ask(question: Question) -> Sequence[str]:
        asked.append(question)
        return ANSWERS[question.kind]

    return answer(line.split(" "), ask)


CASES = {
    "p": ["pause", "promote", ":4"],
    "status ": ["chat", "chat-large", "code", ":4"],
    "status chat-": ["chat-large", ":4"],
    "status chat ": [":4"],
    "status -n llm c": ["chat", "chat-large", "code", ":4"],
    "status --namespace=llm co": ["code", ":4"],
    "status chat -o ": ["json", "text", "yaml", ":4"],
    "status chat -o y": ["yaml", ":4"],
    "status chat --w": ["--watch", ":4"],
    "promote chat --": [
        *sorted(
            [
                "--context",
                "--full",
                "--hash",
                "--help",
                "--kubeconfig",
                "--namespace",
                "--skip-step",
                "--step",
                "--timeout",
                "--wait",
            ]
        ),
        ":4",
    ],
    "list --context ": ["blue", "green", ":4"],
    "list -n ": ["llm", ":4"],
    "diff chat ": ["1", "2", "spec", ":4"],
    "diff chat 1 s": ["spec", ":4"],
    "undo chat --to ": ["1", "2", "spec", ":4"],
    "promote chat --step ": [":4"],
    "completion ": ["bash", "fish", "zsh", ":4"],
    "lint ": [":0"],
    "lint a.yaml b": [":0"],
    "lint -o s": ["sarif", ":4"],
    "status --kubeconfig ": [":0"],
    "explain-verdict chat --plot ": [":0"],
    "nonsense ": [":4"],
    "-n llm ": [":4"],
}


@pytest.mark.parametrize(("line", "expected"), CASES.items(), ids=CASES.keys())
def test_what_is_offered(line: str, expected: list[str]) -> None:
    assert offered(line) == expected


def test_every_verb_is_offered() -> None:
    assert {"status", "restart", "lint", "completion"} <= set(offered(""))


def test_the_question_carries_the_place() -> None:
    asked: list[Question] = []

    def ask(question: Question) -> Sequence[str]:
        asked.append(question)
        return []

    answer(["diff", "-n", "llm", "--context=blue", "--kubeconfig", "k", "chat", ""], ask)
    assert asked == [Question("revisions", "chat", "llm", "blue", "k")]


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    with serving(FakeApi()) as found:
        monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig(tmp_path)))
        found.put(a_resource())
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["status", ""], ["chat", ":4"]),
        (["status", "--context", ""], ["here", ":4"]),
        (["list", "-n", ""], ["default", "llm", ":4"]),
        (["status", "-n", "elsewhere", ""], [":4"]),
        (["status", "--context", "gone", ""], [":4"]),
        (["status", "--kubeconfig", "/nowhere", ""], [":4"]),
    ],
)
def test_the_cluster_is_asked(
    api: FakeApi, capsys: Any, words: list[str], expected: list[str]
) -> None:
    assert main(["__complete", *words]) == 0
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize("status", [401, 403, 500])
def test_what_one_may_not_list_is_not_offered(api: FakeApi, capsys: Any, status: int) -> None:
    api.refuse_with = status
    assert main(["__complete", "status", ""]) == 0
    assert capsys.readouterr() == (":4\n", "")


def test_kubectl_asks_by_an_executable_of_its_own(
    api: FakeApi, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-speculative", "status", "c"])
    assert completion.kubectl() == 0
    assert capsys.readouterr().out == "chat\n:4\n"


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_each_shell_has_a_script(capsys: Any, shell: str) -> None:
    assert main(["completion", shell]) == 0
    assert "kubectl-speculative __complete" in capsys.readouterr().out


@pytest.mark.slow
def test_bash_offers_what_the_script_asks_for(api: FakeApi, tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(completion.SCRIPTS["bash"])
    bash = f"""
    source {script}
    kubectl-speculative() {{ {sys.executable} -m speculative_cli "$@"; }}
    COMP_WORDS=(kubectl-speculative status c); COMP_CWORD=2
    _kubectl_speculative
    printf '%s\\n' "${{COMPREPLY[@]}}"
    complete -p kubectl-speculative
    """
    done = subprocess.run(["bash", "-c", bash], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "chat",
        "complete -F _kubectl_speculative kubectl-speculative",
    ]
    assert done.stderr == ""
