/* The frame hook (PEP 523): which code a frame runs, and what happens at a capture point.

   A frame that starts in a thread with a config runs the rewritten twin R of its code C (see
   bytecode/rewrite.py). R has a stub at each capture point; an awake stub inverts (~) its Point constant,
   which lands in point_invert(): the variants' guards are checked on the frame's own slots, a region is run,
   the frame's locals are written, and what the stub gets back, (target, stack values), tells it where to go
   on. All state is per thread. */
#include "_cpython.h"
#include "../guards/_evaluator.h"

/* Frames this deep on the C stack run with the hook taken off, so that their calls need no C stack (they are
   made inside the evaluator again). A program gets here only by raising the recursion limit. */
#define DEEP 2000
#define ANY_GENERATOR (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)

typedef struct {
    PyObject_HEAD
    PyObject *config; /* strong, NULL: off */
    int paused;
    int running; /* regions that run now, one inside another */
    int keep; /* the generator about to be made takes the config along, to be captured wherever it is resumed */
} ThreadObject;

static PyTypeObject Thread_Type;

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

/* Set or take off the evaluator, as the counters ask. Another tool's evaluator that was put on top of ours is
   left alone: it calls ours, which passes on. Never raises. */
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

/* When the thread ends, by whichever thread clears its state. May run any code (the config's finalizer). */
static void
thread_dealloc(PyObject *op)
{
    ThreadObject *self = (ThreadObject *)op;
    if (this_thread == self) {
        this_thread = NULL;
    }
    if (self->config != NULL) {
        n_configs--;
        if (_PyThreadState_UncheckedGet() != NULL) {
            update_evaluator();
        }
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
        thread->running = 0;
        thread->keep = 0;
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

/* Drop a reference to what a code's extra holds, NULL too. CPython calls it when a code is freed or its extra
   set. */
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

/* Ask on_code about a code seen for the first time. New reference to R, or to None for never; NULL with an
   error set. */
static PyObject *
ask_for_twin(ThreadObject *thread, PyCodeObject *code)
{
    if (on_code == NULL || _Py_IsFinalizing()) {
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

/* Give a generator function's frame a function over R, since the generator is allocated and named by its
   function. The original function is kept alive by it, as func_doc. 1, or -1 with an error set. */
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
    if (this_thread != NULL && this_thread->keep && this_thread->config != NULL) {
        /* Nobody sees this function, so its annotations are free to hold the config. */
        Py_XSETREF(func->func_annotations, Py_NewRef(this_thread->config));
    }
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

/* The config that a generator was made with by an OptimizedFunction, or NULL. Borrowed. */
static PyObject *
kept_config(Frame *frame)
{
    return user_function(frame) == (PyObject *)frame->f_func ? NULL : frame->f_func->func_annotations;
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

/* Swap a fresh frame's code for its twin, when there is one and it can be done: 1 if it was, 0 if the frame
   is to run as it is, -1 with an error set. */
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

/* The frame evaluator. New reference, or NULL with an error set; the caller clears the frame in either case.
   */
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

#include "_point.h"
#include "_optimized.h"

/* ---- module ------------------------------------------------------------------------------------------------ */

/* New reference to None, or NULL with an error set. */
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

/* New reference to the config before, or None; NULL with an error set. */
static PyObject *
set_thread_config(PyObject *Py_UNUSED(module), PyObject *config)
{
    return exchange_config(config == Py_None ? NULL : config);
}

/* New reference; never raises. */
static PyObject *
get_thread_config(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    PyObject *config = this_thread != NULL ? this_thread->config : NULL;
    return Py_NewRef(config != NULL ? config : Py_None);
}

/* New reference to None, or NULL with an error set. */
static PyObject *
forget(PyObject *Py_UNUSED(module), PyObject *code)
{
    if (!PyCode_Check(code)) {
        return PyErr_Format(PyExc_TypeError, "a code object is expected, not %R", code);
    }
    return remember(code, NULL) < 0 ? NULL : Py_NewRef(Py_None);
}

/* New reference to R, False (never) or None (unseen); NULL with an error set. */
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

/* in_region() -> bool: whether this thread is inside the code of a captured region. New reference. */
static PyObject *
in_region(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args))
{
    return PyBool_FromLong(this_thread != NULL && this_thread->running > 0);
}

static PyMethodDef module_methods[] = {
    {"set_callbacks", (PyCFunction)(void (*)(void))set_callbacks, METH_VARARGS | METH_KEYWORDS, NULL},
    {"set_thread_config", set_thread_config, METH_O, NULL},
    {"get_thread_config", get_thread_config, METH_NOARGS, NULL},
    {"in_region", in_region, METH_NOARGS, NULL},
    {"forget", forget, METH_O, NULL},
    {"code_state", code_state, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

/* New reference, or NULL with an error set. */
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

/* Fetch the guard evaluator's C functions (PyCapsule_Import doesn't import submodules in 3.11). -1 with
   ImportError set. */
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

/* New reference, or NULL with an error set (ImportError for a missing or foreign guard evaluator). */
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
