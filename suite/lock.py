"""One job at a time on a card: a lock file for each card's UUID, which the kernel frees when its owner dies.

The files lie in the folder that `GDN_LOCK_DIR` names, else in the machine's temporary folder: cron and CI have no
folder of a login. Jobs in containers of their own see each other if they share that folder.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DEFAULT_TIMEOUT_S = 3600.0
"""How long a second job waits for the first one, unless --gdn-lock-timeout says otherwise."""

SAY_EVERY_S = 10.0
POLL_S = 0.1

HELD = "GDN_LOCKED"
"""Environment variable with which a job tells the processes that it starts that it holds a card for them."""


class LockError(Exception):
    """A card is held by another job, or its lock cannot be used; the message names the owner or the file."""


def folder() -> Path:
    """Where the lock files lie."""
    return Path(os.environ.get("GDN_LOCK_DIR") or tempfile.gettempdir())


def lock_file(uuid: str) -> Path:
    """The lock file of a card."""
    return folder() / f"gdn-bench-{_slug(uuid)}.lock"


def _slug(uuid: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "_", uuid)


class Lock:
    """A card, held from `acquire` until `release` or until the last process with its descriptor is gone.

    Args:
        uuid: the card's, as NVML gives it.
    """

    def __init__(self, uuid: str) -> None:
        self.uuid, self.file = uuid, lock_file(uuid)
        self.descriptor: int | None = None

    def acquire(self, timeout_s: float, say: Callable[[str], None] = lambda text: None) -> None:
        """Wait for the card.

        Args:
            timeout_s: seconds after which to give up; 0: at once.
            say: told at once who holds the card, and every ten seconds while it does.

        Raises:
            LockError: the time is over, with the owner's process number, or the file cannot be used.
        """
        descriptor = _open(self.file)
        start = time.monotonic()
        said = -SAY_EVERY_S
        try:
            while not _locked(descriptor, fcntl.LOCK_EX):
                waited = time.monotonic() - start
                if waited >= timeout_s:
                    raise LockError(
                        f"{self.uuid} is held by {_owner(descriptor)}, and after {waited:.0f} s still is; wait for it, "
                        "end it, or allow more with --gdn-lock-timeout"
                    )
                if waited - said >= SAY_EVERY_S:
                    said = waited
                    say(f"{self.uuid} is held by {_owner(descriptor)}; waiting, {waited:.0f} of {timeout_s:.0f} s")
                time.sleep(min(POLL_S, max(timeout_s - waited, 0.001)))
        except BaseException:
            os.close(descriptor)
            raise
        self.descriptor = descriptor
        _sign(descriptor)

    def release(self) -> None:
        """Give the card free. The file stays: were it removed, two jobs could hold two files of one name."""
        if self.descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self.descriptor, 0)
            os.close(self.descriptor)
            self.descriptor = None

    @property
    def inherited(self) -> dict[str, str]:
        """What a process of this job needs in its environment; it must be given `descriptor` too (`pass_fds`), so that
        the card stays held while it runs, whatever becomes of this process."""
        return {HELD: self.uuid}


def held_by_parent(uuid: str) -> bool:
    """Whether the process that started this one holds the card for it."""
    return os.environ.get(HELD) == uuid


def _open(file: Path) -> int:
    """Open the lock file, of whichever user it is; made if missing, for all users to lock."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            return os.open(file, flags)
        except FileNotFoundError:
            file.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(file, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return os.open(file, flags)
        os.fchmod(descriptor, 0o666)  # whatever the umask
        return descriptor
    except OSError as error:
        raise LockError(
            f"the lock file {file} cannot be used: {error.strerror}; mend it or name another folder with GDN_LOCK_DIR"
        ) from None


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise LockError(f"a lock file in {folder()} cannot be locked: {error.strerror}; set GDN_LOCK_DIR") from None
        return False
    return True


def _sign(descriptor: int) -> None:
    text = json.dumps({"pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
    with suppress(OSError):  # a full disk: the lock holds without it
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def _owner(descriptor: int) -> str:
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {owner['pid']} (since {owner['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has not signed"


@contextmanager
def idle(uuid: str | None) -> Iterator[None]:
    """While this runs, the process has a context on the card and does nothing there, and says so.

    A job that waits, or that measures another card, is so told from a stranger that computes on this one. Where no
    file can be written, nothing is said: the card's job then counts this process as a stranger.
    """
    try:
        descriptor, file = _idle_file(uuid) if uuid else (None, None)
    except OSError:
        descriptor, file = None, None
    try:
        yield
    finally:
        if descriptor is not None and file is not None:
            file.unlink(missing_ok=True)
            os.close(descriptor)


def _idle_file(uuid: str) -> tuple[int, Path]:
    name = f"gdn-bench-{_slug(uuid)}.idle-{os.getpid()}-{secrets.token_hex(4)}"
    file, draft = folder() / name, folder() / f".{name}"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    draft.rename(file)  # with its name it is locked already, so that nobody takes it for a dead process's
    return descriptor, file


def idle_processes(uuid: str) -> int:
    """How many other processes say that they are idle on the card; files of dead ones are removed."""
    count = 0
    for file in folder().glob(f"gdn-bench-{_slug(uuid)}.idle-*"):
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if _locked(descriptor, fcntl.LOCK_SH):
                with suppress(OSError):  # another user's
                    file.unlink()
            else:
                count += 1
        finally:
            os.close(descriptor)
    return count


def parse_timeout(text: str) -> float:
    """Seconds, from such as "600".

    Raises:
        ValueError: it is no number of seconds, 0 or more; the message names it and the mend.
    """
    if not re.fullmatch(r"\d{1,7}(\.\d+)?", text, re.ASCII):
        raise ValueError(f"--gdn-lock-timeout is {text!r}; give seconds, such as 600, or 0 to fail at once")
    return float(text)


def say(text: str) -> None:
    """A line of progress where there is nobody else to tell."""
    print(f"gdn-bench: {text}", file=sys.stderr, flush=True)
