// Every kernel as a function pointer, in one table for each instruction set. All tables give equal bits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "paceline/activations.hpp"
#include "paceline/packed_matrix.hpp"

namespace paceline {

struct KvView;         // native/decoder/kv_store.hpp
struct AttentionTask;  // native/decoder/attention_task.hpp

struct KernelTable {
  const char* name;

  // GEMM ---------------------------------------------------------------------------------------------------------------
  // Rounds one row of `rows.inputs` floats into row `row` of `rows`.
  void (*quantize_row)(const float* source, int64_t row, QuantizedRows& rows);
  // out[r * stride + c] = row r times column c, for rows [0, num_rows) and the columns of blocks [block_begin, block_end).
  // A result depends on its row and column alone. Columns at `weights.outputs` and beyond are not written.
  void (*gemm_quantized)(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                         int64_t block_end, const GemmScratch& scratch, float* out, int64_t stride);
  // The same for F32, F16 and BF16 weights; `rows`: [num_rows][inputs].
  void (*gemm_float)(const PackedMatrix& weights, const float* rows, int64_t num_rows, int64_t block_begin,
                     int64_t block_end, float* out, int64_t stride);

  // Row functions, n is any length ---------------------------------------------------------------------------------------
  // target = source / sqrt(mean(source^2) + epsilon) * weight
  void (*rms_norm)(const float* source, const float* weight, int64_t n, float epsilon, float* target);
  void (*add)(float* target, const float* source, int64_t n);       // target += source
  void (*scale)(float* target, float factor, int64_t n);            // target *= factor
  void (*silu_multiply)(float* gate, const float* up, int64_t n);   // gate = silu(gate) * up
  void (*gelu_multiply)(float* gate, const float* up, int64_t n);   // gate = gelu(gate) * up
  // Rotates one head of `head_dim` values; `cosine`, `sine`: [head_dim / 2].
  void (*rope_normal)(float* head, const float* cosine, const float* sine, int64_t head_dim);
  void (*rope_neox)(float* head, const float* cosine, const float* sine, int64_t head_dim);

  // Vocabulary rows ------------------------------------------------------------------------------------------------------
  // sum of e^(x - maximum)
  float (*sum_exponentials)(const float* row, int64_t n, float maximum);

  // Loading ----------------------------------------------------------------------------------------------------------------
  // Rounds weights [inputs][16 rows] to blocks of Q4_0, each with a half-precision scale of nearly the least squared
  // error. The blocks of row r go to target + r * stride.
  void (*quantize_q4_0)(const float* weights, int64_t inputs, uint8_t* target, int64_t stride);

  // Attention --------------------------------------------------------------------------------------------------------------
  void (*store_kv)(const KvView& kv, int64_t slot, const float* key, const float* value);
  // `scratch`: attention_scratch(task.num_queries(), head_dim) floats, aligned to 64 bytes.
  void (*attend)(const KvView& kv, const AttentionTask& task, float* scratch);
  // Finishes one row of a task whose chunks have their results in `task.partials`.
  void (*merge_partials)(const AttentionTask& task, int64_t row, int64_t head_dim);
};

// Returns the tables that this processor can run, slowest first: scalar, then avx2, avx512 and amx.
std::span<const KernelTable> runnable_kernels();
// Returns the table called `name` ("scalar", "avx2", "avx512", "amx"); throws std::invalid_argument if this processor
// cannot run it.
const KernelTable& kernels_named(std::string_view name);
// Returns the table that PACELINE_ISA names, or else the best one of this processor; throws std::invalid_argument for a
// name that does not exist or cannot run here.
const KernelTable& default_kernels();

}  // namespace paceline
