/* Part of _hook.c, which includes it: the type Point, and what an awake stub does. */
#ifndef FRAMECAP_POINT_H
#define FRAMECAP_POINT_H

#include "_variant.h"

/* Region inputs, and references to be dropped after it, that need no memory of their own. */
#define LOCAL_OUTS 24
#define LOCAL_OLD 48

typedef struct {
    PyObject_HEAD
    PyObject *variants; /* list */
    PyObject *data;     /* the owner's */
    PyObject *twin_ref; /* weak references to R and C: R owns the point, C owns R */
    PyObject *code_ref;
    PyObject *orders;   /* tuple by target number of bytes (uint16): item i of the values tuple is stack value order[i] */
    PyObject *copies;   /* bytes (int32) by original unit: the unit of its copy in R */
    Py_ssize_t jump_unit, invert_unit;
    Py_ssize_t hits, misses;
    int offset, depth, index, jump_arg;
    char awake;
} PointObject;

/* New reference, or NULL with an error set. */
static PyObject *
point_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"offset", "depth", "index", NULL};
    int offset, depth, index;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iii:Point", names, &offset, &depth, &index)) {
        return NULL;
    }
    PointObject *self = (PointObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->offset = offset;
    self->depth = depth;
    self->index = index;
    self->jump_unit = self->invert_unit = -1;
    self->data = Py_NewRef(Py_None);
    self->variants = PyList_New(0);
    if (self->variants == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* bind(twin, code, jump_unit, jump_arg, invert_unit, orders, copies): what the rewriter knows when R exists.
   */
static PyObject *
point_bind(PyObject *op, PyObject *args)
{
    PointObject *self = (PointObject *)op;
    PyObject *twin, *code, *orders, *copies;
    Py_ssize_t jump, invert;
    int arg;
    if (!PyArg_ParseTuple(args, "O!O!ninO!O!:bind", &PyCode_Type, &twin, &PyCode_Type, &code, &jump, &arg, &invert,
                          &PyTuple_Type, &orders, &PyBytes_Type, &copies)) {
        return NULL;
    }
    PyCodeObject *r = (PyCodeObject *)twin;
    if (self->twin_ref != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the point is bound to a twin already");
        return NULL;
    }
    if (jump < 0 || jump >= Py_SIZE(r) || invert <= jump || invert >= Py_SIZE(r) || arg < 0 || arg > 255
        || _Py_OPCODE(CODE_UNITS(r)[jump]) != JUMP_FORWARD || _Py_OPARG(CODE_UNITS(r)[jump]) != arg
        || _Py_OPCODE(CODE_UNITS(r)[invert]) != UNARY_INVERT) {
        PyErr_Format(PyExc_ValueError, "unit %zd of the twin isn't the start of a sleeping stub", jump);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(orders); i++) {
        if (!PyBytes_Check(PyTuple_GET_ITEM(orders, i))) {
            PyErr_SetString(PyExc_TypeError, "orders is a tuple of bytes");
            return NULL;
        }
    }
    PyObject *twin_ref = PyWeakref_NewRef(twin, NULL), *code_ref = PyWeakref_NewRef(code, NULL);
    if (twin_ref == NULL || code_ref == NULL) {
        Py_XDECREF(twin_ref);
        Py_XDECREF(code_ref);
        return NULL;
    }
    self->twin_ref = twin_ref;
    self->code_ref = code_ref;
    self->orders = Py_NewRef(orders);
    self->copies = Py_NewRef(copies);
    self->jump_unit = jump;
    self->invert_unit = invert;
    self->jump_arg = arg;
    Py_RETURN_NONE;
}

/* R, borrowed; NULL when the point isn't bound or R is gone. Never raises. */
static PyCodeObject *
point_twin(PointObject *self)
{
    PyObject *twin = self->twin_ref ? PyWeakref_GET_OBJECT(self->twin_ref) : Py_None;
    return twin == Py_None ? NULL : (PyCodeObject *)twin;
}

/* Patch the stub's first unit in R's running bytecode. The unit is never specialised, and quickening doesn't
   join it with a neighbour, so it is one of the two whatever R has been through. Never raises. */
static void
set_awake(PointObject *self, int awake)
{
    PyCodeObject *twin = point_twin(self);
    if (twin != NULL) {
        CODE_UNITS(twin)[self->jump_unit] =
            awake ? _Py_MAKECODEUNIT(NOP, 0) : _Py_MAKECODEUNIT(JUMP_FORWARD, self->jump_arg);
        self->awake = (char)awake;
    }
}

/* New reference to None; never raises. */
static PyObject *
point_wake(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    set_awake((PointObject *)op, 1);
    Py_RETURN_NONE;
}

/* New reference to None; never raises. */
static PyObject *
point_sleep(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    set_awake((PointObject *)op, 0);
    Py_RETURN_NONE;
}

/* Drop up to n strong references. They may run any code. */
static void
drop_all(PyObject **objects, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_XDECREF(objects[i]);
    }
}

/* The slots as Python sees them, unbound ones as UNBOUND. New reference, or NULL with an error set. */
static PyObject *
slots_tuple(PyObject *const *slots, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple != NULL && i < n; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(slots[i] != NULL ? slots[i] : unbound));
    }
    return tuple;
}

