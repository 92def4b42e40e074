"""A directory of spill files that belongs to one process, and the cleaning up after processes that died.

Under the directory that the user names, each store has a folder of its own and, beside it, an owner file, which the
store keeps locked as long as it lives.  The lock ends with the process, however that ends; so at the start a store takes
the folders whose owner file nobody has locked, and only those.

Note [Order].  The owner file is there and locked before its folder is made, and goes after it: a folder without an owner
file never exists.  Whoever has locked an owner file looks whether it still stands under its name; if not, somebody else
cleaned it away in between.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from itertools import count
from pathlib import Path
from typing import Any, Final

from lifetimes.errors import BackendError
from lifetimes.failures import warn

fcntl: Any
try:
    import fcntl
except ImportError:  # no such locks here: folders are made and removed, but nobody cleans up after the dead
    fcntl = None

__all__ = ["SpillDirectory"]

_OWNER: Final = re.compile(r"lifetimes-[0-9]+-[0-9a-f]{16}\.owner")
_CONTENT: Final = re.compile(r"[0-9]+\.(spill|part)")


class SpillDirectory:
    """A folder under ``parent`` for this store alone; made at once, with everything the dead have left removed.

    Errors: `BackendError` when nothing can be written there.
    """

    def __init__(self, parent: str | os.PathLike[str]) -> None:
        self.process = os.getpid()
        self.parent = Path(parent)
        self.closed = False
        self._numbers = count(1)
        self._owner = -1
        try:
            self.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            clean(self.parent)
            self._make()
        except OSError as error:
            self.remove()
            raise BackendError(
                f"nothing can be spilled to {str(parent)!r}: {error.strerror or error}; "
                "name a directory that this process may write to"
            ) from error

    def _make(self) -> None:
        while True:
            name = f"lifetimes-{self.process}-{secrets.token_hex(8)}"
            self.owner_file = self.parent / f"{name}.owner"
            self.path = self.parent / name
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
            self._owner = os.open(self.owner_file, flags, 0o600)
            # Where files cannot be locked at all, nobody ever takes this one for a dead process's.
            if _lock(self._owner, if_impossible=True) and _stands(self._owner, self.owner_file):
                break
            os.close(self._owner)  # Note [Order]
            self._owner = -1
        os.write(self._owner, f"process {self.process}\n".encode())
        os.mkdir(self.path, 0o700)

    def new_path(self) -> Path:
        """A name that has not been used before.  Errors: `OSError` once the folder is being removed."""
        if self.closed:
            raise FileNotFoundError(errno.ENOENT, "the spill folder has been removed", str(self.path))
        return self.path / f"{next(self._numbers)}.spill"

    def remove(self) -> None:
        """Remove the folder and all in it, then the owner file.  A forked child, whose folder it is not, does nothing."""
        if self.closed or self.process != os.getpid():
            return
        self.closed = True
        if self._owner < 0:
            return
        try:
            _remove(self.path, self.owner_file)
        except OSError as error:
            warn(f"the spill folder {self.path} could not be removed: {error}", error)
        finally:
            os.close(self._owner)
            self._owner = -1

    def __repr__(self) -> str:
        return f"<SpillDirectory {getattr(self, 'path', self.parent)}{', removed' if self.closed else ''}>"


def clean(parent: Path) -> int:
    """Remove the folders under ``parent`` whose owners are dead and were this user's; how many."""
    removed = 0
    for owner_file in sorted(parent.glob("lifetimes-*.owner")):
        if _OWNER.fullmatch(owner_file.name) and _clean_one(owner_file):
            removed += 1
    return removed


def _clean_one(owner_file: Path) -> bool:
    flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    try:
        owner = os.open(owner_file, flags)
    except OSError:  # gone already, or somebody else's
        return False
    try:
        if os.fstat(owner).st_uid != os.getuid() or not _lock(owner) or not _stands(owner, owner_file):
            return False
        _remove(owner_file.with_suffix(""), owner_file)
        return True
    except OSError as error:
        warn(f"what a dead process left in {owner_file.with_suffix('')} could not be removed: {error}", error)
        return False
    finally:
        os.close(owner)


def _remove(folder: Path, owner_file: Path) -> None:
    """Only what spilling makes: a file that somebody put there is left, and with it the folder."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise NotADirectoryError(f"{folder} is no directory")
        while not _remove_if_empty(folder):
            # Another thread, which the end of the process does not wait for, may finish a file meanwhile, but begins no other.
            if not _remove_content(folder) and not _remove_if_empty(folder):
                raise OSError(errno.ENOTEMPTY, "there are files of others in it", str(folder))
    except FileNotFoundError:
        pass
    try:
        os.unlink(owner_file)
    except FileNotFoundError:
        pass


def _remove_if_empty(folder: Path) -> bool:
    try:
        os.rmdir(folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _remove_content(folder: Path) -> int:
    """How many files there were to remove."""
    content = [
        entry.path
        for entry in list(os.scandir(folder))
        if _CONTENT.fullmatch(entry.name) and not entry.is_dir(follow_symlinks=False)
    ]
    for path in content:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
    return len(content)


def _lock(owner: int, *, if_impossible: bool = False) -> bool:
    """Whether the lock is ours now."""
    if fcntl is None:
        return if_impossible
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return if_impossible and error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _stands(owner: int, path: Path) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(owner), os.stat(path, follow_symlinks=False))
    except OSError:
        return False
