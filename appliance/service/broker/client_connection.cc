#include "service/broker/client_connection.h"

#include "service/broker/scram_exchange.h"
#include "service/broker/worker.h"

namespace ph::broker {
namespace {

constexpr Duration kTurn = 10ms;       // in which one client's packets are handled while others wait
constexpr uint32_t kTurnFirst = 4;     // packets after each of which the time is looked at;
constexpr uint32_t kTurnLookEach = 8;  // of those after them only every so many, as most cost less than the look

}  // namespace

ClientConnection::ClientConnection(Worker& worker, uint64_t id, std::unique_ptr<port::Connection> socket, Instant now)
    : worker_(worker),
      id_(id),
      socket_(std::move(socket)),
      channel_(*this, worker.options().channel, worker.context().counters, now) {}

ClientConnection::~ClientConnection() = default;

port::Consumed ClientConnection::on_data(port::Connection&, ByteView bytes) {
  // Answers to a client that does not read them are bounded here; messages are by the session.
  if (channel_.open() && socket_->unsent_bytes() > worker_.options().output_max) {
    worker_.context().counters.slow_consumers.add();
    channel_.kick(mqtt::ReasonCode::quota_exceeded);
  }
  session::Channel::Consumed consumed;
  handle([&](Instant now) {
    consumed = channel_.input(bytes, now);
    worker_.context().counters.bytes_in.add(consumed.bytes);
    if (client && client->offer) worker_.continue_offer(*client);  // acks may have made room
    if (client && client->parked) worker_.unpark(*client);
    return consumed.bytes;
  });
  return {consumed.bytes, consumed.wanted};
}

/// Packets, by `take`, which gets the time and says how many bytes are new.
template <class Take>
void ClientConnection::handle(Take take) {
  const session::Counters& counters = worker_.context().counters;
  const uint64_t before = counters.messages_in.get();
  const uint64_t changes = worker_.durable_changes();
  turn_began_ = worker_.loop().now();
  turn_packets_ = 0;
  const size_t bytes = take(turn_began_);
  worker_.on_received(*this, counters.messages_in.get() - before, bytes, worker_.durable_changes() != changes);
}

void ClientConnection::on_drained(port::Connection&) {
  worker_.on_uncongested(*this);
  if (!channel_.open()) return;
  channel_.session()->on_drained(worker_.loop().now());
  if (client->offer) worker_.continue_offer(*client);
  if (client->parked) worker_.unpark(*client);
}

void ClientConnection::close() {
  if (!std::exchange(lingers, false)) socket_->close();
}

void ClientConnection::on_close(port::Connection&, const Error&) {
  channel_.lost();
  worker_.remove(*this);
}

void ClientConnection::send(Slice bytes) {
  worker_.context().counters.bytes_out.add(bytes.size());
  socket_->send(std::move(bytes));
}

/// One call a packet; a large payload follows by send().
void ClientConnection::send_copy(ByteView bytes) {
  worker_.context().counters.packets_out.add();
  worker_.context().counters.bytes_out.add(bytes.size());
  socket_->send_copy(bytes);
}

void ClientConnection::notify_below(size_t mark) {
  socket_->notify_below(mark);
  worker_.on_congested(*this);
}

void ClientConnection::on_connect(const mqtt::Connect& connect) {
  worker_.on_connect(*this, connect);
}

std::optional<mqtt::ReasonCode> ClientConnection::on_publish(const mqtt::Publish& publish) {
  return worker_.on_publish(*this, publish);
}

bool ClientConnection::ready_for(const mqtt::Publish& publish) {
  return worker_.ready_for(*this, publish);
}

bool ClientConnection::ready_for(const mqtt::Subscribe& subscribe) {
  return worker_.ready_for(*this, subscribe);
}

void ClientConnection::go_on() {
  handle([this](Instant now) { return channel_.go_on(now), 0; });
}

void ClientConnection::take_turn() {
  handle([this](Instant now) { return channel_.take_turn(now), 0; });
}

/// A read may bring thousands of packets, and each of them may cost milliseconds: one client's are not to be everybody
/// else's pause.
bool ClientConnection::turn_is_over() {
  const uint32_t packets = ++turn_packets_;
  if (packets > kTurnFirst && packets % kTurnLookEach != 0) return false;
  if (worker_.loop().exact_now() - turn_began_ < kTurn) return false;
  worker_.yield(*this);
  return true;
}

void ClientConnection::on_subscribe(const mqtt::Subscribe& subscribe) {
  worker_.on_subscribe(*this, subscribe);
}

void ClientConnection::on_unsubscribe(const mqtt::Unsubscribe& unsubscribe) {
  worker_.on_unsubscribe(*this, unsubscribe);
}

void ClientConnection::on_auth(const mqtt::Auth& auth) {
  worker_.on_auth(*this, auth);
}

bool ClientConnection::delays_pubcomp(uint16_t packet_id, mqtt::ReasonCode reason) {
  return worker_.delays_pubcomp(*this, packet_id, reason);
}

void ClientConnection::on_end(const session::ChannelEnd& end) {
  worker_.on_end(*this, end);
}

}  // namespace ph::broker
