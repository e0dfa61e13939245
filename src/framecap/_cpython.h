/* What framecap._hook needs of CPython's internals; every test of the Python version stands here.

   PEP 523 hands an evaluator the interpreter's own frame struct, whose layout is private to each minor
   version. */
#ifndef FRAMECAP_CPYTHON_H
#define FRAMECAP_CPYTHON_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <Python.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000
#error "framecap._hook knows the frames of CPython 3.11 only"
#endif

#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <opcode.h>

typedef _PyInterpreterFrame Frame;
typedef _Py_CODEUNIT CodeUnit;

#define CODE_UNITS(code) _PyCode_CODE(code)
#define REQUEST_CODE_EXTRA _PyEval_RequestCodeExtraIndex
#define GET_CODE_EXTRA _PyCode_GetExtra
#define SET_CODE_EXTRA _PyCode_SetExtra

/* The current frame of the thread, borrowed, NULL when it runs none. Never raises. */
static inline Frame *
current_frame(PyThreadState *tstate)
{
    return tstate->cframe->current_frame;
}

/* Whether a trace or profile function is set: such a thread sees the original code, untouched. Never raises.
   */
static inline int
is_traced(PyThreadState *tstate)
{
    return tstate->c_tracefunc != NULL || tstate->c_profilefunc != NULL;
}

/* Whether the frame is on the thread's stack (a generator owns its own frames, which start suspended). */
static inline int
is_thread_frame(Frame *frame)
{
    return frame->owner == FRAME_OWNED_BY_THREAD;
}

/* Whether nothing of the frame has run, and nobody has a frame object of it. */
static inline int
is_fresh(Frame *frame)
{
    return frame->prev_instr == CODE_UNITS(frame->f_code) - 1 && frame->frame_obj == NULL
        && frame->stacktop == frame->f_code->co_nlocalsplus;
}

/* The index of the code unit that the frame is executing. */
static inline Py_ssize_t
running_unit(Frame *frame)
{
    return frame->prev_instr - CODE_UNITS(frame->f_code);
}

/* Enlarge the frame, the topmost of the thread's data stack, by `extra` stack slots. 0 when it isn't topmost
   or its chunk has no room: then nothing was changed. PopFrame sets the top to the frame's base, so nothing
   is to be undone. Never raises. */
static inline int
grow_frame(PyThreadState *tstate, Frame *frame, Py_ssize_t extra)
{
    PyCodeObject *code = frame->f_code;
    PyObject **end = (PyObject **)frame + FRAME_SPECIALS_SIZE + code->co_nlocalsplus + code->co_stacksize;
    if (extra <= 0) {
        return 1;
    }
    if (end != tstate->datastack_top || !_PyThreadState_HasStackSpace(tstate, (size_t)extra)) {
        return 0;
    }
    tstate->datastack_top += extra;
    return 1;
}

/* Make a fresh frame run `code` (same localsplus layout). Steals nothing, never raises. */
static inline void
set_fresh_code(Frame *frame, PyCodeObject *code)
{
    PyCodeObject *old = frame->f_code;
    frame->f_code = (PyCodeObject *)Py_NewRef((PyObject *)code);
    frame->prev_instr = CODE_UNITS(code) - 1;
    Py_DECREF(old);
}

#endif
