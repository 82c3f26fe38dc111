// The native stacks of one process: the tree of frames that its spool defines, and what their addresses stand for.
//
//     if (process.native) process.native->each_frame(slice.native, [&](uint32_t text) { ... texts()[text] ... });
//
// Memory: the frames and their texts. They are bounded by the code that ran, not by the number of events.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/symbols/noise.h"
#include "formats/symbols/symbol_file.h"
#include "tracer/spool/cursor.h"

namespace torchprof::formats {

struct Process;

// Which frames are shown: all, or all but those that symbols/noise.h names. The interpreter's frames are left out only
// of stacks that show functions of Python instead.
enum class NativeFrames : uint8_t { kFolded, kAll };

class NativeStacks {
 public:
  // Takes a NativeObjectDef or a NativeFrameDef. False: it is damaged; no recorder writes such a one.
  bool define(const RecordView& record);

  // Gives all frames their texts; before this there are none, and each_frame() visits nothing. Symbols that `known`
  // does not have are looked up in the objects' files and added to it. True: some were added.
  bool find_symbols(const Process& process, SymbolFile& known, NativeFrames frames);

  // "at::native::add (BinaryOps.cpp:12)", "train.py(12): step", "malloc", "libc.so.6+0x1234", "0x7f0012345678"; "..."
  // for a frame that is not known.
  const std::vector<std::string>& texts() const { return texts_; }
  // The symbol of text `i`. Where files with the same base name give the same text, it is one of theirs.
  const Symbol& symbol(uint32_t i) const { return symbols_[i]; }

  // Calls `visit` with the index of a text for each frame, innermost first. Inlined functions are frames of their own;
  // the recorder's frames at the inner end are left out. Nothing for an id that was never defined.
  template <class Visit>
  void each_frame(NativeFrameId innermost, Visit visit) const {
    each_place(innermost, [&](NativeFrameId, uint32_t place) {
      for (const uint32_t text : places_[place]) visit(text);
      return true;
    });
  }
  // The same by place, which is an address with all functions inlined there. Stops when `visit(frame, place)` is false.
  template <class Visit>
  void each_place(NativeFrameId innermost, Visit visit) const {
    if (texts_.empty()) return;
    uint32_t i = innermost.value;
    while (i != 0 && i < frames_.size() && is_recorder(frames_[i])) i = frames_[i].caller;
    const bool has_python = i < frames_.size() && frames_[i].has_python;
    for (; i != 0 && i < frames_.size(); i = frames_[i].caller) {
      if (frames_[i].runs_script) continue;
      const NativeNoise noise = noise_[frames_[i].place];
      if (has_python && frames_[i].is_start) return;
      if (noise == NativeNoise::kDispatch || (has_python && noise == NativeNoise::kInterpreter)) continue;
      if (!visit(NativeFrameId{i}, frames_[i].place)) return;
    }
  }

  // Visits the functions of Python in a stack and the lines that they run, innermost first; needs no symbols.
  template <class Visit>
  void each_python_line(NativeFrameId innermost, Visit visit) const {
    for (uint32_t i = innermost.value; i != 0 && i < frames_.size(); i = frames_[i].caller) {
      const Address& address = addresses_[frames_[i].place];
      if (address.function != 0) visit(FunctionId{address.function}, static_cast<uint32_t>(address.pc));
    }
  }

  struct Where {                         // what a place is
    const NativeObjectDef* object;       // null: none
    uint64_t pc;                         // behind the call; the line, if it is a function of Python
    const std::vector<uint32_t>& texts;  // innermost first
  };
  Where where(uint32_t place) const {
    const Address& address = addresses_[place];
    return {address.object != 0 ? &objects_[address.object] : nullptr, address.pc, places_[place]};
  }
  size_t places() const { return places_.size(); }
  // CPython's own code, or a function of Python that is shown instead.
  bool is_interpreter(uint32_t place) const { return is_python(place) || is_interpreter_[addresses_[place].object]; }
  bool is_script(uint32_t place) const { return is_script_[place]; }  // a function of TorchScript
  // The innermost frame that both return to; none if there is none. Both must be defined.
  NativeFrameId common_caller(NativeFrameId a, NativeFrameId b) const;

  bool has(NativeFrameId frame) const { return frame.value < frames_.size() && frame && !texts_.empty(); }

 private:
  // Looks up what `known` lacks; where debuginfod servers are asked, also the lines of places that have only names
  // there. True: something was added.
  bool look_up(const Process& process, SymbolFile& known) const;

  struct Frame {
    uint32_t caller = 0;  // smaller than the frame's own number, so there are no cycles
    uint32_t place = 0;
    bool has_python = false;   // this frame or one further out is a function of Python
    bool is_start = false;     // this and all frames further out are the interpreter's or libc's: folded
    bool runs_script = false;  // TorchScript's interpreter, which calls a script function: folded
  };
  struct Address {
    uint32_t object = 0;
    uint32_t function = 0;
    uint64_t pc = 0;
    bool operator==(const Address&) const = default;
    auto operator<=>(const Address&) const = default;
  };

  bool is_recorder(const Frame& frame) const { return is_recorder_[addresses_[frame.place].object]; }
  SymbolFile::Object object_of(uint32_t object, const Process& process) const;
  bool is_python(uint32_t place) const { return addresses_[place].function != 0 && !is_script_[place]; }
  static std::string python_text(const Address& address, const Process& process);
  void find_functions(const Process& process);
  void find_starts(const Process& process);
  void find_script_runs();
  uint64_t in_file(const Address& address) const;
  void name_place(size_t place, const Process& process, const SymbolFile& known, NativeFrames frames);
  uint32_t intern(const std::string& text, const Symbol& symbol = {});

  std::vector<Frame> frames_{1};
  std::vector<NativeObjectDef> objects_{1};
  std::vector<bool> is_recorder_{false}, is_interpreter_{false};  // of each object
  std::map<Address, uint32_t> place_of_;
  std::vector<Address> addresses_;             // of each place
  std::vector<bool> is_script_;                // of each place
  std::vector<std::vector<uint32_t>> places_;  // texts of each, innermost first; folded: without the dispatcher's
  std::vector<NativeNoise> noise_;             // of each place; kNone if nothing is folded
  std::map<std::string, uint32_t> text_of_;
  std::vector<std::string> texts_;
  std::vector<Symbol> symbols_;  // of each text
};

}  // namespace torchprof::formats
