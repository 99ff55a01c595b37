# Staged files: a process without the store writes or reads them, and a store adopts them.
import errno
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint32_t, uint64_t

from .errors import Unroutable


cdef int check_file_status(qs_status status, qs_error *error) except -1:
    """As ``check``, but errors of the file are OSErrors: it is not, or not yet, a store's."""
    if status == QS_ENOENT:
        raise FileNotFoundError(errno.ENOENT, error.text.decode("utf-8", "replace"))
    if status == QS_EEXIST:
        raise FileExistsError(errno.EEXIST, error.text.decode("utf-8", "replace"))
    if status == QS_ENOSPC or status == QS_ESTORE_FULL or status == QS_EIO:
        raise OSError(errno.EIO if status == QS_EIO else errno.ENOSPC,
                      error.text.decode("utf-8", "replace"))
    return check(status, error)


cdef class StagedWriter:
    """Writes one staged file; one thread at a time uses it."""
    cdef qs_staged_writer *handle
    cdef bint busy

    def __cinit__(self, bytes folder not None, bytes name not None, exchange, routing_key,
                  str body not None, properties):
        cdef qs_staged_options options
        cdef qs_slice column
        cdef const char *c_folder = folder
        cdef const char *c_name = name
        cdef qs_error error
        cdef qs_status status
        name_slice(exchange, "exchange", &options.exchange)
        text_slice(routing_key, "routing_key", &options.routing_key)
        text_slice(body, "body", &column)
        properties_slice(properties, &options.properties)
        options.body_column = <const char *>column.data
        options.body_bytes_max = 0
        options.utc_of = utc_of_local
        clear(&error)
        with nogil:
            status = qs_staged_writer_open(&self.handle, c_folder, c_name, &options, NULL, &error)
        if status != QS_OK:
            self.handle = NULL
        check_file_status(status, &error)

    def __dealloc__(self):
        if self.handle != NULL:
            with nogil:
                qs_staged_writer_close(self.handle, False, NULL, NULL)

    cdef int begin(self) except -1:
        if self.busy:
            raise RuntimeError("another thread is using this writer; open one for each")
        if self.handle == NULL:
            raise ValueError("the writer is closed")
        self.busy = True
        return 0

    cdef int put(self, const ArrowSchema *schema, const ArrowArray *array) except -1:
        cdef qs_error error
        cdef qs_status status
        clear(&error)
        with nogil:
            status = qs_staged_writer_put(self.handle, schema, array, &error)
        return check_file_status(status, &error)

    def put_array(self, schema, array):
        """Write a record batch, which is given as its two capsules.  Returns its number of rows."""
        cdef ArrowSchema *c_schema = <ArrowSchema *>PyCapsule_GetPointer(schema, "arrow_schema")
        cdef ArrowArray *c_array = <ArrowArray *>PyCapsule_GetPointer(array, "arrow_array")
        if c_schema.release == NULL or c_array.release == NULL:
            raise ValueError("the Arrow data was released already")
        self.begin()
        try:
            self.put(c_schema, c_array)
        finally:
            self.busy = False
        return c_array.length

    cdef object put_each(self, ArrowArrayStream *stream, ArrowSchema *schema):
        cdef ArrowArray array
        cdef int code
        rows = 0
        while True:
            PyErr_CheckSignals()
            array.release = NULL
            with nogil:
                code = stream.get_next(stream, &array)
            if code != 0:
                stream_failed(stream, code)
            if array.release == NULL:
                return rows
            try:
                self.put(schema, &array)
                rows += array.length
            finally:
                array.release(&array)

    def put_stream(self, stream):
        """Write the record batches of a stream's capsule, one at a time.  Returns their number of
        rows."""
        cdef ArrowArrayStream *c_stream
        cdef ArrowSchema schema
        cdef int code
        c_stream = <ArrowArrayStream *>PyCapsule_GetPointer(stream, "arrow_array_stream")
        if c_stream.release == NULL:
            raise ValueError("the Arrow stream was released already")
        self.begin()
        try:
            schema.release = NULL
            with nogil:
                code = c_stream.get_schema(c_stream, &schema)
            if code != 0:
                stream_failed(c_stream, code)
            try:
                return self.put_each(c_stream, &schema)
            finally:
                schema.release(&schema)
        finally:
            self.busy = False

    def close(self, bint keep):
        """Close the file.  Returns (rows, bytes of the file, bytes of bodies, distinct routes).
        Without ``keep`` the file is removed."""
        cdef qs_staged_writer *handle
        cdef qs_staged_info info
        cdef qs_error error
        cdef qs_status status
        self.begin()
        handle = self.handle
        self.handle = NULL
        clear(&error)
        with nogil:
            status = qs_staged_writer_close(handle, keep, &info, &error)
        self.busy = False
        check_file_status(status, &error)
        return info.rows, info.bytes, info.body_bytes, info.routes

    def __reduce__(self):
        raise TypeError("a writer belongs to its process and cannot be pickled")


