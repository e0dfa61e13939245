/* The guard evaluator: a program of loads into registers and checks of registers, run at every awake capture point.

   A load that fails and a check that doesn't hold mean "no match"; neither sets an error. Nothing here runs code of the
   user's program, other than the functions of OP_CALL* and OP_PREDICATE, which framecap generates or trusts.

   Registers own references while a program runs: a trusted function may let another thread run. Lookups in dicts and
   types are remembered with the version tag they were made under. Tags are unique over all dicts (Objects/dictobject.c)
   and all types (Objects/typeobject.c) of the process, so an equal tag means the same object in the same state, whose
   result, a borrowed pointer, is therefore alive. */

#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE
#include <Python.h>
#include <structmember.h>
#include "internal/pycore_dict.h"
#include "internal/pycore_object.h"
#undef Py_BUILD_CORE
#include "_evaluator.h"

#define SMALL 64 /* registers on the C stack */

typedef enum {
    OP_SLOT, OP_GLOBALS, OP_BUILTINS, OP_CONST, OP_CELL, OP_ATTR, OP_ITEM, OP_INDEX, OP_TYPE, OP_TYPEATTR, OP_GET, OP_DICT,
    OP_CALL0, OP_CALL1, OP_IS, OP_IS_TYPE, OP_EQUALS, OP_LENGTH, OP_KEYS, OP_NO_KEY, OP_NO_ATTR, OP_NO_TYPEATTR, OP_UNBOUND,
    OP_EMPTY_CELL, OP_SAME, OP_DISTINCT, OP_PREDICATE, OP_LEAF, N_OPS
} Opcode;

static const char *const op_names[N_OPS] = {
    "slot", "globals", "builtins", "const", "cell", "attr", "item", "index", "type", "typeattr", "get", "dict",
    "call0", "call1", "is", "is_type", "equals", "length", "keys", "no_key", "no_attr", "no_typeattr", "unbound",
    "empty_cell", "same", "distinct", "predicate", "leaf",
};

typedef struct {
    int op;
    int dst;            /* register written by a load; -1 for a check */
    int a, b;           /* registers read */
    int guard;          /* index of the guard this serves; -1: an output */
    int weak;           /* `obj` is a weak reference to what is meant */
    Py_ssize_t n;
    PyObject *obj;      /* owned: name, key, constant, function or weak reference */
    PyObject *extra;    /* owned: tuple of registers, class to hold, ... */
    uint64_t tag;       /* version of the dict or type at the last lookup; 0: none */
    PyObject *cached;   /* borrowed, valid while the tag is: the result; NULL for "absent" */
    PyObject *hooks[4]; /* OP_LEAF: borrowed, valid while the tag is: the module's hook dicts */
} Step;

typedef struct {
    PyObject_HEAD
    Py_ssize_t n_steps, n_registers, n_outputs;
    Step *steps;
    int *outputs; /* registers */
} Program;

static PyTypeObject Program_Type;
static PyObject *name_forward;
static PyObject *name_hooks[4];
static PyObject *global_hooks; /* tuple of the dicts of torch's global module hooks, or NULL */

/* What an OP_CONST or OP_IS means, or NULL if it is gone. Borrowed. */
static inline PyObject *
referent(const Step *step)
{
    if (!step->weak) {
        return step->obj;
    }
    PyObject *object = PyWeakref_GET_OBJECT(step->obj);
    return object == Py_None ? NULL : object;
}

/* Item `key` of a dict, NULL if absent. Borrowed; no error is set. Remembers the result under the dict's version. */
static inline PyObject *
dict_item(Step *step, PyObject *dict, PyObject *key)
{
    uint64_t tag = ((PyDictObject *)dict)->ma_version_tag;
    if (step->tag == tag) {
        return step->cached;
    }
    PyObject *found = PyDict_GetItemWithError(dict, key);
    if (found == NULL && PyErr_Occurred()) {
        PyErr_Clear();
        step->tag = 0;
        return NULL;
    }
    step->tag = tag;
    step->cached = found;
    return found;
}

