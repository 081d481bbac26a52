#include "suffix/draft.hpp"

#include <queue>
#include <utility>

#include "suffix/guesses.hpp"

namespace paceline {

namespace {

constexpr size_t kMaxSiblings = 3;

// A node that the draft may take.
struct Candidate {
  double survival = 0.0;
  int64_t number = 0;         // on equal survival, the candidate found first is better
  std::vector<int32_t> text;  // up to the node's token, inclusive
  DraftNode node;

  bool operator<(const Candidate& other) const {
    return survival != other.survival ? survival < other.survival : number > other.number;
  }
};

class DraftBuilder {
 public:
  DraftBuilder(const SuffixTree& own, const SuffixTree* store, const DraftLimits& limits)
      : own_(own), store_(store), limits_(limits) {}

  std::vector<DraftNode> build(std::vector<int32_t> text) {
    if (limits_.window > 0) add_children(std::move(text), std::nullopt, 1.0);
    while (!candidates_.empty()) {
      Candidate best = candidates_.top();
      candidates_.pop();
      nodes_.push_back(best.node);
      const auto num_nodes = static_cast<int64_t>(nodes_.size());
      if (num_nodes >= limits_.window) break;
      add_children(std::move(best.text), num_nodes - 1, best.survival);
    }
    return std::move(nodes_);
  }

 private:
  void add_children(std::vector<int32_t> text, std::optional<int64_t> parent, double survival) {
    const size_t max_siblings = limits_.has_branches ? kMaxSiblings : 1;
    text.push_back(0);
    const std::span<const int32_t> known(text.data(), text.size() - 1);
    for (const Guess& guess : guess_next(own_, store_, known, max_siblings)) {
      const double child_survival = survival * guess.confidence;
      if (guess.confidence <= 0.0 || child_survival < limits_.stop_below) return;
      text.back() = guess.token_id;
      candidates_.push({child_survival, num_candidates_++, text, {guess.token_id, parent, guess.confidence}});
    }
  }

  const SuffixTree& own_;
  const SuffixTree* store_;
  const DraftLimits& limits_;
  std::priority_queue<Candidate> candidates_;
  std::vector<DraftNode> nodes_;
  int64_t num_candidates_ = 0;
};

}  // namespace

std::vector<DraftNode> propose_draft(const SuffixTree& own, const SuffixTree* store, std::span<const int32_t> ahead,
                                     const DraftLimits& limits) {
  const std::span<const int32_t> last = own.last_tokens(own.max_depth());
  std::vector<int32_t> text(last.begin(), last.end());
  text.insert(text.end(), ahead.begin(), ahead.end());
  return DraftBuilder(own, store, limits).build(std::move(text));
}

}  // namespace paceline