cdef class StagedReader:
    """Reads one staged file; one thread at a time uses it."""
    cdef qs_staged_reader *handle

    def __cinit__(self, bytes folder not None, bytes name not None):
        cdef const char *c_folder = folder
        cdef const char *c_name = name
        cdef qs_error error
        cdef qs_status status
        clear(&error)
        with nogil:
            status = qs_staged_reader_open(&self.handle, c_folder, c_name, NULL, &error)
        if status != QS_OK:
            self.handle = NULL
        check_file_status(status, &error)

    def __dealloc__(self):
        if self.handle != NULL:
            with nogil:
                qs_staged_reader_close(self.handle)

    def info(self):
        """(rows, bytes of the file, bytes of bodies, distinct routes)."""
        cdef qs_staged_info info
        qs_staged_reader_info(self.handle, &info)
        return info.rows, info.bytes, info.body_bytes, info.routes

    def next(self):
        """An ArrowBatch, or None at the end."""
        cdef ArrowBatch batch = ArrowBatch()
        cdef qs_error error
        cdef qs_status status
        clear(&error)
        with nogil:
            status = qs_staged_reader_next(self.handle, &batch.schema, &batch.array, &error)
        if status == QS_EEMPTY:
            return None
        check_file_status(status, &error)
        return batch

    def __reduce__(self):
        raise TypeError("cannot be pickled")


cdef object adopted(qs_status status, const qs_adoption *adoption, qs_error *error):
    """The result of an adoption as a tuple, or the exception that says why there was none."""
    if status == QS_PRECONDITION_FAILED and adoption.unroutable > 0:
        raise Unroutable(406, "PRECONDITION_FAILED - " + error.text.decode("utf-8", "replace"),
                         adoption.unroutable)
    if status == QS_ENOENT or status == QS_EIO:
        check_file_status(status, error)
    check(status, error)
    return (<bint>adoption.committed, adoption.rows, adoption.unroutable, adoption.files,
            adoption.linked, <bint>adoption.excluded)


cdef const char **pointers_to(list paths) except NULL:
    """Pointers into these paths, valid as long as the list is.  Free them with PyMem_Free."""
    cdef Py_ssize_t index
    cdef const char **names = <const char **>PyMem_Malloc((len(paths) + 1) * sizeof(const char *))
    if names == NULL:
        raise MemoryError
    for index in range(len(paths)):
        names[index] = <bytes>paths[index]
    return names


cdef object adopt_paths(Store store, list paths, object key, bint mandatory):
    cdef const char **names
    cdef size_t count = <size_t>len(paths)
    cdef uint32_t flags = QS_MANDATORY if mandatory else 0
    cdef qs_slice name
    cdef qs_adoption adoption
    cdef qs_error error
    cdef qs_status status
    text_slice(key, "key", &name)
    names = pointers_to(paths)
    try:
        store.begin(&error)
        with nogil:
            status = qs_store_adopt(store.handle, names, count, name, flags, &adoption, &error)
        store.leave()
    finally:
        PyMem_Free(names)
    return adopted(status, &adoption, &error)


