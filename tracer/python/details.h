// What modules and optimizers hold, copied at the moment of the call: parameters, buffers, gradients, hyperparameters,
// state. Read by formats/values/object_details.h.
//
// Encoding (record ObjectDetailDef), as the inputs of operators (objects/values.h): varint, zigzag, and
//     detail := item*
//     item   := 'p' name key tensor ['g' tensor]   parameter, and its gradient if it has one
//             | 'b' name key tensor                buffer of a module
//             | 'G'                                a parameter group of an optimizer begins
//             | 'h' name value                     a hyperparameter of that group
//             | 's' key                            the state of the parameter with this key begins
//             | 'v' name value                     a value of that state
//     name   := n bytes*                           cut at kMaxName
//     key    := varint                             address of the Python object; 'p' and 's' of one parameter share it
//     value  := 'I' zigzag | 'D' 8 bytes | 'B' byte | 'N' | '(' n value* | '=' tensor
//     tensor := as encode_tensor() writes it       a parameter of an optimizer has an empty name
//
// Tensors are left out where this torch's layout is not known; then a note says so.
//
// Threads: with the GIL held and the garbage collector off. No code of the program runs: instances are read through
// their own dictionaries, never through attributes. No reference is kept.
#pragma once

#include "tracer/python/abi.h"
#include "tracer/spool/ids.h"

namespace torchprof::python {

inline constexpr size_t kMaxName = 256;
inline constexpr uint32_t kMaxParts = 64;                    // of one detail; what does not fit is left out
inline constexpr uint64_t kMaxDetails = uint64_t{64} << 20;  // bytes in a process; after that only paths are recorded

// A new reference to dict[key] if that is a dictionary; otherwise nullptr, also where `dict` is no dictionary. No error
// is set.
Object* own_dict_item(Object* dict, const char* key) noexcept;

struct Place {
  ObjectId object;
  ObjectId root;
  StringId path;
};

// Records what the module itself holds. `again`: only if there is a gradient, since nothing else can be new.
void record_module(Object* self, const Place& place, bool again) noexcept;
void record_optimizer(Object* self, ObjectId id) noexcept;
// The first parameter in the optimizer's groups: an address to compare, no reference. nullptr: there is none.
const void* first_parameter_of(Object* optimizer) noexcept;

}  // namespace torchprof::python
