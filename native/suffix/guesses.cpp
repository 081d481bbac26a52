#include "suffix/guesses.hpp"

#include <algorithm>

namespace paceline {

namespace {

// Inserts a guess into `guesses`, which stay sorted and at most `max_guesses` long. On equal confidence, the guess that
// was inserted earlier comes first.
void take(std::vector<Guess>& guesses, Guess guess, size_t max_guesses) {
  const auto same = std::find_if(guesses.begin(), guesses.end(),
                                 [&](const Guess& other) { return other.token_id == guess.token_id; });
  if (same != guesses.end()) {
    if (same->confidence >= guess.confidence) return;
    guesses.erase(same);
  }
  const auto place = std::find_if(guesses.begin(), guesses.end(),
                                  [&](const Guess& other) { return other.confidence < guess.confidence; });
  guesses.insert(place, guess);
  if (guesses.size() > max_guesses) guesses.pop_back();
}

void take_followers(const Context& context, std::vector<Guess>& guesses, size_t max_guesses) {
  const std::span<const int32_t> followers(context.followers.data(), context.num_followers);
  for (size_t i = 0; i < followers.size(); ++i) {
    const std::span<const int32_t> later = followers.first(i);
    if (std::find(later.begin(), later.end(), followers[i]) != later.end()) continue;
    const auto num_agreeing = std::count(followers.begin(), followers.end(), followers[i]);
    const double confidence = confidence_of(context.length, num_agreeing, static_cast<int64_t>(followers.size()));
    take(guesses, {followers[i], confidence}, max_guesses);
  }
}

}  // namespace

double confidence_of(int64_t length, int64_t num_agreeing, int64_t num_followers) {
  const auto size = static_cast<double>(length);
  const auto followers = static_cast<double>(num_followers);
  const double escape = 1.0 / (1.0 + size / 2.0 + size * size / 80.0);
  const double share = static_cast<double>(num_agreeing) / followers;
  return share * share * (1.0 - escape / followers);
}

std::vector<Guess> guess_next(const SuffixTree& own, const SuffixTree* store, std::span<const int32_t> text,
                              size_t max_guesses) {
  std::vector<Guess> guesses;
  std::vector<Context> contexts;
  const auto take_contexts = [&](const SuffixTree& tree, int64_t min_length) {
    tree.find_contexts(text, contexts);
    for (auto context = contexts.rbegin(); context != contexts.rend() && context->length >= min_length; ++context) {
      take_followers(*context, guesses, max_guesses);
    }
  };
  take_contexts(own, 1);
  if (store != nullptr) take_contexts(*store, kMinStoreContext);
  double rest = 1.0;
  for (Guess& guess : guesses) {
    guess.confidence = std::min(guess.confidence, rest);
    rest -= guess.confidence;
  }
  return guesses;
}

}  // namespace paceline