cdef qs_slice *slices_of(tuple keys, str name) except NULL:
    """Slices of these keys, valid as long as the tuple is.  Free them with PyMem_Free."""
    cdef Py_ssize_t index
    cdef qs_slice *slices = <qs_slice *>PyMem_Malloc((len(keys) + 1) * sizeof(qs_slice))
    if slices == NULL:
        raise MemoryError
    try:
        for index in range(len(keys)):
            text_slice(keys[index], name, &slices[index])
    except BaseException:
        PyMem_Free(slices)
        raise
    return slices


cdef class Request:
    """A manifest for the inbox of a store that another process has open.  One thread at a time uses
    it.  ``send`` leaves it there; after an interrupt the caller still has this to take it back."""
    cdef qs_request *handle
    cdef bytes path
    cdef list paths
    cdef object key
    cdef tuple unless, forget
    cdef bint mandatory
    cdef uint64_t timeout_ns
    cdef readonly object trouble

    def __cinit__(self, bytes path not None, list paths not None, key, tuple unless not None,
                  tuple forget not None, bint mandatory, uint64_t timeout_ns):
        self.path = path
        self.paths = paths
        self.key = key
        self.unless = unless
        self.forget = forget
        self.mandatory = mandatory
        self.timeout_ns = timeout_ns

    def send(self):
        """Leave the manifest in the inbox, once.  FileNotFoundError: no owner has made an inbox."""
        cdef const char *c_path = self.path
        cdef const char **names = NULL
        cdef qs_slice *unless_slices = NULL
        cdef qs_slice *forget_slices = NULL
        cdef qs_ask ask
        cdef qs_error error
        cdef qs_status status
        if self.handle != NULL:
            raise ValueError("it was sent before")
        clear(&error)
        text_slice(self.key, "key", &ask.key)
        ask.path_count = <size_t>len(self.paths)
        ask.unless_count = <size_t>len(self.unless)
        ask.forget_count = <size_t>len(self.forget)
        ask.flags = QS_MANDATORY if self.mandatory else 0
        ask.timeout_ns = self.timeout_ns
        try:
            names = pointers_to(self.paths)
            unless_slices = slices_of(self.unless, "unless")
            forget_slices = slices_of(self.forget, "forget")
            ask.paths, ask.unless, ask.forget = names, unless_slices, forget_slices
            with nogil:
                status = qs_request_open(&self.handle, c_path, &ask, NULL, &error)
        finally:
            PyMem_Free(names)
            PyMem_Free(unless_slices)
            PyMem_Free(forget_slices)
        check_file_status(status, &error)

    def __dealloc__(self):
        with nogil:
            qs_request_close(self.handle)

    def look(self):
        """The owner's answer, as of Store._adopt.  None: there is none yet; ``trouble`` is then the
        exception that kept this call from looking, or None.  TimeoutError: no owner began with the
        manifest in time."""
        cdef c_bool is_answered
        cdef qs_adoption adoption
        cdef qs_error error
        cdef qs_status status
        if self.handle == NULL:
            raise ValueError("it was not sent")
        self.trouble = None
        clear(&error)
        with nogil:
            status = qs_request_look(self.handle, &is_answered, &adoption, &error)
        if not is_answered:
            try:
                check_file_status(status, &error)
            except Exception as trouble:
                self.trouble = trouble
            return None
        if status == QS_ETIMEDOUT:
            raise TimeoutError(error.text.decode("utf-8", "replace"))
        return adopted(status, &adoption, &error)

    def take_back(self):
        """Take the manifest back.  False: an owner has begun with it."""
        cdef qs_error error
        cdef qs_status status
        if self.handle == NULL:
            return True
        clear(&error)
        with nogil:
            status = qs_request_take_back(self.handle, &error)
        if status == QS_EWOULDBLOCK:
            return False
        check_file_status(status, &error)
        return True

    def __reduce__(self):
        raise TypeError("cannot be pickled")
