#include "service/relay/link_server.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "service/relay/handshake.h"

namespace ph::relay {

/// Lives as long as its connection, or as something that it brought is in memory: what is consumed then must be
/// counted.
class LinkServer::Session : public port::ConnectionHandler,
                            public IntakeClient,
                            public link::ReceiverMemory::Account,
                            public std::enable_shared_from_this<Session> {
 public:
  Session(LinkServer& server, uint64_t number, std::unique_ptr<port::Connection> connection)
      : server_(server),
        number_(number),
        memory_(server.memory_),
        connection_(std::move(connection)),
        heard_(server.loop_.now()) {
    memory_->open();
  }

  // --- port::ConnectionHandler
  void on_open(port::Connection&) override {
    send(link::Hello{.node = server_.options_.self,
                     .name = server_.options_.name,
                     .site = server_.options_.site,
                     .target = {},
                     .incarnation = server_.options_.incarnation,
                     .features = link::features::zstd | link::features::need |
                                 (server_.staging_ ? link::features::strict : 0) |
                                 (server_.options_.wishes ? link::features::interest : 0),
                     .wall_time = server_.loop_.wall_now()});
  }

  port::Consumed on_data(port::Connection&, ByteView bytes) override {
    if (waiting()) return {};
    heard_ = server_.loop_.now();
    size_t taken = 0;
    while (!closing_) {
      auto decoded = link::decode(bytes.substr(taken));
      if (!decoded) {
        protocol_error(decoded.error().to_string());
        return {bytes.size(), 0};
      }
      if (!admitted_or_small(*decoded)) return {taken, 0};
      if (closing_) break;
      // In steps, so that a long frame over a slow way is seen to move.
      if (decoded->consumed == 0) return {taken, std::min(decoded->wanted, bytes.size() - taken + kProgressStep)};
      if (auto* frame = std::get_if<link::Frame>(&decoded->frame)) on_frame(*frame, decoded->consumed);
      memory_->finished(*this);
      taken += decoded->consumed;
    }
    return {bytes.size(), 0};
  }

  void on_close(port::Connection&, const Error& why) override {
    if (why.code != ErrorCode("net.closed") || !ready_)
      log_info("link_session_ended", {{"peer", peer()}, {"node", hello_.name}, {"why", why.to_string()}});
    close_account();
    closing_ = true;
    server_.ended(*this);
  }

  // --- IntakeClient
  void acknowledge(StreamId stream, const link::Ack& ack) override {
    if (detached_) return;
    link::Ack& pending = acks_[stream];
    pending.stream = stream;
    pending.accepted.insert(pending.accepted.end(), ack.accepted.begin(), ack.accepted.end());
    pending.far.insert(pending.far.end(), ack.far.begin(), ack.far.end());
    pending.duplicates += ack.duplicates;
    pending.rejects.insert(pending.rejects.end(), ack.rejects.begin(), ack.rejects.end());
    pending.staged.insert(pending.staged.end(), ack.staged.begin(), ack.staged.end());
    schedule_flush();
  }
  void hold(StreamId stream, std::string_view reason) override {
    flush();  // what was accepted before the HOLD must be known first
    send(link::Hold{stream, std::string(reason)});
  }
  void release(StreamId stream) override { send(link::Release{stream}); }
  void consumed(uint64_t bytes) override {
    memory_->consumed(bytes);
    consumed_ += bytes;
    if (!detached_) schedule_flush();
  }

  void end(std::string reason) {
    if (closing_) return;
    send(link::Goodbye{std::move(reason)});
    close_account();
    closing_ = true;
    connection_->close();
  }
  /// Closes without another word: a newer connection of the channel speaks now.
  void drop() {
    close_account();
    closing_ = true;
    connection_.reset();
  }
  /// Of all that were accepted, in order.
  uint64_t number() const { return number_; }
  /// The server is done with it.
  void detach() {
    detached_ = true;
    drop();
  }
  /// Its frame is admitted.
  void read_on() {
    heard_ = server_.loop_.now();
    connection_->pause_reading(false);
  }
  /// Whether it gives back a share that others may have.
  bool rests(Instant now) { return !closing_ && memory_->look(*this, now); }
  void check_time(Instant now) {
    if (closing_) return;
    if (!ready_ && now - opened_ > limits::kHandshakeTimeout) {
      ++server_.stats_.handshake_timeouts;
      log_warn("link_handshake_timed_out", {{"peer", peer()}});
      closing_ = true;
      connection_->close(Duration::zero());
    } else if (waiting()) {
      return;  // it is we who do not listen
    } else if (now - heard_ > kIdleTimeout) {
      log_warn("link_session_silent", {{"peer", peer()}, {"node", hello_.name}});
      closing_ = true;
      connection_->close(Duration::zero());
    } else if (admitted() && memory_->waiting() > 0 && now - heard_ > kStallTimeout) {
      ++server_.stats_.stalled;
      log_warn("link_frame_stalled", {{"peer", peer()}, {"node", hello_.name}});
      closing_ = true;
      connection_->close(Duration::zero());
    }
  }
  /// What changed since this peer was told last.
  void tell() {
    if (closing_ || !ready_ || !asked_) return;
    Wishes::Told now = server_.options_.wishes->told(hello_.site, *asked_);
    if (!now || now == told_) return;
    link::Interest frame{.reset = !told_};
    if (frame.reset) frame.categories = {asked_->begin(), asked_->end()};
    size_t bytes = 0;
    const auto add = [&](std::vector<link::Interest::Entry>& to, const link::Interest::Entry& entry) {
      to.push_back(entry);
      bytes += entry.filter.size() + 64;
      if (bytes < kInterestFrameBytes) return;
      frame.more = true;
      send(frame);
      frame = {};
      bytes = 0;
    };
    for (const auto& e : *now)
      if (!told_ || !told_->contains(e)) add(frame.added, e);
    if (told_)
      for (const auto& e : *told_)
        if (!now->contains(e)) add(frame.removed, e);
    frame.more = false;
    send(frame);
    told_ = std::move(now);
  }
  bool ready() const { return ready_; }
  uint64_t target() const { return target_; }
  bool speaks_to(uint64_t target) const { return ready_ && !closing_ && target_ == target; }
  /// Whether its sender has asked about all of its streams: before anything else, and as soon as it is connected.
  bool has_asked(Instant now) const {
    return ready_ && !closing_ && (brought_ || now - introduced_at_ >= Staging::kAskedAfter);
  }
  const link::Hello& hello() const { return hello_; }

  /// One ACK a stream and at most one CREDIT a turn.
  void flush() {
    if (closing_ || !ready_) return;
    for (auto& [stream, ack] : acks_) send(ack);
    acks_.clear();
    if (const auto credit = memory_->grant(*this, consumed_)) send(link::Credit{*credit});
  }

 private:
  /// Whether the frame at the front may be read to its end. If not, nothing more is read until it is its turn.
  bool admitted_or_small(const link::Decoded& decoded) {
    uint64_t size = decoded.consumed ? decoded.consumed : decoded.wanted;
    if (!decoded.events && size <= kControlMax) return true;
    if (!ready_) {
      protocol_error("a frame before HELLO");
      return true;
    }
    // What is small on the wire may become large: that needs its room before it does.
    if (const auto* frame = std::get_if<link::Frame>(&decoded.frame))
      if (const auto* events = std::get_if<link::Events>(frame); events && events->codec == link::codecs::zstd)
        size += std::min<uint64_t>(link::Decompressor::told_size(events->packed.view()), limits::kFrameMax);
    if (admitted_size() >= size || memory_->admit(*this, size)) return true;
    connection_->pause_reading(true);
    return false;
  }
  void close_account() {
    if (!std::exchange(account_closed_, true)) memory_->close(*this);
  }

  link::StreamKey key(StreamId stream) const { return {hello_.node, target_, stream}; }
  const std::string& peer() const {
    static const std::string kGone = "closed";
    return connection_ ? connection_->peer().address : kGone;
  }

  void send(const link::Frame& frame) {
    if (closing_ || !connection_) return;
    send_frame(*connection_, link::encode(frame));
  }

  void protocol_error(const std::string& what) {
    ++server_.stats_.protocol_errors;
    log_warn("link_protocol_error", {{"peer", peer()}, {"node", hello_.name}, {"error", what}});
    end(what);
  }

  void refuse(const std::string& reason) {
    ++server_.stats_.refused;
    log_warn("link_peer_refused", {{"peer", peer()}, {"node", hello_.name}, {"reason", reason}});
    send(link::Refuse{reason});
    closing_ = true;
    connection_->close();
  }

  void on_frame(link::Frame& frame, size_t bytes) {
    if (auto* hello = std::get_if<link::Hello>(&frame)) return on_hello(*hello);
    if (!ready_) return protocol_error("a frame before HELLO");
    if (auto* events = std::get_if<link::Events>(&frame)) {
      if (own(*events, bytes)) on_events(*events, bytes);
    } else if (std::holds_alternative<link::Need>(frame)) {
      memory_->needs(*this, heard_);
      schedule_flush();
    } else if (auto* resume = std::get_if<link::Resume>(&frame)) {
      on_resume(*resume);
    } else if (auto* close = std::get_if<link::CloseStream>(&frame)) {
      server_.close(*this, key(close->stream));
    } else if (auto* decide = std::get_if<link::Decide>(&frame)) {
      if (server_.staging_) server_.staging_->decide(key(decide->stream), *decide);
    } else if (auto* ask = std::get_if<link::InterestAsk>(&frame)) {
      on_ask(*ask);
    } else if (auto* ping = std::get_if<link::Ping>(&frame)) {
      send(link::Pong{ping->token});
    } else if (auto* bye = std::get_if<link::Goodbye>(&frame)) {
      log_debug("link_peer_said_goodbye", {{"peer", peer()}, {"reason", bye->reason}});
    } else if (auto* refused = std::get_if<link::Refuse>(&frame)) {
      log_warn("link_refused_by_peer", {{"peer", peer()}, {"reason", refused->reason}});
      closing_ = true;
      connection_->close();
    } else if (!std::holds_alternative<link::Pong>(frame)) {
      protocol_error("a frame that only a receiver sends");
    }
  }

  void on_events(const link::Events& events, size_t bytes) {
    brought_ = true;
    const bool had_credit = memory_->received(*this, bytes, heard_);
    if (had_credit && take(events, bytes)) {
      if (busy()) schedule_flush();  // it may have become so just now
      return;
    }
    memory_->consumed(bytes);
    protocol_error(had_credit ? "EVENTS that cannot be taken" : "EVENTS without credit");
  }

  bool take(const link::Events& events, size_t bytes) {
    const link::StreamKey stream = key(events.stream);
    if (events.attempt == 0) return server_.intake_.take(stream, hello_.site, events, bytes, shared_from_this());
    return server_.staging_ && server_.staging_->stage(stream, hello_.site, events, bytes, shared_from_this());
  }

  bool writing(StreamId stream) const {
    return server_.intake_.writing(key(stream)) || (server_.staging_ && server_.staging_->writing(key(stream)));
  }

  /// The frame lives in the loop's read buffer: gives it bytes of its own, uncompressed. `bytes` becomes what it
  /// counts.
  bool own(link::Events& events, size_t& bytes) {
    if (events.codec == link::codecs::none) {
      events.packed = Slice(std::string(events.packed.view()));
      return true;
    }
    if (events.codec != link::codecs::zstd) {
      protocol_error("EVENTS in codec " + std::to_string(events.codec));
      return false;
    }
    auto plain = server_.decompressor_.decompress(events.packed.view(), limits::kFrameMax);
    if (!plain) {
      protocol_error(plain.error().to_string());
      return false;
    }
    bytes = bytes - events.packed.size() + plain->size();
    events.packed = std::move(*plain);
    return true;
  }

  void on_hello(const link::Hello& hello) {
    if (ready_) return protocol_error("a second HELLO");
    hello_ = hello;
    if (auto reason = handshake_fault(hello, connection_->peer(), server_.options_.self); !reason.empty())
      return refuse(reason);
    if (hello.target.empty()) return refuse("HELLO without a target: the connecting side is the sender");
    target_ = link::target_hash(hello.target);
    ready_ = true;
    introduced_at_ = heard_;
    if (server_.twins_.note(hello.node, hello.incarnation, hello.name + " at " + peer(), heard_))
      log_error("node_id_twice", {{"node_id", hello.node.hex()},
                                  {"node", hello.name},
                                  {"peer", peer()},
                                  {"effect", "two nodes with one id take turns: was a data_dir copied?"}});
    server_.introduced(*this);
    log_info("link_session_opened",
             {{"peer", peer()}, {"node", hello.name}, {"site", hello.site}, {"target", hello.target}});
    flush();
  }

  void on_ask(const link::InterestAsk& ask) {
    if (!server_.options_.wishes) return;
    if (ask.categories.size() > Wishes::kAsksMax) return protocol_error("INTEREST_ASK for too many categories");
    asked_.emplace();
    for (const std::string& category : ask.categories)
      if (event::category_fault(category).empty()) asked_->insert(category);
    told_.reset();
    tell();
  }

  /// What an older connection brought may still be on its way to the disk: the answer waits for it, so that "not here"
  /// is final. Answers leave in the order of the questions.
  void on_resume(const link::Resume& resume) {
    if (resume.streams.size() > kResumeStreamsMax) return protocol_error("RESUME of too many streams at once");
    const bool waits =
        std::any_of(resume.streams.begin(), resume.streams.end(), [this](const auto& s) { return writing(s.stream); });
    if (!waits && resumes_waiting_ == 0) return answer_resume(resume);
    ++resumes_waiting_;
    server_.intake_.after_writes([weak = weak_from_this(), resume] {
      auto self = weak.lock();
      if (!self) return;
      --self->resumes_waiting_;
      if (!self->closing_) self->answer_resume(resume);
    });
  }

  void answer_resume(const link::Resume& resume) {
    link::Resumed answer;
    size_t bytes = 0;
    for (const auto& s : resume.streams) {
      auto& told = answer.streams.emplace_back(server_.intake_.resume(key(s.stream), s.settled, weak_from_this()));
      if (server_.staging_) told.staged = server_.staging_->staged(key(s.stream));
      if (!told.staged.empty()) server_.intake_.introduce(key(s.stream), shared_from_this());
      bytes += size_of(told);
    }
    // The bounds of what a stream remembers keep a sender that asks for few at a time far from this.
    if (bytes > limits::kFrameMax / 2) return protocol_error("RESUME of streams whose answer fits no frame");
    send(answer);
    flush();
  }

  static size_t size_of(const link::Resumed::Stream& s) {
    constexpr size_t kVarint = 10;
    size_t bytes = 8 * kVarint + 2 * kVarint * (s.accepted.size() + s.far.size()) + 3 * kVarint * s.staged.size();
    for (const link::Reject& r : s.rejects) bytes += 3 * kVarint + r.reason.size();
    return bytes;
  }

  void schedule_flush() {
    if (flush_posted_) return;
    flush_posted_ = true;
    server_.loop_.post([weak = weak_from_this()] {
      auto self = weak.lock();
      if (!self) return;
      self->flush_posted_ = false;
      if (self->detached_) return;
      self->flush();
      self->server_.let_in();
    });
  }

  LinkServer& server_;  // not to be used once detached
  const uint64_t number_;
  std::shared_ptr<link::ReceiverMemory> memory_;
  std::unique_ptr<port::Connection> connection_;
  link::Hello hello_;
  uint64_t target_ = 0;
  Instant opened_ = server_.loop_.now();
  Instant heard_;
  Instant introduced_at_{};
  bool ready_ = false;
  bool brought_ = false;  // EVENTS
  bool closing_ = false;
  bool detached_ = false;
  bool account_closed_ = false;
  bool flush_posted_ = false;
  size_t resumes_waiting_ = 0;
  std::optional<std::set<std::string>> asked_;  // categories whose wishes the peer wants to know,
  Wishes::Told told_;                           // and what it was told of them
  std::map<StreamId, link::Ack> acks_;
  uint64_t consumed_ = 0;
};

LinkServer::LinkServer(LinkServerOptions options, port::Loop& loop, port::Network& network, Intake& intake,
                       Staging* staging)
    : options_(std::move(options)),
      loop_(loop),
      network_(network),
      intake_(intake),
      staging_(staging),
      memory_(std::make_shared<link::ReceiverMemory>(options_.memory)),
      ticker_(loop.make_timer()),
      wishes_timer_(loop.make_timer()) {
  if (staging_) staging_->asked_by([this] { return asked(); });
}

LinkServer::~LinkServer() {
  *alive_ = false;
  if (staging_) staging_->asked_by(nullptr);
  for (auto& [number, session] : sessions_) session->detach();
}

Result<> LinkServer::start() {
  PH_ASSIGN(listener_,
            network_.listen(
                options_.bind,
                {.tls = options_.tls, .connections_max = options_.connections_max, .accepts_a_second = kAcceptsASecond},
                [this](std::unique_ptr<port::Connection>&& c) { return accepted(std::move(c)); }));
  log_info("link_listening", {{"address", listener_->local().to_string()}, {"tls", options_.tls != nullptr}});
  tick();
  return {};
}

void LinkServer::stop() {
  listener_.reset();
  for (auto& [number, session] : sessions_) session->end("the node is stopping");
}

void LinkServer::wishes_changed() {
  if (wishes_timer_->pending()) return;
  wishes_timer_->start(kTellAfter, [this] {
    for (auto& [number, session] : sessions_) session->tell();
  });
}

port::Endpoint LinkServer::local() const {
  return listener_ ? listener_->local() : port::Endpoint{};
}

LinkServerStats LinkServer::stats() const {
  LinkServerStats s = stats_;
  for (const auto& [number, session] : sessions_) s.connections += session->ready();
  s.memory = memory_->in_memory();
  s.memory_peak = memory_->peak();
  s.memory_waits = memory_->waits();
  s.over_credit = memory_->over_credit();
  return s;
}

port::ConnectionHandler* LinkServer::accepted(std::unique_ptr<port::Connection>&& connection) {
  const uint64_t number = ++stats_.accepted;
  auto session = std::make_shared<Session>(*this, number, std::move(connection));
  sessions_.emplace(number, session);
  return session.get();
}

void LinkServer::introduced(Session& session) {
  const link::Hello& hello = session.hello();
  for (auto it = channels_.lower_bound({hello.node, 0}); it != channels_.end() && it->first.first == hello.node;) {
    Session* other = it->second;
    bool earlier_run = other->hello().target == hello.target && other->hello().incarnation != hello.incarnation;
    if (earlier_run || it->first.second == hello.channel) {
      it = channels_.erase(it);
      replace(*other);
    } else {
      ++it;
    }
  }
  channels_[{hello.node, hello.channel}] = &session;
}

void LinkServer::replace(Session& session) {
  log_debug("link_session_replaced", {{"node", session.hello().name}});
  session.drop();
  // Destroyed later: it may be the one whose bytes are being handled further up the stack.
  forget_later(session.number());
}

void LinkServer::ended(Session& session) {
  auto it = channels_.find({session.hello().node, session.hello().channel});
  if (it != channels_.end() && it->second == &session) channels_.erase(it);
  forget_later(session.number());
}

/// All connections of the sender are waited for, also one that has brought nothing of the stream yet: what it was sent
/// first may lie unread, while another connection brought it again.
void LinkServer::close(Session& session, const link::StreamKey& key) {
  if (intake_.known(key) && !intake_.closing(key))
    for (auto it = channels_.lower_bound({key.sender, 0}); it != channels_.end() && it->first.first == key.sender; ++it)
      if (it->second->speaks_to(key.target)) intake_.introduce(key, it->second->shared_from_this());
  if (intake_.close(key, session.shared_from_this()) && staging_) staging_->close(key);
}

void LinkServer::forget_later(uint64_t number) {
  loop_.post([this, alive = alive_, number] {
    if (!*alive) return;
    if (auto it = sessions_.find(number); it != sessions_.end()) {
      it->second->detach();
      sessions_.erase(it);
    }
    let_in();
  });
}

Staging::Senders LinkServer::asked() const {
  Staging::Senders out;
  for (const auto& [number, session] : sessions_)
    if (session->has_asked(loop_.now())) out.insert({session->hello().node, session->target()});
  return out;
}

/// What was consumed, or its end, made room for others.
void LinkServer::let_in() {
  while (auto* account = memory_->let_in()) static_cast<Session*>(account)->read_on();
}

void LinkServer::tick() {
  Instant now = loop_.now();
  bool freed = false;
  for (auto& [number, session] : sessions_) {
    session->check_time(now);
    freed |= session->rests(now);
  }
  if (freed)
    for (auto& [number, session] : sessions_) session->flush();
  let_in();
  ticker_->start(1s, [this] { tick(); });
}

}  // namespace ph::relay
