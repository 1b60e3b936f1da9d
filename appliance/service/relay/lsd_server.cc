#include "service/relay/lsd_server.h"

#include <algorithm>

#include "base/log.h"
#include "codec/event/block.h"
#include "codec/lsd/frames.h"

namespace ph::relay {
namespace {

constexpr std::string_view kCountersKey = "c/lsd";
constexpr std::string_view kDirectPrefix = "c/lsd/";       // + route
constexpr size_t kLinePieceMax = 8 * 1024 * 1024;          // of a line in a segment log: it must fit a link's frame
constexpr std::string_view kParseError = "parse error: ";  // as real servers begin it

/// The part of `payload` that makes one record: whole lines up to the size of a block, or one longer line.
size_t record_bytes(ByteView payload) {
  if (payload.size() <= limits::kBlockBytesMax) return payload.size();
  size_t end = payload.rfind('\n', limits::kBlockBytesMax - 1);
  if (end == payload.npos) end = payload.find('\n');
  return end + 1;
}

}  // namespace

/// A request from its frame to its answer.
struct LsdServer::Request {
  std::weak_ptr<Session> session;
  std::string answer;  // the frame of its offsets
  std::vector<event::Block> blocks;
  std::vector<size_t> routes;  // of the blocks
  std::vector<commit::Participant*> needs;
  IntakeCounters counted;
  std::map<size_t, IntakeCounters> direct;

  void need(commit::Participant* p) {
    if (std::find(needs.begin(), needs.end(), p) == needs.end()) needs.push_back(p);
  }
};

class LsdServer::Session : public port::ConnectionHandler, public std::enable_shared_from_this<Session> {
 public:
  Session(LsdServer& server, uint64_t number, std::unique_ptr<port::Connection> connection)
      : server_(server), number_(number), connection_(std::move(connection)) {}

  /// Of all that were accepted, in order.
  uint64_t number() const { return number_; }

  // --- port::ConnectionHandler
  void on_open(port::Connection&) override {}

  port::Consumed on_data(port::Connection&, ByteView bytes) override {
    size_t taken = 0;
    while (!closing_) {
      // A client whose request waits for disk is read on, to see it give up; not one that sends ahead.
      if (request_) return held_ && taken == bytes.size() ? port::Consumed{taken, 0} : wait(taken);
      auto frame = lsd::decode_frame(bytes.substr(taken));
      if (!frame) {
        protocol_error(frame.error().to_string());
        break;
      }
      if (frame->wanted > lsd::kHeaderBytes || frame->consumed > 0) {
        if (!reserve(frame->wanted)) return wait(taken);
        if (frame->consumed == 0 && reserved_ > 0 && !deadline_) deadline_ = server_.loop_.now() + kFrameTimeout;
      }
      if (frame->consumed == 0) return {taken, frame->wanted};
      deadline_.reset();
      taken += frame->consumed;
      on_frame(*frame);
    }
    return {bytes.size(), 0};
  }

  void on_close(port::Connection&, const Error& why) override {
    if (why.code != port::net_errors::closed)
      log_debug("lsd_session_ended", {{"peer", peer()}, {"why", why.to_string()}});
    if (request_) ++server_.stats_.abandoned;
    closing_ = true;
    request_.reset();
    free();
    server_.ended(*this);
  }

  // --- for the server
  bool holds() const { return request_ && held_; }
  /// Gets the room that it waits for; false: it is closing, and does not want it any more.
  bool go_on(size_t room) {
    if (closing_) return false;
    waits_for_room_ = false;
    reserved_ = room;
    connection_->pause_reading(false);
    return true;
  }
  void try_again() {
    held_ = false;
    submit();
  }
  void check_time(Instant now) {
    if (!closing_ && deadline_ && now > *deadline_) protocol_error("a frame that did not come whole in time");
  }
  /// What was asked is durable, or failed: try again.
  void written(const Result<>& outcome) {
    if (closing_ || !request_) return;
    if (!outcome) return hold();
    ++server_.stats_.requests;
    connection_->send(Slice(std::move(request_->answer)));
    done();
  }
  void shut() {
    if (closing_) return;
    if (holds()) {
      refuse(lsd::kShuttingDown);
      return close();
    }
    if (!request_) close();
  }

 private:
  const std::string& peer() const { return connection_->peer().address; }

