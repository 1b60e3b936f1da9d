// The node's links, both protocols: where it sends and from whom it takes.
#include <algorithm>
#include <ctime>

#include "service/admin/error_json.h"
#include "service/admin/owner_desk.h"
#include "wire_node.h"

namespace ph {
namespace {

Result<std::vector<relay::UpstreamOptions::Address>> addresses_of(const settings::Upstream& from) {
  std::vector<relay::UpstreamOptions::Address> out;
  for (const auto& a : from.addresses) {
    PH_ASSIGN(port::Endpoint endpoint, port::parse_endpoint(a.address));
    out.push_back({endpoint, a.weight});
  }
  return out;
}

static_assert(static_cast<int>(settings::LinkCompress::automatic) == static_cast<int>(link::Compress::automatic));

std::optional<link::HashRule> hash_rule(const settings::Balance& from) {
  using By = link::HashRule::By;
  switch (from.by) {
    case settings::Balance::By::round_robin:
      return std::nullopt;
    case settings::Balance::By::hash_prefix:
      return link::HashRule{By::prefix, from.text, 0};
    case settings::Balance::By::hash_regex:
      return link::HashRule{By::regex, from.text, 0};
    case settings::Balance::By::hash_topic_level:
      return link::HashRule{By::topic_level, {}, from.level};
  }
  return std::nullopt;
}

/// Minute of the day where the node is.
uint32_t local_minute(WallTime now) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return static_cast<uint32_t>(local.tm_hour * 60 + local.tm_min);
}

/// Whether it makes a difference under which category an event comes. Published under its topic, it makes none.
bool tells_categories_apart(const settings::Route& route) {
  return std::any_of(route.to.begin(), route.to.end(), [](const settings::Target& t) {
    return t.kind != settings::Target::Kind::mqtt || t.text.find("{category}") != t.text.npos;
  });
}

}  // namespace

Result<> Node::open_upstream(const settings::Upstream& from) {
  PH_ASSIGN(auto addresses, addresses_of(from));
  if (from.protocol == settings::Protocol::lsd) {
    open_lsd_upstream(from, std::move(addresses));
    return {};
  }
  relay::UpstreamOptions options;
  options.name = from.name;
  options.addresses = std::move(addresses);
  if (from.tls.value_or(false)) options.tls = tls_;
  options.server_name = from.server_name;
  options.connections = from.connections;
  options.compress = static_cast<link::Compress>(from.compress);
  options.hash = hash_rule(from.balance);
  if (from.rate.bounded())
    options.rate = [schedule = from.rate](WallTime now) { return schedule.at(local_minute(now)); };
  options.window_bytes = from.window.value;
  options.connect_timeout = from.connect_timeout;
  options.request_timeout = from.request_timeout;
  options.resume_timeout = from.resume_timeout;
  if (from.dedup == settings::Dedup::strict) {
    options.publishers = std::make_unique<relay::Publishers>(from.name, *store_, *committer_);
    options.strict_give_up = from.strict_give_up.value_or(Duration::max());
    PH_TRY(options.publishers->load());
  } else {
    PH_TRY(relay::Publishers::forget_all(from.name, *store_));
  }
  options.self = id_;
  options.node_name = settings_.node.name;
  options.site = settings_.node.site;
  options.incarnation = incarnation_;
  options.demand = demand_.get();
  options.asks = asks_of(from.name);
  upstreams_.push_back(std::make_unique<relay::Upstream>(std::move(options), loop_, loop_, sources_of(from.name)));
  return {};
}

void Node::open_lsd_upstream(const settings::Upstream& from, std::vector<relay::UpstreamOptions::Address> addresses) {
  relay::LsdUpstreamOptions options;
  options.name = from.name;
  options.addresses = std::move(addresses);
  options.connections = from.connections;
  options.window_bytes = from.window.value;
  options.connect_timeout = from.connect_timeout;
  options.request_timeout = from.request_timeout;
  options.gzip = from.compress == settings::LinkCompress::gzip;
  for (const auto& r : settings_.routes)
    if (r.format == settings::MessageFormat::json) options.json_routes.push_back(r.name);
  lsd_upstreams_.push_back(std::make_unique<relay::LsdUpstream>(std::move(options), loop_, loop_, *store_, *committer_,
                                                                sources_of(from.name)));
}

std::vector<relay::IntakeRoute> Node::intake_routes() {
  std::vector<relay::IntakeRoute> out;
  for (size_t i = 0; i < settings_.routes.size(); ++i)
    out.push_back({settings_.routes[i].name, spools_[i].log.get(), [this, i] { return spools_[i].full(); },
                   tells_categories_apart(settings_.routes[i])});
  return out;
}

