/* The frame hook (PEP 523): which code a frame runs, and what happens at a capture point.

   A frame that starts in a thread with a config runs the rewritten twin R of its code C (see bytecode/rewrite.py).
   R has a stub at each capture point; an awake stub inverts (~) its Point constant, which lands in point_invert():
   the variants' guards are checked on the frame's own slots, a region is run, the frame's locals are written, and
   what the stub gets back, (target, stack values), tells it where to go on. All state is per thread. */
#include "_cpython.h"
#include "../guards/_evaluator.h"

/* Frames this deep on the C stack run with the hook taken off, so that their calls need no C stack (they are made
   inside the evaluator again). A program gets here only by raising the recursion limit. */
#define DEEP 2000
#define ANY_GENERATOR (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)
#define LOCAL_OUTS 24
#define LOCAL_OLD 48

typedef struct {
    PyObject_HEAD
    PyObject *config; /* strong, NULL: off */
    int paused;
} ThreadObject;

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

static PyTypeObject Thread_Type, Point_Type, Variant_Type;

static __thread ThreadObject *this_thread; /* borrowed from the PyThreadState's dict; its dealloc clears it */
static __thread int c_depth;
static Py_ssize_t code_extra = -1;
static Py_ssize_t n_configs, n_deep; /* threads with a config; deep frames that took the hook off */
static _PyFrameEvalFunction previous = _PyEval_EvalFrameDefault; /* the evaluator beneath ours */
static int installed; /* ours is the evaluator, or beneath another tool's that calls it */
static __thread Frame *passed_on; /* the frame that was given last to an evaluator that isn't the default one */
static PyObject *unbound, *thread_key;
static PyObject *on_code, *on_miss, *on_error; /* strong, may be NULL */
static const Evaluator_API *guards;
static char never; /* its address in a code's extra says: never capture */

static PyObject *evaluate_frame(PyThreadState *, Frame *, int);

/* ---- installing ------------------------------------------------------------------------------------------- */

/* Set or take off the evaluator, as the counters ask. Another tool's evaluator that was put on top of ours is left
   alone: it calls ours, which passes on. Never raises. */
static void
update_evaluator(void)
{
    PyInterpreterState *interp = PyInterpreterState_Get();
    _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interp);
    int wanted = n_configs > 0 && n_deep == 0;
    if (now == evaluate_frame) {
        if (!wanted) {
            _PyInterpreterState_SetEvalFrameFunc(interp, previous);
            installed = 0;
        }
    }
    else if (wanted && (!installed || now == previous || now == _PyEval_EvalFrameDefault)) {
        previous = now;
        _PyInterpreterState_SetEvalFrameFunc(interp, evaluate_frame);
        installed = 1;
    }
}

static void
thread_dealloc(PyObject *op)
{
    ThreadObject *self = (ThreadObject *)op;
    if (this_thread == self) {
        this_thread = NULL;
    }
    if (self->config != NULL) {
        n_configs--;
        Py_CLEAR(self->config);
    }
    Py_TYPE(op)->tp_free(op);
}

static PyTypeObject Thread_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "framecap._hook._Thread",
    .tp_basicsize = sizeof(ThreadObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = thread_dealloc,
};

/* Set this thread's config (borrowed; NULL is off). New reference to the previous one, or to None; NULL with
   MemoryError set. */
static PyObject *
exchange_config(PyObject *config)
{
    ThreadObject *thread = this_thread;
    if (thread == NULL) {
        if (config == NULL) {
            Py_RETURN_NONE;
        }
        PyObject *dict = PyThreadState_GetDict();
        thread = dict ? PyObject_New(ThreadObject, &Thread_Type) : NULL;
        if (thread == NULL) {
            return PyErr_NoMemory();
        }
        thread->config = NULL;
        thread->paused = 0;
        int failed = PyDict_SetItem(dict, thread_key, (PyObject *)thread);
        Py_DECREF(thread);
        if (failed) {
            return NULL;
        }
        this_thread = thread;
    }
    PyObject *old = thread->config;
    thread->config = Py_XNewRef(config);
    n_configs += (config != NULL) - (old != NULL);
    if ((config != NULL) != (old != NULL)) {
        update_evaluator();
    }
    return old != NULL ? old : Py_NewRef(Py_None);
}

