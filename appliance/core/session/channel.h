// Channel: the protocol state of one connection, from its first byte to its last. A pure core: bytes, `now` and the
// broker's answers go in; packets to send and questions to the broker come out through ChannelHost, at once and with
// views into the read buffer (a QoS 0 PUBLISH allocates nothing here).
//
//   waiting (for CONNECT) -> opening (the broker looks for the session) -> open -> closed
//   Enhanced authentication: opening -> authenticating (for AUTH) -> opening, as often as the broker asks; AUTH while
//   open begins again what was settled then (section 4.12).
//
// While opening, what the client has sent already is held and reading is paused. PUBACK and PUBREC leave in the order
// of their PUBLISHes [MQTT-4.6.0-2, MQTT-4.6.0-3], although taps answer out of order: each waits in acks_ for those
// before it. Lives in one worker together with its connection; it knows its session only between accept() and the end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "codec/mqtt/text.h"
#include "core/session/session.h"

namespace ph::session {

struct ChannelLimits {
  size_t packet_max = limits::kMqttPacketMax;
  size_t topic_levels_max = limits::kTopicLevelsMax;
  uint16_t topic_alias_max = limits::kTopicAliasMax;
  size_t client_id_max = limits::kClientIdMax;
  uint16_t receive_max = limits::kMqttReceiveMax;
  Duration connect_timeout = limits::kConnectTimeout;
  uint8_t qos_max = 2;                // clients that publish above are disconnected, subscriptions granted at most this
  bool retain_available = true;       // without, a retained PUBLISH ends the connection
  bool payload_format_check = false;  // payloads that claim to be UTF-8 have to be
  uint16_t keep_alive_max = 65535;    // seconds; a version 5 client that asks for more is told this
  bool asks_first = false;            // whether ready_for() is asked
  bool enhanced_auth = false;         // whether on_auth() is there for a CONNECT with an authentication method
};

/// How a connection ended, for the session that stays.
struct ChannelEnd {
  bool publish_will = true;                // false after a normal DISCONNECT
  std::optional<uint32_t> session_expiry;  // new value from DISCONNECT
  ReasonCode reason = ReasonCode::success;
};

class ChannelHost : public Output {
 public:
  /// Answer, now or later, with Channel::accept() or refuse(). Views are valid during the call.
  virtual void on_connect(const mqtt::Connect& connect) = 0;
  /// A message to route; its topic is resolved and valid, for QoS 1 and 2 it has not been seen before. A reason
  /// acknowledges it now; nullopt: Channel::answer() will (QoS 1 and 2 only).
  virtual std::optional<ReasonCode> on_publish(const mqtt::Publish& publish) = 0;
  /// Before a PUBLISH or SUBSCRIBE is taken. False: nothing is taken any more until Channel::go_on(), which begins with
  /// this very packet and asks again.
  virtual bool ready_for(const mqtt::Publish&) { return true; }
  virtual bool ready_for(const mqtt::Subscribe&) { return true; }
  /// Answer, now or later, with Channel::suback() or unsuback().
  virtual void on_subscribe(const mqtt::Subscribe& subscribe) = 0;
  virtual void on_unsubscribe(const mqtt::Unsubscribe& unsubscribe) = 0;
  /// AUTH of the method that CONNECT named. Answer, now or later, with challenge(), and at last accept() or refuse();
  /// for a client that is in, reauthenticated() or kick(). Views are valid during the call.
  virtual void on_auth(const mqtt::Auth& auth) { (void)auth; }
  /// A QoS 2 message was released. True: PUBCOMP has to wait, Channel::pubcomp() sends it.
  virtual bool delays_pubcomp(uint16_t packet_id, ReasonCode reason) = 0;
  /// The last call about the session: detach it. Made once for each accept(), never without.
  virtual void on_end(const ChannelEnd& end) = 0;
  /// Between packets: true, and others have waited long enough. Nothing is taken any more until Channel::take_turn().
  virtual bool turn_is_over() { return false; }
  virtual void pause_reading(bool paused) = 0;
  /// Close the socket once everything is sent. The channel takes no more input.
  virtual void close() = 0;
};

/// What the broker says to a CONNECT.
struct Acceptance {
  bool session_present = false;
  ByteView assigned_client_id;             // empty: the client chose its own
  std::optional<uint32_t> session_expiry;  // where it is not what the client asked for
  ByteView authentication_data;            // last word of an enhanced authentication
  ByteView response_information;           // told to a client that asks for it; empty: none
  ByteView mountpoint;                     // put in front of the client's topics by the broker
};

class Channel {
 public:
  Channel(ChannelHost& host, const ChannelLimits& limits, Counters& counters, Instant now)
      : host_(host), limits_(limits), counters_(counters), last_input_(now) {}

  struct Consumed {
    size_t bytes = 0;
    size_t wanted = 0;  // as port::Consumed
  };
  Consumed input(ByteView bytes, Instant now);
  /// The socket is gone.
  void lost();
  /// To be called at deadline() or later.
  void tick(Instant now);
  Instant deadline() const;

