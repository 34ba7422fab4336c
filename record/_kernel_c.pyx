# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The hot kernels compiled. ``_kernel_py.py`` and ``outcome.py`` say what each class does; the bytes are equal.

Two rules keep this safe without a lock:

* Between the moment a method has decided what to change and the moment all of it is changed, nothing runs
  that could run Python code or give up the GIL: everything that can fail (conversions, checks, allocations)
  comes before. So an exception leaves no trace, and no other thread sees half a change.
* The memory of a buffer is a ``bytearray`` that is pinned by a view for as long as the buffer points into
  it. Growing means a new one; views of the old one keep that alive.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.limits cimport LLONG_MAX, LLONG_MIN
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from bisect import bisect_right
from operator import index as as_int

from splashdam.model.errors import IllegalArgumentError, IllegalStateError
from splashdam.record import outcome_table
from splashdam.record.headers import as_bytes, checked_headers
from splashdam.record.outcome import AllOf, check_parts, fresh
from splashdam.record.outcome_table import Event, takes

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    PyObject *PyTuple_GET_ITEM(object sequence, Py_ssize_t position)
    PyObject *PyList_GET_ITEM(object sequence, Py_ssize_t position)
    Py_ssize_t PyTuple_GET_SIZE(object sequence)
    Py_ssize_t PyList_GET_SIZE(object sequence)
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1
    bint PyObject_GC_IsTracked(object thing)
    void PyObject_GC_UnTrack(PyObject *thing)

__all__ = ["IMPL", "BatchBuffer", "BatchOutcome", "FutureCell", "murmur2", "record_size_upper_bound"]

IMPL = "c"

cdef enum:
    HEADER_BYTES = 61
    MAX_BATCH_BYTES = 0x7FFFFFFF
    MAX_KEY_BYTES = 0x7FFFFFFF
    RECORD_OVERHEAD_BYTES = 21

cdef enum:  # outcome_table.State
    PENDING = 0
    SUCCEEDED = 1
    FAILED = 2
    SPLIT = 3


# Varints


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline Py_ssize_t varint_size(int64_t value) noexcept nogil:
    cdef uint64_t rest = zigzag(value)
    cdef Py_ssize_t size = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *out, int64_t value) noexcept nogil:
    cdef uint64_t rest = zigzag(value)
    while rest > 0x7F:
        out[0] = <uint8_t>(0x80 | (rest & 0x7F))
        out += 1
        rest >>= 7
    out[0] = <uint8_t>rest
    return out + 1


cdef inline Py_ssize_t blob_size(object blob) noexcept:
    """Length in front and bytes, of exact ``bytes`` or None."""
    if blob is None:
        return 1
    cdef Py_ssize_t size = PyBytes_GET_SIZE(blob)
    return varint_size(size) + size


cdef inline uint8_t *put_blob(uint8_t *out, object blob) noexcept:
    if blob is None:
        out[0] = 1  # varint -1
        return out + 1
    cdef Py_ssize_t size = PyBytes_GET_SIZE(blob)
    out = put_varint(out, size)
    memcpy(out, PyBytes_AS_STRING(blob), size)
    return out + size


# Headers. ``headers`` is an exact list or tuple of exact pairs here; nothing below runs Python code, so a
# list cannot change between measuring and writing.


cdef inline object pair_at(object headers, Py_ssize_t position):
    if type(headers) is tuple:
        return <object>PyTuple_GET_ITEM(headers, position)
    return <object>PyList_GET_ITEM(headers, position)


cdef inline Py_ssize_t header_count(object headers) noexcept:
    if headers is None:
        return 0
    return PyTuple_GET_SIZE(headers) if type(headers) is tuple else PyList_GET_SIZE(headers)


cdef object as_pairs(object headers):
    """``headers`` itself where it is exactly what the encoder takes, else a checked copy.

    Every key's UTF-8 form is made here, so that writing it later cannot fail.
    """
    cdef Py_ssize_t position
    cdef Py_ssize_t size = 0
    cdef object pair, value
    if headers is None:
        return None
    if type(headers) is not tuple and type(headers) is not list:
        headers = checked_headers(headers)
    for position in range(header_count(headers)):
        pair = pair_at(headers, position)
        if type(pair) is tuple and PyTuple_GET_SIZE(pair) == 2:
            value = <object>PyTuple_GET_ITEM(pair, 1)
            if type(<object>PyTuple_GET_ITEM(pair, 0)) is str and (value is None or type(value) is bytes):
                continue
        headers = checked_headers(headers)
        break
    for position in range(header_count(headers)):
        PyUnicode_AsUTF8AndSize(<object>PyTuple_GET_ITEM(pair_at(headers, position), 0), &size)
    return headers


