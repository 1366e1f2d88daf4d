"""Shell completion: scripts for bash, zsh and fish, and the answers they ask for.

The scripts only ask `kubectl-speculative __complete WORDS…`, whose last word is
the one being typed. An answer is in the form that kubectl expects of a plugin's
`kubectl_complete-NAME`: a word a line, then `:0` where files may follow, `:4`
where nothing else does. Nothing here fails: what can't be found is not offered.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from .arguments import parser
from .errors import CliError

SHELLS: Final = ("bash", "zsh", "fish")
FILES_TOO, NOTHING_ELSE = ":0", ":4"
PATIENCE_SECONDS: Final = 2.0
"""Longest wait for the API server: somebody sits at the keyboard."""
_FILES: Final = frozenset({"files", "kubeconfig", "plot"})
_REVISIONS: Final = frozenset({"old", "new", "to", "revision"})

SCRIPTS: Final = {
    "bash": """\
_kubectl_speculative() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    case "$line" in
      :0) compopt -o default ;;
      :4) ;;
      *) COMPREPLY+=("$line") ;;
    esac
  done < <(kubectl-speculative __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _kubectl_speculative kubectl-speculative
""",
    "zsh": """\
#compdef kubectl-speculative
_kubectl_speculative() {
  local -a found
  found=("${(@f)$(kubectl-speculative __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  local last="${found[-1]}"
  found=("${(@)found[1,-2]}")
  (( ${#found} )) && compadd -- "${found[@]}"
  [[ "$last" == ":0" ]] && _files
}
compdef _kubectl_speculative kubectl-speculative
""",
    "fish": """\
function __kubectl_speculative_complete
  set -l words (commandline -opc)
  set -l typed (commandline -ct)
  set -l found (kubectl-speculative __complete $words[2..-1] "$typed" 2>/dev/null)
  for line in $found
    switch $line
      case ':0'
        __fish_complete_path $typed
      case ':4'
      case '*'
        echo $line
    end
  end
end
complete -c kubectl-speculative -f -a '(__kubectl_speculative_complete)'
""",
}


@dataclass(frozen=True, slots=True)
class Question:
    """What only a cluster or its configuration can answer."""

    kind: str
    """`names`, `contexts`, `namespaces`, `revisions` or `files`."""
    name: str = ""
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None


Answer = Callable[[Question], Sequence[str]]


def answer(words: Sequence[str], ask: Answer) -> list[str]:
    """The lines for a shell; the last of `words` is being typed and may be empty."""
    *before, typed = words or [""]
    found, files = _candidates(list(before), typed, ask)
    return [*found, FILES_TOO if files else NOTHING_ELSE]


def _candidates(before: list[str], typed: str, ask: Answer) -> tuple[list[str], bool]:
    verbs = _verbs()
    verb = verbs.get(before[0]) if before else None
    if verb is None:
        return ([], False) if before else (_starting(verbs, typed), False)
    given, positional, awaiting = _read(verb, before[1:])
    if awaiting is None and typed.startswith("-") and typed != "-":
        return _starting([o for action in verb._actions for o in action.option_strings], typed), (
            False
        )
    action = awaiting or _next_positional(verb, positional)
    if action is None:
        return [], False
    if action.choices:
        return _starting([str(choice) for choice in action.choices], typed), False
    question = Question(
        kind=_kind(action),
        name=positional[0] if positional else "",
        namespace=given.get("namespace"),
        context=given.get("context"),
        kubeconfig=given.get("kubeconfig"),
    )
    if question.kind in ("", "files"):
        return [], question.kind == "files"
    return _starting(ask(question), typed), False


def _verbs() -> dict[str, argparse.ArgumentParser]:
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _starting(words: Sequence[str] | dict[str, argparse.ArgumentParser], typed: str) -> list[str]:
    return sorted({word for word in words if word.startswith(typed)})


def _read(
    verb: argparse.ArgumentParser, words: list[str]
) -> tuple[dict[str, str], list[str], argparse.Action | None]:
    """Options with their values, other words, and the option that still awaits its value."""
    options = {option: a for a in verb._actions for option in a.option_strings}
    given: dict[str, str] = {}
    positional: list[str] = []
    awaiting: argparse.Action | None = None
    for word in words:
        option, equals, value = word.partition("=")
        if awaiting is not None:
            given[awaiting.dest] = word
            awaiting = None
        elif equals and option in options:
            given[options[option].dest] = value
        elif word in options:
            awaiting = options[word] if options[word].nargs != 0 else None
        else:
            positional.append(word)
    return given, positional, awaiting


def _next_positional(
    verb: argparse.ArgumentParser, positional: list[str]
) -> argparse.Action | None:
    actions = [action for action in verb._actions if not action.option_strings]
    if len(positional) < len(actions):
        return actions[len(positional)]
    return actions[-1] if actions and actions[-1].nargs == "+" else None


def _kind(action: argparse.Action) -> str:
    if action.dest in _FILES:
        return "files"
    if action.dest in _REVISIONS:
        return "revisions"
    kinds = {"name": "names", "context": "contexts", "namespace": "namespaces"}
    return kinds.get(action.dest, "")


def ask_cluster(question: Question) -> Sequence[str]:
    """The answer of the cluster, or of the configuration; empty when there is none."""
    from . import cluster

    try:
        if question.kind == "contexts":
            return cluster.contexts(question.kubeconfig)
        with cluster.connect(
            kubeconfig=question.kubeconfig,
            context=question.context,
            namespace=question.namespace,
            patience_seconds=PATIENCE_SECONDS,
        ) as found:
            match question.kind:
                case "names":
                    return [raw["metadata"]["name"] for raw in found.read_all(everywhere=False)]
                case "namespaces":
                    return found.namespaces()
                case _:
                    return [*_numbers(found.revisions(question.name)), "spec"]
    except (CliError, KeyError, TypeError):
        return []


def _numbers(revisions: list[dict[str, object]]) -> list[str]:
    return [str(raw.get("revision", "")) for raw in revisions]


def complete(words: Sequence[str]) -> int:
    """Prints the answer for the words after `__complete`."""
    print("\n".join(answer(words, ask_cluster)))
    return 0


def kubectl() -> int:
    """The executable `kubectl_complete-speculative`, which kubectl calls for its plugin."""
    return complete(sys.argv[1:])
