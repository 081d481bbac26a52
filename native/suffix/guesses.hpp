// What may follow a text, judged by the contexts that suffix trees know.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "suffix/suffix_tree.hpp"

namespace paceline {

struct Guess {
  int32_t token_id = 0;
  double confidence = 0.0;  // estimate that this is the next token
};

// The estimate for a token that followed `num_agreeing` of the latest `num_followers` occurrences of a context of
// `length` tokens:
//
//   (num_agreeing / num_followers)^2 * (1 - escape(length) / num_followers),  escape(l) = 1 / (1 + l/2 + l^2/80)
//
// The second factor is a text's habit to leave a known path: rarely after a long context, and more rarely the more often
// the path was taken (Howard's PPM-D escape, but by length). The share is squared because followers that differ announce
// another one. Constants fit the plain texts of a 1.5B model and held on those of another (decision 001).
double confidence_of(int64_t length, int64_t num_agreeing, int64_t num_followers);

// Shorter contexts say little about a text when they come from other texts: 0.14 of their guesses were right at 1 token,
// 0.39 at 2 and 3, where the text's own contexts had 0.30 and 0.56; from 4 on both have the same (decision 001).
constexpr int64_t kMinStoreContext = 4;

// The best guesses for what follows `text`, at most `max_guesses`, best first: each token by the context that speaks for
// it the most, of the text's own tree or of a store of other texts (null: none). Of equals the one of its own tree, the
// longer context, the later occurrence comes first. Confidences add up to at most 1.
std::vector<Guess> guess_next(const SuffixTree& own, const SuffixTree* store, std::span<const int32_t> text,
                              size_t max_guesses);

}  // namespace paceline