/* Check a variant's guards on the frame. 1 and new references in *outs (n of them), 0, or -1 with an error
   set. *outs is `local` (LOCAL_OUTS items, after one spare) or memory to be freed when it isn't. */
static int
check_guards(VariantObject *variant, Frame *frame, PyObject **slots, Py_ssize_t n_slots, PyObject **local,
             PyObject ***outs, Py_ssize_t *n)
{
    PyObject *answer = NULL;
    *outs = local;
    if (variant->compiled) {
        *n = guards->n_outputs(variant->program);
    }
    else {
        PyObject *tuple = slots_tuple(slots, n_slots);
        if (tuple == NULL) {
            return -1;
        }
        answer = PyObject_CallFunctionObjArgs(variant->program, tuple, frame->f_globals, frame->f_builtins, NULL);
        Py_DECREF(tuple);
        if (answer == NULL || !PyTuple_Check(answer)) {
            int bad = answer != Py_None;
            if (answer != NULL && bad) {
                PyErr_Format(PyExc_TypeError, "the guard program returned %R: not None or a tuple", answer);
            }
            Py_XDECREF(answer);
            return -bad;
        }
        *n = PyTuple_GET_SIZE(answer);
    }
    if (*n > LOCAL_OUTS) {
        *outs = PyMem_New(PyObject *, *n + 1);
        if (*outs == NULL) {
            Py_XDECREF(answer);
            PyErr_NoMemory();
            return -1;
        }
        (*outs)++;
    }
    int matched = 1;
    if (answer != NULL) {
        for (Py_ssize_t i = 0; i < *n; i++) {
            (*outs)[i] = Py_NewRef(PyTuple_GET_ITEM(answer, i));
        }
        Py_DECREF(answer);
    }
    else {
        matched = guards->evaluate(variant->program, slots, n_slots, frame->f_globals, frame->f_builtins, *outs);
    }
    if (matched <= 0 && *outs != local) {
        PyMem_Free(*outs - 1);
    }
    return matched;
}

/* Whether the slot is of a cell or free variable: it holds a cell, which is emptied, never replaced. */
static int
is_cell_slot(PyCodeObject *code, int slot)
{
    return (PyBytes_AS_STRING(code->co_localspluskinds)[slot] & (CO_FAST_CELL | CO_FAST_FREE)) != 0;
}

/* Apply what a region returned, (target, stack, *written values), to the frame: write its locals and cells,
   and put None for every stack item beneath the point (the stub pops them without looking). New reference to
   what the stub gets, (target, values in the order the exit unpacks); NULL with an error set and nothing done
   if the result isn't well-formed. */
