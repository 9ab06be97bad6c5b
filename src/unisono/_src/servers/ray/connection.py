"""The connection of this process to a cluster of Ray, which may be started for it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, final

from unisono._src.cluster import untrusted
from unisono._src.foundation import errors
from unisono._src.servers.ray import library, node

ADDRESS = "RAY_ADDRESS"
_MODE, _TOKEN, _TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
# Seconds between two looks at the head.
_LOOK_SECONDS = 0.1
# A process has one connection to Ray at most. This guards it and its count of users.
_lock = threading.Lock()


@final
class Connection:
    """The connection to Ray that carriers of this process share.

    Args:
        address: the cluster's address.
        head: the cluster's head node, if it was started for this process.
        is_ours: whether to disconnect from Ray in the end.

    Attributes:
        listeners: functions to call, in another thread, when the head has ended by
            itself.
    """

    def __init__(self, address: str, head: node.RayNode | None, is_ours: bool) -> None:
        self.address = address
        self._head = head
        self._is_ours = is_ours
        self._users = 1
        self.listeners: list[Callable[[errors.UnavailableError], None]] = []
        # Set when the head is found to be gone, and when nobody uses the connection.
        self._loss = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        if head is not None:
            self._thread = threading.Thread(
                target=self._watch, args=(head,), name="unisono head", daemon=True
            )
            self._thread.start()

    def share(self) -> Connection:
        """Returns the same connection for one more user, which closes it as well."""
        self._users += 1
        return self

    @property
    def is_open(self) -> bool:
        """Whether somebody uses it, and the cluster is there."""
        return self._users > 0 and not self._loss.is_set()

    @property
    def is_lost(self) -> bool:
        """Whether the head that was started for this process has ended by itself."""
        return self._loss.is_set() and not self._is_closed

    def check(self) -> None:
        """Checks that the head is there, before something new is asked of it.

        Raises:
            UnavailableError: it has ended. Ray itself would look for it for a minute.
        """
        if self._head is not None and not self._loss.is_set():
            host, port = split(self.address)
            if not (self._head.is_running and node.is_listening(host, port)):
                self._loss.set()
        if self._loss.is_set():
            raise self._lost_error()

    def _watch(self, head: node.RayNode) -> None:
        """Disconnects from Ray if the head ends by itself; runs in a thread.

        Ray would look for it for a minute, and then end this process without an
        exception.
        """
        global _current
        while head.is_running and not self._loss.wait(_LOOK_SECONDS):
            pass
        self._loss.set()
        if self._is_closed:
            return
        for listener in list(self.listeners):
            listener(self._lost_error())
        with _lock:
            # Unless the program has gone on to another cluster.
            if _current is self:
                library.load().shutdown()
                _current = None

    def _lost_error(self) -> errors.UnavailableError:
        return errors.UnavailableError(
            f"Ray's head node at {self.address} has ended, and with it all parameter "
            "servers and workers. Start the program again and restore the last "
            "checkpoint.",
            "chief",
            0,
        )

    def close(self) -> None:
        """Disconnects if nobody else uses it, and ends the head that it started."""
        with _lock:
            self._users -= 1
            if self._users:
                return
            self._is_closed = not self._loss.is_set()
            self._loss.set()
            if self._is_ours and self._is_closed:
                library.load().shutdown()
        # Without the lock: it may be about to disconnect from a head that is gone.
        if self._thread is not None and self._head is not None:
            # A strategy may be collected in any thread, also in this one.
            if self._thread is not threading.current_thread():
                self._thread.join()
            self._head.stop()


_current: Connection | None = None


def open_local(seconds: float) -> Connection:
    """Returns a connection to a cluster on this machine, which is started if need be.

    Raises:
        UnavailableError: it did not start.
    """
    port = node.find_free_port()
    return _open(node.LOOPBACK, port, secrets.token_hex(32), seconds, is_head=True)


def open_chief(address: str, seconds: float) -> Connection:
    """Starts the head of a cluster at the chief's address, and connects to it.

    Raises:
        RuntimeError: there is no token for it in the environment.
        UnavailableError: it did not start.
    """
    host, port = split(address)
    return _open(host, port, require_token(address), seconds, is_head=True)


def open_existing(address: str, seconds: float) -> Connection:
    """Returns a connection to a cluster that somebody else has started.

    Raises:
        PermissionError: it does not accept this process's token.
        UnavailableError: nobody answers there.
    """
    host, port = split(address)
    return _open(host, port, find_token(), seconds, is_head=False)


def _open(
    host: str, port: int, token: str | None, seconds: float, *, is_head: bool
) -> Connection:
    global _current
    ray = library.load()
    with _lock:
        # A process can be connected to one cluster only, whatever address is given now.
        if _current is not None and _current.is_open and ray.is_initialized():
            return _current.share()
        if _current is not None and _current.is_lost:
            ray.shutdown()
        if ray.is_initialized():
            # The program itself has connected, and will disconnect.
            _current = Connection(f"{host}:{port}", None, is_ours=False)
            return _current
        head = None
        if is_head:
            assert token is not None
            head = node.start_head(host, port, token, seconds)
        try:
            _connect(ray, host, port, token)
        except BaseException:
            if head is not None:
                head.stop()
            raise
        _current = Connection(f"{host}:{port}", head, is_ours=True)
        return _current


def _connect(ray: Any, host: str, port: int, token: str | None) -> None:
    address = f"{host}:{port}"
    if not node.is_listening(host, port):
        raise errors.UnavailableError(
            f"No cluster of Ray answers at {address}. Start it there, or leave the "
            f"address (and {ADDRESS}) out to have one started on this machine."
        )
    if not _speaks_http2(host, port):
        raise _not_ray_error(address)
    # The checks come first: Ray itself takes 20 to 40 s to find the same out.
    with _set_environment(token):
        _check_token(address)
        # Only a cluster of ours listens at the loopback address and nowhere else.
        is_local = node.is_loopback(host) and not node.is_listening(_own_host(), port)
        with _patch_ray(is_local):
            ray.init(
                address=address,
                namespace="unisono",
                log_to_driver=False,
                configure_logging=False,
                logging_level="ERROR",
                **({"_node_ip_address": host} if is_local else {}),
            )


def _own_host() -> str:
    import ray.util

    host: str = ray.util.get_node_ip_address()
    return host


@contextlib.contextmanager
def _patch_ray(is_local: bool) -> Iterator[None]:
    """Changes two things in Ray that have no option, while it connects.

    Ray would print the logs of lost nodes, which the carrier's errors report already.
    And it would replace a loopback address by the machine's own.
    """
    services = library.load_private("ray._private.services")
    worker = library.load_private("ray._private.worker")

    def ignore_errors(_: Any, is_stopped: threading.Event) -> None:
        is_stopped.wait()

    # See decision 0027.
    before = worker.listen_error_messages, services.resolve_ip_for_localhost
    worker.listen_error_messages = ignore_errors
    if is_local:
        services.resolve_ip_for_localhost = lambda host: host
    try:
        yield
    finally:
        worker.listen_error_messages, services.resolve_ip_for_localhost = before


@contextlib.contextmanager
def _set_environment(token: str | None) -> Iterator[None]:
    """Sets the variables that Ray reads while it connects, and restores them."""
    # `ray.init` leaves variables of its own there, which child processes would inherit.
    before = dict(os.environ)
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM) if is_main else None
    if token is not None:
        # The token is given in one way only, whatever the order in which Ray looks.
        os.environ.pop(_TOKEN_PATH, None)
        os.environ.update({_MODE: "token", _TOKEN: token})
    _read_settings()
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
        if handler is not None:
            # Ray lets the signal raise SystemExit; programs have handlers of their own.
            signal.signal(signal.SIGTERM, handler)


def _read_settings() -> None:
    """Lets Ray's native part read the environment anew."""
    native = library.load_private("ray._raylet")
    native.Config.initialize("")
    native.AuthenticationTokenLoader.instance().reset_cache()