/* What `name` is on a type, NULL if nothing. Borrowed; no error is set. Remembers the result under the type's version. */
static inline PyObject *
type_item(Step *step, PyTypeObject *type, PyObject *name)
{
    if (step->tag != 0 && step->tag == type->tp_version_tag && (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) {
        return step->cached;
    }
    PyObject *found = _PyType_Lookup(type, name);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        found = NULL;
    }
    step->tag = (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
    step->cached = found;
    return found;
}

/* The dict of an instance, NULL if it has none or keeps its attributes inline (then *values is set). Borrowed. */
static PyObject *
instance_dict(PyObject *object, PyDictValues **values)
{
    PyTypeObject *type = Py_TYPE(object);
    *values = NULL;
    if (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) {
        PyObject *dict = *_PyObject_ManagedDictPointer(object);
        if (dict == NULL) {
            *values = *_PyObject_ValuesPointer(object);
        }
        return dict;
    }
    PyObject **pointer = _PyObject_GetDictPtr(object); /* makes no dict: the type has no inline values */
    return pointer == NULL ? NULL : *pointer;
}

/* Attribute `name` in the instance itself: its dict, its inline values, or a slot. NULL if absent. New reference; no
   error is set; no code of the program runs. */
static PyObject *
instance_attribute(Step *step, PyObject *object, PyObject *name)
{
    PyDictValues *values;
    PyObject *dict = instance_dict(object, &values);
    if (dict != NULL) {
        if (!PyDict_Check(dict)) {
            return NULL;
        }
        PyObject *found = dict_item(step, dict, name);
        if (found != NULL) {
            return Py_NewRef(found);
        }
    }
    else if (values != NULL) {
        PyDictKeysObject *keys = ((PyHeapTypeObject *)Py_TYPE(object))->ht_cached_keys;
        if (keys != NULL && DK_IS_UNICODE(keys)) {
            PyDictUnicodeEntry *entries = DK_UNICODE_ENTRIES(keys);
            Py_ssize_t at = step->n; /* where the name was the last time: shared keys only grow */
            if (at < 0 || at >= keys->dk_nentries || entries[at].me_key != name) {
                for (at = 0; at < keys->dk_nentries; at++) {
                    PyObject *key = entries[at].me_key;
                    if (key == name || (key != NULL && PyUnicode_Compare(key, name) == 0)) {
                        break;
                    }
                }
            }
            if (at < keys->dk_nentries) {
                step->n = at;
                if (values->values[at] != NULL) {
                    return Py_NewRef(values->values[at]);
                }
            }
        }
    }
    PyTypeObject *type = Py_TYPE(object);
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        PyObject *descriptor = _PyType_Lookup(type, name);
        if (descriptor != NULL && Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
            PyObject *found = Py_TYPE(descriptor)->tp_descr_get(descriptor, object, (PyObject *)type);
            if (found == NULL) {
                PyErr_Clear();
            }
            return found;
        }
        PyErr_Clear();
    }
    return NULL;
}

/* Whether two objects of one exact type are equal as values, without running code of the program. No error is set. */
static int
same_value(PyObject *a, PyObject *b)
{
    PyTypeObject *type = Py_TYPE(a);
    if (type != Py_TYPE(b)) {
        return 0;
    }
    if (a == b) {
        return 1;
    }
    if (type == &PyFloat_Type) {
        double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
        return (x != x && y != y) || memcmp(&x, &y, sizeof x) == 0;
    }
    if (type == &PyComplex_Type) {
        Py_complex x = ((PyComplexObject *)a)->cval, y = ((PyComplexObject *)b)->cval;
        return memcmp(&x, &y, sizeof x) == 0;
    }
    if (PyTuple_Check(a)) {
        Py_ssize_t n = PyTuple_GET_SIZE(a);
        if (n != PyTuple_GET_SIZE(b)) {
            return 0;
        }
        for (Py_ssize_t i = 0; i < n; i++) {
            if (!same_value(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) {
                return 0;
            }
        }
        return 1;
    }
    if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        return 0; /* its comparison may be the program's */
    }
    if (type == &PyFrozenSet_Type) {
        /* Equal sets may differ in types (1 and True): every member must have its like. */
        if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) {
            return 0;
        }
        Py_ssize_t i = 0, j;
        PyObject *x, *y;
        Py_hash_t hash;
        while (_PySet_NextEntry(a, &i, &x, &hash)) {
            int found = 0;
            j = 0;
            while (!found && _PySet_NextEntry(b, &j, &y, &hash)) {
                found = same_value(x, y);
            }
            if (!found) {
                return 0;
            }
        }
        return 1;
    }
    int equal = PyObject_RichCompareBool(a, b, Py_EQ);
    if (equal < 0) {
        PyErr_Clear();
        return 0;
    }
    return equal;
}

