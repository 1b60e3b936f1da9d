// Transcripts of channel and session: what a client says, what happens, and what the broker's core answers. The files
// in session/ are both: lines with '>' (a packet from the client) and '!' (an event) are the script, '#' is comment;
// lines with '<' (packets to the client) and '*' (questions to the broker) are what the core did, and must stay.
//
//   ! connection            a new connection               ! lost              the socket is gone
//   ! after 5s              time passes, tick() is called  ! kick 0x8e         the broker ends the connection
//   ! deliver topic=t qos=1 payload=x sub_qos=1 [retain] [sub_id=7] [expiry=9]
//   ! answer id=1 qos=1 ok|refused                         the tap has decided (topics tap/... are taken by it)
//   ! unsent 5000           the output is that full        ! drained           and empty again
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <sstream>

#include "core/session/channel.h"
#include "support/golden.h"
#include "support/mqtt_text.h"

namespace ph::session {
namespace {

using test::mqtt_text::Line;

class Transcript final : public ChannelHost {
 public:
  explicit Transcript(const std::string& script) : script_(script) {
    context_.limits.inflight_max = 4;
    context_.limits.mqueue_messages_max = 5;
    context_.limits.output_soft = 1000;
    limits_.receive_max = 5;
  }

  std::string run() {
    std::istringstream lines(script_);
    for (std::string line; std::getline(lines, line);) {
      const char kind = line.empty() ? ' ' : line[0];
      if (kind == '<' || kind == '*') continue;
      out_ += line + '\n';
      if (kind == '>') packet(line.substr(2));
      if (kind == '!') event(line.substr(2));
      flush();
    }
    return out_;
  }

  // Output
  void send(Slice bytes) override { sent_ += bytes.view(); }
  void send_copy(ByteView bytes) override { sent_ += bytes; }
  size_t unsent_bytes() const override { return unsent_; }
  void notify_below(size_t) override { note("notify when drained"); }

  // ChannelHost
  void on_connect(const mqtt::Connect& c) override {
    const bool present = session_ && !c.clean_start;
    if (!present) session_ = std::make_unique<Session>(std::string(c.client_id), context_);
    session_->set_expiry(c.properties.session_expiry.value_or(c.clean_start ? 0 : 7200));
    if (c.client_id == "refused") return channel_->refuse(ReasonCode::not_authorized);
    if (c.client_id == "slow") return note("the session is looked for");
    accept(present);
  }
  std::optional<ReasonCode> on_publish(const mqtt::Publish& p) override {
    note("route " + test::describe(p));
    if (p.topic.starts_with("tap/") && p.qos > 0) return std::nullopt;
    return p.topic == "full" ? ReasonCode::quota_exceeded : ReasonCode::success;
  }
  void on_subscribe(const mqtt::Subscribe& s) override {
    note(test::describe(s));
    std::vector<ReasonCode> reasons;
    for (const auto& f : s.filters) reasons.push_back(static_cast<ReasonCode>(f.qos));
    channel_->suback(s.packet_id, std::move(reasons));
  }
  void on_unsubscribe(const mqtt::Unsubscribe& u) override {
    note(test::describe(u));
    channel_->unsuback(u.packet_id, std::vector<ReasonCode>(u.filters.size()));
  }
  bool delays_pubcomp(uint16_t, mqtt::ReasonCode) override { return false; }
  void on_end(const ChannelEnd& end) override {
    session_->detach(now_);
    note("end reason=" + std::string(name(end.reason)) + (end.publish_will ? " with will" : " without will") +
         (end.session_expiry ? " session_expiry=" + std::to_string(*end.session_expiry) : ""));
  }
  void pause_reading(bool paused) override { note(paused ? "pause reading" : "resume reading"); }
  void close() override { note("close"); }

 private:
  void packet(const std::string& text) {
    if (text.starts_with("connect")) version_ = test::version_in(text);
    input_ += test::packet_bytes(text, version_);
    const Channel::Consumed c = channel_->input(input_, now_);
    input_.erase(0, c.bytes);
  }

  void event(const std::string& text) {
    const Line line(text);
    auto word = [&](size_t i) { return i < line.words.size() ? line.words[i].first : std::string(); };
    if (line.verb == "connection") {
      input_.clear();
      unsent_ = 0;
      channel_ = std::make_unique<Channel>(*this, limits_, context_.counters, now_);
    } else if (line.verb == "lost") {
      channel_->lost();
    } else if (line.verb == "after") {
      now_ += std::chrono::seconds(std::stoi(word(0)));
      channel_->tick(now_);
    } else if (line.verb == "kick") {
      channel_->kick(static_cast<ReasonCode>(std::stoi(word(0), nullptr, 16)));
    } else if (line.verb == "accept") {
      accept(false);
    } else if (line.verb == "deliver") {
      deliver(line);
    } else if (line.verb == "answer") {
      const auto id = static_cast<uint16_t>(line.number("id"));
      const auto qos = static_cast<uint8_t>(line.number("qos", 1));
      const bool ok = !line.find("refused");
      session_->taken(id, qos, ok);
      channel_->answer(id, qos, ok ? ReasonCode::success : ReasonCode::quota_exceeded);
    } else if (line.verb == "unsent") {
      unsent_ = static_cast<size_t>(std::stoi(word(0)));
    } else if (line.verb == "drained") {
      unsent_ = 0;
      session_->on_drained(now_);
    } else {
      ADD_FAILURE() << "unknown event " << text;
    }
  }

  void deliver(const Line& line) {
    const std::string topic = line.text("topic"), payload = line.text("payload");
    MessageView view;
    view.topic = topic;
    view.payload = payload;
    view.qos = static_cast<uint8_t>(line.number("qos"));
    view.received = now_;
    if (line.find("expiry")) view.expiry = line.number("expiry");
    const uint32_t id = line.number("sub_id");
    Copy copy;
    copy.qos = static_cast<uint8_t>(line.number("sub_qos", 2));
    copy.retain = line.find("retain");
    if (id) copy.subscription_ids = {&id, 1};
    Outgoing outgoing;
    outgoing.reset(view);
    session_->deliver(outgoing, copy, now_);
  }

  void accept(bool present) {
    Acceptance acceptance;
    acceptance.session_present = present;
    channel_->accept(*session_, acceptance, now_);
  }

  void note(const std::string& what) {
    flush();
    out_ += "* " + what + '\n';
  }
  void flush() {
    for (const auto& line : test::describe_all(sent_, version_)) out_ += "< " + line + '\n';
  }

  std::string script_, out_, sent_, input_;
  SessionContext context_;
  ChannelLimits limits_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Channel> channel_;
  mqtt::Version version_ = mqtt::Version::v5;
  Instant now_{std::chrono::hours(1)};
  size_t unsent_ = 0;
};

TEST(SessionTranscripts, stay_as_they_are) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::tests_folder() / "golden/session")) {
    ++files;
    test::expect_golden(entry.path(), Transcript(test::read_file(entry.path())).run());
  }
  EXPECT_GE(files, 6U);
}

}  // namespace
}  // namespace ph::session
