// Guesses what follows a text, from the contexts that suffix trees know.
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

// Returns the estimate for a token that followed `num_agreeing` of the latest `num_followers` occurrences of a context
// of `length` tokens:
//
//   (num_agreeing / num_followers)^2 * (1 - escape(length) / num_followers),  escape(l) = 1 / (1 + l/2 + l^2/80)
//
// The second factor accounts for texts that leave a known path. They do so rarely after a long context, and more rarely
// the more often the path was taken (Howard's PPM-D escape, but by length). The share is squared because different
// followers make yet another one likely. The constants were fitted to plain texts of a 1.5B model, and held for texts
// of another model (decision 001).
double confidence_of(int64_t length, int64_t num_agreeing, int64_t num_followers);

// Shorter contexts of other texts are not used, because they say little. At 1 token, 0.14 of their guesses were right,
// and 0.39 at 2 and 3 tokens, compared with 0.30 and 0.56 for the text's own contexts. From 4 tokens on, both are
// equally good (decision 001).
constexpr int64_t kMinStoreContext = 4;

// Returns the best guesses for the token after `text`, at most `max_guesses`, best first. A token's confidence comes
// from the context that supports it most, in the text's own tree or in a store of other texts (null: none). On equal
// confidence, the own tree comes first, then the longer context, then the later occurrence. Confidences add up to at
// most 1.
std::vector<Guess> guess_next(const SuffixTree& own, const SuffixTree* store, std::span<const int32_t> text,
                              size_t max_guesses);

}  // namespace paceline