static PyObject *
leave_region(PointObject *self, Frame *frame, VariantObject *variant, PyObject *result)
{
    PyCodeObject *twin = frame->f_code;
    Py_ssize_t n_writes = variant->n_writes, n_places = n_writes + variant->n_unbinds, n_old = n_places + self->depth;
    if (!PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != n_writes + 2
        || !PyLong_CheckExact(PyTuple_GET_ITEM(result, 0)) || !PyTuple_CheckExact(PyTuple_GET_ITEM(result, 1))) {
        PyErr_Format(PyExc_RuntimeError, "a region returned %R: not (target, stack, %zd values)", result, n_writes);
        return NULL;
    }
    PyObject *target = PyTuple_GET_ITEM(result, 0), *stack = PyTuple_GET_ITEM(result, 1);
    Py_ssize_t number = PyLong_AsSsize_t(target), n_stack = PyTuple_GET_SIZE(stack);
    if (number < 0 || number >= PyTuple_GET_SIZE(self->orders)) {
        PyErr_Clear();
        PyErr_Format(PyExc_RuntimeError, "a region returned target %R: there are %zd", target,
                     PyTuple_GET_SIZE(self->orders));
        return NULL;
    }
    PyObject *order = PyTuple_GET_ITEM(self->orders, number);
    if (PyBytes_GET_SIZE(order) != n_stack * 2) {
        PyErr_Format(PyExc_RuntimeError, "a region returned %zd stack values for target %R, which takes %zd", n_stack,
                     target, PyBytes_GET_SIZE(order) / 2);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n_places; i++) {
        Write place = variant->places[i];
        if (place.slot >= twin->co_nlocalsplus
            || (place.is_cell && (frame->localsplus[place.slot] == NULL
                                  || !PyCell_Check(frame->localsplus[place.slot])))) {
            PyErr_Format(PyExc_RuntimeError, "a region writes slot %d, which %s", place.slot,
                         place.is_cell ? "holds no cell" : "the frame does not have");
            return NULL;
        }
    }
    PyObject *local[LOCAL_OLD], **old = local;
    PyObject *values = PyTuple_New(n_stack), *answer = NULL;
    if (n_old > LOCAL_OLD) {
        old = PyMem_New(PyObject *, n_old);
    }
    if (values != NULL && old != NULL) {
        answer = PyTuple_Pack(2, target, values);
    }
    if (answer == NULL) {
        if (old != local) {
            PyMem_Free(old);
        }
        Py_XDECREF(values);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    const uint16_t *positions = (const uint16_t *)PyBytes_AS_STRING(order);
    for (Py_ssize_t i = 0; i < n_stack; i++) {
        PyTuple_SET_ITEM(values, i, Py_NewRef(PyTuple_GET_ITEM(stack, positions[i])));
    }
    Py_DECREF(values);
    for (Py_ssize_t i = 0; i < n_places; i++) {
        Write place = variant->places[i];
        PyObject **where = &frame->localsplus[place.slot];
        PyObject *value = i < n_writes ? PyTuple_GET_ITEM(result, i + 2) : unbound;
        if (place.is_cell || (value == unbound && *where != NULL && is_cell_slot(twin, place.slot))) {
            where = &((PyCellObject *)*where)->ob_ref;
        }
        old[i] = *where;
        *where = value == unbound ? NULL : Py_NewRef(value);
    }
    for (int i = 0; i < self->depth; i++) {
        PyObject **where = &frame->localsplus[twin->co_nlocalsplus + i];
        old[n_places + i] = *where;
        *where = Py_NewRef(Py_None);
    }
    drop_all(old, n_old);
    if (old != local) {
        PyMem_Free(old);
    }
    return answer;
}

/* A region raised (the error is set). Ask on_error what to do: True clears the error, and 1 is returned, for the
   original instructions to run; else the error is going to propagate from the user's instruction that on_error
   names: the frame is made to stand there, for the traceback. Handlers are found by where the stub is, not by this.
   Without a callback, a pure region's exceptions are cleared. */
static int
locate_error(PointObject *self, Frame *frame, VariantObject *variant)
{
    PyObject *type, *value, *traceback;
    if (on_error == NULL) {
        if (variant->pure && PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear();
            return 1;
        }
        return 0;
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    PyObject *callback = Py_NewRef(on_error);
    PyObject *offset = PyObject_CallFunctionObjArgs(callback, (PyObject *)variant, type, value,
                                                    traceback ? traceback : Py_None, NULL);
    Py_DECREF(callback);
    int again = offset == Py_True;
    if (offset != NULL && offset != Py_None && !again) {
        Py_ssize_t unit = PyLong_AsSsize_t(offset) / 2, n = PyBytes_GET_SIZE(self->copies) / 4;
        if (!PyErr_Occurred() && unit >= 0 && unit < n) {
            frame->prev_instr = CODE_UNITS(frame->f_code) + ((const int32_t *)PyBytes_AS_STRING(self->copies))[unit];
        }
    }
    Py_XDECREF(offset);
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable((PyObject *)self);
    }
    /* The callback may have set another traceback, without the frames of the region. */
    Py_XDECREF(traceback);
    if (again) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        return 1;
    }
    PyErr_Restore(type, value, PyException_GetTraceback(value));
    return 0;
}

/* Try one variant. 1 and a new reference in *answer for the stub (None: it deoptimised); 0 no match; -1 with
   an error set. The thread is paused on entry and on return. */
