// The native stacks of one process: the tree of frames that its spool defines, and what their addresses stand for.
//
//     if (process.native) process.native->each_frame(slice.native, [&](uint32_t text) { ... texts()[text] ... });
//
// Memory: the frames and their texts, which are bounded by the code that ran, not by events.
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

// All, or without those that symbols/noise.h names. What is the interpreter's is left out only of stacks that have
// functions of Python in its place.
enum class NativeFrames : uint8_t { kFolded, kAll };

class NativeStacks {
 public:
  // A NativeObjectDef or a NativeFrameDef. False: it is none that a recorder would write.
  bool define(const RecordView& record);

  // Gives all frames their texts. Symbols that `known` does not have are looked for in the objects' files and put
  // there. Without this there are no texts, and each_frame() visits nothing. True: `known` has more than before.
  bool find_symbols(const Process& process, SymbolFile& known, NativeFrames frames);

  // "at::native::add (BinaryOps.cpp:12)", "train.py(12): step", "malloc", "libc.so.6+0x1234", "0x7f0012345678", "..."
  // for what is not known
  const std::vector<std::string>& texts() const { return texts_; }
  // What text `i` is made of; its file is one of those, where several have the same base name.
  const Symbol& symbol(uint32_t i) const { return symbols_[i]; }

  // Calls `visit` with the index of a text for each frame, innermost first, inlined functions on their own, without the
  // recorder's own at its inner end. Nothing for an id that was never defined.
  template <class Visit>
  void each_frame(NativeFrameId innermost, Visit visit) const {
    each_place(innermost, [&](NativeFrameId, uint32_t place) {
      for (const uint32_t text : places_[place]) visit(text);
      return true;
    });
  }
  // The same by places: an address with all that was inlined there. Ends where `visit(frame, place)` says false.
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

  // Functions of Python in it and the lines that they run, innermost first; needs no symbols.
  template <class Visit>
  void each_python_line(NativeFrameId innermost, Visit visit) const {
    for (uint32_t i = innermost.value; i != 0 && i < frames_.size(); i = frames_[i].caller) {
      const Address& address = addresses_[frames_[i].place];
      if (address.function != 0) visit(FunctionId{address.function}, static_cast<uint32_t>(address.pc));
    }
  }

  struct Where {                         // a place
    const NativeObjectDef* object;       // null: none
    uint64_t pc;                         // after the call; of a function of Python its line
    const std::vector<uint32_t>& texts;  // innermost first
  };
  Where where(uint32_t place) const {
    const Address& address = addresses_[place];
    return {address.object != 0 ? &objects_[address.object] : nullptr, address.pc, places_[place]};
  }
  size_t places() const { return places_.size(); }
  // CPython's own code, or a function of Python in its place.
  bool is_interpreter(uint32_t place) const { return is_python(place) || is_interpreter_[addresses_[place].object]; }
  bool is_script(uint32_t place) const { return is_script_[place]; }  // a function of TorchScript
  // Of frames that are defined: the innermost one that both return to, none where there is none.
  NativeFrameId common_caller(NativeFrameId a, NativeFrameId b) const;

  bool has(NativeFrameId frame) const { return frame.value < frames_.size() && frame && !texts_.empty(); }

 private:
  // What `known` lacks; where debuginfod servers are asked, also files and lines of what has only a name there.
  bool look_up(const Process& process, SymbolFile& known) const;

  struct Frame {
    uint32_t caller = 0;  // smaller than its own number: there are no circles
    uint32_t place = 0;
    bool has_python = false;   // it, or a frame further out
    bool is_start = false;     // it and all further out are the interpreter's and libc's, to be folded
    bool runs_script = false;  // calls a function of TorchScript, to be folded
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
  std::vector<std::vector<uint32_t>> places_;  // texts, innermost first, without the dispatcher's where folded
  std::vector<NativeNoise> noise_;             // of each place, as far as it is to be folded
  std::map<std::string, uint32_t> text_of_;
  std::vector<std::string> texts_;
  std::vector<Symbol> symbols_;  // of each text
};

}  // namespace torchprof::formats
