#include "service/relay/upstream.h"

#include <algorithm>
#include <functional>

#include "base/limits.h"
#include "base/log.h"
#include "service/relay/handshake.h"
#include "service/relay/loop_stop.h"

namespace ph::relay {

/// One connection slot of an address: the connection of the moment, and the frames on it.
class Upstream::Link : public port::ConnectionHandler {
 public:
  Link(Upstream& up, size_t index)
      : up_(up),
        index_(index),
        channel_(std::hash<std::string>{}(up.options_.name + '\n' + up.address(index).endpoint.to_string() + '\n' +
                                          std::to_string(index % up.options_.connections))),
        handshake_(up.loop_.make_timer()) {}

  void open() {
    said_hello_ = false;
    goodbye_.clear();
    acked_ = 0;
    ++attempt_;
    const auto& address = up_.address(index_);
    handshake_->start(limits::kHandshakeTimeout, [this] { fail("no HELLO within the handshake timeout"); });
    connection_ = up_.network_.connect(address.endpoint,
                                       {.tls = up_.options_.tls,
                                        .server_name = up_.options_.server_name,
                                        .connect_timeout = up_.options_.connect_timeout},
                                       *this);
  }
  void close() {
    handshake_->cancel();
    connection_.reset();
    up_.choose_asker(place());
  }
  void send(link::Encoded&& frame) {
    if (connection_) send_frame(*connection_, std::move(frame));
  }
  /// Whether the peer's kernel took more since the last call.
  bool progressed() {
    if (!connection_ || !said_hello_) return false;
    uint64_t now = connection_->bytes_acked();
    return now > std::exchange(acked_, now);
  }
  const std::string& peer_name() const { return peer_name_; }
  /// Whether the peer can be asked what is wanted there.
  bool tells_interest() const { return connection_ && said_hello_ && tells_interest_; }
  void ask_interest() {
    const std::set<std::string>& asks = up_.options_.asks;
    send(link::encode(link::InterestAsk{{asks.begin(), asks.end()}}));
  }
  const std::string& peer_site() const { return peer_site_; }  // as last heard; empty: never

  // --- port::ConnectionHandler
  void on_open(port::Connection&) override {
    up_.sender_->reached(index_);
    send(link::encode(link::Hello{.node = up_.options_.self,
                                  .name = up_.options_.node_name,
                                  .site = up_.options_.site,
                                  .target = up_.options_.name,
                                  .incarnation = up_.options_.incarnation,
                                  .channel = channel_,
                                  .attempt = attempt_,
                                  .wall_time = up_.loop_.wall_now()}));
  }
  port::Consumed on_data(port::Connection&, ByteView bytes) override {
    size_t taken = 0;
    while (connection_) {
      auto decoded = link::decode(bytes.substr(taken));
      if (!decoded) {
        fail(decoded.error().to_string());
        break;
      }
      if (decoded->consumed == 0) return {taken, decoded->wanted};
      taken += decoded->consumed;
      if (auto* frame = std::get_if<link::Frame>(&decoded->frame)) on_frame(*frame);
    }
    return {bytes.size(), 0};
  }
  void on_close(port::Connection&, const Error& why) override {
    if (!connection_) return;  // fail() was faster and reports itself
    handshake_->cancel();
    dead_ = std::move(connection_);  // destroyed by the next open() or with us: not from inside its own callback
    up_.choose_asker(place());
    up_.sender_->disconnected(index_, goodbye_.empty() ? why.to_string() : goodbye_, up_.loop_.now());
    up_.soon();
  }