  /// Read no further: request by request, so that a client that sends ahead is slowed down. What was not taken is shown
  /// again.
  port::Consumed wait(size_t taken) {
    connection_->pause_reading(true);
    return {taken, 0};
  }

  /// Room for a large frame before its body is read. False: it waits for some.
  bool reserve(size_t frame_bytes) {
    if (frame_bytes <= kSmallFrame || reserved_ > 0) return true;
    if (waits_for_room_) return false;
    if (server_.reserve(number_, frame_bytes))
      reserved_ = frame_bytes;
    else
      waits_for_room_ = true;
    return !waits_for_room_;
  }
  void free() {
    if (reserved_ > 0) server_.give_back(std::exchange(reserved_, 0));
  }

  void on_frame(const lsd::Frame& frame) {
    if (server_.stopping_) return refuse(lsd::kShuttingDown);
    if (frame.id != lsd::kRequestNewEvents)
      return refuse(std::string(kParseError) + "unknown message_id: " + std::to_string(frame.id));
    auto request = std::make_shared<Request>();
    request->session = weak_from_this();
    std::string fault = read(frame.body, *request);
    if (!fault.empty()) return refuse(fault);
    request_ = std::move(request);
    submit();
  }

  /// Copies the lines out of the read buffer. What is wrong with the request; empty: nothing.
  std::string read(ByteView body, Request& request) {
    std::string_view fault;
    size_t inflated = 0;
    size_t begun = lsd::begin_frame(request.answer);
    auto decoded = lsd::for_each_event(body, [&](const lsd::Event& e) {
      lsd::put_offset(request.answer, e.token);
      if (!fault.empty() || e.line_bytes == 0) return;
      if (auto bad = event::category_fault(e.category); !bad.empty()) {
        log_warn("lsd_event_refused", {{"peer", peer()}, {"reason", bad}});
        fault = lsd::kWriteFailed;
        return;
      }
      std::string payload;
      if (!lines(e, inflated, payload)) fault = lsd::kWriteFailed;
      if (!payload.empty() && fault.empty()) add(e.category, std::move(payload), request);
    });
    if (!decoded) return std::string(kParseError) + decoded.error().to_string();
    if (fault.empty()) lsd::end_frame(request.answer, begun, lsd::kResponseOffsets);
    return std::string(fault);
  }

  /// The event's lines, each with its newline. False: gzip that can't be inflated.
  bool lines(const lsd::Event& e, size_t& inflated, std::string& payload) {
    if (!e.compressed) payload.reserve(e.line_bytes + e.lines);
    bool good = true;
    lsd::for_each_line(e, [&](ByteView line) {
      if (!good || line.empty()) return;
      if (e.compressed) {
        auto plain = lsd::gunzip(line, kInflatedMax - inflated);
        if (!plain) {
          log_warn("lsd_event_refused", {{"peer", peer()}, {"reason", plain.error().to_string()}});
          good = false;
          return;
        }
        inflated += plain->size();
        payload += *plain;
      } else {
        payload += line;
      }
      if (!payload.empty() && payload.back() != '\n') payload.push_back('\n');
    });
    return good;
  }

  void add(ByteView category, std::string payload, Request& request) {
    event::Block& block = request.blocks.emplace_back();
    block.category = category;
    block.id = {server_.options_.self, server_.ingress_, server_.position_, server_.position_ + payload.size()};
    server_.position_ += payload.size();
    block.events = count_newlines(payload);
    block.accepted_at = server_.loop_.wall_now();
    block.payload = Slice(std::move(payload));
    request.routes.push_back(server_.options_.route_of(block.category));
    request.counted.events += block.events;
    request.counted.bytes += block.payload.size();
  }

  void submit() {
    if (server_.full(*request_)) return hold();
    if (auto fault = server_.fault(*request_); !fault.empty()) {
      log_warn("lsd_request_refused", {{"peer", peer()}, {"reason", fault}});
      request_.reset();
      refuse(lsd::kWriteFailed);
      return done();
    }
    if (request_->blocks.empty()) return written({});
    server_.place(*request_);
    port::WriteBatch entries;
    server_.count(*request_, entries);
    server_.committer_.request(
        request_->needs, std::move(entries),
        [server = &server_, alive = server_.alive_, request = request_](const Result<>& outcome) {
          if (*alive) server->committed(request, outcome);
        });
  }

  /// Reads on, if nothing was sent ahead, only to see a client that gives up.
  void hold() {
    held_ = true;
    connection_->pause_reading(false);
  }

