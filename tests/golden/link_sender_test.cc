// Transcripts of the link's sender. The files in link_sender/ are both: lines with '>' are the script, '#' is comment;
// the others are the effects that each input had, and must stay.
//
//   > start R window=N [open STREAM SETTLED ASSIGNED rX,rY]...   R receivers r0.., one source
//   > ready rX               HELLO, RESUMED with nothing held, credit without end
//   > connected rX           HELLO only                 > credit rX BYTES
//   > resumed rX SETTLED FIRST-LAST,...                  for each stream asked about
//   > offer STREAM FIRST LAST                            lines of ten bytes
//   > ack rX STREAM FIRST LAST [far] [reject FIRST LAST] > lost rX
//   > hold rX STREAM         > release rX STREAM         > close STREAM       > pass MILLISECONDS
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "support/golden.h"
#include "support/sender_script.h"

namespace ph::link {
namespace {

class Transcript {
 public:
  std::string run(const std::string& script) {
    std::istringstream lines(script);
    std::string out;
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || (line[0] != '>' && line[0] != '#')) continue;
      out += line + "\n";
      if (line[0] == '#') continue;
      std::istringstream words(line.substr(2));
      input(words);
      if (sender_) out += sender_->take();
    }
    return out;
  }

 private:
  static size_t receiver(std::istream& in) {
    std::string name;
    in >> name;
    return std::stoul(name.substr(1));
  }
  static uint64_t number(std::istream& in) {
    uint64_t n = 0;
    in >> n;
    return n;
  }

  void input(std::istringstream& in) {
    std::string what;
    in >> what;
    if (what == "start") return start(in);
    test::SenderScript& s = *sender_;
    if (what == "ready") {
      s.ready(receiver(in));
    } else if (what == "connected") {
      s.connected(receiver(in));
    } else if (what == "credit") {
      size_t r = receiver(in);
      s.received(r, Credit{number(in)});
    } else if (what == "resumed") {
      resumed(in);
    } else if (what == "offer") {
      uint64_t stream = number(in), first = number(in);
      s.offer(stream, first, number(in));
    } else if (what == "ack") {
      ack(in);
    } else if (what == "lost") {
      s.lose(receiver(in));
    } else if (what == "hold") {
      size_t r = receiver(in);
      s.received(r, Hold{StreamId{number(in)}, "spool_full"});
    } else if (what == "release") {
      size_t r = receiver(in);
      s.received(r, Release{StreamId{number(in)}});
    } else if (what == "close") {
      s.sender().close_stream(StreamId{number(in)});
    } else if (what == "pass") {
      s.pass(std::chrono::milliseconds(number(in)));
    } else {
      ADD_FAILURE() << "unknown input " << what;
    }
  }

  void start(std::istringstream& in) {
    SenderOptions options = test::SenderScript::receivers(number(in));
    std::string word;
    in >> word;
    options.window_bytes = std::stoul(word.substr(word.find('=') + 1));
    std::vector<SenderStream> streams;
    while (in >> word) {
      SenderStream& s = streams.emplace_back();
      s.stream = StreamId{number(in)};
      s.settled = number(in);
      s.assigned = number(in);
      in >> word;
      std::istringstream names(word);
      for (std::string name; std::getline(names, name, ',');) s.receivers.push_back(name);
    }
    sender_ = std::make_unique<test::SenderScript>(options);
    sender_->sender().add_source(std::move(streams), true);
    sender_->sender().start(sender_->now());
  }

  void resumed(std::istringstream& in) {
    size_t r = receiver(in);
    uint64_t settled = number(in);
    std::vector<Span> spans;
    std::string word;
    in >> word;
    std::istringstream parts(word);
    for (std::string part; std::getline(parts, part, ',');)
      spans.push_back({std::stoul(part), std::stoul(part.substr(part.find('-') + 1))});
    for (const Resume& q : sender_->resumes(r)) {
      Resumed a;
      for (const auto& s : q.streams)
        a.streams.push_back({s.stream, settled, spans.empty() ? settled : spans.back().last, spans, {}, {}});
      sender_->received(r, a);
    }
  }

  void ack(std::istringstream& in) {
    size_t r = receiver(in);
    Ack a;
    a.stream = StreamId{number(in)};
    uint64_t first = number(in);
    a.accepted = {{first, number(in)}};
    for (std::string word; in >> word;) {
      if (word == "far") a.far = a.accepted;
      if (word != "reject") continue;
      uint64_t from = number(in);
      a.rejects.push_back({from, number(in), "no"});
    }
    sender_->received(r, a);
  }

  std::unique_ptr<test::SenderScript> sender_;
};

}  // namespace

TEST(LinkSenderTranscripts, stay_as_they_are) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::tests_folder() / "golden/link_sender")) {
    ++files;
    test::expect_golden(entry.path(), Transcript().run(test::read_file(entry.path())));
  }
  EXPECT_GE(files, 3u);
}

}  // namespace ph::link
