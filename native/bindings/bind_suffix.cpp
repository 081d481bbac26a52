#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <vector>

#include "bindings/bindings.hpp"
#include "suffix/draft.hpp"
#include "suffix/guesses.hpp"
#include "suffix/suffix_tree.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace paceline {
namespace {

using TokenIds = std::vector<int32_t>;
// (length, count, followers).
using FoundContext = std::tuple<int64_t, int64_t, TokenIds>;

std::vector<FoundContext> find_contexts(const SuffixTree& tree, const TokenIds& text) {
  std::vector<Context> contexts;
  tree.find_contexts(text, contexts);
  std::vector<FoundContext> found;
  for (const Context& context : contexts) {
    const auto first = context.followers.begin();
    found.emplace_back(context.length, context.count, TokenIds(first, first + context.num_followers));
  }
  return found;
}

using DraftLists = std::tuple<TokenIds, std::vector<std::optional<int64_t>>, std::vector<double>>;

DraftLists propose(const SuffixTree& own, const SuffixTree* store, int64_t window, double stop_below,
                   bool has_branches, const TokenIds& ahead) {
  DraftLists lists;
  auto& [token_ids, parents, confidences] = lists;
  for (const DraftNode& node : propose_draft(own, store, ahead, {window, stop_below, has_branches})) {
    token_ids.push_back(node.token_id);
    parents.push_back(node.parent);
    confidences.push_back(node.confidence);
  }
  return lists;
}

}  // namespace

void bind_suffix(nb::module_& module) {
  nb::class_<SuffixTree>(module, "SuffixTree", "Contexts of bounded length in texts, with counts and what followed.")
      .def(nb::init<int64_t>(), "max_depth"_a)
      .def("begin_text", [](SuffixTree& self, const TokenIds& context) { self.begin_text(context); }, "context"_a)
      .def("append", [](SuffixTree& self, const TokenIds& token_ids) { self.append(token_ids); }, "token_ids"_a)
      .def("evict_text", &SuffixTree::evict_text)
      .def("find_contexts", &find_contexts, "text"_a)
      .def_prop_ro("num_texts", &SuffixTree::num_texts)
      .def_prop_ro("num_tokens", &SuffixTree::num_tokens)
      .def_prop_ro("num_nodes", &SuffixTree::num_nodes)
      .def_prop_ro("size_bytes", &SuffixTree::size_bytes);
  module.def("propose_from_suffixes", &propose, "own"_a, "store"_a.none(), nb::kw_only(), "window"_a, "stop_below"_a,
             "has_branches"_a, "ahead"_a = TokenIds(),
             "Token ids, parents and confidences of a draft after the last text of `own` and the tokens ahead of it.");
  module.def("suffix_confidence", &confidence_of, "length"_a, "num_agreeing"_a, "num_followers"_a,
             "How likely a token is that followed so many of the latest occurrences of a context.");
}

}  // namespace paceline