cdef Py_ssize_t headers_size(object headers) except -1:
    cdef Py_ssize_t count = header_count(headers)
    cdef Py_ssize_t total = varint_size(count)
    cdef Py_ssize_t position
    cdef Py_ssize_t size = 0
    cdef object pair
    for position in range(count):
        pair = pair_at(headers, position)
        PyUnicode_AsUTF8AndSize(<object>PyTuple_GET_ITEM(pair, 0), &size)
        total += varint_size(size) + size + blob_size(<object>PyTuple_GET_ITEM(pair, 1))
    return total


cdef uint8_t *put_headers(uint8_t *out, object headers) except NULL:
    cdef Py_ssize_t count = header_count(headers)
    cdef Py_ssize_t position
    cdef Py_ssize_t size = 0
    cdef const char *key
    cdef object pair
    out = put_varint(out, count)
    for position in range(count):
        pair = pair_at(headers, position)
        key = PyUnicode_AsUTF8AndSize(<object>PyTuple_GET_ITEM(pair, 0), &size)
        out = put_varint(out, size)
        memcpy(out, key, size)
        out = put_blob(out + size, <object>PyTuple_GET_ITEM(pair, 1))
    return out


cdef inline object as_blob(object data, str what):
    return data if data is None or type(data) is bytes else as_bytes(data, what)


@cython.no_gc  # it refers to bytes only
@cython.final
cdef class BatchBuffer:
    """See ``_kernel_py.BatchBuffer``."""

    cdef uint8_t *_start
    cdef object _pin  # a memoryview of the bytearray that _start points into
    cdef readonly Py_ssize_t size_bytes
    cdef readonly Py_ssize_t capacity_bytes
    cdef readonly Py_ssize_t record_count
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms

    def __cinit__(self, capacity_bytes):
        cdef long long wanted = as_number(capacity_bytes)
        check_capacity(wanted, capacity_bytes)
        self.allocate(wanted)
        self.size_bytes = HEADER_BYTES
        self.record_count = 0
        self.base_timestamp_ms = -1
        self.max_timestamp_ms = -1
        memset(self._start, 0, HEADER_BYTES)

    cdef int allocate(self, Py_ssize_t capacity_bytes) except -1:
        """New memory, with what is in the old one; nothing if there is as much by then."""
        cdef object memory = PyByteArray_FromStringAndSize(NULL, capacity_bytes)
        cdef object pin = memoryview(memory)  # the last line that may run a finalizer
        if self._start is not NULL and capacity_bytes <= self.capacity_bytes:
            return 0  # one has run, and has made this buffer grow
        cdef uint8_t *start = <uint8_t *>PyByteArray_AS_STRING(memory)
        if self._start is not NULL:
            memcpy(start, self._start, self.size_bytes)
        self._start = start
        self.capacity_bytes = capacity_bytes
        self._pin = pin
        return 0

    def try_append(self, timestamp_ms, key, value, headers):
        """See ``_kernel_py.BatchBuffer.try_append``."""
        cdef int64_t timestamp = as_int(timestamp_ms) if type(timestamp_ms) is not int else timestamp_ms
        key = as_blob(key, "key")
        value = as_blob(value, "value")
        headers = as_pairs(headers)

        # From here on nothing runs Python code.
        cdef int64_t delta = 0
        if self.record_count:
            delta = <int64_t>(<uint64_t>timestamp - <uint64_t>self.base_timestamp_ms)
        cdef Py_ssize_t body = (
            1
            + varint_size(delta)
            + varint_size(self.record_count)
            + blob_size(key)
            + blob_size(value)
            + (1 if headers is None else headers_size(headers))
        )
        cdef Py_ssize_t end = self.size_bytes + varint_size(body) + body
        if end > self.capacity_bytes:
            return False
        cdef uint8_t *out = put_varint(self._start + self.size_bytes, body)
        out[0] = 0  # attributes
        out = put_varint(out + 1, delta)
        out = put_varint(out, self.record_count)
        out = put_blob(out, key)
        out = put_blob(out, value)
        if headers is None:
            out[0] = 0
        else:
            put_headers(out, headers)
        self.size_bytes = end
        if not self.record_count:
            self.base_timestamp_ms = timestamp
            self.max_timestamp_ms = timestamp
        elif timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp
        self.record_count += 1
        return True

    def reserve(self, capacity_bytes):
        """See ``_kernel_py.BatchBuffer.reserve``."""
        cdef long long wanted = as_number(capacity_bytes)
        if wanted > self.capacity_bytes:
            check_capacity(wanted, capacity_bytes)
            self.allocate(wanted)

    def view(self):
        """See ``_kernel_py.BatchBuffer.view``."""
        return self._pin[: self.size_bytes]


