/* Part of _hook.c, which includes it: the type Variant. */
#ifndef FRAMECAP_VARIANT_H
#define FRAMECAP_VARIANT_H

typedef struct {
    int slot, is_cell;
} Write;

typedef struct {
    PyObject_HEAD
    PyObject *program, *run, *writes, *unbinds, *config, *data;
    Write *places; /* n_writes + n_unbinds */
    Py_ssize_t n_writes, n_unbinds;
    Py_ssize_t hits, deopts;
    char pure, compiled;
} VariantObject;

/* Fill `place` from an index (and, for writes, a flag). -1 with an error set. */
static int
read_place(PyObject *item, int with_flag, Write *place)
{
    PyObject *slot = item;
    place->is_cell = 0;
    if (with_flag) {
        if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) {
            PyErr_Format(PyExc_TypeError, "writes are pairs (slot, is_cell), not %R", item);
            return -1;
        }
        slot = PyTuple_GET_ITEM(item, 0);
        place->is_cell = PyObject_IsTrue(PyTuple_GET_ITEM(item, 1));
        if (place->is_cell < 0) {
            return -1;
        }
    }
    place->slot = (int)PyLong_AsLong(slot);
    if (PyErr_Occurred()) {
        return -1;
    }
    if (place->slot < 0) {
        PyErr_Format(PyExc_ValueError, "slot %d is negative", place->slot);
        return -1;
    }
    return 0;
}

/* New reference, or NULL with an error set. */
static PyObject *
variant_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"program", "run", "writes", "unbinds", "config", "pure", "data", NULL};
    PyObject *program, *run, *writes = NULL, *unbinds = NULL, *config = Py_None, *data = Py_None;
    int pure = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OOOpO:Variant", names, &program, &run, &writes, &unbinds,
                                     &config, &pure, &data)) {
        return NULL;
    }
    int compiled = guards->program_check(program);
    if (!compiled && !PyCallable_Check(program)) {
        PyErr_Format(PyExc_TypeError, "a guard program or a callable is expected, not %R", program);
        return NULL;
    }
    VariantObject *self = (VariantObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->program = Py_NewRef(program);
    self->run = Py_NewRef(run);
    self->config = Py_NewRef(config);
    self->data = Py_NewRef(data);
    self->pure = (char)pure;
    self->compiled = (char)compiled;
    self->writes = writes ? PySequence_Tuple(writes) : PyTuple_New(0);
    self->unbinds = unbinds ? PySequence_Tuple(unbinds) : PyTuple_New(0);
    if (self->writes == NULL || self->unbinds == NULL) {
        goto failed;
    }
    self->n_writes = PyTuple_GET_SIZE(self->writes);
    self->n_unbinds = PyTuple_GET_SIZE(self->unbinds);
    self->places = PyMem_New(Write, self->n_writes + self->n_unbinds + 1);
    if (self->places == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t i = 0; i < self->n_writes; i++) {
        if (read_place(PyTuple_GET_ITEM(self->writes, i), 1, &self->places[i]) < 0) {
            goto failed;
        }
    }
    for (Py_ssize_t i = 0; i < self->n_unbinds; i++) {
        if (read_place(PyTuple_GET_ITEM(self->unbinds, i), 0, &self->places[self->n_writes + i]) < 0) {
            goto failed;
        }
    }
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

/* All references are owned; visits never raise. */
static int
variant_traverse(PyObject *op, visitproc visit, void *arg)
{
    VariantObject *self = (VariantObject *)op;
    Py_VISIT(self->program);
    Py_VISIT(self->run);
    Py_VISIT(self->writes);
    Py_VISIT(self->unbinds);
    Py_VISIT(self->config);
    Py_VISIT(self->data);
    return 0;
}

/* Drops what may be in cycles. Never raises. */
static int
variant_clear(PyObject *op)
{
    VariantObject *self = (VariantObject *)op;
    Py_CLEAR(self->program);
    Py_CLEAR(self->run);
    Py_CLEAR(self->writes);
    Py_CLEAR(self->unbinds);
    Py_CLEAR(self->config);
    Py_CLEAR(self->data);
    return 0;
}

/* Drops everything. Never raises. */
static void
variant_dealloc(PyObject *op)
{
    PyObject_GC_UnTrack(op);
    variant_clear(op);
    PyMem_Free(((VariantObject *)op)->places);
    Py_TYPE(op)->tp_free(op);
}

static PyMemberDef variant_members[] = {
    {"program", T_OBJECT_EX, offsetof(VariantObject, program), READONLY, NULL},
    {"run", T_OBJECT_EX, offsetof(VariantObject, run), READONLY, NULL},
    {"writes", T_OBJECT_EX, offsetof(VariantObject, writes), READONLY, NULL},
    {"unbinds", T_OBJECT_EX, offsetof(VariantObject, unbinds), READONLY, NULL},
    {"config", T_OBJECT, offsetof(VariantObject, config), READONLY, NULL},
    {"pure", T_BOOL, offsetof(VariantObject, pure), 0, NULL},
    {"data", T_OBJECT, offsetof(VariantObject, data), 0, NULL},
    {"hits", T_PYSSIZET, offsetof(VariantObject, hits), 0, NULL},
    {"deopts", T_PYSSIZET, offsetof(VariantObject, deopts), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject Variant_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "framecap._hook.Variant",
    .tp_doc = "A region compiled for one set of guards.",
    .tp_basicsize = sizeof(VariantObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = variant_new,
    .tp_traverse = variant_traverse,
    .tp_clear = variant_clear,
    .tp_dealloc = variant_dealloc,
    .tp_members = variant_members,
};

#endif
