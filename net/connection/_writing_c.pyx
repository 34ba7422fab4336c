# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: freethreading_compatible=False
# What rests on the interpreter lock: docs/decisions/batch-ownership.md.
"""Writes to and reads from a socket, with a short wait, without the GIL. ``streams.py`` documents both.

The Python twin takes the GIL again after each piece that the socket accepts. While a thread of the application
computes, that takes up to 5 ms each time (the switch interval); here it happens once.
"""

import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, EINTR, errno

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    ssize_t writev(int descriptor, const iovec *vectors, int count)

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *descriptors, unsigned long count, int timeout_ms)
    short POLLIN
    short POLLOUT

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int descriptor, void *into, size_t most)

cdef extern from *:
    """
    #include <poll.h>
    #include <time.h>
    /* Sleeps until the descriptor is readable, for at most so long. */
    static int readable_within(int descriptor, double patience_us) {
        struct pollfd waiting = {descriptor, POLLIN, 0};
    #ifdef __linux__
        struct timespec patience;
        patience.tv_sec = (time_t)(patience_us / 1e6);
        patience.tv_nsec = (long)((patience_us - patience.tv_sec * 1e6) * 1e3);
        return ppoll(&waiting, 1, &patience, NULL) > 0;
    #else
        return poll(&waiting, 1, patience_us < 1e3 ? 1 : (int)(patience_us / 1e3)) > 0;
    #endif
    }
    """
    int readable_within(int descriptor, double patience_us) nogil

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec *now)

cdef enum:
    MOST_PARTS = 512  # streams.MOST_PARTS
    NOTHING_YET = -2


def write_within(int descriptor, parts, double patience_ms):
    """See ``streams.write_within_py``."""
    cdef Py_buffer[MOST_PARTS] views
    cdef iovec[MOST_PARTS] vectors
    cdef int count = 0
    cdef int number
    cdef Py_ssize_t taken = 0
    try:
        for part in parts:
            if count == MOST_PARTS:
                break
            PyObject_GetBuffer(part, &views[count], PyBUF_SIMPLE)
            vectors[count].iov_base = views[count].buf
            vectors[count].iov_len = views[count].len
            count += 1
        with nogil:
            taken = write_out(descriptor, vectors, count, patience_ms)
    finally:
        for number in range(count):
            PyBuffer_Release(&views[number])
    return taken


cdef Py_ssize_t write_out(int descriptor, iovec *vectors, int count, double patience_ms) noexcept nogil:
    cdef double until_ms = now_ms() + patience_ms
    cdef Py_ssize_t taken = 0
    cdef ssize_t written
    cdef int first = 0
    cdef pollfd waiting
    waiting.fd = descriptor
    waiting.events = POLLOUT
    while True:
        written = writev(descriptor, vectors + first, count - first)
        if written < 0 and errno == EINTR:
            continue
        if written < 0 and errno != EAGAIN:
            return taken
        if written >= 0:  # empty parts are passed, too
            taken += written
            while first < count and <size_t>written >= vectors[first].iov_len:
                written -= vectors[first].iov_len
                first += 1
            if first < count:
                vectors[first].iov_base = <char *>vectors[first].iov_base + written
                vectors[first].iov_len -= written
        if first == count or now_ms() >= until_ms:
            return taken
        # A signal ends the wait, too: its handler needs the GIL.
        if poll(&waiting, 1, 1) <= 0 or waiting.revents != POLLOUT:
            return taken


cdef double now_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6


def read_soon(int descriptor, into, double patience_us, double spin_us=0, double grace_us=0):
    """See ``streams.read_soon_py``."""
    cdef Py_buffer view
    cdef ssize_t count
    cdef int failure = 0
    cdef double start_ms = now_ms()
    PyObject_GetBuffer(into, &view, PyBUF_WRITABLE)
    try:
        with nogil:
            count = read_before(
                descriptor,
                view.buf,
                view.len,
                start_ms + patience_us / 1e3,
                start_ms + spin_us / 1e3,
                grace_us / 1e3,
            )
            if count == -1:
                failure = errno
    finally:
        PyBuffer_Release(&view)
    if count == NOTHING_YET:
        return None
    if failure:
        raise OSError(failure, os.strerror(failure))
    return count


cdef ssize_t read_before(
    int descriptor, void *into, size_t most, double until_ms, double spin_until_ms, double grace_ms
) noexcept nogil:
    cdef double left_ms
    cdef ssize_t count
    cdef bint slept = False
    while True:
        count = read(descriptor, into, most)
        if count > 0 and not slept:
            grace_ms += now_ms()
            while now_ms() < grace_ms:
                pass
        if count >= 0 or errno != EAGAIN:
            return count
        left_ms = until_ms - now_ms()
        if left_ms <= 0:
            return NOTHING_YET
        # Not for long, and not with sched_yield(): on a busy machine that gives the processor away for
        # milliseconds, while a thread that sleeps is woken at once.
        if until_ms - left_ms >= spin_until_ms:
            slept = True
            if not readable_within(descriptor, left_ms * 1e3):
                until_ms = 0