cdef long long as_number(object number) except? -1:
    """As a C number, the nearest one if it is beyond those. What is checked is not Python's to compare."""
    cdef int overflow = 0
    cdef long long value = PyLong_AsLongLongAndOverflow(number, &overflow)
    return value if not overflow else LLONG_MAX if overflow > 0 else LLONG_MIN


cdef int check_capacity(long long wanted, object capacity_bytes) except -1:
    if not HEADER_BYTES <= wanted <= MAX_BATCH_BYTES:
        raise IllegalArgumentError(
            f"capacity_bytes={capacity_bytes}: a batch has {HEADER_BYTES} to {MAX_BATCH_BYTES} bytes"
        )
    return 0


def record_size_upper_bound(key, value, headers):
    """See ``_kernel_py.record_size_upper_bound``."""
    key = as_blob(key, "key or value")
    value = as_blob(value, "key or value")
    headers = as_pairs(headers)
    return RECORD_OVERHEAD_BYTES + blob_size(key) + blob_size(value) + headers_size(headers)


def murmur2(data):
    """See ``_kernel_py.murmur2``."""
    if type(data) is not bytes:
        data = as_bytes(data, "key")
    if PyBytes_GET_SIZE(data) > MAX_KEY_BYTES:
        raise IllegalArgumentError(f"a key of {PyBytes_GET_SIZE(data)} bytes; at most {MAX_KEY_BYTES}")
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef uint32_t length = <uint32_t>PyBytes_GET_SIZE(data)
    cdef uint32_t left = length
    cdef uint32_t hashed = <uint32_t>0x9747B28C ^ length
    cdef uint32_t word
    while left >= 4:
        word = at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        word *= <uint32_t>0x5BD1E995
        word ^= word >> 24
        word *= <uint32_t>0x5BD1E995
        hashed = hashed * <uint32_t>0x5BD1E995 ^ word
        at += 4
        left -= 4
    if left:
        if left == 3:
            hashed ^= <uint32_t>at[2] << 16
        if left >= 2:
            hashed ^= <uint32_t>at[1] << 8
        hashed = (hashed ^ at[0]) * <uint32_t>0x5BD1E995
    hashed = (hashed ^ hashed >> 13) * <uint32_t>0x5BD1E995
    hashed ^= hashed >> 15
    return <int>hashed


# Outcomes. Who adds a waiter looks at the state and stands in line without running Python code in between; who
# completes stores the state and then takes the whole line. So the GIL makes each one step, and the line holds
# everybody who saw the state before; the Python twin needs the longer protocol that it describes. Completing
# itself is not one step: as there, one thread at a time does it. Waiters are moved to the parts of a split one
# by one; each of those moves is again such an adding.


@cython.final
cdef class Handle:
    """See ``outcome.Handle``."""

    cdef object waiter
    cdef Py_ssize_t index

    def __call__(self):
        cdef object waiter = self.waiter
        if waiter is not None:
            waiter()