/* ---- frames ------------------------------------------------------------------------------------------------ */

/* Drop a reference to what a code's extra holds, NULL too. CPython calls it when a code is freed or its extra set. */
static void
free_code_extra(void *extra)
{
    if (extra != NULL && extra != &never) {
        Py_DECREF((PyObject *)extra);
    }
}

/* Take a reference to what a code's extra holds: R, &never or NULL. Returns it. */
static void *
keep_code_extra(void *extra)
{
    if (extra != NULL && extra != &never) {
        Py_INCREF((PyObject *)extra);
    }
    return extra;
}

/* Remember `state` (R, borrowed, or &never or NULL) for a code. -1 with an error set. */
static int
remember(PyObject *code, void *state)
{
    void *old = NULL;
    if (GET_CODE_EXTRA(code, code_extra, &old) < 0) {
        return -1;
    }
    if (old == state) {
        return 0;
    }
    keep_code_extra(old); /* the setter drops the old state while it is still in place: let nothing be freed then */
    int failed = SET_CODE_EXTRA(code, code_extra, keep_code_extra(state));
    if (failed) {
        free_code_extra(state);
    }
    free_code_extra(old);
    return failed;
}

/* Ask on_code about a code seen for the first time. New reference to R, or to None for never; NULL with an error
   set. */
