#include "service/relay/demand.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/coding.h"
#include "base/limits.h"
#include "base/log.h"
#include "core/routing/filter_index.h"

namespace ph::relay {
namespace {

constexpr std::string_view kPrefix = "i/";
constexpr uint8_t kVersion = 1;

struct Present {
  bool here = false;
  bool empty() const { return !here; }
};

std::string store_key(const std::string& upstream, const std::string& address) {
  std::string key(kPrefix);
  put_sized(key, upstream);
  put_sized(key, address);
  return key;
}

/// The entries are an INTEREST frame: one format, one decoder.
std::string encode(const Demand::Address& address) {
  std::string out(1, static_cast<char>(kVersion));
  put_sized(out, address.site);
  out += link::encode(link::Interest{.categories = {address.categories.begin(), address.categories.end()},
                                     .added = {address.entries.begin(), address.entries.end()}})
             .head;
  return out;
}

bool decode(ByteView value, Demand::Address& address) {
  Reader in(value);
  if (in.fixed<uint8_t>() != kVersion) return false;
  const std::string site(in.sized(UINT16_MAX));
  if (!in.ok()) return false;
  auto frame = link::decode(in.rest());
  if (!frame || frame->consumed != in.rest().size()) return false;
  auto* any = std::get_if<link::Frame>(&frame->frame);
  auto* interest = any ? std::get_if<link::Interest>(any) : nullptr;
  if (!interest) return false;
  address.site = site;
  address.entries = {interest->added.begin(), interest->added.end()};
  address.categories = {interest->categories.begin(), interest->categories.end()};
  address.known = true;
  return true;
}

std::atomic<uint64_t> last_id{0};

}  // namespace

struct Demand::Snapshot {
  struct One {
    bool everything = true;
    std::set<std::string> categories;  // that all addresses answered for
    // match() changes nothing that is seen; it is not const because it hands out what hangs on the filters.
    mutable routing::FilterIndex<Present> index;
  };
  std::vector<One> upstreams;
};

Demand::Demand(std::vector<Upstream> upstreams, port::Loop& loop, port::KeyedStore& store, commit::Committer& committer)
    : loop_(loop),
      store_(store),
      committer_(committer),
      rebuild_timer_(loop.make_timer()),
      persist_timer_(loop.make_timer()),
      id_(++last_id) {
  for (Upstream& u : upstreams) {
    State& s = state_.emplace_back();
    s.name = std::move(u.name);
    for (std::string& a : u.addresses)
      s.addresses.push_back({.name = std::move(a), .site = {}, .entries = {}, .coming = {}});
  }
  rebuild();
}

Demand::~Demand() = default;

Result<> Demand::load() {
  for (State& s : state_)
    for (Address& a : s.addresses) {
      PH_ASSIGN(auto value, store_.get(store_key(s.name, a.name)));
      if (value && !decode(*value, a)) log_warn("interest_unreadable", {{"upstream", s.name}, {"address", a.name}});
    }
  rebuild();
  return {};
}

Demand::Address* Demand::find(const std::string& upstream, const std::string& address, State** of) {
  for (State& s : state_) {
    if (s.name != upstream) continue;
    for (Address& a : s.addresses)
      if (a.name == address) {
        if (of) *of = &s;
        return &a;
      }
  }
  return nullptr;
}

void Demand::heard(const std::string& upstream, const std::string& address, const std::string& site, bool tells) {
  Address* a = find(upstream, address);
  if (!a) return;
  const bool everything = !tells && a->known;
  if (a->site == site && !everything) return;
  a->site = site;
  if (everything) {
    a->known = false;
    a->entries.clear();
    a->categories.clear();
  }
  changed(*a);
}

void Demand::told(const std::string& upstream, const std::string& address, const link::Interest& interest) {
  Address* a = find(upstream, address);
  if (!a) return;
  if (interest.reset) {
    a->coming.clear();
    a->coming_categories = {interest.categories.begin(), interest.categories.end()};
  } else if (!a->answering) {
    a->coming = a->entries;
    a->coming_categories = a->categories;
  }
  a->answering = interest.more;
  a->coming.insert(interest.added.begin(), interest.added.end());
  for (const link::Interest::Entry& e : interest.removed) a->coming.erase(e);
  if (a->coming.size() > limits::kInterestMax) a->coming = {{}};  // it does not keep to the bound: everything
  if (interest.more) return;
  InterestEntries now = std::exchange(a->coming, {});
  std::set<std::string> categories = std::exchange(a->coming_categories, {});
  const bool same = a->known && now == a->entries && categories == a->categories;
  a->entries = std::move(now);
  a->categories = std::move(categories);
  a->known = true;
  if (!same) changed(*a);
}

void Demand::changed(Address& address) {
  address.unsaved = true;
  if (!rebuild_timer_->pending())
    rebuild_timer_->start(kRebuildAfter, [this] {
      rebuild();
      changed_();
    });
  if (!persist_timer_->pending()) persist_timer_->start(kPersistAfter, [this] { persist(); });
}

void Demand::persist() {
  port::WriteBatch entries;
  for (State& s : state_)
    for (Address& a : s.addresses) {
      if (!std::exchange(a.unsaved, false)) continue;
      if (a.known)
        entries.put(store_key(s.name, a.name), encode(a));
      else
        entries.remove(store_key(s.name, a.name));
    }
  if (!entries.empty()) committer_.request_alone(std::move(entries), [] {});
}

void Demand::rebuild() {
  auto made = std::make_shared<Snapshot>();
  made->upstreams.resize(state_.size());
  for (size_t i = 0; i < state_.size(); ++i) {
    Snapshot::One& one = made->upstreams[i];
    one.everything = false;
    one.categories = state_[i].addresses.front().categories;
    for (const Address& a : state_[i].addresses) {
      one.everything |= !a.known;
      std::erase_if(one.categories, [&](const std::string& c) { return !a.categories.contains(c); });
      for (const link::Interest::Entry& e : a.entries)
        if (e.filter.empty())
          one.everything = true;
        else
          one.index.insert(e.filter).value.here = true;
    }
  }
  std::lock_guard lock(mutex_);
  snapshot_ = std::move(made);
  version_.fetch_add(1, std::memory_order_release);
}

/// Each thread keeps the snapshot that it used last, and looks for a newer one by a number: no lock on the way of a
/// PUBLISH.
const Demand::Snapshot& Demand::snapshot() const {
  struct Held {
    uint64_t owner = 0;
    uint64_t version = 0;
    std::shared_ptr<const Snapshot> snapshot;
  };
  thread_local Held held;
  const uint64_t version = version_.load(std::memory_order_acquire);
  if (held.owner != id_ || held.version != version) {
    std::lock_guard lock(mutex_);
    held = {id_, version, snapshot_};
  }
  return *held.snapshot;
}

bool Demand::wants(size_t upstream, const std::string& category, std::string_view topic) const {
  const Snapshot::One& one = snapshot().upstreams[upstream];
  if (one.everything || !one.categories.contains(category)) return true;
  bool found = false;
  one.index.match(topic, [&](Present&) { found = true; });
  return found;
}

std::optional<size_t> Demand::filters_of(const std::string& upstream) const {
  for (size_t i = 0; i < state_.size(); ++i) {
    if (state_[i].name != upstream) continue;
    const Snapshot::One& one = snapshot().upstreams[i];
    if (!one.everything && !one.categories.empty()) return one.index.size();
  }
  return std::nullopt;
}

}  // namespace ph::relay
