// The functions of the interpreter that take its lock or may run Python code, and that the module calls, itself or
// through pyo3. Read by `finalization.rs` for their signatures and by the build of the module for their names.
wanting_the_lock! {
    fn PyEval_RestoreThread(thread: *mut PyThreadState);
    fn PyGILState_Ensure() -> PyGILState_STATE;
    fn PyErr_NormalizeException(kind: *mut *mut PyObject, value: *mut *mut PyObject, traceback: *mut *mut PyObject);
    fn PyErr_PrintEx(set_sys_last_vars: c_int);
    fn PyErr_SetObject(kind: *mut PyObject, value: *mut PyObject);
    fn PyErr_WriteUnraisable(object: *mut PyObject);
    fn PyImport_Import(name: *mut PyObject) -> *mut PyObject;
    fn PyIter_Next(iterator: *mut PyObject) -> *mut PyObject;
    fn PyNumber_Index(object: *mut PyObject) -> *mut PyObject;
    fn PyOS_FSPath(path: *mut PyObject) -> *mut PyObject;
    fn PyObject_Call(callable: *mut PyObject, args: *mut PyObject, kwargs: *mut PyObject) -> *mut PyObject;
    fn PyObject_CallNoArgs(callable: *mut PyObject) -> *mut PyObject;
    fn PyObject_DelItem(object: *mut PyObject, key: *mut PyObject) -> c_int;
    fn PyObject_GetAttr(object: *mut PyObject, name: *mut PyObject) -> *mut PyObject;
    fn PyObject_GetItem(object: *mut PyObject, key: *mut PyObject) -> *mut PyObject;
    fn PyObject_GetIter(object: *mut PyObject) -> *mut PyObject;
    fn PyObject_Repr(object: *mut PyObject) -> *mut PyObject;
    fn PyObject_SetAttr(object: *mut PyObject, name: *mut PyObject, value: *mut PyObject) -> c_int;
    fn PyObject_SetAttrString(object: *mut PyObject, name: *const c_char, value: *mut PyObject) -> c_int;
    fn PyObject_SetItem(object: *mut PyObject, key: *mut PyObject, value: *mut PyObject) -> c_int;
    fn PyObject_Size(object: *mut PyObject) -> Py_ssize_t;
    fn PyObject_Str(object: *mut PyObject) -> *mut PyObject;
    fn PyObject_VectorcallDict(callable: *mut PyObject, args: *const *mut PyObject, nargsf: usize, kwargs: *mut PyObject) -> *mut PyObject;
    fn PyVectorcall_Call(callable: *mut PyObject, args: *mut PyObject, kwargs: *mut PyObject) -> *mut PyObject;
}
