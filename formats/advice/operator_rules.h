// The rules about operators of torch, one function each. They claim time from each other, so their order matters
// (find_in_operators()): what encloses operators, and so names the cause, comes before what they are.
//
// rules.h has the models of their costs.
#pragma once

#include "formats/advice/operator_subject.h"

namespace torchprof::formats {

// What somebody looks for errors with (operator_debugging.cpp).
void find_profiler(OperatorSubject& subject);
void find_known_functions(OperatorSubject& subject);
void find_anomaly_detection(OperatorSubject& subject);
void find_finite_checks(OperatorSubject& subject);
void find_values_read(OperatorSubject& subject);

// Loops over parameters (operator_loops.cpp). Optimizers enclose what other rules see, and come before most
// of them; the other loops come after what looks for errors.
void find_optimizers(OperatorSubject& subject);
void find_parameter_loops(OperatorSubject& subject);
// Loops over the positions of a sequence, or other parts of a tensor (operator_loops.cpp).
void find_cells(OperatorSubject& subject);
void find_part_by_part(OperatorSubject& subject);

// A model that runs once more than it has to, or on more than it has to (operator_passes.cpp).
void find_whole_sequences(OperatorSubject& subject);
void find_second_passes(OperatorSubject& subject);
void find_rows_one_by_one(OperatorSubject& subject);

// What the sizes and types of tensors tell (operator_attention.cpp, operator_shapes.cpp).
void find_attention(OperatorSubject& subject);
void find_unused_gradients(OperatorSubject& subject);
void find_dense_gradients(OperatorSubject& subject);
void find_unused_positions(OperatorSubject& subject);
void find_sparse_as_dense(OperatorSubject& subject);
void find_one_hot_products(OperatorSubject& subject);
void find_float64(OperatorSubject& subject);

// All that is left (operator_others.cpp). find_rows_one_by_one() comes even after it: it claims nothing, and tells of
// calls of which most is not told yet.
void find_other_operators(OperatorSubject& subject);

}  // namespace torchprof::formats
