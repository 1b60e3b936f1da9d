// The node's wiring of who wants what: Demand, what the far ends of its upstreams want, and Wishes, what it tells its
// peers of its own clients and of those far ends.
#include <algorithm>

#include "base/limits.h"
#include "wire_node.h"

namespace ph {

std::optional<size_t> Node::upstream_index(const settings::Target& target) const {
  if (target.kind != settings::Target::Kind::upstream) return std::nullopt;
  for (size_t i = 0; i < settings_.upstreams.size(); ++i)
    if (settings_.upstreams[i].name == target.text) return i;
  return std::nullopt;
}

Result<> Node::open_demand() {
  std::vector<relay::Demand::Upstream> upstreams;
  for (const auto& u : settings_.upstreams) {
    relay::Demand::Upstream& to = upstreams.emplace_back();
    to.name = u.name;
    for (const auto& a : u.addresses) {
      PH_ASSIGN(port::Endpoint endpoint, port::parse_endpoint(a.address));
      to.addresses.push_back(endpoint.to_string());
    }
  }
  demand_ = std::make_unique<relay::Demand>(std::move(upstreams), loop_, *store_, *committer_);
  PH_TRY(demand_->load());
  demand_->on_change([this] {
    if (wishes_) wishes_->demand_changed();
  });
  return {};
}

/// The routes that take a message now. Any thread.
std::vector<size_t> Node::takers_of(std::string_view topic) const {
  std::vector<size_t> takers = routes_.of_topic(topic);
  std::erase_if(takers, [&](size_t i) {
    const settings::Route& r = settings_.routes[i];
    if (r.when != settings::When::subscribed) return false;
    const auto upstream = upstream_index(r.to.front());
    return upstream && !demand_->wants(*upstream, r.category, topic);
  });
  return takers;
}

/// Categories of this node's own whose wishes matter.
std::set<std::string> Node::asks_of(const std::string& upstream) const {
  std::set<std::string> out;
  for (const settings::Route& r : settings_.routes)
    if (r.when == settings::When::subscribed && r.to.front().text == upstream) out.insert(r.category);
  return out;
}

void Node::open_wishes() {
  relay::WishesOptions options;
  options.site = settings_.node.site;
  options.route_of = [this](std::string_view category) { return routes_.of_category(category).value_or(0); };
  for (const settings::Route& r : settings_.routes) {
    relay::WishesOptions::Route& route = options.routes.emplace_back();
    for (const settings::Target& t : r.to) {
      if (t.kind == settings::Target::Kind::files) route.files = true;
      if (t.kind == settings::Target::Kind::mqtt)
        route.templates.push_back(relay::fill_node(t.text, settings_.node.site, settings_.node.name));
      const auto upstream = upstream_index(t);
      if (upstream) route.upstreams.push_back(*upstream);
      if (!r.topics.empty())
        options.takers.push_back({r.topics, r.category, r.when == settings::When::subscribed, upstream});
    }
  }
  wishes_ = std::make_unique<relay::Wishes>(std::move(options), *demand_, loop_);
  filters_timer_ = loop_.make_timer();
  wishes_->on_change([this] {
    if (link_server_) link_server_->wishes_changed();
  });
  wishes_->on_ask([this](size_t upstream, const std::set<std::string>& categories) {
    for (const auto& u : upstreams_)
      if (u->name() == settings_.upstreams[upstream].name) u->ask(categories);
  });
  // Not from inside of who asks first.
  wishes_->on_first_use([this] { filters_timer_->start(Duration::zero(), [this] { collect_filters(); }); });
}

void Node::collect_filters() {
  if (!broker_) return wishes_->set_filters({}, true);
  broker_->filters(limits::kInterestCollectMax, [this](const std::vector<std::string>& filters, bool rest) {
    if (wishes_) wishes_->set_filters(filters, !rest);
  });
}

}  // namespace ph
