"""The gateway's commands: `supervise` and `keep` (PID 1 of the two containers), `agent`.

`supervise` runs Envoy, `keep` runs `agent`; both start their child again when it dies.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

from . import keep
from .settings import Settings


def main() -> int:
    """Parses the command line and runs one command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="speculative-gateway", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("supervise", help="run Envoy, restart it, drain it on SIGTERM")
    watcher = commands.add_parser("agent", help="feed Envoy and report what it really uses")
    keeper = commands.add_parser("keep", help="run the agent, and again when it dies")
    for command in (watcher, keeper):
        command.add_argument(
            "--from-directory",
            type=Path,
            metavar="DIR",
            help="read route.json and endpoints.json from DIR instead of from Kubernetes",
        )
    arguments = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    if arguments.command == "keep":
        return keep.main(["agent", *sys.argv[2:]])
    try:
        settings = Settings.from_environment(os.environ)
    except ValueError as error:
        parser.error(str(error))
    # Imported late: Envoy need not wait for what only the agent uses.
    if arguments.command == "supervise":
        from . import supervisor

        return supervisor.main(settings)
    from . import agent

    return agent.main(settings, arguments.from_directory)


if __name__ == "__main__":
    sys.exit(main())