  // --- the broker's answers
  void accept(Session& session, const Acceptance& acceptance, Instant now);
  void refuse(ReasonCode reason);
  /// The next step of an enhanced authentication: AUTH with the data; on_auth() has the client's answer.
  void challenge(ByteView data);
  /// A client that was in has shown again who it is.
  void reauthenticated(ByteView data);
  /// To on_publish() that said nothing. The session knows already (Session::taken()).
  void answer(uint16_t packet_id, uint8_t qos, ReasonCode reason);
  void pubcomp(uint16_t packet_id, ReasonCode reason);
  void suback(uint16_t packet_id, std::vector<ReasonCode> reasons);
  void unsuback(uint16_t packet_id, std::vector<ReasonCode> reasons);
  /// The broker ends the connection: takeover, shutdown, a bound. DISCONNECT with the reason in version 5.
  void kick(ReasonCode reason);
  /// Back-pressure from where messages go.
  void hold_back(bool on) { set_pause(kPauseTarget, on); }
  bool held_back() const { return (paused_ & kPauseTarget) != 0; }
  /// Packets that were taken and wait for the session, an answer or a turn.
  bool holds_input() const { return state_ != State::closed && paused_ != 0 && !held_.empty(); }
  bool waits_for_turn() const { return paused_ == kPauseTurn; }
  /// What ready_for() waited for is there.
  void go_on(Instant now);
  /// After turn_is_over(): the others had their turn.
  void take_turn(Instant now);
  /// The client has sent more than its rate: reading waits.
  void throttle(bool on) { set_pause(kPauseRate, on); }

  Session* session() { return session_; }
  Version version() const { return version_; }
  bool open() const { return state_ == State::open; }
  bool opening() const { return state_ == State::opening; }

 private:
  enum class State : uint8_t { waiting, opening, authenticating, open, closed };
  enum Pause : uint8_t {
    kPauseOpening = 1,
    kPauseAcks = 2,
    kPauseTarget = 4,
    kPauseRate = 8,
    kPauseAsking = 16,
    kPauseTurn = 32
  };
  struct PendingAck {
    uint16_t packet_id = 0;
    uint8_t qos = 0;
    bool ready = false;
    ReasonCode reason = ReasonCode::success;
    /// QoS 2 that the session has is counted there, a repeat of it not at all.
    bool counted() const { return qos == 1 || !ready; }
  };

  Consumed take_packets(ByteView bytes, Instant now);
  Consumed take_held(ByteView more, Instant now);
  void on_frame(const mqtt::Frame& frame, Instant now);
  void on_first(const mqtt::Frame& frame);
  void on_connect(const mqtt::Connect& connect);
  ReasonCode on_publish(mqtt::Publish& publish);
  ReasonCode resolve_alias(mqtt::Publish& publish);
  bool format_broken(const mqtt::Properties& properties, ByteView payload) const;
  ReasonCode on_ack(const mqtt::Ack& ack, Instant now);
  ReasonCode on_other(const mqtt::Frame& frame);
  void on_authenticating(const mqtt::Frame& frame);
  ReasonCode on_auth(const mqtt::Auth& auth);
  void send_auth(ReasonCode reason, ByteView data);
  ReasonCode on_disconnect(const mqtt::Disconnect& disconnect);
  template <class P>
  bool taken_now(const P& packet);
  void send_ack(mqtt::PacketType type, uint16_t packet_id, ReasonCode reason);
  void push_ack(PendingAck ack);
  void flush_acks();
  void fail(ReasonCode reason);
  void finish(const ChannelEnd& end);
  void set_pause(Pause why, bool on);
  size_t unacknowledged() const;
  /// False if the client has no room for it: then it is not sent [MQTT-3.1.2-24], and an open connection ends.
  template <class P>
  bool send(const P& packet);

  ChannelHost& host_;
  const ChannelLimits& limits_;
  Counters& counters_;
  Session* session_ = nullptr;
  State state_ = State::waiting;
  Version version_ = Version::v5;
  uint8_t paused_ = 0;
  bool asking_ = false;  // the packet at the front of held_ waits for ready_for()
  bool clean_start_ = true;
  bool response_information_asked_ = false;
  uint16_t keep_alive_ = 0;  // seconds, as the server counts it
  uint16_t keep_alive_asked_ = 0;
  uint32_t session_expiry_ = 0;  // as asked in CONNECT
  std::string auth_method_;      // named in CONNECT; empty: none
  bool auth_asked_ = false;      // a challenge awaits the client's answer
  Attachment attachment_;
  Instant last_input_;
  std::string held_;        // what came while opening or asking, and the part of a packet left of it
  size_t held_wanted_ = 0;  // held_ has no whole packet before it is so long
  std::vector<std::string> aliases_;
  Ring<PendingAck> acks_;
  size_t acks_counted_ = 0;  // of acks_, those that unacknowledged() has to add to the session's awaiting_release()
};

}  // namespace ph::session