@cython.final
cdef class BatchOutcome:
    """See ``outcome.BatchOutcome``."""

    cdef readonly object topic_partition
    cdef readonly int state
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly object error
    cdef object _record_errors
    cdef tuple _bounds
    cdef tuple _parts
    cdef list _waiters

    def __cinit__(self, topic_partition):
        self.topic_partition = topic_partition
        self.state = PENDING
        self.base_offset = -1
        self.log_append_time_ms = -1
        self._bounds = ()
        self._parts = ()
        self._waiters = []

    def succeed(self, int64_t base_offset, int64_t log_append_time_ms):
        """See ``outcome.BatchOutcome.succeed``."""
        if takes(self.state, Event.SUCCEED):
            self.base_offset = base_offset
            self.log_append_time_ms = log_append_time_ms
            self.state = SUCCEEDED

    def fail(self, error, record_errors=None):
        """See ``outcome.BatchOutcome.fail``."""
        if takes(self.state, Event.FAIL):
            self.error = error
            self._record_errors = record_errors
            self.state = FAILED

    def split(self, bounds, children):
        """See ``outcome.BatchOutcome.split``."""
        cdef Handle handle
        cdef object problem = None
        bounds, children = tuple(bounds), tuple(children)  # read once: what was checked is what is kept
        check_parts(bounds, [(<BatchOutcome?>child).state for child in children])
        takes(self.state, Event.SPLIT)
        self._bounds = bounds
        self._parts = children
        self.state = SPLIT
        for handle in self.take_waiters():
            try:
                self.enqueue_at_parts(handle)
            except Exception as error:  # the others wait for their records all the same
                problem = problem or error
        if problem is not None:
            raise problem

    def run_waiters(self):
        """See ``outcome.BatchOutcome.run_waiters``."""
        cdef object interrupt = None
        cdef Handle handle
        for handle in self.take_waiters():
            try:
                if handle.waiter is not None:
                    handle.waiter()
            except Exception as error:
                outcome_table.on_waiter_error(error)
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    cdef list take_waiters(self):
        cdef list nobody = []  # made before the swap: an allocation may run a finalizer
        cdef list taken = self._waiters
        self._waiters = nobody
        return taken

    def done(self):
        """See ``outcome.BatchOutcome.done``."""
        cdef BatchOutcome part
        if self.state == SPLIT:
            for part in self._parts:
                if not part.done():
                    return False
            return True
        return self.state != PENDING

    def add_waiter(self, waiter, Py_ssize_t index=-1):
        """See ``outcome.BatchOutcome.add_waiter``."""
        cdef Handle handle = Handle.__new__(Handle)
        handle.waiter = waiter
        handle.index = index
        return handle if self.enqueue(handle) else None

    def remove_waiter(self, Handle handle not None):
        """See ``outcome.BatchOutcome.remove_waiter``."""
        cdef BatchOutcome part
        cdef Py_ssize_t position
        handle.waiter = None
        for position in range(len(self._waiters)):
            if self._waiters[position] is handle:
                del self._waiters[position]
                return
        for part in self._parts:
            part.remove_waiter(handle)

    cdef bint enqueue(self, Handle handle) except -1:
        if self.state == PENDING:
            self._waiters.append(handle)
            return True
        return self.state == SPLIT and self.enqueue_at_parts(handle)

    cdef bint enqueue_at_parts(self, Handle handle) except -1:
        if handle.index < 0:
            return not AllOf(self._parts, handle).all_done()
        cdef Py_ssize_t at = self.part_at(handle.index)
        handle.index -= <Py_ssize_t>self._bounds[at]
        return (<BatchOutcome>self._parts[at]).enqueue(handle)

    cdef Py_ssize_t part_at(self, Py_ssize_t index) except -1:
        if not 0 <= index < self._bounds[len(self._bounds) - 1]:
            raise IllegalArgumentError(
                f"record {index} of a batch that held {self._bounds[len(self._bounds) - 1]}"
            )
        return bisect_right(self._bounds, index) - 1

    def leaf_of(self, Py_ssize_t index):
        """See ``outcome.BatchOutcome.leaf_of``."""
        cdef BatchOutcome outcome = self
        cdef Py_ssize_t at
        while outcome.state == SPLIT:
            at = outcome.part_at(index)
            index -= <Py_ssize_t>outcome._bounds[at]
            outcome = <BatchOutcome>outcome._parts[at]
        return outcome, index

    def error_of(self, index):
        """See ``outcome.BatchOutcome.error_of``."""
        cdef BatchOutcome leaf
        leaf, index = self.leaf_of(index)
        return (leaf._record_errors or {}).get(index, leaf.error)

    def offset_of(self, index):
        """See ``outcome.BatchOutcome.offset_of``."""
        cdef BatchOutcome leaf
        leaf, index = self.leaf_of(index)
        if leaf.state == PENDING:
            raise IllegalStateError(f"the batch for {leaf.topic_partition} is not done")
        error = leaf.error_of(index)
        if error is not None:
            raise fresh(error)
        return -1 if leaf.base_offset < 0 else leaf.base_offset + <int64_t>index


# Millions may live, so the collector does not look at them. It cannot see a cycle through one either: nothing
# that an outcome keeps for good may lead back to a future. Waiters are dropped when the batch ends; an error
# that was raised leads to frames, so only copies of it are (outcome.fresh).
@cython.no_gc
cdef class FutureCell:
    """See ``outcome.FutureCell``."""

    cdef readonly BatchOutcome outcome
    cdef readonly int64_t timestamp_ms
    cdef readonly int index
    cdef readonly int key_size
    cdef readonly int value_size
    cdef readonly int header_size

    def __cinit__(
        self,
        BatchOutcome outcome not None,
        int index,
        int64_t timestamp_ms,
        int key_size=-1,
        int value_size=-1,
        int header_size=-1,
    ):
        self.outcome = outcome
        self.index = index
        self.timestamp_ms = timestamp_ms
        self.key_size = key_size
        self.value_size = value_size
        self.header_size = header_size
        if PyObject_GC_IsTracked(self):  # every class made in Python is a collector's class
            PyObject_GC_UnTrack(<PyObject *>self)

    def done(self):
        """See ``outcome.FutureCell.done``."""
        cdef BatchOutcome leaf = self.outcome
        if leaf.state == SPLIT:
            leaf = leaf.leaf_of(self.index)[0]
        return leaf.state != PENDING
