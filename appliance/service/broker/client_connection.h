// ClientConnection: one client's socket in the hands of the worker that accepted it: it joins a port::Connection and
// the protocol state (session::Channel) and hands the channel's questions to the worker. Owned by the worker; dies
// there a turn after on_close.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/security/policy.h"
#include "core/session/channel.h"
#include "port/network.h"
#include "service/broker/http_authorizer.h"
#include "service/broker/throttle.h"

namespace ph::broker {

class Worker;
struct Client;
struct ScramExchange;

class ClientConnection final : public port::ConnectionHandler, public session::ChannelHost {
 public:
  ClientConnection(Worker& worker, uint64_t id, std::unique_ptr<port::Connection> socket, Instant now);
  ~ClientConnection() override;

  uint64_t id() const { return id_; }
  session::Channel& channel() { return channel_; }
  const port::Peer& peer() const { return socket_->peer(); }
  uint64_t bytes_acked() const { return socket_->bytes_acked(); }

  size_t listener = 0;       // index into the options' listeners
  std::string mountpoint;    // in front of all its topics
  bool renames = false;      // its topics are not taken as they are
  Client* client = nullptr;  // set by the worker between accept and end
  uint32_t check = 0;        // the worker's: serial of the look that is due next
  ClientRates rates;
  Instant expires = Instant::max();          // of its credentials
  bool lingers = false;                      // it closes when close() is called a second time
  bool local_user = false;                   // it is the policy's user of that name, and goes with it
  std::unique_ptr<ScramExchange> scram;      // an enhanced authentication at work
  std::unique_ptr<Decisions> decisions;      // of an HTTP server about its packets; null: none was asked
  std::shared_ptr<security::Access> access;  // what it may do; null: everything, or not yet let in

  // port::ConnectionHandler
  void on_open(port::Connection&) override {}
  port::Consumed on_data(port::Connection&, ByteView bytes) override;
  void on_drained(port::Connection&) override;
  bool holds_input() const override { return channel_.holds_input(); }
  bool waits_for_turn() const override { return channel_.waits_for_turn(); }
  bool hears_last_words() const override { return true; }  // its DISCONNECT may be among them
  void on_close(port::Connection&, const Error& why) override;

  // session::ChannelHost
  void send(Slice bytes) override;
  void send_copy(ByteView bytes) override;
  size_t unsent_bytes() const override { return socket_->unsent_bytes(); }
  void notify_below(size_t mark) override;
  void on_connect(const mqtt::Connect& connect) override;
  std::optional<mqtt::ReasonCode> on_publish(const mqtt::Publish& publish) override;
  bool ready_for(const mqtt::Publish& publish) override;
  bool ready_for(const mqtt::Subscribe& subscribe) override;
  void on_subscribe(const mqtt::Subscribe& subscribe) override;
  void on_unsubscribe(const mqtt::Unsubscribe& unsubscribe) override;
  void on_auth(const mqtt::Auth& auth) override;
  bool delays_pubcomp(uint16_t packet_id, mqtt::ReasonCode reason) override;
  void on_end(const session::ChannelEnd& end) override;
  bool turn_is_over() override;
  void pause_reading(bool paused) override { socket_->pause_reading(paused); }
  void close() override;
  /// What ready_for() waited for is there.
  void go_on();
  /// The others had theirs.
  void take_turn();

 private:
  template <class Take>
  void handle(Take take);

  Worker& worker_;
  const uint64_t id_;
  std::unique_ptr<port::Connection> socket_;
  session::Channel channel_;
  Instant turn_began_{};
  uint32_t turn_packets_ = 0;
};

}  // namespace ph::broker