 private:
  void on_frame(link::Frame& frame) {
    if (auto* refuse = std::get_if<link::Refuse>(&frame)) return fail("refused: " + refuse->reason);
    if (auto* bye = std::get_if<link::Goodbye>(&frame)) goodbye_ = "peer said goodbye: " + bye->reason;
    if (auto* hello = std::get_if<link::Hello>(&frame)) {
      if (said_hello_) return fail("a second HELLO");
      if (auto reason = handshake_fault(*hello, connection_->peer(), up_.options_.self); !reason.empty()) {
        send(link::encode(link::Refuse{reason}));
        return fail(reason);
      }
      said_hello_ = true;
      peer_name_ = hello->name;
      peer_site_ = hello->site;
      tells_interest_ = hello->features & link::features::interest;
      if (up_.options_.demand) up_.options_.demand->heard(up_.options_.name, address(), peer_site_, tells_interest_);
      handshake_->cancel();
      log_info("upstream_connected", {{"upstream", up_.options_.name},
                                      {"address", up_.address(index_).endpoint.to_string()},
                                      {"node", hello->name},
                                      {"site", hello->site}});
      up_.sender_->connected(index_, *hello, up_.loop_.now());
      up_.choose_asker(place());
    } else if (!said_hello_) {
      return fail("a frame before HELLO");
    } else if (auto* interest = std::get_if<link::Interest>(&frame)) {
      if (up_.options_.demand && up_.askers_[place()] == index_)
        up_.options_.demand->told(up_.options_.name, address(), *interest);
      return;
    } else {
      up_.sender_->received(index_, frame, up_.loop_.now());
    }
    up_.soon();
  }

  size_t place() const { return index_ / up_.options_.connections; }
  std::string address() const { return up_.address(index_).endpoint.to_string(); }

  void fail(std::string reason) {
    if (!connection_) return;
    log_warn(
        "upstream_link_failed",
        {{"upstream", up_.options_.name}, {"address", up_.address(index_).endpoint.to_string()}, {"reason", reason}});
    handshake_->cancel();
    // Closed with a little linger so that a REFUSE still leaves; what the peer says from here on is not heard.
    connection_->close(Duration::zero());
    dead_ = std::move(connection_);
    up_.choose_asker(place());
    up_.loop_.post([this, alive = up_.alive_, reason = std::move(reason)] {
      if (!*alive) return;
      dead_.reset();
      up_.sender_->disconnected(index_, reason, up_.loop_.now());
      up_.soon();
    });
  }