/* Number of items of a built-in container, -1 for anything else. */
static Py_ssize_t
raw_length(PyObject *object)
{
    if (PyList_Check(object) || PyTuple_Check(object)) {
        return Py_SIZE(object);
    }
    if (PyDict_Check(object)) {
        return ((PyDictObject *)object)->ma_used;
    }
    return PyAnySet_Check(object) ? PySet_GET_SIZE(object) : -1;
}

/* Whether a dict has exactly these keys, in order. No error is set. An OrderedDict's own order is asked for. */
static int
same_keys(Step *step, PyObject *dict, PyObject *keys)
{
    if (!PyDict_Check(dict)) {
        return 0;
    }
    uint64_t tag = ((PyDictObject *)dict)->ma_version_tag;
    if (step->tag == tag) {
        return 1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(keys);
    if (((PyDictObject *)dict)->ma_used != n) {
        return 0;
    }
    Py_ssize_t position = 0, i = 0;
    PyObject *key;
    while (PyDict_Next(dict, &position, &key, NULL)) {
        PyObject *wanted = PyTuple_GET_ITEM(keys, i++);
        if (key != wanted && !same_value(key, wanted)) {
            return 0;
        }
    }
    if (PyODict_Check(dict)) {
        return 1; /* move_to_end reorders without a new version, so nothing is remembered; see tree.py */
    }
    step->tag = tag;
    return 1;
}

/* Whether a module is of the step's class, without hooks and without a forward of its own. No error is set. */
static int
is_leaf(Step *step, PyObject *module)
{
    if (Py_TYPE(module) != (PyTypeObject *)referent(step)) {
        return 0;
    }
    PyDictValues *values;
    PyObject *dict = instance_dict(module, &values);
    if (dict == NULL || !PyDict_CheckExact(dict)) {
        return 0;
    }
    uint64_t tag = ((PyDictObject *)dict)->ma_version_tag;
    if (step->tag != tag) {
        step->tag = 0;
        if (PyDict_GetItemWithError(dict, name_forward) != NULL || PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
        for (int i = 0; i < 4; i++) {
            step->hooks[i] = PyDict_GetItemWithError(dict, name_hooks[i]);
            if (step->hooks[i] == NULL || !PyDict_Check(step->hooks[i])) {
                PyErr_Clear();
                return 0;
            }
        }
        step->tag = tag;
    }
    for (int i = 0; i < 4; i++) {
        if (((PyDictObject *)step->hooks[i])->ma_used) {
            return 0;
        }
    }
    if (global_hooks != NULL) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(global_hooks); i++) {
            if (((PyDictObject *)PyTuple_GET_ITEM(global_hooks, i))->ma_used) {
                return 0;
            }
        }
    }
    return 1;
}

/* Call a trusted predicate on registers. 1 or 0; an exception counts as 0. */
static int
predicate(Step *step, PyObject **registers)
{
    Py_ssize_t n = PyTuple_GET_SIZE(step->extra);
    PyObject *arguments[8];
    if (n > 8) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        arguments[i] = registers[PyLong_AsLong(PyTuple_GET_ITEM(step->extra, i))];
    }
    PyObject *result = PyObject_Vectorcall(step->obj, arguments, (size_t)n, NULL);
    int truth = result == NULL ? -1 : PyObject_IsTrue(result);
    Py_XDECREF(result);
    if (truth < 0) {
        PyErr_Clear();
        return 0;
    }
    return truth == step->n;
}

