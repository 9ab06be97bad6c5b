"""The program of a worker process in tests: runs scenarios that it is told."""

import importlib
import json
import os
import sys
import traceback

import unisono
from tests.multiprocess import estimators, input_scenarios, saving, scenarios


def main():

    out = os.fdopen(int(sys.argv[1]), "w", buffering=1)
    options = unisono.distribute.experimental.CommunicationOptions(
        timeout_seconds=float(os.environ.get("TEST_TIMEOUT", "30"))
    )
    strategy = unisono.distribute.MultiWorkerMirroredStrategy(
        communication_options=options,
        guard=os.environ.get("TEST_GUARD", "async"),
        **json.loads(os.environ.get("TEST_OPTIONS", "{}")),
    )
    worker = strategy.cluster_resolver.task_id
    print(json.dumps({"result": strategy.num_replicas_in_sync}), file=out)
    for line in sys.stdin:
        told = json.loads(line)
        module, _, name = told["scenario"].rpartition(".")
        known = [estimators, input_scenarios, saving, scenarios]
        if module:  # One whose imports take long, and few tests need.
            known = [importlib.import_module(f"tests.multiprocess.{module}")]
        run = next(getattr(m, name) for m in known if hasattr(m, name))
        try:
            answer = {"result": run(strategy, worker, **told["arguments"])}
        except scenarios.Fatal:
            raise
        except Exception as error:
            traceback.print_exc()
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), file=out)


if __name__ == "__main__":
    main()