static int
try_variant(PointObject *self, ThreadObject *thread, Frame *frame, VariantObject *variant, PyObject **answer)
{
    PyObject *local[LOCAL_OUTS + 1], **outs;
    Py_ssize_t n;
    int matched = check_guards(variant, frame, frame->localsplus, frame->f_code->co_nlocalsplus + self->depth,
                               local + 1, &outs, &n);
    if (matched <= 0) {
        return matched;
    }
    thread->running++;
    PyObject *result = PyObject_Vectorcall(variant->run, outs, (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    thread->running--;
    drop_all(outs, n);
    if (outs != local + 1) {
        PyMem_Free(outs - 1);
    }
    if (result == NULL) {
        if (!locate_error(self, frame, variant)) {
            return -1;
        }
        variant->deopts++;
        *answer = Py_NewRef(Py_None);
        return 1;
    }
    variant->hits++;
    self->hits++;
    thread->paused--;
    *answer = leave_region(self, frame, variant, result);
    Py_DECREF(result);
    thread->paused++;
    return *answer == NULL ? -1 : 1;
}

/* Put a variant first in the point's list: move it there from index `at`, or insert it (at < 0). -1 with an
   error. */
static int
put_first(PointObject *self, PyObject *variant, Py_ssize_t at)
{
    PyObject **items = ((PyListObject *)self->variants)->ob_item;
    if (at < 0) {
        return PyList_Insert(self->variants, 0, variant);
    }
    if (at > 0 && at < PyList_GET_SIZE(self->variants) && items[at] == variant) {
        memmove(items + 1, items, (size_t)at * sizeof(PyObject *));
        items[0] = variant;
    }
    return 0;
}

/* All of an awake stub's work; the thread is paused. As point_invert. */
static PyObject *
run_point(PointObject *self, ThreadObject *thread, Frame *frame)
{
    PyObject *answer = NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(self->variants); i++) {
        PyObject *variant = PyList_GET_ITEM(self->variants, i);
        if (!Py_IS_TYPE(variant, &Variant_Type) || ((VariantObject *)variant)->config != thread->config) {
            continue;
        }
        Py_INCREF(variant);
        int tried = try_variant(self, thread, frame, (VariantObject *)variant, &answer);
        if (tried > 0) {
            put_first(self, variant, i);
        }
        Py_DECREF(variant);
        if (tried) {
            return answer;
        }
    }
    self->misses++;
    if (on_miss == NULL || _Py_IsFinalizing()) {
        Py_RETURN_NONE;
    }
    PyObject *slots = slots_tuple(frame->localsplus, frame->f_code->co_nlocalsplus + self->depth);
    if (slots == NULL) {
        return NULL;
    }
    PyObject *callback = Py_NewRef(on_miss);
    PyObject *variant = PyObject_CallFunctionObjArgs(callback, (PyObject *)self, slots, user_function(frame),
                                                     frame->f_globals, frame->f_builtins, thread->config, NULL);
    Py_DECREF(callback);
    Py_DECREF(slots);
    if (variant == NULL || variant == Py_None) {
        return variant;
    }
    if (!Py_IS_TYPE(variant, &Variant_Type)) {
        PyErr_Format(PyExc_TypeError, "on_miss returned %R: not None or a Variant", variant);
        Py_DECREF(variant);
        return NULL;
    }
    Py_ssize_t at = -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(self->variants); i++) {
        at = PyList_GET_ITEM(self->variants, i) == variant ? i : at;
    }
    int tried = put_first(self, variant, at);
    if (tried == 0 && ((VariantObject *)variant)->config == thread->config) {
        tried = try_variant(self, thread, frame, (VariantObject *)variant, &answer);
    }
    Py_DECREF(variant);
    return tried == 0 ? Py_NewRef(Py_None) : answer;
}

/* nb_invert, executed by an awake stub. New reference: None (go on natively) or (target, values); NULL with
   an error set. Anything that isn't the stub of this very point in the running frame gets None. */
