#include "bindings/bindings.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "paceline/kernel_table.hpp"
#include "sampling/sampler.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using paceline::RowSampler;
using paceline::SampledRow;
using paceline::SampleQuery;
using paceline::ThreadPool;

using LogitRows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using TokenIds = std::vector<int32_t>;

// The row of the logits, the sampler, the position, the tokens between the committed text and the position, how many
// log-probabilities are wanted, and the row of the masks.
using Query = std::tuple<int64_t, const RowSampler*, int64_t, TokenIds, std::optional<int64_t>, std::optional<int64_t>>;
using Masks = nb::ndarray<const uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// The token's log-probability, and (id, log-probability) of the most likely tokens.
using Logprobs = std::pair<float, std::vector<std::pair<int32_t, float>>>;
using Result = std::tuple<std::optional<int32_t>, std::optional<Logprobs>, std::optional<std::string>>;

std::span<const float> row_of(const LogitRows& logits, int64_t row) {
  if (row < 0 || row >= static_cast<int64_t>(logits.shape(0))) throw std::out_of_range("row is not in the logits");
  if (logits.shape(1) == 0 || logits.shape(1) > paceline::kMaxVocabulary) {
    throw std::invalid_argument("a row of logits must have 1 to 2^20 tokens");
  }
  return {logits.data() + row * logits.shape(1), logits.shape(1)};
}

std::unique_ptr<RowSampler> make_row_sampler(const TokenIds& prompt_token_ids, uint64_t seed, uint32_t choice_index,
                                             float temperature, std::optional<int64_t> top_k, double top_p, float min_p,
                                             float presence_penalty, float frequency_penalty,
                                             float repetition_penalty,
                                             std::vector<std::pair<int32_t, float>> logit_bias, int64_t min_tokens,
                                             TokenIds banned_token_ids) {
  paceline::SamplingRule rule{temperature,       top_k,
                              top_p,             min_p,
                              presence_penalty,  frequency_penalty,
                              repetition_penalty, std::move(logit_bias),
                              min_tokens,        std::move(banned_token_ids)};
  return std::make_unique<RowSampler>(std::move(rule), prompt_token_ids, seed, choice_index);
}

std::span<const uint32_t> mask_of(const std::optional<Masks>& masks, const std::optional<int64_t>& row) {
  if (!row) return {};
  if (!masks || *row < 0 || *row >= static_cast<int64_t>(masks->shape(0))) throw std::out_of_range("row is not in the masks");
  return {masks->data() + *row * masks->shape(1), masks->shape(1)};
}

Result result_of(SampledRow row, const std::optional<int64_t>& num_logprobs) {
  if (row.failure) return {std::nullopt, std::nullopt, std::move(row.failure)};
  Result result{row.token.token_id, std::nullopt, std::nullopt};
  if (num_logprobs) std::get<1>(result) = Logprobs{row.token.logprob, std::move(row.token.top_logprobs)};
  return result;
}

std::vector<Result> sample_logits(const LogitRows& logits, const std::vector<Query>& queries,
                                  const std::optional<Masks>& masks, ThreadPool* threads,
                                  const std::optional<std::string>& instruction_set) {
  const paceline::KernelTable& kernels = paceline::kernels_or_default(instruction_set);
  const nb::gil_scoped_release release;
  std::vector<SampleQuery> rows;
  rows.reserve(queries.size());
  for (const auto& [row, sampler, position, extra_token_ids, num_logprobs, mask_row] : queries) {
    rows.push_back({row_of(logits, row), sampler, position, extra_token_ids, num_logprobs, mask_of(masks, mask_row)});
  }
  ThreadPool alone(1);
  std::vector<SampledRow> sampled = paceline::sample_rows(rows, kernels, threads != nullptr ? *threads : alone);
  std::vector<Result> results;
  results.reserve(sampled.size());
  for (size_t i = 0; i < sampled.size(); ++i) {
    results.push_back(result_of(std::move(sampled[i]), std::get<4>(queries[i])));
  }
  return results;
}

std::vector<uint64_t> hash_rows(const LogitRows& logits, const std::vector<int64_t>& rows) {
  std::vector<uint64_t> hashes;
  const nb::gil_scoped_release release;
  for (const int64_t row : rows) hashes.push_back(paceline::hash_row(row_of(logits, row)));
  return hashes;
}

std::vector<uint32_t> philox_words(const std::array<uint32_t, 4>& counter, const std::array<uint32_t, 2>& key) {
  paceline::PhiloxWord words[4] = {{counter[0]}, {counter[1]}, {counter[2]}, {counter[3]}};
  paceline::philox(words, key[0], key[1]);
  std::vector<uint32_t> result;
  for (const paceline::PhiloxWord word : words) result.push_back(static_cast<uint32_t>(word.value));
  return result;
}

}  // namespace

void paceline::bind_sampling(nb::module_& module) {
  nb::class_<RowSampler>(module, "RowSampler", "One sequence's sampling parameters, noise key and token counts.")
      .def(nb::new_(&make_row_sampler), "prompt_token_ids"_a, nb::kw_only(), "seed"_a, "choice_index"_a,
           "temperature"_a, "top_k"_a.none(), "top_p"_a, "min_p"_a, "presence_penalty"_a, "frequency_penalty"_a,
           "repetition_penalty"_a, "logit_bias"_a, "min_tokens"_a, "banned_token_ids"_a)
      .def("append", [](RowSampler& self, const TokenIds& token_ids) { self.append(token_ids); }, "token_ids"_a,
           "Counts committed output tokens.");
  module.def("sample_rows", &sample_logits, "logits"_a, "queries"_a, "masks"_a.none(), "threads"_a.none(),
             "instruction_set"_a.none(),
             "For each query a token id, (log-probability, most likely tokens) where wanted, and why the row has no token.");
  module.def("hash_rows", &hash_rows, "logits"_a, "rows"_a, "A 64-bit fingerprint of each row's bits.");
  module.def("philox", &philox_words, "counter"_a, "key"_a, "One call of Philox4x32-10, for tests.");
  module.def("exponential_noise", &exponential_noise, "bits"_a, "Exponential noise of 32 random bits, for tests.");
}