# The first bytes of a client of HTTP/2; the server answers with its settings.
# The preface, and an empty frame of settings: three bytes of length, the kind 4, one of
# flags, four of the stream. The kind is the fourth byte of the answer, too.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04" + b"\0" * 5
_SETTINGS = 4
_PROBE_SECONDS = 5.0


def _speaks_http2(host: str, port: int) -> bool:
    """Whether an address speaks HTTP/2; Ray itself would wait 40 s to find out."""
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return True  # The bytes are encrypted, so only Ray can tell.
    try:
        with socket.create_connection((host, port), _PROBE_SECONDS) as probe:
            probe.sendall(_GREETING)
            frame = probe.recv(9)
    except OSError:
        return False
    return len(frame) > 3 and frame[3] == _SETTINGS


def _not_ray_error(address: str) -> errors.UnavailableError:
    return errors.UnavailableError(
        f"The server at {address} is no cluster of Ray. Give the address of the "
        "cluster's head node, as `ray start --head` prints it."
    )


def _check_token(address: str) -> None:
    """Raises if the cluster refuses the token, at once and not after 20 s as Ray.

    Raises:
        PermissionError: the cluster does not accept the token.
        UnavailableError: it is no cluster.
    """
    import ray.exceptions

    try:
        library.load_private("ray._raylet").GcsClient(address=address)
    except ray.exceptions.AuthenticationError as error:
        raise PermissionError(
            f"The cluster of Ray at {address} does not accept this process's token. "
            f"Set {_TOKEN} (or {_TOKEN_PATH}) to the token that the cluster was "
            "started with."
        ) from error
    except ray.exceptions.RpcError as error:
        raise _not_ray_error(address) from error


def find_token() -> str | None:
    """Returns the token that the environment gives, or None.

    Raises:
        ValueError: the file of the token cannot be read.
    """
    if os.environ.get(_TOKEN):
        return os.environ[_TOKEN]
    given = os.environ.get(_TOKEN_PATH)
    path = pathlib.Path(given) if given else pathlib.Path.home() / ".ray" / "auth_token"
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError as error:
        if given:
            raise ValueError(
                f"{_TOKEN_PATH} names a file that cannot be read: {error}."
            ) from None
        return None


def require_token(address: str) -> str:
    """Returns the token that all tasks of a job share.

    Raises:
        RuntimeError: the environment has none.
    """
    token = find_token()
    if token is None:
        raise RuntimeError(
            f"The tasks of a cluster need a secret in common before anything listens "
            f"at {address}: set {_TOKEN} to the same random text for all of them, such "
            "as the output of `python -c 'import secrets; "
            "print(secrets.token_hex(32))'`. Whoever knows it can run code in the job."
        )
    return token


def split(address: str) -> tuple[str, int]:
    """Returns the host and the port of an address.

    >>> split("10.0.0.7:6379")
    ('10.0.0.7', 6379)

    Raises:
        ValueError: it is not of this form.
    """
    text = untrusted.address("The address of a cluster of Ray", address)
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(
            f"The address of a cluster of Ray is {untrusted.excerpt(address)}; write "
            "it as HOST:PORT, such as 10.0.0.7:6379."
        )
    return ("127.0.0.1" if host == "localhost" else host.strip("[]")), int(port)