static int
distinct(Step *step, PyObject **registers)
{
    Py_ssize_t n = PyTuple_GET_SIZE(step->extra);
    for (Py_ssize_t i = 0; i < n; i++) {
        for (Py_ssize_t j = i + 1; j < n; j++) {
            if (registers[PyLong_AsLong(PyTuple_GET_ITEM(step->extra, i))]
                == registers[PyLong_AsLong(PyTuple_GET_ITEM(step->extra, j))]) {
                return 0;
            }
        }
    }
    return 1;
}

/* Run one load. New reference, or NULL for "can't be reached"; no error is set. */
static PyObject *
load(Step *step, PyObject **registers, PyObject *const *slots, Py_ssize_t n_slots, PyObject *globals, PyObject *builtins)
{
    PyObject *base = step->a >= 0 ? registers[step->a] : NULL;
    PyObject *found = NULL;
    switch (step->op) {
    case OP_SLOT:
        return step->n < n_slots ? Py_XNewRef(slots[step->n]) : NULL;
    case OP_GLOBALS:
        return Py_XNewRef(globals);
    case OP_BUILTINS:
        return Py_XNewRef(builtins);
    case OP_CONST:
        return Py_XNewRef(referent(step));
    case OP_CELL:
        return PyCell_Check(base) ? Py_XNewRef(PyCell_GET(base)) : NULL;
    case OP_ATTR:
        return instance_attribute(step, base, step->obj);
    case OP_ITEM:
        return PyDict_Check(base) ? Py_XNewRef(dict_item(step, base, step->obj)) : NULL;
    case OP_INDEX:
        if (PyTuple_Check(base)) {
            return step->n < PyTuple_GET_SIZE(base) ? Py_NewRef(PyTuple_GET_ITEM(base, step->n)) : NULL;
        }
        return PyList_Check(base) && step->n < PyList_GET_SIZE(base) ? Py_NewRef(PyList_GET_ITEM(base, step->n)) : NULL;
    case OP_TYPE:
        return Py_NewRef(Py_TYPE(base));
    case OP_TYPEATTR:
        return PyType_Check(base) ? Py_XNewRef(type_item(step, (PyTypeObject *)base, step->obj)) : NULL;
    case OP_GET:
        found = PyObject_GetAttr(base, step->obj);
        break;
    case OP_DICT:
        found = PyObject_GenericGetDict(base, NULL);
        break;
    case OP_CALL0:
        found = PyObject_CallNoArgs(step->obj);
        break;
    case OP_CALL1:
        found = PyObject_CallOneArg(step->obj, base);
        break;
    }
    if (found == NULL) {
        PyErr_Clear();
    }
    return found;
}

/* Run one check. 1 or 0; no error is set. */
static int
check(Step *step, PyObject **registers, PyObject *const *slots, Py_ssize_t n_slots)
{
    PyObject *object = step->a >= 0 ? registers[step->a] : NULL;
    switch (step->op) {
    case OP_IS:
        return object == referent(step);
    case OP_IS_TYPE:
        return (PyObject *)Py_TYPE(object) == referent(step);
    case OP_EQUALS:
        return same_value(object, step->obj);
    case OP_LENGTH:
        return raw_length(object) == step->n;
    case OP_KEYS:
        return same_keys(step, object, step->obj);
    case OP_NO_KEY:
        return PyDict_Check(object) && dict_item(step, object, step->obj) == NULL;
    case OP_NO_ATTR: {
        PyObject *found = instance_attribute(step, object, step->obj);
        Py_XDECREF(found);
        return found == NULL;
    }
    case OP_NO_TYPEATTR:
        return PyType_Check(object) && type_item(step, (PyTypeObject *)object, step->obj) == NULL;
    case OP_UNBOUND:
        return step->n < n_slots && slots[step->n] == NULL;
    case OP_EMPTY_CELL:
        return PyCell_Check(object) && PyCell_GET(object) == NULL;
    case OP_SAME:
        return object == registers[step->b];
    case OP_DISTINCT:
        return distinct(step, registers);
    case OP_PREDICATE:
        return predicate(step, registers);
    case OP_LEAF:
        return is_leaf(step, object);
    }
    return 0;
}

