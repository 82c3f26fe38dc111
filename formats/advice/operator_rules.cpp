#include "formats/advice/operator_rules.h"

#include "formats/advice/rules.h"

namespace torchprof::formats {

Claimed find_in_operators(const Subject& subject, Findings& findings) {
  if (!subject.view.has_main()) return {};
  OperatorSubject operators(subject, findings);
  find_profiler(operators);
  find_optimizers(operators);
  find_known_functions(operators);
  find_anomaly_detection(operators);
  find_finite_checks(operators);
  find_values_read(operators);
  find_parameter_loops(operators);
  if (subject.torch_major >= 2) find_cells(operators);  // nn.LSTM of torch 1.13 is no quicker
  find_part_by_part(operators);
  find_whole_sequences(operators);
  find_second_passes(operators);
  find_unused_gradients(operators);
  find_attention(operators);
  find_dense_gradients(operators);
  find_unused_positions(operators);
  find_sparse_as_dense(operators);
  find_one_hot_products(operators);
  find_float64(operators);
  find_other_operators(operators);
  find_rows_one_by_one(operators);
  for (Finding& f : findings) f.is_on_thread = true;
  return operators.claims.take();
}

}  // namespace torchprof::formats
