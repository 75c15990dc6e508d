"""A lock that many threads may share, or one may have alone.

`guard.py` keeps bodies apart with it; it knows nothing of Warp.
"""

import threading


class _Shared:
  """The context that holds a lock together with other readers."""

  def __init__(self, lock: "SharedLock"):
    self._lock = lock

  def __enter__(self) -> None:
    lock = self._lock
    with lock.mutex:
      while lock.writing or lock.writers_waiting:
        lock.wait()
      lock.readers += 1

  def __exit__(self, *exception: object) -> None:
    lock = self._lock
    with lock.mutex:
      lock.readers -= 1
      if lock.waiting and not lock.readers:
        lock.changed.notify_all()


class _Exclusive:
  """The context that holds a lock alone."""

  def __init__(self, lock: "SharedLock"):
    self._lock = lock

  def __enter__(self) -> None:
    lock = self._lock
    with lock.mutex:
      if lock.writing or lock.readers:
        lock.writers_waiting += 1
        try:
          while lock.writing or lock.readers:
            lock.wait()
        except BaseException:  # an interrupt, after which others need not wait for this one
          lock.changed.notify_all()
          raise
        finally:
          lock.writers_waiting -= 1
      lock.writing = True

  def __exit__(self, *exception: object) -> None:
    lock = self._lock
    with lock.mutex:
      lock.writing = False
      if lock.waiting:
        lock.changed.notify_all()


class SharedLock:
  """A lock for many readers or one writer; a waiting writer goes before new readers.

  Its contexts are objects, not generators: those would take longer than all else in a call.

  Attributes:
    shared: A context that holds the lock with other readers; any number may be in it.
    exclusive: A context that holds the lock alone.
    mutex: Held while one of the numbers below changes.
    changed: Tells whoever waits that one of them did.
    readers: How many hold the lock together.
    writing: Whether one holds it alone.
    writers_waiting: How many wait to have it alone.
    waiting: How many wait for either; nobody is told of a change if there are none.
  """

  def __init__(self):
    """Makes a lock that nobody holds."""
    self.shared = _Shared(self)
    self.exclusive = _Exclusive(self)
    self.mutex = threading.Lock()
    self.changed = threading.Condition(self.mutex)
    self.readers = 0
    self.writing = False
    self.writers_waiting = 0
    self.waiting = 0

  def wait(self) -> None:
    """Waits for a change, with the mutex held before and after."""
    self.waiting += 1
    try:
      self.changed.wait()
    finally:
      self.waiting -= 1