/* Run a program. Returns the index of the step that failed, or -1 on a match, when outs (unless NULL) gets new
   references. No error is set; -2 with MemoryError set. *at: new reference to what the failed check saw, or NULL. */
static Py_ssize_t
run(Program *self, PyObject *const *slots, Py_ssize_t n_slots, PyObject *globals, PyObject *builtins, PyObject **outs, PyObject **at)
{
    PyObject *small[SMALL];
    PyObject **registers = small;
    Py_ssize_t failed = -1, top = 0;
    if (self->n_registers > SMALL) {
        registers = PyMem_Malloc((size_t)self->n_registers * sizeof(PyObject *));
        if (registers == NULL) {
            PyErr_NoMemory();
            return -2;
        }
    }
    for (Py_ssize_t i = 0; i < self->n_steps; i++) {
        Step *step = &self->steps[i];
        if (step->dst >= 0) {
            PyObject *found = load(step, registers, slots, n_slots, globals, builtins);
            if (found == NULL) {
                failed = i;
                break;
            }
            registers[top++] = found; /* registers are written in order: dst == top */
        }
        else if (!check(step, registers, slots, n_slots)) {
            failed = i;
            if (at != NULL && step->a >= 0) {
                *at = Py_NewRef(registers[step->a]);
            }
            break;
        }
    }
    if (failed < 0 && outs != NULL) {
        for (Py_ssize_t i = 0; i < self->n_outputs; i++) {
            outs[i] = Py_NewRef(registers[self->outputs[i]]);
        }
    }
    while (top > 0) {
        top--;
        Py_DECREF(registers[top]);
    }
    if (registers != small) {
        PyMem_Free(registers);
    }
    return failed;
}

/* The functions of the capsule; see _evaluator.h. */

static int
api_evaluate(PyObject *program, PyObject *const *slots, Py_ssize_t n_slots, PyObject *globals, PyObject *builtins, PyObject **outs)
{
    Py_ssize_t failed = run((Program *)program, slots, n_slots, globals, builtins, outs, NULL);
    return failed == -1 ? 1 : failed == -2 ? -1 : 0;
}

static Py_ssize_t
api_n_outputs(PyObject *program)
{
    return ((Program *)program)->n_outputs;
}

static int
api_program_check(PyObject *object)
{
    return PyObject_TypeCheck(object, &Program_Type);
}

static Evaluator_API api = {api_evaluate, api_n_outputs, api_program_check};

/* Program(steps, n_registers, outputs): steps are tuples (op, dst, a, b, guard, n, obj, extra). */

static int
parse_step(Step *step, PyObject *item)
{
    const char *op;
    PyObject *obj, *extra;
    if (!PyArg_ParseTuple(item, "siiiinOO", &op, &step->dst, &step->a, &step->b, &step->guard, &step->n, &obj, &extra)) {
        return -1;
    }
    step->op = -1;
    for (int i = 0; i < N_OPS; i++) {
        if (strcmp(op, op_names[i]) == 0) {
            step->op = i;
        }
    }
    if (step->op < 0) {
        PyErr_Format(PyExc_ValueError, "there is no evaluator operation %s", op);
        return -1;
    }
    step->extra = Py_NewRef(extra);
    if ((step->op == OP_IS || step->op == OP_IS_TYPE || step->op == OP_CONST || step->op == OP_LEAF)
        && PyType_SUPPORTS_WEAKREFS(Py_TYPE(obj))) {
        step->obj = PyWeakref_NewRef(obj, NULL);
        step->weak = step->obj != NULL;
        if (step->obj == NULL) {
            PyErr_Clear();
            step->obj = Py_NewRef(obj);
        }
    }
    else {
        step->obj = Py_NewRef(obj);
    }
    return 0;
}