  Upstream& up_;
  size_t index_;
  uint64_t channel_;
  uint64_t attempt_ = 0;
  std::unique_ptr<port::Connection> connection_;
  std::unique_ptr<port::Connection> dead_;
  std::unique_ptr<port::Timer> handshake_;
  bool said_hello_ = false;
  std::string peer_name_;
  std::string peer_site_;
  bool tells_interest_ = false;
  std::string goodbye_;
  uint64_t acked_ = 0;
};

Upstream::Upstream(UpstreamOptions options, port::Loop& loop, port::Network& network,
                   std::vector<port::EventSource*> sources)
    : options_(std::move(options)),
      loop_(loop),
      network_(network),
      sources_(std::move(sources)),
      timer_(loop.make_timer()),
      progress_timer_(loop.make_timer()),
      ready_(sources_.size(), true) {
  link::SenderOptions sender;
  for (const auto& a : options_.addresses) sender.receivers.push_back({a.endpoint.to_string(), a.weight});
  options_.connections = std::max<size_t>(1, options_.connections);
  sender.connections = options_.connections;
  sender.compress = options_.compress;
  sender.hash = options_.hash;
  sender.window_bytes = options_.window_bytes;
  sender.request_timeout = options_.request_timeout;
  sender.resume_timeout = options_.resume_timeout;
  sender.strict = options_.publishers != nullptr;
  sender.strict_before = options_.publishers && options_.publishers->strict_before();
  sender.strict_give_up = options_.strict_give_up;
  sender_ = link::Sender::make(std::move(sender), loop_.random());
  for (size_t i = 0; i < options_.addresses.size() * options_.connections; ++i)
    links_.push_back(std::make_unique<Link>(*this, i));
  askers_.resize(options_.addresses.size(), SIZE_MAX);
}

const UpstreamOptions::Address& Upstream::address(size_t receiver) const {
  return options_.addresses[receiver / options_.connections];
}

Upstream::~Upstream() {
  *alive_ = false;
  for (port::EventSource* s : sources_) {
    s->on_ready([] {});
    s->on_closed([](StreamId) {});
  }
}

void Upstream::start() {
  stopped_ = false;
  for (size_t i = 0; i < sources_.size(); ++i) {
    std::vector<link::SenderStream> streams;
    for (auto& s : sources_[i]->open_streams()) {
      auto& known = streams.emplace_back(s.stream, s.settled, s.far, s.assigned, std::move(s.receivers));
      if (!options_.publishers) continue;
      known.owned = options_.publishers->owned(s.stream);
      known.published = options_.publishers->published(s.stream);
    }
    size_t index = sender_->add_source(std::move(streams), sources_[i]->wants_far());
    PH_ASSERT(index == i, "sources are numbered in order");
    sources_[i]->on_ready([this, i] {
      ready_[i] = true;
      soon();
    });
    sources_[i]->on_closed([this](StreamId stream) {
      sender_->close_stream(stream);
      if (options_.publishers) options_.publishers->forget(stream);
      soon();
    });
  }
  watch_progress();  // the rate is known before anything leaves
  sender_->start(loop_.now());
  soon();
}

bool Upstream::drained() const {
  return std::ranges::none_of(sender_->receivers(), [](const auto& r) { return r.in_flight_batches > 0; });
}

void Upstream::stop() {
  stopped_ = true;
  timer_->cancel();
  progress_timer_->cancel();
  for (auto& l : links_) l->close();
}

void Upstream::soon() {
  if (pump_posted_ || stopped_) return;
  pump_posted_ = true;
  loop_.post([this, alive = alive_] {
    if (!*alive) return;
    pump_posted_ = false;
    if (!stopped_) pump();
  });
}

void Upstream::pump() {
  Instant now = loop_.now();
  if (sender_->deadline() <= now) sender_->tick(now);
  apply_effects();
  if (!finishing_) pull();
  apply_effects();
  rearm();
}

void Upstream::pull() {
  // A turn moves a bounded amount, so that the loop gets to its sockets between.
  constexpr int kBatchesPerTurn = 16;
  for (int moved = 0; moved < kBatchesPerTurn;) {
    if (sender_->room() == 0) return;
    size_t tried = 0;
    for (; tried < sources_.size(); ++tried) {
      size_t i = next_source_++ % sources_.size();
      size_t room = ready_[i] ? sender_->room(i) : 0;
      if (room == 0) continue;
      auto batch = sources_[i]->next(std::min(room, sender_->batch_bytes()));
      if (!batch) {
        ready_[i] = false;
        continue;
      }
      *batch = without_loops(std::move(*batch), sites(), looped_);
      sender_->offer(i, {batch->stream, batch->first, batch->last, batch->events, std::move(batch->packed)},
                     loop_.now());
      apply_effects();
      ++moved;
      break;
    }
    if (tried == sources_.size()) return;
  }
  soon();
}

/// Where what is sent may arrive; empty while one of the receivers is not known.
std::vector<std::string> Upstream::sites() const {
  std::vector<std::string> out;
  for (const auto& l : links_) {
    if (l->peer_site().empty()) return {};
    if (std::ranges::find(out, l->peer_site()) == out.end()) out.push_back(l->peer_site());
  }
  return out;
}

void Upstream::apply_effects() {
  for (auto effects = sender_->take_effects(); !effects.empty(); effects = sender_->take_effects())
    for (auto& e : effects) apply(e);
}

void Upstream::apply(link::SenderEffect& effect) {
  namespace fx = link::effect;
  if (auto* e = std::get_if<fx::Send>(&effect)) {
    links_[e->receiver]->send(std::move(e->frame));
  } else if (auto* a = std::get_if<fx::Advanced>(&effect)) {
    sources_[a->source]->advanced(a->stream, a->settled, a->events, a->duplicates);
    if (options_.publishers) options_.publishers->passed(a->stream, a->settled);
  } else if (auto* f = std::get_if<fx::FarAdvanced>(&effect)) {
    sources_[f->source]->far_advanced(f->stream, f->far);
  } else if (auto* c = std::get_if<fx::Connect>(&effect)) {
    links_[c->receiver]->open();
  } else if (auto* d = std::get_if<fx::Disconnect>(&effect)) {
    log_warn(
        "upstream_disconnected",
        {{"upstream", options_.name}, {"address", address(d->receiver).endpoint.to_string()}, {"reason", d->reason}});
    links_[d->receiver]->close();
  } else if (auto* w = std::get_if<fx::WillUse>(&effect)) {
    sources_[w->source]->will_use(w->stream, address(w->receiver).endpoint.to_string(), [this, alive = alive_, w = *w] {
      if (!*alive) return;
      sender_->durable(w.source, w.stream, w.receiver, loop_.now());
      soon();
    });
  } else if (auto* r = std::get_if<fx::Rejected>(&effect)) {
    sources_[r->source]->rejected(r->stream, r->first, r->last, r->block, r->reason);
  } else if (auto* u = std::get_if<fx::ReroutedUnasked>(&effect)) {
    sources_[u->source]->rerouted_unasked(u->events, [this, alive = alive_, u = *u] {
      if (!*alive) return;
      sender_->counted(u.source, u.stream, loop_.now());
      soon();
    });
  } else if (auto* n = std::get_if<fx::Renew>(&effect)) {
    ++renewed_;
    if (options_.publishers) options_.publishers->forget(n->stream);
    sources_[n->source]->renew(n->stream);
    ready_[n->source] = true;
    soon();
  } else if (auto* o = std::get_if<fx::Own>(&effect)) {
    options_.publishers->own(o->stream, {o->first, o->last, o->attempt, address(o->receiver).endpoint.to_string()},
                             [this, alive = alive_, o = *o] {
                               if (!*alive) return;
                               sender_->owned(o.source, o.stream, o.first, o.attempt, loop_.now());
                               soon();
                             });
  } else if (auto* p = std::get_if<fx::Parked>(&effect)) {
    if (sender_->still_parked(p->stream, p->from) && sources_[p->source]->take_back(p->stream, p->from))
      sender_->taken_back(p->stream, p->from, loop_.now());
  } else if (auto* b = std::get_if<fx::Released>(&effect)) {
    sources_[b->source]->resume(b->stream);
  } else if (std::holds_alternative<fx::Wanted>(effect)) {
    soon();
  }
}

void Upstream::rearm() {
  Instant due = sender_->deadline();
  if (due == Instant::max()) return timer_->cancel();
  timer_->start(std::max(due - loop_.now(), Duration::zero()), [this] { pump(); });
}

void Upstream::watch_progress() {
  if (options_.rate) {
    sender_->set_rate(options_.rate(loop_.wall_now()), loop_.now());
    soon();
  }
  for (size_t i = 0; i < links_.size(); ++i)
    if (links_[i]->progressed()) sender_->progressed(i, loop_.now());
  progress_timer_->start(1s, [this] { watch_progress(); });
}

void Upstream::ask(const std::set<std::string>& categories) {
  const size_t before = options_.asks.size();
  options_.asks.insert(categories.begin(), categories.end());
  if (options_.asks.size() == before) return;
  for (size_t place = 0; place < askers_.size(); ++place) {
    const size_t asker = askers_[place];
    if (asker != SIZE_MAX && links_[asker]->tells_interest())
      links_[asker]->ask_interest();
    else
      choose_asker(place);
  }
}

void Upstream::choose_asker(size_t place) {
  if (stopped_ || options_.asks.empty()) return;
  size_t& asker = askers_[place];
  if (asker != SIZE_MAX && links_[asker]->tells_interest()) return;
  asker = SIZE_MAX;
  for (size_t i = place * options_.connections; i < (place + 1) * options_.connections; ++i) {
    if (!links_[i]->tells_interest()) continue;
    asker = i;
    return links_[i]->ask_interest();
  }
}

void Upstream::give_up(const std::string& receiver, std::move_only_function<void(uint64_t batches)> done) {
  if (!options_.publishers) return done(0);
  // On disk first: a restart in between must not wait for it again, nor forget that copies may come to be.
  options_.publishers->give_up(receiver, [this, alive = alive_, receiver, done = std::move(done)]() mutable {
    if (!*alive) return;
    const uint64_t batches = sender_->give_up(receiver, loop_.now());
    log_warn("strict_owner_given_up", {{"upstream", options_.name},
                                       {"receiver", receiver},
                                       {"batches", batches},
                                       {"effect", "they go to others, and may be published twice"}});
    soon();
    done(batches);
  });
}

UpstreamStatus Upstream::status() const {
  UpstreamStatus s;
  s.name = options_.name;
  s.receivers = sender_->receivers();
  for (const auto& l : links_) s.peers.push_back(l->peer_name());
  s.unacked_events = sender_->unacked_events();
  s.unacked_bytes = sender_->unacked_bytes();
  s.stranded_batches = sender_->stranded_batches();
  s.away_owners = sender_->away_owners();
  s.given_up_batches = sender_->given_up_batches();
  s.renewed = renewed_;
  s.looped = looped_;
  return s;
}

}  // namespace ph::relay
