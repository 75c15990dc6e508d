"""A lock that many may share, or one may have alone."""

import threading


class _Shared:
  """Holds a lock together with other readers."""

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
  """Holds a lock alone."""

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
    mutex: Held while the other attributes change.
    changed: Tells whoever waits that they did.
    shared: A context that holds the lock with other readers; any number may be in it.
    exclusive: A context that holds the lock alone.
  """

  def __init__(self):
    """Makes a lock that nobody holds."""
    self.mutex = threading.Lock()
    self.changed = threading.Condition(self.mutex)
    self.readers = 0
    self.writers_waiting = 0
    self.waiting = 0
    self.writing = False
    self.shared = _Shared(self)
    self.exclusive = _Exclusive(self)

  def wait(self) -> None:
    """Waits for a change, with the mutex held before and after."""
    self.waiting += 1
    try:
      self.changed.wait()
    finally:
      self.waiting -= 1
