"""Starts the processes of one node of Ray, as the command ``ray start`` does.

This is a program: its arguments are those of ``ray start``. It differs in one thing.
Ray takes a loopback address for a wish to be reached from other machines: it would
replace it by the machine's own address and listen on all interfaces.
"""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> None:
    """Starts a node, and returns when it has ended."""
    # Loaded here: only the process of a node needs them.
    from ray._private import services
    from ray.scripts import scripts

    # Ray has no option for it. Ray 2.60 has this function; where it is gone, a node
    # would be reached under the address of the machine.
    services.resolve_ip_for_localhost = lambda host: host
    scripts.cli(["start", "--block", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
