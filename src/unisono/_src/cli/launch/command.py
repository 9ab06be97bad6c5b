"""``unisono launch``: start a program as several workers."""

from __future__ import annotations

import pathlib
import sys
from typing import Annotated

import typer

from unisono._src.cli.launch import allocation, launch_plan, output, runs

# Options after the program's name belong to the program.
_PASS_ON = {"allow_interspersed_args": False}

Program = Annotated[str, typer.Argument(help="A Python script; with -m, a module.")]
Arguments = Annotated[
    list[str] | None, typer.Argument(help="Arguments of the program.")
]
Workers = Annotated[
    int | None,
    typer.Option("-n", "--workers", min=1, help="Workers to start on this machine."),
]
Servers = Annotated[
    int | None,
    typer.Option("--ps", min=1, help="Parameter servers to start, and a chief."),
]
Module = Annotated[
    bool, typer.Option("-m", "--module", help="PROGRAM is a module, as in python -m.")
]
DevicesEach = Annotated[
    int | None,
    typer.Option("-d", "--devices", min=1, help="Devices per worker; virtual on CPU."),
]
Platform = Annotated[
    launch_plan.Platform, typer.Option(help="What workers compute on.")
]
OutputDir = Annotated[
    pathlib.Path | None,
    typer.Option("-o", "--output-dir", help="Write each worker's output to a file."),
]
Plain = Annotated[bool, typer.Option("--plain", help="No progress display.")]
Restarts = Annotated[
    int, typer.Option(min=0, help="Restart the whole group so often after a failure.")
]
Minimum = Annotated[
    int | None,
    typer.Option("--min", min=1, help="Restart without lost workers, down to this."),
]
Maximum = Annotated[
    int | None, typer.Option("--max", min=1, help="Workers to start with.")
]
Grace = Annotated[
    float, typer.Option(min=0, help="Seconds for the others to notice a failure.")
]
Stop = Annotated[float, typer.Option(min=0, help="Seconds to end in after a signal.")]
Stopped = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Seconds after which a worker that is stopped (SIGSTOP) is killed; 0: "
        "never.  [default: 10]",
    ),
]
CheckReplicas = Annotated[
    int | None,
    typer.Option(
        min=0, help="Compare the copies of mirrored variables every so many steps."
    ),
]
Attach = Annotated[
    allocation.JobKind, typer.Option(help="The larger job to take part in.")
]
Port = Annotated[
    int, typer.Option(min=1, max=65_535, help="First port in a larger job.")
]
Nodes = Annotated[
    int | None,
    typer.Option(min=1, envvar="UNISONO_NODES", help="Pods of a Kubernetes Job."),
]
Service = Annotated[
    str | None, typer.Option(envvar="UNISONO_SERVICE", help="Its headless service.")
]


def app() -> typer.Typer:
    """Return the command as an application."""
    made = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    made.command(context_settings=_PASS_ON)(launch)
    return made


def launch(
    program: Program,
    arguments: Arguments = None,
    workers: Workers = None,
    servers: Servers = None,
    module: Module = False,
    devices: DevicesEach = None,
    platform: Platform = launch_plan.Platform.AUTO,
    output_dir: OutputDir = None,
    plain: Plain = False,
    restarts: Restarts = 0,
    minimum: Minimum = None,
    maximum: Maximum = None,
    grace: Grace = 15.0,
    stop: Stop = 30.0,
    stopped: Stopped = None,
    check_replicas: CheckReplicas = None,
    attach: Attach = allocation.JobKind.AUTO,
    port: Port = 8888,
    nodes: Nodes = None,
    service: Service = None,
) -> None:
    """Start PROGRAM as several workers that find one another.

    Options stand before PROGRAM; everything after it belongs to the program. The exit
    code is that of the worker that failed first.
    """
    prefix = (sys.executable, "-m") if module else (sys.executable,)
    try:
        _check_streams()
        if not module and not pathlib.Path(program).is_file():
            raise ValueError(f"there is no program {program!r}.")
        request = runs.RunRequest(
            argv=(*prefix, program, *(arguments or ())),
            size=runs.GroupSize.from_options(workers, minimum, maximum),
            servers=servers or 0,
            devices=launch_plan.Devices(platform, devices),
            restarts=restarts,
            grace_seconds=grace,
            stop_seconds=stop,
            stopped_seconds=stopped,
            check_replicas=check_replicas,
            place=runs.JobAttachment(attach, port, nodes, service),
        )
        with output.open_output(output_dir, plain=plain) as out:
            code = runs.run(request, out).code
    except (OSError, RuntimeError, ValueError) as error:
        typer.echo(f"unisono: {error}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)


def _check_streams() -> None:
    """Raises if the launcher's output has no place to go, as after ``>&-``."""
    # Python has no stream where its descriptor is closed. The next file that is opened
    # gets the descriptor, and what is written there would go astray.
    for name, stream in (("output", sys.stdout), ("error", sys.stderr)):
        if stream is None:
            raise ValueError(
                f"standard {name} is closed; give it a place, such as /dev/null, or "
                "the workers' own files with -o DIR and /dev/null."
            )
