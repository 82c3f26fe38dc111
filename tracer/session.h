// The session: whether and where this process records. One per process.
//
//     off -> armed -> capturing -> stopped     armed: ready to record; the first event opens the spool
//                  \-> failed                  stopped, failed: for good; the program goes on
//
// A process to which somebody attaches is armed and disarmed any number of times; each is a turn, with a spool of its
// own. Ids go on from turn to turn: a later spool begins with the definitions of those before it.
//
// Threads: everything may be called from any thread unless it says otherwise. What is not hot takes the recorder's
// lock, and calls nothing under it that could call back into the program.
// Fork: the child is armed again, with the parent's definitions: its next event opens a spool of its own. vfork and
// posix_spawn children are about to exec and record nothing. A child made by a bare clone system call is not seen by
// us: it must exec or record nothing.
#pragma once

#include <atomic>
#include <cstring>
#include <string_view>

#include "tracer/config/config.h"
#include "tracer/process/diag.h"
#include "tracer/process/lock.h"
#include "tracer/process/same_text.h"
#include "tracer/spool/record.h"
#include "tracer/strings.h"
#include "tracer/thread_buffer.h"

namespace torchprof::session {

enum class State : uint8_t { kOff, kArmed, kCapturing, kStopped, kFailed };

namespace detail {
extern std::atomic<uint32_t> g_live;  // armed or capturing: the turn, and the number of the window (resume); 0: not
extern ClockSource g_clock;
extern StringTable* g_strings;
ThreadBuffer* attach() noexcept;
ThreadBuffer* first_in_window() noexcept;
const StringTable::Entry* intern_slow(std::string_view text, uint64_t hash) noexcept;
}  // namespace detail

// off -> armed. `output` is the run directory, absolute. From one thread at a time. Opens nothing.
void arm(const Config& config, const char* output) noexcept;
// No launcher has started this process, and nobody has attached to it.
bool is_armed_alone() noexcept;
// -> off: the spool is complete and no longer mapped, and nothing is recorded until the next arm(). Windows are closed
// and threads of ours that record have ended. Threads of the program may be in the midst of an event: what they still
// write goes nowhere.
void disarm() noexcept;
// Whether arm() may be called: it is off, and nothing that ids refer to was lost in an earlier turn.
bool can_arm() noexcept;
// How often it was armed, from 1, modulo 65536.
uint16_t turn() noexcept;
const Config& config() noexcept;
State state() noexcept;
// The last orderly moment of the process.
void finish() noexcept;
// Before the program enters seccomp in a way that kills us (process/seal.h): maps ahead for this thread, writes the
// reason down and seals the process. `has_clock`: the processor's counter can still be read. False: this is a child
// between vfork and exec, or records nothing: only this thread's own affair. unseal(): the kernel refused.
bool seal(bool has_clock) noexcept;
void unseal() noexcept;

// Nothing is recorded between pause() and resume(), but definitions are (window.h).
void pause() noexcept;
// `window`: with -w auto the number of the window that opens, from 1 and modulo 65536, never 0: each thread begins a
// new chunk in it. Otherwise always 1.
void resume(uint16_t window) noexcept;
// Opens the spool if it is not yet. False: nothing can be recorded.
bool open_spool() noexcept;

// The paths of the run are about to mean something else to this process, or to become inaccessible: files that are
// needed are kept open from now on. Any thread, a signal handler, a child after fork or vfork.
void keep_file() noexcept;
// Whether that was so: a thread of ours that records needs the program's descriptors.
bool holds_file() noexcept;

// ---- hot -------------------------------------------------------------------------------------------------------

inline Ticks now() noexcept { return clock::now(detail::g_clock); }
inline ClockSource clock_source() noexcept { return detail::g_clock; }

// Whether anything is recorded just now. Relaxed: who goes on takes a buffer, which pairs with what it has to.
inline bool is_live() noexcept { return detail::g_live.load(std::memory_order_relaxed) != 0; }

// The calling thread's buffer; nullptr where nothing is recorded.
inline ThreadBuffer* current_buffer() noexcept {
  // Pairs with the releases in arm() and resume(): the recorder is made, and the window has its number.
  const uint32_t live = detail::g_live.load(std::memory_order_acquire);
  ThreadBuffer* const buffer = t_buffer;
  if (buffer && buffer->live == live) [[likely]]
    return buffer;
  return live ? detail::first_in_window() : nullptr;
}

// The same for events that are delivered after they happened: also between windows.
ThreadBuffer* delivery_buffer() noexcept;

namespace detail {
inline const StringTable::Entry* intern_entry(std::string_view text) noexcept {
  if (text.size() > kMaxString) [[unlikely]]
    text = text.substr(0, kMaxString);
  const uint64_t hash = StringTable::hash(text);
  const StringTable::Entry* entry = g_strings->find(text, hash);
  return entry ? entry : intern_slow(text, hash);
}
}  // namespace detail

// The id of a name, any bytes; cut at kMaxString. None: nothing can be recorded any more.
inline StringId intern(std::string_view text) noexcept {
  const StringTable::Entry* entry = detail::intern_entry(text);
  return entry ? entry->id : StringId{};
}

// The same with the text, which lives as long as the process.
inline const StringTable::Entry* intern_text(std::string_view text) noexcept { return detail::intern_entry(text); }

// An operator's name and overload, remembered by the name's place. The id's text is both, with a NUL between them; the
// name alone where `overload` is empty.
[[gnu::noinline]] StringId intern_overload_into(KnownNames::Name& slot, const char* name,
                                                const char* overload) noexcept;
inline StringId intern_overload(ThreadBuffer& buffer, const char* name, const char* overload) noexcept {
  KnownNames::Name& known = buffer.names.at(name);
  if (known.place == name && known.more && same_text(name, known.text) && same_text(overload, known.more)) [[likely]]
    return known.id;
  return intern_overload_into(known, name, overload);
}
inline StringId intern_into(KnownNames::Name& slot, const char* place, std::string_view text) noexcept {
  const StringTable::Entry* entry = detail::intern_entry(text);
  if (!entry) return {};
  slot = {place, entry->text, nullptr, entry->id};
  return entry->id;
}

// The same as intern(), in half the time, for a NUL-terminated name that is likely to come again from the same address.
inline StringId intern_from(ThreadBuffer& buffer, const char* name) noexcept {
  KnownNames::Name& known = buffer.names.at(name);
  if (known.place == name && same_text(name, known.text)) [[likely]]
    return known.id;
  return intern_into(known, name, name);
}

// ---- definitions: rare, under the recorder's lock --------------------------------------------------------------

// A new function if it has no id yet, otherwise a known one stated again. None: nothing can be recorded any more.
FunctionId define_function(FunctionDef function) noexcept;
// `pairs` holds lines.length bytes, at most kMaxLines.
bool define_lines(const LinesDef& lines, const unsigned char* pairs) noexcept;
// `function` calls the C function `name` in this line of its file.
CallSiteId define_call_site(StringId name, FunctionId function, uint32_t line) noexcept;
// Python's own name of a thread.
void define_thread_name(TrackId track, uint32_t tid, StringId name) noexcept;
// A new object if it has no id yet, otherwise a known one stated again. Returns the id; none: nothing can be recorded
// any more.
ObjectId define_object(ObjectDef object) noexcept;
// `bytes` holds detail.length bytes, at most kMaxDetail.
bool define_detail(const ObjectDetailDef& detail, const unsigned char* bytes) noexcept;
// Opens the spool if it is not open. A window is defined when it opens, and again when it closes.
struct WindowEdges {
  uint32_t number;
  uint64_t step;
  Ticks begin;
  Ticks end;
  WindowReason reason = WindowReason::kNone;
  bool is_given_up = false;
};
bool define_window(const WindowEdges& window) noexcept;
// With -w auto: the chunks of a window are free for later ones. It must be defined as given up before.
void give_up_window(uint32_t number) noexcept;
// A step has ended (record.h, StepEnd), or what the process has in memory now. Under the recorder's lock, in chunks of
// their own; false: the spool is not open, or nothing can be recorded any more.
bool record_step(uint64_t step, uint32_t window, uint8_t was_open, int64_t switching_ns, Ticks now) noexcept;
bool record_resident(uint64_t bytes, Ticks now) noexcept;
// The headers are not used. Likewise.
bool record_processor_time(ProcessorTime use, Ticks now) noexcept;
bool record_machine_time(MachineTime use, Ticks now) noexcept;
bool record_stack_node(StackNode node, Ticks now) noexcept;
// `late_ns`: how long ago it was.
bool record_sample(Sample sample, Ticks now, int64_t late_ns) noexcept;
// The Python stack of a thread (record.h, ThreadStack); its header is not used. `frames`: stack.count of them, at most
// kMostFrames. Likewise.
inline constexpr size_t kMostFrames = 512;
bool record_stack(ThreadStack stack, const StackFrame* frames, Ticks now) noexcept;

// With -w auto: how many events this process has recorded, in all or in one window. They are counted when a chunk is
// full or its thread comes to the next window, so the last ones of each thread are missing. A child after fork begins
// at 0.
void count_events() noexcept;  // once, right after arm(): chunks of windows are recycled from then on
const char* spool_directory() noexcept;
uint64_t recorded() noexcept;
uint32_t recorded_in(uint32_t window) noexcept;
// Calls `reached` once, on the thread that records the event, when there are `limit` of them or more. It is in the
// midst of recording: `reached` must do as little as a signal handler. UINT64_MAX: never.
void when_recorded(uint64_t limit, void (*reached)() noexcept) noexcept;

bool define_gpu(const GpuDeviceDef& device) noexcept;
bool define_gpu(const GpuContextDef& context) noexcept;
bool define_gpu(const GpuStuckDef& stuck) noexcept;
void define_torch_thread(TrackId track, uint64_t torch_thread) noexcept;
// A fact of any length that is found while events are recorded; cut at kMaxString.
void define_fact(std::string_view key, std::string_view value) noexcept;

// For definitions that refer to each other: holds the recorder's lock and restores errno.
class DefinitionLock {
 public:
  DefinitionLock() noexcept;
  DefinitionLock(const DefinitionLock&) = delete;
  DefinitionLock& operator=(const DefinitionLock&) = delete;

  // nullptr, false: nothing can be recorded any more.
  const StringTable::Entry* intern(std::string_view text) noexcept;
  bool define(const NativeObjectDef& object) noexcept;
  bool define(const NativeFrameDef& frame) noexcept;

 private:
  const KeepErrno keep_;
  const Lock lock_;
};

// Facts and the states of sources. They are kept, and written once the spool is open; neither function opens it. `name`
// and `key` are literals. At most kNotes of each; text is cut at kNoteSize.
inline constexpr size_t kNotes = 24;
inline constexpr size_t kNoteSize = 240;
void note_fact(const char* key, const char* value) noexcept;
void note_source(const char* name, SourceState state, const char* detail) noexcept;
// Likewise: where Python's stacks lie in this process. The later one holds.
void note_interpreter(const InterpreterDef& interpreter) noexcept;

// The file name of the spool of this process; false: none is open. Takes the recorder's lock.
using SpoolName = char[256];
bool copy_spool_name(SpoolName& name) noexcept;

}  // namespace torchprof::session