static PyObject *
point_invert(PyObject *op)
{
    PointObject *self = (PointObject *)op;
    ThreadObject *thread = this_thread;
    if (thread == NULL || thread->paused) {
        Py_RETURN_NONE;
    }
    PyThreadState *tstate = PyThreadState_Get();
    Frame *frame = current_frame(tstate);
    PyObject *kept = NULL; /* stands in for the thread's config while the point runs; no frame is evaluated under it */
    if (thread->config == NULL) {
        kept = frame != NULL && frame->f_code == point_twin(self) ? kept_config(frame) : NULL;
        if (kept == NULL) {
            Py_RETURN_NONE;
        }
    }
    if (is_traced(tstate) || frame == NULL || frame->f_code != point_twin(self)
        || running_unit(frame) != self->invert_unit) {
        Py_RETURN_NONE;
    }
    thread->paused++;
    if (kept != NULL) {
        thread->config = Py_NewRef(kept);
    }
    PyObject *answer = run_point(self, thread, frame);
    if (kept != NULL && thread->config == kept) {
        Py_CLEAR(thread->config);
    }
    thread->paused--;
    return answer;
}

/* Weak references, orders and copies can't be in cycles. */
static int
point_traverse(PyObject *op, visitproc visit, void *arg)
{
    PointObject *self = (PointObject *)op;
    Py_VISIT(self->variants);
    Py_VISIT(self->data);
    return 0;
}

/* Empties the list of variants, which others may hold. -1 with an error set. */
static int
point_clear(PyObject *op)
{
    PointObject *self = (PointObject *)op;
    Py_CLEAR(self->data);
    return self->variants != NULL ? PyList_SetSlice(self->variants, 0, PY_SSIZE_T_MAX, NULL) : 0;
}

/* Drops everything. Never raises. */
static void
point_dealloc(PyObject *op)
{
    PointObject *self = (PointObject *)op;
    PyObject_GC_UnTrack(op);
    Py_CLEAR(self->variants);
    Py_CLEAR(self->data);
    Py_CLEAR(self->twin_ref);
    Py_CLEAR(self->code_ref);
    Py_CLEAR(self->orders);
    Py_CLEAR(self->copies);
    Py_TYPE(op)->tp_free(op);
}

/* New reference, or NULL with an error set. */
static PyObject *
point_repr(PyObject *op)
{
    PointObject *self = (PointObject *)op;
    PyCodeObject *twin = point_twin(self);
    return PyUnicode_FromFormat("<Point %d of %V at offset %d, depth %d, %s>", self->index,
                                twin ? twin->co_qualname : NULL, "no code", self->offset, self->depth,
                                self->awake ? "awake" : "asleep");
}

/* New reference; never raises. */
static PyObject *
point_get_twin(PyObject *op, void *Py_UNUSED(closure))
{
    PyCodeObject *twin = point_twin((PointObject *)op);
    return Py_NewRef(twin ? (PyObject *)twin : Py_None);
}

/* New reference; never raises. */
static PyObject *
point_get_code(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *ref = ((PointObject *)op)->code_ref;
    return Py_NewRef(ref ? PyWeakref_GET_OBJECT(ref) : Py_None);
}

static PyGetSetDef point_getset[] = {
    {"twin", point_get_twin, NULL, "The rewritten code, None once it is gone.", NULL},
    {"code", point_get_code, NULL, "The original code, None once it is gone.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef point_members[] = {
    {"offset", T_INT, offsetof(PointObject, offset), READONLY, NULL},
    {"depth", T_INT, offsetof(PointObject, depth), READONLY, NULL},
    {"index", T_INT, offsetof(PointObject, index), READONLY, NULL},
    {"variants", T_OBJECT_EX, offsetof(PointObject, variants), READONLY, NULL},
    {"awake", T_BOOL, offsetof(PointObject, awake), READONLY, NULL},
    {"hits", T_PYSSIZET, offsetof(PointObject, hits), 0, NULL},
    {"misses", T_PYSSIZET, offsetof(PointObject, misses), 0, NULL},
    {"data", T_OBJECT, offsetof(PointObject, data), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef point_methods[] = {
    {"bind", point_bind, METH_VARARGS, NULL},
    {"wake", point_wake, METH_NOARGS, NULL},
    {"sleep", point_sleep, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyNumberMethods point_number = {.nb_invert = point_invert};

static PyTypeObject Point_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "framecap._hook.Point",
    .tp_doc = "A capture point of a rewritten code object.",
    .tp_basicsize = sizeof(PointObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = point_new,
    .tp_repr = point_repr,
    .tp_as_number = &point_number,
    .tp_traverse = point_traverse,
    .tp_clear = point_clear,
    .tp_dealloc = point_dealloc,
    .tp_members = point_members,
    .tp_methods = point_methods,
    .tp_getset = point_getset,
};

#endif
