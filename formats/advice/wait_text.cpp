#include "formats/advice/wait_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/io/cells.h"
#include "formats/io/sum.h"

namespace torchprof::formats {
namespace {

constexpr std::string_view kAskAhead = "Ask for it ahead, in a thread, or less often, and keep the answers.";
constexpr std::string_view kWriteSeldom = "Do it once for many records, less often, or in a thread that writes.";

// "socket listening at 10.0.0.7:80"
constexpr std::string_view kListening = "socket listening at ";

std::string_view kind_text(SampledWait wait) {
  switch (wait) {
    case SampledWait::kSleep:
      return "sleep";
    case SampledWait::kLock:
      return "a lock";
    case SampledWait::kGil:
      return "the GIL";
    case SampledWait::kPoll:
      return "poll";
    case SampledWait::kRead:
      return "read";
    case SampledWait::kWrite:
      return "write";
    case SampledWait::kSocket:
      return "a socket";
    case SampledWait::kChild:
      return "a child process";
    case SampledWait::kDisk:
      return "fsync";
    case SampledWait::kOther:
      return "other system calls";
    case SampledWait::kUnknown:
    case SampledWait::kCount:
      break;
  }
  return "unknown";
}

WaitText text_of(const Timeline& timeline, const WaitsFor& most) {
  const std::string name(timeline.text(most.name));
  const auto some = [&name](const char* otherwise) { return name.empty() || name == "pipe" ? otherwise : name; };
  switch (most.wait) {
    case SampledWait::kSleep:
      return {"sleeps", "Sleep less, or wait for the event itself; a coroutine sleeps with await asyncio.sleep().",
              most};
    case SampledWait::kLock:
      return {"waits for a lock, a queue or another thread",
              "Prepare what it waits for while the step before runs, or hold the lock for a shorter time.", most};
    case SampledWait::kGil:
      return {"waits for Python's lock, the GIL" + (name.empty() ? std::string() : ", which " + name + " has"),
              "Do the other thread's work in a process, or in code that releases the GIL.", most};
    case SampledWait::kPoll:
    case SampledWait::kSocket:
      if (name.starts_with(kListening))
        return {"waits for a connection to " + name.substr(kListening.size()), std::string(kAskAhead), most};
      return {"waits for " + std::string(some(most.wait == SampledWait::kPoll ? "data or a connection" : "a socket")),
              std::string(kAskAhead), most};
    case SampledWait::kRead:
      return {"waits for data of " + std::string(some("a pipe")), std::string(kAskAhead), most};
    case SampledWait::kWrite:
      return {"waits until its data are written to " + std::string(some("a pipe")), std::string(kWriteSeldom), most};
    case SampledWait::kChild:
      return {"waits for a process that it started" + (name.empty() ? std::string() : ": " + name),
              "Do it less often, or let it run while the program goes on.", most};
    case SampledWait::kDisk:
      return {"waits for the disk to have " + std::string(some("a file")) + " (fsync)", std::string(kWriteSeldom),
              most};
    case SampledWait::kOther:
      return {"waits in the kernel, in system call " + std::to_string(most.what),
              "Do it less often, or in another thread, while the program goes on.", most};
    case SampledWait::kUnknown:
    case SampledWait::kCount:
      break;
  }
  return {"waits or sleeps", "Do it less often, or in another thread, while the program goes on.", most};
}

}  // namespace

std::optional<WaitText> wait_text(const Timeline& timeline, const ThreadAccount& account) {
  // What the thread waits for a processor says nothing of the program.
  const int64_t all = account.all_ns(), rest = all - account.queued_ns;
  if (rest <= 0 || account.waited_ns() / 2 < rest / 3) return std::nullopt;
  const double looks = account.looks * static_cast<double>(rest) / static_cast<double>(all);
  if (looks < kFewestLooks) return std::nullopt;
  return text_of(timeline, account.waits_most_for());
}

std::string account_text(const Timeline& timeline, const ThreadAccount& account) {
  const int64_t all = account.all_ns();
  if (!account.is_enough() || all <= 0) return {};
  const auto share = [all](int64_t ns) { return percent_text(ns, all); };
  std::map<std::string_view, int64_t> kinds;
  for (const auto& [what, ns] : account.waits) add_to(kinds[kind_text(what.wait)], ns);
  std::vector<std::pair<int64_t, std::string_view>> largest;
  for (const auto& [kind, ns] : kinds)
    if (ns * 20 >= all) largest.emplace_back(ns, kind);
  std::ranges::sort(largest, std::greater<>());
  std::string text = "By " + plural(static_cast<uint64_t>(std::llround(account.looks)), "look") + " the thread ran " +
                     share(account.ran_ns) + " of that time";
  if (account.queued_ns * 50 >= all) text += ", was ready without a processor " + share(account.queued_ns);
  if (largest.empty()) return text + ".";
  text += ", and waited " + share(account.waited_ns());
  for (size_t i = 0; i < largest.size(); ++i) {
    text += i == 0 ? " (" : ", ";
    text.append(largest[i].second).append(" ").append(share(largest[i].first));
  }
  text += ")";
  const WaitsFor most = account.waits_most_for();
  if (most.name != 0 && most.wait != SampledWait::kGil) text.append(": ").append(timeline.text(most.name));
  return text + ".";
}

}  // namespace torchprof::formats
