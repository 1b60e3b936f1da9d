// Wishes: which topics this node wants of messages that a peer sends it: the filters of its clients, sessions that are
// away included, and what lies behind the routes that such messages take. Told to a peer that asks (INTEREST_ASK), by
// the link server. Event plane's loop only.
//
// Of each category that the peer asks for, its route is looked at: {mqtt} wants what subscribers want, as seen before
// the template; an upstream wants what its far end told (Demand); files want everything. What is published here may be
// taken by routes on topics: these want their topics, or with `when = "subscribed"` what their upstream wants.
//
// A wish has the list of sites that it came by, and is not told to one of them: else two sites would keep each other
// wanting for ever. A filter that "x/#" covers is left out. Over kInterestMax filters everything is wanted: counted. A
// new filter is told at once, one that is gone kLinger later, since a session that moves or a client that comes back
// must miss nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "port/loop.h"
#include "service/relay/demand.h"

namespace ph::relay {

/// The filter of original topics whose messages, published under the template, a filter matches: at least these. Empty:
/// of all topics; nullopt: of none.
std::optional<std::string> before_template(std::string_view topic_template, std::string_view filter);

struct WishesOptions {
  struct Route {
    bool files = false;
    std::vector<std::string> templates;  // of its {mqtt} targets
    std::vector<size_t> upstreams;       // as Demand numbers them
  };
  struct Taker {  // a route on topics, for each of its targets
    std::vector<std::string> topics;
    std::string category;
    bool subscribed = false;
    std::optional<size_t> upstream;  // nullopt: files or {mqtt}
  };
  std::string site;
  std::vector<Route> routes;
  std::function<size_t(std::string_view category)> route_of;
  std::vector<Taker> takers;
};

class Wishes {
 public:
  static constexpr Duration kLinger = std::chrono::seconds(10);
  static constexpr size_t kAsksMax = 10'000;  // categories that an upstream is asked for; of others all is wanted
  static constexpr size_t kToldMax = 256;     // answers that are kept for who asks the same
  using Told = std::shared_ptr<const InterestEntries>;
  /// Asks the upstream's far end what it wants of these categories.
  using Ask = std::function<void(size_t upstream, const std::set<std::string>& categories)>;

  Wishes(WishesOptions options, Demand& demand, port::Loop& loop);
  ~Wishes();

  /// The filters of all sessions; `all_of_them` false: there are more.
  void set_filters(const std::vector<std::string>& filters, bool all_of_them);
  /// What a peer at `site` that sends these categories is to be told. Shared among peers that ask the same. Null: not
  /// known yet, on_change() will tell.
  Told told(const std::string& site, const std::set<std::string>& categories);
  /// Called when told() may say something else.
  void on_change(std::function<void()> changed) { changed_ = std::move(changed); }
  void on_ask(Ask ask) { ask_ = std::move(ask); }
  /// Called when a peer asks for the first time: set_filters() is needed from then on.
  void on_first_use(std::function<void()> used) { used_ = std::move(used); }
  bool in_use() const { return in_use_; }
  void demand_changed() { forget_told(); }
  /// How often a list had grown too long to be told.
  uint64_t overflows() const { return overflows_; }

 private:
  void forget_told();
  void linger();
  InterestEntries collect(const std::string& site, const std::set<std::string>& categories);
  void add_published(const std::string& topic_template, const std::string& site, InterestEntries& to) const;
  void add_demand(size_t upstream, const std::string& category, const std::string& site,
                  const std::string* topic_template, InterestEntries& to) const;

  WishesOptions options_;
  Demand& demand_;
  port::Loop& loop_;
  std::map<std::string, std::optional<Instant>> filters_;  // and since when it is gone
  bool too_many_ = false;
  bool known_ = false;  // set_filters() was called
  std::map<std::pair<std::string, std::set<std::string>>, Told> told_;
  std::map<size_t, std::set<std::string>> asked_;  // of upstreams, by peers of ours
  std::unique_ptr<port::Timer> linger_timer_;
  std::function<void()> changed_ = [] {};
  std::function<void()> used_ = [] {};
  bool in_use_ = false;
  Ask ask_ = [](size_t, const std::set<std::string>&) {};
  uint64_t overflows_ = 0;
};

}  // namespace ph::relay