static PyObject *
program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"steps", "n_registers", "outputs", NULL};
    PyObject *steps, *outputs;
    Py_ssize_t n_registers;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!nO!", names, &PyTuple_Type, &steps, &n_registers, &PyTuple_Type, &outputs)) {
        return NULL;
    }
    Program *self = (Program *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(steps), n_outputs = PyTuple_GET_SIZE(outputs);
    self->steps = PyMem_Calloc((size_t)n + 1, sizeof(Step));
    self->outputs = PyMem_Calloc((size_t)n_outputs + 1, sizeof(int));
    if (self->steps == NULL || self->outputs == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    int next = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        self->n_steps = i + 1;
        Step *step = &self->steps[i];
        if (parse_step(step, PyTuple_GET_ITEM(steps, i)) < 0) {
            Py_DECREF(self);
            return NULL;
        }
        if ((step->dst >= 0 && step->dst != next++) || step->a >= next || step->b >= next) {
            PyErr_SetString(PyExc_ValueError, "registers must be written in order, before they are read");
            Py_DECREF(self);
            return NULL;
        }
    }
    self->n_registers = n_registers;
    self->n_outputs = n_outputs;
    for (Py_ssize_t i = 0; i < n_outputs; i++) {
        self->outputs[i] = (int)PyLong_AsLong(PyTuple_GET_ITEM(outputs, i));
        if (self->outputs[i] < 0 || self->outputs[i] >= next || next != n_registers) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "an output is no register");
            }
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static int
program_traverse(Program *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < self->n_steps; i++) {
        Py_VISIT(self->steps[i].obj);
        Py_VISIT(self->steps[i].extra);
    }
    return 0;
}

static int
program_clear(Program *self)
{
    for (Py_ssize_t i = 0; i < self->n_steps; i++) {
        Py_CLEAR(self->steps[i].obj);
        Py_CLEAR(self->steps[i].extra);
    }
    self->n_steps = 0;
    return 0;
}

static void
program_dealloc(Program *self)
{
    PyObject_GC_UnTrack(self);
    program_clear(self);
    PyMem_Free(self->steps);
    PyMem_Free(self->outputs);
    Py_TYPE(self)->tp_free(self); /* a subclass made in Python drops its own reference to its type */
}

/* Slots of a Python sequence as an array of borrowed references, NULL where it holds `unbound`. */
static PyObject **
slot_array(PyObject *slots, PyObject *unbound, Py_ssize_t *n)
{
    *n = PyTuple_GET_SIZE(slots);
    PyObject **array = PyMem_Calloc((size_t)*n + 1, sizeof(PyObject *));
    if (array == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < *n; i++) {
        PyObject *item = PyTuple_GET_ITEM(slots, i);
        array[i] = item == unbound ? NULL : item;
    }
    return array;
}

