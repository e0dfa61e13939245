/* Part of _hook.c, which includes it: the type OptimizedFunction. */
#ifndef FRAMECAP_OPTIMIZED_H
#define FRAMECAP_OPTIMIZED_H

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn, *config, *dict, *weakrefs;
} OptimizedObject;

/* Call fn with the thread's config set. New reference, or NULL with fn's error set; the config is restored. A
   generator or coroutine that fn makes takes the config along. */
static PyObject *
optimized_call(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    OptimizedObject *self = (OptimizedObject *)op;
    PyObject *before = exchange_config(self->config == Py_None ? NULL : self->config);
    if (before == NULL) {
        return NULL;
    }
    PyObject *fn = Py_NewRef(self->fn);
    int kept = this_thread->keep;
    this_thread->keep = PyFunction_Check(fn) && (((PyCodeObject *)PyFunction_GET_CODE(fn))->co_flags & ANY_GENERATOR);
    PyObject *result = PyObject_Vectorcall(fn, args, nargsf, kwnames);
    this_thread->keep = kept;
    Py_DECREF(fn);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *ours = exchange_config(before == Py_None ? NULL : before); /* can't fail: the thread has its state */
    PyErr_Restore(type, value, traceback);
    Py_XDECREF(ours);
    Py_DECREF(before);
    return result;
}

/* New reference, or NULL with an error set. */
static PyObject *
optimized_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "config", NULL};
    PyObject *fn, *config;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:OptimizedFunction", names, &fn, &config)) {
        return NULL;
    }
    if (!PyCallable_Check(fn)) {
        PyErr_Format(PyExc_TypeError, "a callable is expected, not %R", fn);
        return NULL;
    }
    OptimizedObject *self = (OptimizedObject *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = optimized_call;
        self->fn = Py_NewRef(fn);
        self->config = Py_NewRef(config);
    }
    return (PyObject *)self;
}

/* All references are owned; visits never raise. */
static int
optimized_traverse(PyObject *op, visitproc visit, void *arg)
{
    OptimizedObject *self = (OptimizedObject *)op;
    Py_VISIT(self->fn);
    Py_VISIT(self->config);
    Py_VISIT(self->dict);
    return 0;
}

/* Drops what may be in cycles. Never raises. */
static int
optimized_clear(PyObject *op)
{
    OptimizedObject *self = (OptimizedObject *)op;
    Py_CLEAR(self->config);
    Py_CLEAR(self->dict);
    Py_XSETREF(self->fn, Py_NewRef(Py_None)); /* stays callable, if only to raise */
    return 0;
}

/* Drops everything. Never raises. */
static void
optimized_dealloc(PyObject *op)
{
    OptimizedObject *self = (OptimizedObject *)op;
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    Py_CLEAR(self->fn);
    Py_CLEAR(self->config);
    Py_CLEAR(self->dict);
    Py_TYPE(op)->tp_free(op);
}

/* Own attributes first, then the function's, so that it introspects like the function. New reference, or NULL
   with an error set. */
static PyObject *
optimized_getattro(PyObject *op, PyObject *name)
{
    PyObject *found = PyObject_GenericGetAttr(op, name);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        found = PyObject_GetAttr(((OptimizedObject *)op)->fn, name);
    }
    return found;
}

/* Getter of the names that a type defines itself (closure: the name): what was set here, or the function's.
   New reference, or NULL with an error set. */
static PyObject *
optimized_get_name(PyObject *op, void *closure)
{
    OptimizedObject *self = (OptimizedObject *)op;
    PyObject *own = self->dict ? PyDict_GetItemString(self->dict, closure) : NULL;
    return own != NULL ? Py_NewRef(own) : PyObject_GetAttrString(self->fn, closure);
}

/* Setter of the same: kept in __dict__, deleting sets None. -1 with an error set. */
static int
optimized_set_name(PyObject *op, PyObject *value, void *closure)
{
    PyObject *dict = PyObject_GenericGetDict(op, NULL);
    if (dict == NULL) {
        return -1;
    }
    int failed = PyDict_SetItemString(dict, closure, value != NULL ? value : Py_None);
    Py_DECREF(dict);
    return failed;
}

/* A method, as functions give. New reference, or NULL with an error set. */
static PyObject *
optimized_get(PyObject *op, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    return instance == NULL || instance == Py_None ? Py_NewRef(op) : PyMethod_New(op, instance);
}

/* New reference, or NULL with an error set. */
static PyObject *
optimized_repr(PyObject *op)
{
    return PyUnicode_FromFormat("<framecap.optimize of %R>", ((OptimizedObject *)op)->fn);
}

/* As for functions: pickled by name, copied as themselves. New reference, or NULL with an error set. */
static PyObject *
optimized_reduce(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return optimized_get_name(op, "__qualname__");
}

static PyMethodDef optimized_methods[] = {
    {"__reduce__", optimized_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef optimized_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(OptimizedObject, fn), READONLY, NULL},
    {"config", T_OBJECT, offsetof(OptimizedObject, config), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef optimized_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"__name__", optimized_get_name, optimized_set_name, NULL, "__name__"},
    {"__qualname__", optimized_get_name, optimized_set_name, NULL, "__qualname__"},
    {"__module__", optimized_get_name, optimized_set_name, NULL, "__module__"},
    {"__doc__", optimized_get_name, optimized_set_name, NULL, "__doc__"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject Optimized_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "framecap._hook.OptimizedFunction",
    .tp_basicsize = sizeof(OptimizedObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = optimized_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(OptimizedObject, vectorcall),
    .tp_dictoffset = offsetof(OptimizedObject, dict),
    .tp_weaklistoffset = offsetof(OptimizedObject, weakrefs),
    .tp_getattro = optimized_getattro,
    .tp_repr = optimized_repr,
    .tp_descr_get = optimized_get,
    .tp_traverse = optimized_traverse,
    .tp_clear = optimized_clear,
    .tp_dealloc = optimized_dealloc,
    .tp_members = optimized_members,
    .tp_methods = optimized_methods,
    .tp_getset = optimized_getset,
};

#endif