static PyObject *
ask_for_twin(ThreadObject *thread, PyCodeObject *code)
{
    if (on_code == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *callback = Py_NewRef(on_code);
    thread->paused++;
    PyObject *twin = PyObject_CallOneArg(callback, (PyObject *)code);
    thread->paused--;
    Py_DECREF(callback);
    if (twin == NULL) {
        return NULL;
    }
    int failed;
    if (twin == Py_None) {
        failed = remember((PyObject *)code, &never);
    }
    else if (!PyCode_Check(twin) || ((PyCodeObject *)twin)->co_nlocalsplus != code->co_nlocalsplus
             || ((PyCodeObject *)twin)->co_stacksize < code->co_stacksize
             || ((PyCodeObject *)twin)->co_flags != code->co_flags || twin == (PyObject *)code) {
        PyErr_Format(PyExc_TypeError, "on_code returned %R for %R: not a rewritten twin of it", twin, code);
        failed = -1;
    }
    else {
        failed = remember((PyObject *)code, twin) < 0 ? -1 : remember(twin, &never);
    }
    if (failed < 0) {
        Py_CLEAR(twin);
    }
    return twin;
}

/* Give a generator function's frame a function over R, since the generator is allocated and named by its function.
   The original function is kept alive by it, as func_doc. 1, or -1 with an error set. */
static int
set_generator_function(Frame *frame, PyObject *twin)
{
    PyFunctionObject *old = frame->f_func;
    PyFunctionObject *func = (PyFunctionObject *)PyFunction_New(twin, frame->f_globals);
    if (func == NULL) {
        return -1;
    }
    Py_XSETREF(func->func_builtins, Py_XNewRef(old->func_builtins));
    Py_XSETREF(func->func_closure, Py_XNewRef(old->func_closure));
    Py_XSETREF(func->func_module, Py_XNewRef(old->func_module));
    Py_XSETREF(func->func_name, Py_XNewRef(old->func_name));
    Py_XSETREF(func->func_qualname, Py_XNewRef(old->func_qualname));
    Py_XSETREF(func->func_doc, (PyObject *)old); /* steals the frame's reference */
    frame->f_func = func;
    return 1;
}

/* The function as the user knows it. Borrowed. */
static PyObject *
user_function(Frame *frame)
{
    PyFunctionObject *func = frame->f_func;
    if ((PyCodeObject *)func->func_code == frame->f_code && func->func_doc != NULL
        && PyFunction_Check(func->func_doc)) {
        return func->func_doc;
    }
    return (PyObject *)func;
}

/* Let the evaluator beneath ours run the frame. New reference, or NULL with an error set. */
static PyObject *
run_frame(PyThreadState *tstate, Frame *frame, int throwflag)
{
    _PyFrameEvalFunction evaluator = previous;
    int deep = ++c_depth == DEEP;
    if (deep) {
        n_deep++;
        update_evaluator();
    }
    if (evaluator != _PyEval_EvalFrameDefault) {
        if (passed_on == frame) {
            evaluator = _PyEval_EvalFrameDefault; /* it came back: two tools each believe to be on top */
        }
        passed_on = frame;
    }
    PyObject *result = evaluator(tstate, frame, throwflag);
    passed_on = NULL;
    c_depth--;
    if (deep) {
        n_deep--;
        update_evaluator();
    }
    return result;
}

/* Swap a fresh frame's code for its twin, when there is one and it can be done: 1 if it was, 0 if the frame is to
   run as it is, -1 with an error set. */
static int
enter_twin(PyThreadState *tstate, ThreadObject *thread, Frame *frame)
{
    PyCodeObject *code = frame->f_code;
    void *extra = NULL;
    if (GET_CODE_EXTRA((PyObject *)code, code_extra, &extra) < 0) {
        return -1;
    }
    if (extra == &never || is_traced(tstate) || !is_fresh(frame)) {
        return 0;
    }
    if (!(code->co_flags & CO_OPTIMIZED) && frame->f_locals != frame->f_globals) {
        return 0; /* a class body, or exec with its own locals */
    }
    PyObject *twin = extra != NULL ? Py_NewRef((PyObject *)extra) : ask_for_twin(thread, code);
    if (twin == NULL) {
        return -1;
    }
    int done = twin != Py_None && thread->config != NULL;
    if (done && code->co_flags & ANY_GENERATOR) {
        done = set_generator_function(frame, twin);
    }
    else if (done) {
        done = grow_frame(tstate, frame, ((PyCodeObject *)twin)->co_stacksize - code->co_stacksize);
    }
    if (done > 0) {
        set_fresh_code(frame, (PyCodeObject *)twin);
    }
    Py_DECREF(twin);
    return done;
}

/* The frame evaluator. New reference, or NULL with an error set; the caller clears the frame in either case. */
static PyObject *
evaluate_frame(PyThreadState *tstate, Frame *frame, int throwflag)
{
    ThreadObject *thread = this_thread;
    if (thread == NULL || thread->config == NULL || thread->paused || throwflag || !is_thread_frame(frame)) {
        return run_frame(tstate, frame, throwflag);
    }
    PyObject *code = Py_NewRef((PyObject *)frame->f_code);
    int entered = enter_twin(tstate, thread, frame);
    PyObject *result = entered < 0 ? NULL : run_frame(tstate, frame, 0);
    if (entered > 0 && result != NULL
        && (PyGen_CheckExact(result) || PyCoro_CheckExact(result) || PyAsyncGen_CheckExact(result))
        && ((PyCodeObject *)code)->co_flags & ANY_GENERATOR) {
        /* gi_code, cr_code and ag_code are one field of the common head: show the user's own code object */
        Py_SETREF(((PyGenObject *)result)->gi_code, (PyCodeObject *)Py_NewRef(code));
    }
    Py_DECREF(code);
    return result;
}

/* ---- Variant ----------------------------------------------------------------------------------------------- */

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

/* ---- Point ------------------------------------------------------------------------------------------------- */

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

/* bind(twin, code, jump_unit, jump_arg, invert_unit, orders, copies): what the rewriter knows when R exists. */
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

/* Patch the stub's first unit in R's running bytecode. The unit is never specialised, and quickening doesn't join
   it with a neighbour, so it is one of the two whatever R has been through. Never raises. */
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

static PyObject *
point_wake(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    set_awake((PointObject *)op, 1);
    Py_RETURN_NONE;
}

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

/* Check a variant's guards on the frame. 1 and new references in *outs (n of them), 0, or -1 with an error set.
   *outs is `local` (LOCAL_OUTS items, after one spare) or memory to be freed when it isn't. */
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

/* Apply what a region returned, (target, stack, *written values), to the frame: write its locals and cells, and
   put None for every stack item beneath the point (the stub pops them without looking). New reference to what the
   stub gets, (target, values in the order the exit unpacks); NULL with an error set and nothing done if the result
   isn't well-formed. */
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

/* A region raised, and its error (set) is going to propagate: ask on_error which of the user's instructions did it,
   and let the frame stand there, for the traceback. Handlers are found by where the stub is, not by this. The error
   stays set. */
static void
locate_error(PointObject *self, Frame *frame, VariantObject *variant)
{
    PyObject *type, *value, *traceback;
    if (on_error == NULL) {
        return;
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *callback = Py_NewRef(on_error);
    PyObject *offset = PyObject_CallFunctionObjArgs(callback, (PyObject *)variant, type, value,
                                                    traceback ? traceback : Py_None, NULL);
    Py_DECREF(callback);
    if (offset != NULL && offset != Py_None) {
        Py_ssize_t unit = PyLong_AsSsize_t(offset) / 2, n = PyBytes_GET_SIZE(self->copies) / 4;
        if (!PyErr_Occurred() && unit >= 0 && unit < n) {
            frame->prev_instr = CODE_UNITS(frame->f_code) + ((const int32_t *)PyBytes_AS_STRING(self->copies))[unit];
        }
    }
    Py_XDECREF(offset);
    if (PyErr_Occurred()) {
        PyErr_WriteUnraisable((PyObject *)self);
    }
    PyErr_Restore(type, value, traceback);
}

/* Try one variant. 1 and a new reference in *answer for the stub (None: it deoptimised); 0 no match; -1 with an
   error set. The thread is paused on entry and on return. */
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
    PyObject *result = PyObject_Vectorcall(variant->run, outs, (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    drop_all(outs, n);
    if (outs != local + 1) {
        PyMem_Free(outs - 1);
    }
    if (result == NULL) {
        if (variant->pure && PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear();
            variant->deopts++;
            *answer = Py_NewRef(Py_None);
            return 1;
        }
        locate_error(self, frame, variant);
        return -1;
    }
    variant->hits++;
    self->hits++;
    thread->paused--;
    *answer = leave_region(self, frame, variant, result);
    Py_DECREF(result);
    thread->paused++;
    return *answer == NULL ? -1 : 1;
}

/* Put a variant first in the point's list: move it there from index `at`, or insert it (at < 0). -1 with an error. */
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
    if (on_miss == NULL) {
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

/* nb_invert, executed by an awake stub. New reference: None (go on natively) or (target, values); NULL with an error
   set. Anything that isn't the stub of this very point in the running frame gets None. */
static PyObject *
point_invert(PyObject *op)
{
    PointObject *self = (PointObject *)op;
    ThreadObject *thread = this_thread;
    if (thread == NULL || thread->config == NULL || thread->paused) {
        Py_RETURN_NONE;
    }
    PyThreadState *tstate = PyThreadState_Get();
    Frame *frame = current_frame(tstate);
    if (is_traced(tstate) || frame == NULL || frame->f_code != point_twin(self)
        || running_unit(frame) != self->invert_unit) {
        Py_RETURN_NONE;
    }
    thread->paused++;
    PyObject *answer = run_point(self, thread, frame);
    thread->paused--;
    return answer;
}

static int
point_traverse(PyObject *op, visitproc visit, void *arg)
{
    PointObject *self = (PointObject *)op;
    Py_VISIT(self->variants);
    Py_VISIT(self->data);
    return 0;
}

static int
point_clear(PyObject *op)
{
    PointObject *self = (PointObject *)op;
    Py_CLEAR(self->data);
    return self->variants != NULL ? PyList_SetSlice(self->variants, 0, PY_SSIZE_T_MAX, NULL) : 0;
}

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

static PyObject *
point_repr(PyObject *op)
{
    PointObject *self = (PointObject *)op;
    PyCodeObject *twin = point_twin(self);
    return PyUnicode_FromFormat("<Point %d of %V at offset %d, depth %d, %s>", self->index,
                                twin ? twin->co_qualname : NULL, "no code", self->offset, self->depth,
                                self->awake ? "awake" : "asleep");
}

static PyObject *
point_get_twin(PyObject *op, void *Py_UNUSED(closure))
{
    PyCodeObject *twin = point_twin((PointObject *)op);
    return Py_NewRef(twin ? (PyObject *)twin : Py_None);
}

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

/* ---- OptimizedFunction ------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fn, *config, *dict, *weakrefs;
} OptimizedObject;

/* Call fn with the thread's config set. New reference, or NULL with fn's error set; the config is restored. */
static PyObject *
optimized_call(PyObject *op, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    OptimizedObject *self = (OptimizedObject *)op;
    PyObject *before = exchange_config(self->config == Py_None ? NULL : self->config);
    if (before == NULL) {
        return NULL;
    }
    PyObject *fn = Py_NewRef(self->fn);
    PyObject *result = PyObject_Vectorcall(fn, args, nargsf, kwnames);
    Py_DECREF(fn);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *ours = exchange_config(before == Py_None ? NULL : before); /* can't fail: the thread has its state */
    PyErr_Restore(type, value, traceback);
    Py_XDECREF(ours);
    Py_DECREF(before);
    return result;
}

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

static int
optimized_traverse(PyObject *op, visitproc visit, void *arg)
{
    OptimizedObject *self = (OptimizedObject *)op;
    Py_VISIT(self->fn);
    Py_VISIT(self->config);
    Py_VISIT(self->dict);
    return 0;
}

static int
optimized_clear(PyObject *op)
{
    OptimizedObject *self = (OptimizedObject *)op;
    Py_CLEAR(self->config);
    Py_CLEAR(self->dict);
    Py_XSETREF(self->fn, Py_NewRef(Py_None)); /* stays callable, if only to raise */
    return 0;
}

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

/* Own attributes first, then the function's, so that it introspects like the function. */
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

/* Getter of the names that a type defines itself (closure: the name): what was set here, or the function's. */
static PyObject *
optimized_get_name(PyObject *op, void *closure)
{
    OptimizedObject *self = (OptimizedObject *)op;
    PyObject *own = self->dict ? PyDict_GetItemString(self->dict, closure) : NULL;
    return own != NULL ? Py_NewRef(own) : PyObject_GetAttrString(self->fn, closure);
}

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

static PyObject *
optimized_get(PyObject *op, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    return instance == NULL || instance == Py_None ? Py_NewRef(op) : PyMethod_New(op, instance);
}

static PyObject *
optimized_repr(PyObject *op)
{
    return PyUnicode_FromFormat("<framecap.optimize of %R>", ((OptimizedObject *)op)->fn);
}

/* As for functions: pickled by name, copied as themselves. */
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

/* ---- module ------------------------------------------------------------------------------------------------ */

static PyObject *
set_callbacks(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"on_code", "on_miss", "on_error", NULL};
    PyObject *code, *miss, *error = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O:set_callbacks", names, &code, &miss, &error)) {
        return NULL;
    }
    Py_XSETREF(on_code, code == Py_None ? NULL : Py_NewRef(code));
    Py_XSETREF(on_miss, miss == Py_None ? NULL : Py_NewRef(miss));
    Py_XSETREF(on_error, error == Py_None ? NULL : Py_NewRef(error));
    Py_RETURN_NONE;
}

static PyObject *
set_thread_config(PyObject *Py_UNUSED(module), PyObject *config)
{
    return exchange_config(config == Py_None ? NULL : config);
}

static PyObject *
get_thread_config(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *config = this_thread != NULL ? this_thread->config : NULL;
    return Py_NewRef(config != NULL ? config : Py_None);
}

static PyObject *
forget(PyObject *Py_UNUSED(module), PyObject *code)
{
    if (!PyCode_Check(code)) {
        return PyErr_Format(PyExc_TypeError, "a code object is expected, not %R", code);
    }
    return remember(code, NULL) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
code_state(PyObject *Py_UNUSED(module), PyObject *code)
{
    void *extra = NULL;
    if (!PyCode_Check(code)) {
        return PyErr_Format(PyExc_TypeError, "a code object is expected, not %R", code);
    }
    if (GET_CODE_EXTRA(code, code_extra, &extra) < 0) {
        return NULL;
    }
    return Py_NewRef(extra == NULL ? Py_None : extra == &never ? Py_False : (PyObject *)extra);
}

static PyMethodDef module_methods[] = {
    {"set_callbacks", (PyCFunction)(void (*)(void))set_callbacks, METH_VARARGS | METH_KEYWORDS, NULL},
    {"set_thread_config", set_thread_config, METH_O, NULL},
    {"get_thread_config", get_thread_config, METH_NOARGS, NULL},
    {"forget", forget, METH_O, NULL},
    {"code_state", code_state, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyObject *
unbound_repr(PyObject *Py_UNUSED(op))
{
    return PyUnicode_FromString("UNBOUND");
}

static PyTypeObject Unbound_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "framecap._hook.UnboundType",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_repr = unbound_repr,
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, .m_name = "framecap._hook", .m_doc = "The frame hook.", .m_size = -1,
    .m_methods = module_methods,
};

/* Fetch the guard evaluator's C functions (PyCapsule_Import doesn't import submodules in 3.11). -1 with ImportError
   set. */
static int
import_guards(void)
{
    PyObject *module = PyImport_ImportModule("framecap.guards._evaluator");
    PyObject *capsule = module != NULL ? PyObject_GetAttrString(module, "_C_API") : NULL;
    guards = capsule != NULL ? PyCapsule_GetPointer(capsule, EVALUATOR_CAPSULE) : NULL;
    Py_XDECREF(capsule);
    Py_XDECREF(module);
    if (guards == NULL && !PyErr_ExceptionMatches(PyExc_ImportError)) {
        PyErr_Clear();
        PyErr_SetString(PyExc_ImportError, "framecap.guards._evaluator is of another build than framecap._hook");
    }
    return guards == NULL ? -1 : 0;
}

PyMODINIT_FUNC
PyInit__hook(void)
{
    if (import_guards() < 0) {
        return NULL;
    }
    if (PyType_Ready(&Thread_Type) < 0 || PyType_Ready(&Unbound_Type) < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&module_def);
    if (module == NULL) {
        return NULL;
    }
    if (code_extra < 0) {
        code_extra = REQUEST_CODE_EXTRA(free_code_extra);
        unbound = (PyObject *)PyObject_New(PyObject, &Unbound_Type);
        thread_key = PyUnicode_InternFromString("framecap._hook");
    }
    if (code_extra < 0) {
        PyErr_SetString(PyExc_ImportError, "CPython has no code-extra slot left for framecap");
    }
    if (code_extra < 0 || unbound == NULL || thread_key == NULL || PyModule_AddType(module, &Point_Type) < 0
        || PyModule_AddType(module, &Variant_Type) < 0 || PyModule_AddType(module, &Optimized_Type) < 0
        || PyModule_AddType(module, &Unbound_Type) < 0
        || PyModule_AddObjectRef(module, "UNBOUND", unbound) < 0) {
        Py_CLEAR(module);
    }
    return module;
}