/* check(slots, globals, builtins, unbound) -> tuple of outputs, or None. */
static PyObject *
program_check(Program *self, PyObject *args)
{
    PyObject *slots, *globals, *builtins, *unbound;
    if (!PyArg_ParseTuple(args, "O!OOO", &PyTuple_Type, &slots, &globals, &builtins, &unbound)) {
        return NULL;
    }
    Py_ssize_t n;
    PyObject **array = slot_array(slots, unbound, &n);
    PyObject *outs = array != NULL ? PyTuple_New(self->n_outputs) : NULL;
    if (outs == NULL) {
        PyMem_Free(array);
        return NULL;
    }
    Py_ssize_t failed = run(self, array, n, globals, builtins, &PyTuple_GET_ITEM(outs, 0), NULL);
    PyMem_Free(array);
    if (failed == -1) {
        return outs;
    }
    Py_DECREF(outs);
    if (failed == -2) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* explain(slots, globals, builtins, unbound) -> None on a match, else (guard index, whether it was reached, found). */
static PyObject *
program_explain(Program *self, PyObject *args)
{
    PyObject *slots, *globals, *builtins, *unbound;
    if (!PyArg_ParseTuple(args, "O!OOO", &PyTuple_Type, &slots, &globals, &builtins, &unbound)) {
        return NULL;
    }
    Py_ssize_t n;
    PyObject **array = slot_array(slots, unbound, &n);
    if (array == NULL) {
        return NULL;
    }
    PyObject *found = NULL;
    Py_ssize_t failed = run(self, array, n, globals, builtins, NULL, &found);
    PyMem_Free(array);
    if (failed == -1) {
        Py_RETURN_NONE;
    }
    if (failed == -2) {
        return NULL;
    }
    PyObject *reached = PyBool_FromLong(found != NULL);
    return Py_BuildValue("iNN", self->steps[failed].guard, reached, found != NULL ? found : Py_NewRef(Py_None));
}

/* Whether something that the program holds weakly is gone, so that it can never match again. */
static PyObject *
program_dead(Program *self, void *Py_UNUSED(closure))
{
    for (Py_ssize_t i = 0; i < self->n_steps; i++) {
        if (self->steps[i].weak && referent(&self->steps[i]) == NULL) {
            Py_RETURN_TRUE;
        }
    }
    Py_RETURN_FALSE;
}

static PyMethodDef program_methods[] = {
    {"check", (PyCFunction)program_check, METH_VARARGS, "check(slots, globals, builtins, unbound) -> outputs or None"},
    {"explain", (PyCFunction)program_explain, METH_VARARGS, "explain(slots, globals, builtins, unbound) -> None or (guard, reached, found)"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef program_getset[] = {
    {"dead", (getter)program_dead, NULL, "Whether a weakly held object is gone: the program never matches again.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject Program_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "framecap.guards._evaluator.Program",
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "A compiled set of guards.",
    .tp_new = program_new,
    .tp_dealloc = (destructor)program_dealloc,
    .tp_traverse = (traverseproc)program_traverse,
    .tp_clear = (inquiry)program_clear,
    .tp_methods = program_methods,
    .tp_getset = program_getset,
};

/* set_global_hooks(tuple of dicts): what OP_LEAF finds empty besides the module's own hooks. */
static PyObject *
set_global_hooks(PyObject *Py_UNUSED(module), PyObject *dicts)
{
    if (!PyTuple_Check(dicts)) {
        PyErr_SetString(PyExc_TypeError, "a tuple of dicts is expected");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(dicts); i++) {
        if (!PyDict_Check(PyTuple_GET_ITEM(dicts, i))) {
            PyErr_SetString(PyExc_TypeError, "a tuple of dicts is expected");
            return NULL;
        }
    }
    Py_XSETREF(global_hooks, Py_NewRef(dicts));
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"set_global_hooks", set_global_hooks, METH_O, "Name the dicts of torch's global module hooks."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, .m_name = "framecap.guards._evaluator", .m_doc = "The guard evaluator.", .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC
PyInit__evaluator(void)
{
    static const char *const names[4] = {"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"};
    if (PyType_Ready(&Program_Type) < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&module_def);
    if (module == NULL) {
        return NULL;
    }
    name_forward = PyUnicode_InternFromString("forward");
    int ok = name_forward != NULL && PyModule_AddObjectRef(module, "Program", (PyObject *)&Program_Type) == 0;
    for (int i = 0; i < 4; i++) {
        name_hooks[i] = PyUnicode_InternFromString(names[i]);
        ok = ok && name_hooks[i] != NULL;
    }
    PyObject *capsule = PyCapsule_New(&api, EVALUATOR_CAPSULE, NULL);
    ok = ok && capsule != NULL && PyModule_AddObjectRef(module, "_C_API", capsule) == 0;
    Py_XDECREF(capsule);
    if (!ok) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
