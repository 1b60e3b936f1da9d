#include "service/relay/wishes.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/log.h"

namespace ph::relay {
namespace {

std::vector<std::string_view> levels_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t at = 0;;) {
    const size_t slash = text.find('/', at);
    out.push_back(text.substr(at, slash - at));
    if (slash == text.npos) return out;
    at = slash + 1;
  }
}

/// Whether "x/#" for a part x of the filter, or "#", is wanted as well by the same way.
bool covered(const link::Interest::Entry& entry, const InterestEntries& all) {
  const std::string& f = entry.filter;
  link::Interest::Entry wider{"", entry.via};
  if (all.contains(wider)) return true;
  wider.filter = "#";
  if (f != "#" && !f.starts_with('$') && all.contains(wider)) return true;
  for (size_t slash = f.find('/'); slash != f.npos; slash = f.find('/', slash + 1)) {
    wider.filter = f.substr(0, slash) + "/#";
    if (wider.filter != f && all.contains(wider)) return true;
  }
  return false;
}

std::string with_category(std::string text, const std::string& category) {
  static constexpr std::string_view kWord = "{category}";
  for (size_t at = text.find(kWord); at != text.npos; at = text.find(kWord, at + category.size()))
    text.replace(at, kWord.size(), category);
  return text;
}

bool contains(const std::vector<std::string>& list, const std::string& one) {
  return std::ranges::find(list, one) != list.end();
}

}  // namespace

std::optional<std::string> before_template(std::string_view topic_template, std::string_view filter) {
  if (filter.empty()) return std::string();
  const auto pattern = levels_of(topic_template), wanted = levels_of(filter);
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool rest = pattern[i] == "{topic}" && i + 1 == pattern.size();
    if (!rest && pattern[i].find("{topic}") != std::string_view::npos) return std::string();  // anything may match
    if (i == wanted.size()) return std::nullopt;
    if (rest) {
      const auto at = static_cast<size_t>(wanted[i].data() - filter.data());
      return std::string(filter.substr(at));
    }
    if (wanted[i] == "#") return pattern.back() == "{topic}" ? "#" : std::string();
    if (wanted[i] != "+" && pattern[i].find('{') == std::string_view::npos && wanted[i] != pattern[i])
      return std::nullopt;
  }
  // The topic is no part of the name.
  const bool matches = wanted.size() == pattern.size() || (wanted.size() == pattern.size() + 1 && wanted.back() == "#");
  return matches ? std::optional<std::string>("") : std::nullopt;
}

Wishes::Wishes(WishesOptions options, Demand& demand, port::Loop& loop)
    : options_(std::move(options)), demand_(demand), loop_(loop), linger_timer_(loop.make_timer()) {}

Wishes::~Wishes() = default;

void Wishes::set_filters(const std::vector<std::string>& filters, bool all_of_them) {
  const Instant now = loop_.now();
  bool different = !std::exchange(known_, true) || too_many_ == all_of_them;
  if (!all_of_them && !too_many_) {
    ++overflows_;
    log_warn("interest_overflowed", {{"filters", filters.size()}});
  }
  too_many_ = !all_of_them;
  for (auto& [filter, gone] : filters_)
    if (!gone) gone = now;
  for (const std::string& filter : filters) {
    auto [it, fresh] = filters_.try_emplace(filter);
    different |= fresh;
    it->second.reset();
  }
  if (too_many_) filters_.clear();  // everything is wanted
  linger();
  if (different) forget_told();
}

/// Drops what is gone for long enough.
void Wishes::linger() {
  const Instant now = loop_.now();
  std::optional<Instant> next;
  const size_t dropped = std::erase_if(filters_, [&](const auto& entry) {
    if (!entry.second) return false;
    if (now - *entry.second >= kLinger) return true;
    next = std::min(next.value_or(*entry.second), *entry.second);
    return false;
  });
  if (next) linger_timer_->start(*next + kLinger - now, [this] { linger(); });
  if (dropped > 0) forget_told();
}

void Wishes::forget_told() {
  told_.clear();
  changed_();
}

Wishes::Told Wishes::told(const std::string& site, const std::set<std::string>& categories) {
  if (!std::exchange(in_use_, true)) used_();
  if (!known_) return nullptr;
  if (auto it = told_.find({site, categories}); it != told_.end()) return it->second;
  if (told_.size() >= kToldMax) told_.clear();
  auto made = std::make_shared<const InterestEntries>(collect(site, categories));
  told_[{site, categories}] = made;
  return made;
}

InterestEntries Wishes::collect(const std::string& site, const std::set<std::string>& categories) {
  InterestEntries all;
  std::set<size_t> more;  // upstreams that are asked for a category for the first time
  for (const std::string& category : categories) {
    const WishesOptions::Route& route = options_.routes[options_.route_of(category)];
    if (route.files) all.emplace();  // insert({}) would insert a list of nothing
    for (size_t u : route.upstreams) {
      std::set<std::string>& asked = asked_[u];
      if (asked.size() < kAsksMax && asked.insert(category).second) more.insert(u);
      add_demand(u, category, site, nullptr, all);
    }
    for (const std::string& t : route.templates) add_published(with_category(t, category), site, all);
  }
  for (size_t u : more) ask_(u, asked_[u]);
  InterestEntries out;
  for (const link::Interest::Entry& e : all)
    if (e.filter.empty() ? e.via.empty() || !all.contains({}) : !covered(e, all)) out.insert(e);
  size_t bytes = 0;
  for (const link::Interest::Entry& e : out) bytes += e.filter.size();
  if (out.size() <= limits::kInterestMax && bytes <= limits::kInterestBytesMax) return out;
  ++overflows_;
  log_warn("interest_overflowed", {{"filters", out.size()}, {"site", site}});
  return {link::Interest::Entry{}};
}

/// What is wanted of what this node publishes under the template.
void Wishes::add_published(const std::string& topic_template, const std::string& site, InterestEntries& to) const {
  const auto add = [&](const std::string& filter) {
    if (auto before = before_template(topic_template, filter)) to.insert({std::move(*before), {}});
  };
  if (too_many_) add("");
  for (const auto& [filter, gone] : filters_) add(filter);
  for (const WishesOptions::Taker& t : options_.takers) {
    if (t.subscribed && t.upstream) {
      add_demand(*t.upstream, t.category, site, &topic_template, to);
      continue;
    }
    const auto back = [&](const Demand::Address& a) { return a.site == site; };
    if (t.upstream && std::ranges::all_of(demand_.addresses(*t.upstream), back)) continue;
    for (const std::string& topic : t.topics) add(topic);
  }
}

/// What an upstream's far end wants, unless it came by the site that is told.
void Wishes::add_demand(size_t upstream, const std::string& category, const std::string& site,
                        const std::string* topic_template, InterestEntries& to) const {
  for (const Demand::Address& a : demand_.addresses(upstream)) {
    if (!a.site.empty() && (a.site == site || a.site == options_.site)) continue;
    std::vector<std::string> here;
    if (!a.site.empty()) here.push_back(a.site);
    if (!a.known || !a.categories.contains(category)) {
      to.insert({"", here});
      continue;
    }
    for (const link::Interest::Entry& e : a.entries) {
      if (contains(e.via, site) || contains(e.via, options_.site) || e.via.size() + here.size() > limits::kHopsMax)
        continue;
      const auto before = topic_template ? before_template(*topic_template, e.filter) : e.filter;
      if (!before) continue;
      std::vector<std::string> via = e.via;
      via.insert(via.end(), here.begin(), here.end());
      to.insert({*before, std::move(via)});
    }
  }
}

}  // namespace ph::relay
