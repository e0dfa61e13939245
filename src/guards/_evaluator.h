/* The C interface of the guard evaluator, for the frame hook. Reached through the capsule named below. */
#ifndef FRAMECAP_EVALUATOR_H
#define FRAMECAP_EVALUATOR_H
#include <Python.h>

#define EVALUATOR_CAPSULE "framecap.guards._evaluator._C_API"

typedef struct {
    /* Check `program` against a frame. slots: localsplus and stack items, NULL for what is unbound. On a match (1) `outs`
       holds new references to the program's outputs; 0: no match; -1: an error is set. */
    int (*evaluate)(PyObject *program, PyObject *const *slots, Py_ssize_t n_slots, PyObject *globals, PyObject *builtins,
                    PyObject **outs);
    Py_ssize_t (*n_outputs)(PyObject *program);
    int (*program_check)(PyObject *object);
} Evaluator_API;

#endif
