# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, auto_pickle=False
# cython: freethreading_compatible=False
# What rests on the interpreter lock: docs/decisions/batch-ownership.md.
"""The kernels, compiled. The Python twin of each part documents its classes; both write the same bytes.

Two rules keep this safe without a lock:

* Between the moment a method has decided what to change and the moment all of it is changed, nothing runs
  that could run Python code or give up the GIL: everything that can fail (conversions, checks, allocations)
  comes before. So an exception leaves no trace, and no other thread sees half a change.
* The memory of a buffer is a ``bytearray`` that is pinned by a view for as long as the buffer points into
  it. Growing means a new one; views of the old one keep that alive.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_GET_SIZE,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.limits cimport LLONG_MAX, LLONG_MIN
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memmove, memset

from bisect import bisect_right
from collections import deque
from operator import index as as_int
from types import GenericAlias
from weakref import ref as weak_reference

from splashdam.model.errors import IllegalArgumentError, IllegalStateError
from splashdam.model.values import RecordMetadata, TopicPartition
from splashdam.record.kernel.building import fast_path
from splashdam.record.kernel.outcomes import event_loops, outcome_table
from splashdam.record.kernel.bulk.blob_column import DAMAGED_ROW
from splashdam.record.checksum import crc32c
from splashdam.record.damage import damaged
from splashdam.record.kernel.bulk.header_lists import pairs_of
from splashdam.record.kernel.building.headers import NO_HEADERS, as_bytes, checked_headers, encode_headers
from splashdam.record.kernel.outcomes.outcome import AllOf, FutureCell as PythonFutureCell, check_parts, fresh
from splashdam.record.kernel.outcomes.outcome_table import Event, takes
from splashdam.record.record import KeptRecords, Record, RecordScan

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    PyObject *PyTuple_GET_ITEM(object sequence, Py_ssize_t position)
    PyObject *PyList_GET_ITEM(object sequence, Py_ssize_t position)
    Py_ssize_t PyTuple_GET_SIZE(object sequence)
    Py_ssize_t PyList_GET_SIZE(object sequence)
    PyObject **PySequence_Fast_ITEMS(object sequence)
    Py_ssize_t PySequence_Fast_GET_SIZE(object sequence)
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL
    object PyObject_CallNoArgs(object function)
    ctypedef struct CByteArray "PyByteArrayObject":
        Py_ssize_t ob_exports
    ctypedef struct CManagedBuffer "_PyManagedBufferObject":
        Py_ssize_t exports
    ctypedef struct CMemoryView "PyMemoryViewObject":
        CManagedBuffer *mbuf
        Py_ssize_t exports
    ctypedef struct CTypeObject "PyTypeObject":
        object (*tp_new)(void *cls, object arguments, PyObject *keywords)
    ctypedef struct PyType_Slot:
        pass
    ctypedef struct PyType_Spec:
        const char *name
        int basicsize
        unsigned int flags
        PyType_Slot *slots
    unsigned int Py_TPFLAGS_DEFAULT
    object PyType_FromSpecWithBases(PyType_Spec *spec, object bases)
    bint PyObject_GC_IsTracked(object thing)
    void PyObject_GC_UnTrack(PyObject *thing)

IMPL = "c"

cdef enum:
    HEADER_BYTES = 61
    MAX_BATCH_BYTES = 0x7FFFFFFF
    MAX_KEY_BYTES = 0x7FFFFFFF
    RECORD_OVERHEAD_BYTES = 21
    RECORD_FRAMING_BYTES = 13  # lanes.RECORD_FRAMING_BYTES
    HEADER_FRAMING_BYTES = 10

cdef enum:  # outcome_table.State
    PENDING = 0
    SUCCEEDED = 1
    FAILED = 2
    SPLIT = 3

cdef tuple EMPTY = ()

# One extension in several files: the parts share C types, which separate extensions could not.
include "building/varint.pxi"
include "building/headers.pxi"
include "reading/checksum.pxi"
include "building/buffer.pxi"
include "building/murmur2.pxi"
include "outcomes/outcome.pxi"
include "outcomes/event_loops.pxi"
include "building/lanes.pxi"
include "building/fast_path.pxi"
include "reading/walk.pxi"
include "reading/records.pxi"
include "reading/columns.pxi"
include "reading/zstd_frame.pxi"
include "bulk/blob_column.pxi"
include "bulk/header_lists.pxi"
include "bulk/bulk.pxi"
include "compacting/offset_map.pxi"