  void refuse(std::string_view text) {
    ++server_.stats_.refused;
    connection_->send(Slice(lsd::encode_error(-1, text)));
    if (!request_) free();
  }

  void done() {
    request_.reset();
    held_ = false;
    free();
    if (server_.stopping_) return close();
    connection_->pause_reading(false);
  }

  void protocol_error(const std::string& what) {
    ++server_.stats_.protocol_errors;
    log_warn("lsd_protocol_error", {{"peer", peer()}, {"error", what}});
    closing_ = true;
    free();
    connection_->close(Duration::zero());
  }

  void close() {
    closing_ = true;
    request_.reset();
    free();
    connection_->close();
  }

  LsdServer& server_;
  const uint64_t number_;
  std::unique_ptr<port::Connection> connection_;
  std::shared_ptr<Request> request_;  // being written, or waiting for room on disk
  size_t reserved_ = 0;
  std::optional<Instant> deadline_;  // of the frame that is arriving
  bool held_ = false;
  bool waits_for_room_ = false;  // in memory
  bool closing_ = false;
};

LsdServer::LsdServer(LsdServerOptions options, port::Loop& loop, port::Network& network, port::KeyedStore& store,
                     commit::Committer& committer, chunk::FilesSink* sink)
    : options_(std::move(options)),
      loop_(loop),
      network_(network),
      store_(store),
      committer_(committer),
      sink_(sink),
      ingress_(loop.random().stream_id()),
      ticker_(loop.make_timer()),
      direct_(options_.routes.size()) {}

LsdServer::~LsdServer() {
  *alive_ = false;
}

Result<> LsdServer::load() {
  PH_TRY(load_counters(store_, std::string(kCountersKey), options_.routes, counters_, direct_));
  durable_ = counters_;
  direct_durable_ = direct_;
  return {};
}

Result<> LsdServer::start() {
  PH_ASSIGN(listener_,
            network_.listen(options_.bind, {.connections_max = options_.connections_max},
                            [this](std::unique_ptr<port::Connection>&& c) { return accepted(std::move(c)); }));
  log_info("lsd_listening", {{"address", listener_->local().to_string()}});
  tick();
  return {};
}

void LsdServer::stop() {
  stopping_ = true;
  listener_.reset();
  for (auto& [number, session] : sessions_) session->shut();
}

port::Endpoint LsdServer::local() const {
  return listener_ ? listener_->local() : port::Endpoint{};
}

LsdServerStats LsdServer::stats() const {
  LsdServerStats s = stats_;
  s.connections = sessions_.size();
  for (const auto& [number, session] : sessions_) s.held += session->holds();
  s.events = durable_.events;
  s.bytes = durable_.bytes;
  return s;
}

std::map<std::string, IntakeCounters> LsdServer::direct_counters() const {
  std::map<std::string, IntakeCounters> out;
  for (size_t i = 0; i < options_.routes.size(); ++i)
    if (!options_.routes[i].log) out[options_.routes[i].name] = direct_durable_[i];
  return out;
}

port::ConnectionHandler* LsdServer::accepted(std::unique_ptr<port::Connection>&& connection) {
  const uint64_t number = ++stats_.accepted;
  auto session = std::make_shared<Session>(*this, number, std::move(connection));
  sessions_.emplace(number, session);
  return session.get();
}

void LsdServer::ended(Session& session) {
  loop_.post([this, alive = alive_, gone = session.number()] {
    if (*alive) sessions_.erase(gone);
  });
}

/// Room in memory for a large frame; one always fits. False: the session waits behind all that do, and is told to go
/// on.
bool LsdServer::reserve(uint64_t session, size_t frame_bytes) {
  if (!waiting_.empty() || !fits(frame_bytes)) {
    waiting_.emplace_back(session, frame_bytes);
    return false;
  }
  reserved_ += frame_bytes;
  return true;
}

bool LsdServer::fits(size_t frame_bytes) const {
  return reserved_ == 0 || reserved_ + frame_bytes <= kFramesBytes;
}

/// Who waits for room gets it in the order of coming, so that nobody waits for ever while others are served again.
void LsdServer::give_back(size_t room) {
  reserved_ -= room;
  while (!waiting_.empty() && fits(waiting_.front().second)) {
    auto [number, wanted] = waiting_.front();
    waiting_.pop_front();
    auto it = sessions_.find(number);
    if (it == sessions_.end()) continue;
    if (it->second->go_on(wanted)) reserved_ += wanted;
  }
}

void LsdServer::tick() {
  Instant now = loop_.now();
  std::vector<std::shared_ptr<Session>> held;
  for (auto& [number, session] : sessions_) {
    session->check_time(now);
    if (session->holds()) held.push_back(session);
  }
  for (auto& session : held) session->try_again();
  ticker_->start(kRetryAfter, [this] { tick(); });
}

/// Why the request can't be written here; empty: it can.
std::string_view LsdServer::fault(const Request& request) const {
  for (size_t i = 0; i < request.blocks.size(); ++i) {
    if (options_.routes[request.routes[i]].log) continue;
    const std::string& category = request.blocks[i].category;
    if (auto why = sink_->refuses(category); !why.empty()) return why;
    if (auto why = sink_->obstacle(category); !why.empty()) return why;
  }
  return {};
}

bool LsdServer::full(const Request& request) const {
  return std::any_of(request.routes.begin(), request.routes.end(), [this](size_t route) {
    const IntakeRoute& to = options_.routes[route];
    return to.log ? to.full() || !options_.room() : !sink_->room();
  });
}

void LsdServer::place(Request& request) {
  request.needs.clear();
  request.direct.clear();
  for (size_t i = 0; i < request.blocks.size(); ++i) {
    const event::Block& block = request.blocks[i];
    const IntakeRoute& route = options_.routes[request.routes[i]];
    if (route.log) {
      append_to_log(*route.log, block);
      request.need(route.log);
      continue;
    }
    PH_ASSERT(sink_, "a route without a log leads to files");
    sink_->append(block);
    request.need(sink_);
    IntakeCounters& direct = request.direct[request.routes[i]];
    direct.events += block.events;
    direct.bytes += block.payload.size();
  }
}

/// In records of the size that an agent makes, so that what reads them works with batches of that size.
void LsdServer::append_to_log(spool::SegmentLog& log, const event::Block& block) {
  ByteView payload = block.payload.view();
  for (size_t at = 0; at < payload.size();) {
    size_t size = record_bytes(payload.substr(at));
    if (size > kLinePieceMax) {
      append_pieces(log, block, at, size);
    } else {
      event::Block part = event::cut(block, block.id.first + at, block.id.first + at + size);
      log.append(Slice(event::encode(part)), part.events, part.accepted_at);
    }
    at += size;
  }
}

/// One line that no frame of a link could carry, as several.
void LsdServer::append_pieces(spool::SegmentLog& log, const event::Block& block, size_t at, size_t size) {
  for (size_t done = 0; done < size;) {
    size_t n = std::min(kLinePieceMax, size - done);
    event::Block part = block;
    part.piece = true;
    part.id.first = block.id.first + at + done;
    part.id.last = part.id.first + n;
    part.events = 1;
    std::string bytes(block.payload.view().substr(at + done, n));
    if (bytes.back() != '\n') bytes.push_back('\n');
    part.payload = Slice(std::move(bytes));
    log.append(Slice(event::encode(part)), 1, part.accepted_at);
    done += n;
  }
}

void LsdServer::count(const Request& request, port::WriteBatch& entries) {
  counters_.events += request.counted.events;
  counters_.bytes += request.counted.bytes;
  entries.put(std::string(kCountersKey), encode_counters(counters_));
  for (const auto& [route, more] : request.direct) {
    direct_[route].events += more.events;
    direct_[route].bytes += more.bytes;
    entries.put(std::string(kDirectPrefix) + options_.routes[route].name, encode_counters(direct_[route]));
  }
}

void LsdServer::committed(const std::shared_ptr<Request>& request, const Result<>& outcome) {
  if (outcome) {
    durable_.events += request->counted.events;
    durable_.bytes += request->counted.bytes;
  } else {
    counters_.events -= request->counted.events;
    counters_.bytes -= request->counted.bytes;
    log_error("lsd_request_not_durable", {{"error", outcome.error().to_string()}});
  }
  for (const auto& [route, more] : request->direct) {
    IntakeCounters& to = outcome ? direct_durable_[route] : direct_[route];
    to.events = outcome ? to.events + more.events : to.events - more.events;
    to.bytes = outcome ? to.bytes + more.bytes : to.bytes - more.bytes;
  }
  if (auto session = request->session.lock()) session->written(outcome);
}

}  // namespace ph::relay