Result<> Node::open_receiver() {
  if (!settings_.receiver || settings_.receiver->link.empty()) return {};
  relay::IntakeOptions intake{
      .self = id_, .site = settings_.node.site, .stream_ttl = settings_.receiver->stream_ttl, .seen = seen_.get()};
  intake.routes = intake_routes();
  intake.room = [this] { return data_floor_->room(); };
  // Settings without a default route are refused, so every category has one.
  intake.route_of = [this](std::string_view category) { return routes_.of_category(category).value_or(0); };
  intake_ = std::make_unique<relay::Intake>(std::move(intake), loop_, *store_, *committer_, files_sink_.get());
  PH_TRY(intake_->load());
  const uint64_t staging_max = settings_.receiver->staging_max.value;
  spool::SegmentLogOptions log{.name = "@staged", .directory = settings_.node.data_dir + "/staged"};
  log.segment_bytes = std::clamp<uint64_t>(staging_max / 64, 64 * 1024, limits::kSegmentBytes);
  PH_ASSIGN(auto staged, spool::SegmentLog::open(std::move(log), files_, *store_, loop_.random()));
  staging_ = std::make_unique<relay::Staging>(std::move(staged), staging_max, *intake_, loop_, *store_, *committer_,
                                              settings_.receiver->stream_ttl);
  PH_TRY(staging_->load());
  open_wishes();
  PH_ASSIGN(port::Endpoint at, port::parse_endpoint(settings_.receiver->link));
  relay::LinkServerOptions server{.bind = at,
                                  .tls = settings_.receiver->tls.value_or(false) ? tls_ : nullptr,
                                  .self = id_,
                                  .name = settings_.node.name,
                                  .site = settings_.node.site,
                                  .incarnation = incarnation_,
                                  .connections_max = settings_.receiver->connections_max,
                                  .memory = settings_.receiver->memory.value,
                                  .wishes = wishes_.get()};
  link_server_ = std::make_unique<relay::LinkServer>(std::move(server), loop_, loop_, *intake_, staging_.get());
  return {};
}

Result<> Node::open_lsd_receiver() {
  if (!settings_.receiver || settings_.receiver->lsd.empty()) return {};
  PH_ASSIGN(port::Endpoint at, port::parse_endpoint(settings_.receiver->lsd));
  relay::LsdServerOptions options{
      .bind = at, .self = id_, .routes = intake_routes(), .connections_max = settings_.receiver->connections_max};
  options.route_of = [this](std::string_view category) { return routes_.of_category(category).value_or(0); };
  options.room = [this] { return data_floor_->room(); };
  lsd_server_ =
      std::make_unique<relay::LsdServer>(std::move(options), loop_, loop_, *store_, *committer_, files_sink_.get());
  return lsd_server_->load();
}

bool Node::on_upstream_api(const io::HttpRequest& request, const admin::AccessApi::Answer& answer) {
  if (request.target != admin::kForgetOwnerPath) return false;
  if (request.method != "POST") return answer(405, admin::error_json("METHOD_NOT_ALLOWED", "POST it")), true;
  auto asked = admin::parse_forget_owner(request.body);
  if (!asked) return answer(400, admin::error_json("BAD_REQUEST", asked.error().to_string())), true;
  auto upstream = std::ranges::find(upstreams_, asked->upstream, [](const auto& u) { return u->name(); });
  if (upstream == upstreams_.end())
    return answer(404, admin::error_json("NOT_FOUND", "no upstream of the link is called " + asked->upstream)), true;
  const relay::UpstreamStatus status = (*upstream)->status();
  const auto owner = std::ranges::find(status.away_owners, asked->receiver, &link::AwayOwner::address);
  if (owner == status.away_owners.end()) {
    const bool connected = std::ranges::any_of(status.receivers, [&](const link::ReceiverStatus& r) {
      return r.address == asked->receiver && r.owned_batches > 0;
    });
    if (connected)
      return answer(409, admin::error_json("CONNECTED",
                                           asked->receiver + " is connected and says itself what it has published")),
             true;
    return answer(404, admin::error_json("NOT_FOUND",
                                         "nothing of upstream " + asked->upstream + " waits for " + asked->receiver)),
           true;
  }
  admin::OwnerForgotten told{asked->upstream, asked->receiver, owner->batches, !asked->dry_run};
  if (asked->dry_run) return answer(200, admin::to_json(told)), true;
  (*upstream)->give_up(asked->receiver, [answer, told = std::move(told)](uint64_t batches) mutable {
    told.batches = batches;
    answer(200, admin::to_json(told));
  });
  return true;
}

}  // namespace ph
