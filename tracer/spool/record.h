// The record: what every source writes, what the spool holds and what every format is made from.
//
// Grammar of a spool (tracer/spool/layout.h holds the layout around it):
//     chunk      := ChunkHeader record*
//     record     := long | short       little-endian, 8-byte aligned, its length a multiple of 8 bytes
//     long       := header payload
//     header     := 8 bits kind (below 128) | 12 bits length in words of 8 bytes, header included | 44 bits time
//     short      := 8 bits kind (128 and up) | 20 bits value | 36 bits time, then 0, 1 or 2 words, as the kind says
// Time is in ticks since `ChunkHeader::base`, so a chunk spans at most 2^44 ticks (97 minutes of a 3 GHz TSC); a writer
// that comes later than that begins a new chunk. Definitions carry time 0.
// Short records are for the few kinds that come by the million: half the bytes means half the page faults, which are
// most of their cost. An event that does not fit into one is written as a long record.
//
// A definition is committed before any record that uses its id. Definitions lie in chunks of their own, in the order in
// which they were made, so that event chunks can be recycled without losing a name.
//
// Events of one thread (track) are in time order, those of GPUs (gpu_records.h) in the order of delivery. Begin and end
// are separate records, so it is known what was open when the process died. They pair by a stack per track;
// formats/replay/replay.h says how it is kept balanced whatever was lost.
//
// Compatibility: records of older and newer versions are read alike.
//   * A kind is never renumbered or reused. A reader skips kinds that it does not know, and counts them.
//   * A struct only grows at its end, and its old fields keep their meaning. Where a new field is zero it says what a
//     record without it says: "not known", "none", or what was always so before.
//   * A record that is shorter than the struct of this build is read with zeros for what it does not have; of a longer
//     one the rest is ignored. One that is shorter than the struct ever was is damage. So the list below holds what a
//     struct had when its kind was new, and what has grown since stands in the list after it.
//   * What follows the struct of a few kinds (their tail) is the end of the record: the last bytes of it, rounded up to
//     whole words, as many as a field says that the struct has had from the beginning. So it is found whatever the
//     writer's struct had (tail_of()).
//   * kSpoolVersion grows when an older reader would misread; that reader then refuses the whole spool. A new kind and
//     a new field do not raise it, but for the first new field of a struct with a tail: readers that know no later
//     version than 3 look for the tail right after the struct as it was then.
// Version history:
//   1   the first
//   2   lists of optional tensors in inputs ('O', objects/values.h); chunks that are split (layout.h, kPieces)
//   3   chunks of steps (layout.h, kSteps), chunks of one window, windows with a reason and windows that are given up;
//       memory in two words
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tracer/spool/ids.h"

namespace torchprof {

inline constexpr uint32_t kSpoolVersion = 3;

// X(number, name, bytes of the struct when the kind was new, header included). The one list: the enumeration, the size
// checks, the names and the reader's bounds checks are made from it. A line never changes.
//   1..31    definitions
//   32..63   Python; 44: torch
//   64..95   torch; 72..83: the GPU; 84..89: NVTX; 90..95: native stacks
//   96..127  threads and the recorder itself
#define TORCHPROF_RECORDS(X) \
  X(1, StringDef, 16)        \
  X(2, ThreadDef, 24)        \
  X(3, TorchThreadDef, 24)   \
  X(4, FunctionDef, 40)      \
  X(5, ObjectDef, 32)        \
  X(6, MetaDef, 16)          \
  X(7, SourceDef, 24)        \
  X(8, ObjectDetailDef, 32)  \
  X(9, WindowDef, 40)        \
  X(11, CallSiteDef, 24)     \
  X(12, LinesDef, 24)        \
  X(18, InterpreterDef, 72)  \
  X(20, GpuDeviceDef, 88)    \
  X(21, GpuContextDef, 24)   \
  X(22, ThreadHandleDef, 16) \
  X(23, GpuStuckDef, 48)     \
  X(24, NativeObjectDef, 48) \
  X(25, NativeFrameDef, 32)  \
  X(32, PythonBegin, 16)     \
  X(33, PythonEnd, 16)       \
  X(34, PythonFrame, 16)     \
  X(35, PythonSync, 8)       \
  X(36, CCallBegin, 16)      \
  X(37, CCallEnd, 8)         \
  X(38, CCallBeginAt, 16)    \
  X(39, GcBegin, 16)         \
  X(40, GcEnd, 24)           \
  X(41, BlindBegin, 16)      \
  X(42, BlindEnd, 16)        \
  X(44, Collective, 24)      \
  X(46, PythonLine, 16)      \
  X(64, OpBegin, 48)         \
  X(65, OpEnd, 16)           \
  X(66, OpEndHere, 16)       \
  X(67, OpInputs, 16)        \
  X(68, Memory, 48)          \
  X(69, OutOfMemory, 48)     \
  X(71, AllocationSite, 16)  \
  X(72, GpuKernel, 128)      \
  X(73, GpuCopy, 88)         \
  X(74, GpuSet, 72)          \
  X(75, GpuApi, 40)          \
  X(76, GpuSync, 56)         \
  X(77, GpuEvent, 40)        \
  X(78, GpuOverhead, 48)     \
  X(79, GpuMemory, 56)       \
  X(80, GpuMemoryPool, 64)   \
  X(81, GpuClock, 32)        \
  X(82, GpuDropped, 32)      \
  X(83, GpuEnvironment, 48)  \
  X(84, NvtxInfo, 40)        \
  X(85, NvtxMark, 48)        \
  X(90, NativeStack, 16)     \
  X(91, AllocationStack, 16) \
  X(96, ThreadEnd, 8)        \
  X(97, Restate, 16)         \
  X(98, StepEnd, 24)         \
  X(99, Resident, 16)        \
  X(100, ProcessorTime, 40)  \
  X(101, MachineTime, 24)    \
  X(102, StackNode, 24)      \
  X(103, Sample, 48)         \
  X(104, ThreadStack, 24)

// X(name, bytes of the struct now): those that have grown since, each once. A field goes to the end of the struct, its
// size here, or nothing compiles; tests/unit/tracer/growth_test.cpp then reads it in every length it may have.
#define TORCHPROF_GROWN_RECORDS(X) X(MachineTime, 32) X(ObjectDef, 40)

enum class Kind : uint8_t {
#define X(number, name, size) name = number,
  TORCHPROF_RECORDS(X)
#undef X
};

struct RecordHeader {
  uint64_t bits;

  static constexpr uint64_t kMaxWords = (1u << 12) - 1;
  static constexpr uint64_t kMaxTime = (uint64_t{1} << 44) - 1;
  static constexpr RecordHeader make(Kind kind, uint64_t words, uint64_t time) {
    return {static_cast<uint64_t>(kind) | words << 8 | time << 20};
  }
  constexpr Kind kind() const { return static_cast<Kind>(bits & 0xff); }
  constexpr uint64_t words() const { return bits >> 8 & kMaxWords; }
  constexpr uint64_t bytes() const { return words() * 8; }
  constexpr uint64_t time() const { return bits >> 20; }
};

// A short record says the same as its long form. 128..191 are one word, 192..223 two, 224..255 three.
// X(number, long form): one word; its value is the first field of the long form, whose other fields are zero.
#define TORCHPROF_SHORT_RECORDS(X) \
  X(128, PythonBegin)              \
  X(129, PythonEnd)                \
  X(130, CCallBegin)               \
  X(131, OpEndHere)                \
  X(132, OpInputs)                 \
  X(138, CCallBeginAt)             \
  X(139, NativeStack)
// OpBegin: the value is the name, the second word 56 bits key (which is the handle, too) | 8 bits scope, the third, if
// there is one, the sequence number.
inline constexpr uint8_t kShortOp = 192;
inline constexpr uint8_t kShortOpWithSequence = 224;
// OpBegin in one word, that of the operator after the OpBegin before it in this chunk: the value is the name, the scope
// FUNCTION, the handle one higher, the sequence number the same (-1 if that one had none), or one higher. The first
// OpBegin of a chunk never has this form.
inline constexpr uint8_t kShortNextOp = 160;
inline constexpr uint8_t kShortNextOpNextSequence = 161;
// Memory of the CPU, without totals: the second word is the address, the third the bytes; the value is 0. In two words,
// where the value can say how many times 4 bytes were allocated or freed: the second word is the address.
inline constexpr uint8_t kShortMemory = 225;
inline constexpr uint8_t kShortAllocation = 193;
inline constexpr uint8_t kShortFree = 194;
inline constexpr int64_t kShortMemoryUnit = 4;  // bytes

// StepEnd of a step without a window, in one word: 8 bits kind | the lowest 12 bits of the step | 44 bits time, as in a
// header. The step is the next one with these bits after the StepEnd before it. The first StepEnd of a chunk never has
// this form.
inline constexpr uint8_t kShortStep = 162;

// PythonLine in one word: 8 bits kind | 20 bits instruction | 36 bits function. It has no time: that of the record
// before it holds.
inline constexpr uint8_t kShortLine = 163;

struct ShortRecord {
  uint64_t bits;

  static constexpr uint64_t kMaxValue = (1u << 20) - 1;
  static constexpr uint64_t kMaxTime = (uint64_t{1} << 36) - 1;
  static constexpr uint64_t kMaxKey = (uint64_t{1} << 56) - 1;
  static constexpr ShortRecord make(uint8_t kind, uint64_t value, uint64_t time) {
    return {kind | value << 8 | time << 28};
  }
  // Whether the record that begins with this word is a short one.
  static constexpr bool is_short(uint64_t word) { return (word & 0x80) != 0; }
  constexpr uint8_t kind() const { return static_cast<uint8_t>(bits & 0xff); }
  constexpr uint64_t words() const { return kind() >= 224 ? 3 : kind() >= 192 ? 2 : 1; }
  constexpr uint32_t value() const { return static_cast<uint32_t>(bits >> 8 & kMaxValue); }
  constexpr uint64_t time() const { return bits >> 28; }
  // The long form; Kind{} for a short kind that this build does not know.
  constexpr Kind long_kind() const {
    switch (kind()) {
#define X(number, name) \
  case number:          \
    return Kind::name;
      TORCHPROF_SHORT_RECORDS(X)
#undef X
      case kShortOp:
      case kShortOpWithSequence:
      case kShortNextOp:
      case kShortNextOpNextSequence:
        return Kind::OpBegin;
      case kShortMemory:
      case kShortAllocation:
      case kShortFree:
        return Kind::Memory;
      case kShortStep:
        return Kind::StepEnd;
      case kShortLine:
        return Kind::PythonLine;
      default:
        return Kind{};
    }
  }
};

template <class R>
inline constexpr uint8_t kShortKindOf = 0;

// ---- definitions ----------------------------------------------------------------------------------------------------

struct StringDef {
  RecordHeader header;
  StringId id;
  uint32_t length;  // bytes of text that follow, at most kMaxString (longer ones are cut); may be no valid UTF-8
};
inline constexpr uint32_t kMaxString = 32000;

struct ThreadDef {  // may come again for the same track: the later one holds (a thread that changed its name)
  RecordHeader header;
  TrackId track;         // none: the latest thread of this `tid`, which has a new name
  uint32_t tid;          // gettid()
  StringId name;         // as the kernel knows it (at most 15 bytes); none: as said before
  StringId python_name;  // threading.Thread.name; none: as said before, or not one of threading's
};

struct TorchThreadDef {  // the small number that torch itself gives a thread: RecordFunction::currentThreadId()
  RecordHeader header;
  TrackId track;
  uint32_t pad;
  uint64_t torch_thread;
};

enum class FunctionKind : uint8_t {
  kFunction = 0,
  kModuleCall = 1,
  kOptimizerStep = 2,
  kProfilerStep = 3,  // torch.profiler.profile.step, torchprof.profile.step
  kThread = 4,        // of threading's, names a thread; the reader treats it as any function
  kProcessGroup = 5,  // of torch.distributed, makes a process group; likewise
  kWorker = 6,        // tells a process its role in multiprocessing or DataLoader, or how a child ended; likewise
  kScript = 7,        // of TorchScript; in native stacks alone
  kImport = 8,        // no function: the import of the module `name`, whose file is `file` (python/imports.h)
  kCompile = 9,       // of torch's compiler, compiles a frame or a graph; the reader treats it as any function
  kOurs = 10,         // of the package torchprof, or by which it was attached; never in a spool
};

struct FunctionDef {  // a Python code object; may come again for the same id: the later one holds
  RecordHeader header;
  FunctionId id;
  StringId name;      // co_name
  StringId qualname;  // co_qualname; none before 3.11
  StringId file;      // co_filename, whole
  uint32_t line;      // co_firstlineno
  uint16_t trim;      // bytes at the front of `file` that are an import prefix (an entry of sys.path and the slash)
  FunctionKind kind;
  uint8_t pad;
  uint64_t pad2;
};

enum class ObjectKind : uint8_t { kModule = 1, kOptimizer = 2 };

struct ObjectDef {  // an object whose calls are told apart; may come again for the same id: the later one holds
  RecordHeader header;
  ObjectId id;
  StringId class_name;  // type(self).__name__
  uint64_t address;     // for people only: addresses are reused, ids are not
  ObjectKind kind;
  uint8_t pad[3];
  uint32_t first_call;  // 1, 2 ... in the order in which objects were first called; 0: not called so far
  ObjectId stepper;  // of an optimizer: whose steps it goes on with (stepper_in(), python/modules.h); may be its own id
  uint32_t pad_after;
};

struct ObjectDetailDef {  // where a module or optimizer stands and what it holds; the later one holds
  RecordHeader header;
  ObjectId object;
  ObjectId root;    // the outermost module that was called (may be this one); none for an optimizer
  StringId path;    // in the root, as named_modules() has it ("layer1.0.conv1"); an empty text for the root itself
  uint32_t length;  // bytes of the encoded tensors and numbers that follow (python/details.h)
  uint32_t part;    // 0 begins anew; 1, 2 ... continue the part before; no item is split
  uint32_t pad;
};
inline constexpr uint32_t kMaxDetail = 32000;  // bytes of one part

struct MetaDef {  // a fact about the process: "python.version", "torch.library" ...; the later one holds
  RecordHeader header;
  StringId key;
  StringId value;
};

struct CallSiteDef {  // a place that calls a C function
  RecordHeader header;
  CallSiteId id;
  StringId name;        // of the callee, as in CCallBegin
  FunctionId function;  // that calls
  uint32_t line;        // in its file; 0: not known
};

// The lines of a function of the program, by its instructions; functions of libraries have none. What follows is pairs
// of numbers (varint.h): how many instructions, and by how much their line is higher than that of the pair before (the
// difference is folded). A function may have several, each for the instructions after those of the one before.
struct LinesDef {
  RecordHeader header;
  FunctionId function;
  uint32_t length;       // bytes of the pairs, at most kMaxLines
  uint32_t instruction;  // the first one; in units of two bytes
  uint32_t line;         // from which the first pair counts
};
inline constexpr uint32_t kMaxLines = 4000;

// Where Python's threads and their frames lie in the memory of this process: whoever may read that memory walks their
// stacks by it (python_stack.h). Addresses, and offsets in bytes into the structures of CPython that the comments name.
struct InterpreterDef {
  RecordHeader header;
  uint64_t interpreter;     // address of the first PyInterpreterState; 0: its stacks cannot be read
  uint64_t code_type;       // address of PyCode_Type
  uint16_t threads;         // PyInterpreterState: the first PyThreadState
  uint16_t next;            // PyThreadState: the next one
  uint16_t of_thread;       // likewise: the PyInterpreterState that it belongs to
  uint16_t tid;             // likewise: gettid(), 8 bytes
  uint16_t current;         // likewise: the current frame, or a CFrame
  uint16_t of_cframe;       // CFrame: the current frame
  uint16_t has_cframe;      // 1: `current` is a CFrame
  uint16_t code;            // _PyInterpreterFrame: its code object, with tags in the lowest two bits
  uint16_t instruction;     // likewise: the instruction that runs
  uint16_t previous;        // likewise: the frame further out
  uint16_t owner;           // likewise: a char that says whose frame it is
  uint16_t loop;            // this owner and higher ones: no function's frame
  uint16_t instructions;    // PyCodeObject: the first instruction
  uint16_t code_units;      // likewise: the number of instructions, of two bytes each
  uint16_t line;            // likewise: co_firstlineno, an int
  uint16_t file;            // likewise: co_filename
  uint16_t name;            // likewise: co_qualname
  uint16_t lines;           // likewise: co_linetable
  uint16_t text_length;     // PyASCIIObject: characters
  uint16_t text_state;      // likewise: bits 2 to 4 bytes of a character, 5 compact, 6 ASCII
  uint16_t text_of_ascii;   // where the characters of such a text begin
  uint16_t text_of_others;  // likewise, of one that is not ASCII
  uint16_t bytes_length;    // PyBytesObject: bytes
  uint16_t bytes_data;      // likewise: the first
};

// Why a window of `-w auto` was opened.
enum class WindowReason : uint8_t {
  kNone,      // the user said when (any other -w)
  kStart,     // the beginning of the run
  kTypical,   // at regular distances
  kSlow,      // a step before it, or in it, was far slower than the others
  kExpected,  // slow steps came at a regular distance, and the next one was due
  kOverdue,   // the step lasted far longer than the others: opened in its midst
  kMemory,    // the process's memory had jumped
  kAsked,     // `torchprof ctl start`, or `w` in `torchprof top`
  kLast,      // the last steps: one window after another, of which the last ones are kept
  kCount
};

struct WindowDef {  // events lie in windows only, if there is one (window.h); the later one of a number holds
  RecordHeader header;
  uint32_t number;  // from 1, in the order of time
  WindowReason reason;
  uint8_t is_given_up;  // 1: its chunks were given to later windows, or will be
  uint8_t pad[2];
  uint64_t step;   // number of steps that had ended before it
  uint64_t begin;  // ticks, not counted from a chunk's base; 0: the reason alone is a new one
  uint64_t end;    // 0: not closed yet
};

struct NativeObjectDef {  // a file whose code is mapped; the same file again gets a new id
  RecordHeader header;
  NativeObjectId id;
  StringId path;      // as the loader has it; for the program itself what /proc/self/exe names
  StringId build_id;  // the bytes of its GNU build id; none: it has none
  uint32_t pad;
  uint64_t start;  // its first and last address
  uint64_t end;
  uint64_t bias;  // an address minus this is the file's own address
};

// A frame of a native stack, with all frames that it returns to: stacks share the outer frames that they have in
// common.
struct NativeFrameDef {
  RecordHeader header;
  NativeFrameId id;
  NativeFrameId caller;   // always a smaller id; none: the outermost
  NativeObjectId object;  // none: code that belongs to no file
  FunctionId function;    // of Python or TorchScript, run by the interpreter's frame `caller`; none: a native frame
  uint64_t pc;            // the return address; 0: frames further out are not known; with `function`: its line
};

enum class SourceState : uint8_t { kOff = 0, kOn = 1, kFailed = 2 };

struct SourceDef {  // what is captured, what is not and why; the later one holds
  RecordHeader header;
  StringId source;  // "python", "operators" ...
  StringId detail;  // how it is captured, or why not: one line for people
  SourceState state;
  uint8_t pad[7];
};

// ---- Python ---------------------------------------------------------------------------------------------------------

struct PythonBegin {  // a Python function is entered or resumed
  RecordHeader header;
  FunctionId function;
  ObjectId object;  // the nn.Module or optimizer; none for plain functions
};

struct PythonEnd {  // it returns, yields or is unwound
  RecordHeader header;
  FunctionId function;  // of the frame that ends; if it is not the one that is open, a record was lost
  uint32_t pad;
};

struct PythonFrame {  // it was on the stack when capture began on this thread; outermost first
  RecordHeader header;
  FunctionId function;
  ObjectId object;
};

// PythonFrame records that state the thread's Python stack anew are about to follow: all that was open is closed.
struct PythonSync {
  RecordHeader header;
};

struct CCallBegin {
  RecordHeader header;
  StringId name;  // the callable's repr without its address: "<built-in method append of list object>"
  uint32_t pad;
};

struct CCallBeginAt {  // the same, and where it is called
  RecordHeader header;
  CallSiteId site;
  uint32_t pad;
};

struct CCallEnd {  // ends the innermost span if that is a C call
  RecordHeader header;
};

// The place in the program to which this thread has come: the instruction that an operator finds running as it begins,
// or a Python function that calls another. Written where it is another one than in the PythonLine before it, and only
// for functions that have a LinesDef. So whenever an operator or a call begins directly in such a function, the
// last PythonLine of the thread is its place. The first PythonLine of a chunk is always written.
struct PythonLine {
  RecordHeader header;
  FunctionId function;
  uint32_t instruction;  // in units of two bytes
};

// CPython's garbage collector begins; what it runs (finalizers, callbacks of weak references) lies inside.
struct GcBegin {
  RecordHeader header;
  uint32_t generation;
  uint32_t pad;
};

struct GcEnd {
  RecordHeader header;
  int64_t collected;      // objects
  int64_t uncollectable;  // likewise
};

// Another tool takes Python's hook away from us, and gives it back: on 3.10 and 3.11 the one profile function of a
// thread, from 3.12 on the last tool id of sys.monitoring. Written by the thread that does it, which may be another
// one.
struct BlindBegin {
  RecordHeader header;
  TrackId track;  // the thread that is no longer seen; none: all of them, or one that has had no event so far
  StringId by;    // "sys.setprofile", "cProfile", "torch.profiler" ...
};

struct BlindEnd {
  RecordHeader header;
  TrackId track;
  StringId by;  // as in the begin
};

// ---- torch ----------------------------------------------------------------------------------------------------------

// at::RecordScope, the same numbers in every torch from 1.13 to 2.14 (objects/abi.h), and one of our own.
enum class OpScope : uint8_t {
  kFunction = 0,
  kBackwardFunction = 1,
  kTorchScriptFunction = 2,
  kKernelFunctionDtype = 3,
  kCustomClass = 4,
  kBuildFeature = 5,
  kLiteInterpreter = 6,
  kUserScope = 7,
  kStaticRuntimeOp = 8,
  kStaticRuntimeModel = 9,
  kNvtx = 100,  // an NVTX range of the program; its key has kNvtxKey, and it ends with OpEnd only
};
constexpr bool is_annotation(OpScope scope) { return scope == OpScope::kUserScope || scope == OpScope::kNvtx; }
// No handle of torch (a count) and no address is that large; a short record still has room for it.
inline constexpr uint64_t kNvtxKey = uint64_t{1} << 55;
constexpr bool is_nvtx_key(uint64_t key) { return (key & ~(kNvtxKey - 1)) == kNvtxKey; }

struct OpBegin {
  RecordHeader header;
  StringId name;  // followed by a NUL and the overload name if the operator has one
  OpScope scope;
  uint8_t is_async;  // may end on another thread
  uint8_t pad[2];
  int64_t sequence;     // autograd's number, -1 if none
  uint64_t handle;      // at::RecordFunction::handle(), 0 if the layout is unknown
  uint64_t fwd_thread;  // torch's number of the thread that ran the forward operator; 0 if this is no backward operator
  uint64_t key;         // the same as in its OpEnd; unique among the operators that are open in this process
};

struct OpInputs {  // of the operator that has just begun on this thread
  RecordHeader header;
  StringId inputs;  // encoded: objects/values.h
  uint32_t pad;
};

struct Collective {  // what the collective that has just begun on this thread says of itself
  RecordHeader header;
  StringId info;  // encoded: torch/comms.h
  uint32_t pad;
  int64_t sequence;  // of the collectives of its group, -1 if not known
};

struct Memory {  // a block is allocated or freed
  RecordHeader header;
  uint64_t address;
  int64_t bytes;       // negative: freed
  uint64_t allocated;  // totals of the device after it, as its allocator says; kNoTotal: the reader adds them up
  uint64_t reserved;
  int8_t device_type;   // c10::DeviceType: 0 CPU, 1 CUDA
  int8_t device_index;  // -1 for the CPU
  uint8_t pad[6];
};

// Memory::device_type of the blocks of Python's allocator, no c10::DeviceType. These are samples: `bytes` is how much
// the block stands for (heap/heap.h), `allocated` is kNoTotal.
inline constexpr int8_t kPythonMemory = 100;

// Memory::allocated of a short record, and of kPythonMemory. The first Memory of a thread's chunk is never short: the
// reader's sum begins with its totals.
inline constexpr uint64_t kNoTotal = ~uint64_t{0};

// The line that Python was executing. Belongs to the next Memory or OutOfMemory record of this thread, which has the
// same time.
struct AllocationSite {
  RecordHeader header;
  FunctionId function;
  uint32_t line;
};

struct NativeStack {  // of the operator that has just begun on this thread
  RecordHeader header;
  NativeFrameId innermost;
  uint32_t pad;
};

struct AllocationStack {  // likewise of the next Memory or OutOfMemory record of this thread
  RecordHeader header;
  NativeFrameId innermost;
  uint32_t pad;
};

struct OutOfMemory {  // an allocation of this many bytes failed; `address` is 0
  RecordHeader header;
  uint64_t address;
  int64_t bytes;
  uint64_t allocated;
  uint64_t reserved;
  int8_t device_type;
  int8_t device_index;
  uint8_t pad[6];
};

enum class NvtxPayload : uint8_t { kNone, kUint64, kInt64, kDouble, kUint32, kInt32, kFloat };  // NVTX's own numbers

struct NvtxAttributes {
  StringId domain;         // its name; none: the default domain
  StringId category_name;  // none: it has none
  uint32_t category;       // 0: none
  uint32_t color;          // ARGB
  uint64_t payload;        // the bytes of the value
  NvtxPayload payload_type;
  uint8_t has_color;
  uint8_t pad[6];
};

struct NvtxInfo {  // of the NVTX range that has just begun on this thread; a range that has none of it has no NvtxInfo
  RecordHeader header;
  NvtxAttributes attributes;
};

struct NvtxMark {  // an NVTX mark of the program
  RecordHeader header;
  StringId name;
  uint32_t pad;
  NvtxAttributes attributes;
};

struct OpEnd {
  RecordHeader header;
  uint64_t key;
};

struct OpEndHere {  // ends the innermost open operator of this thread whose key has these lowest bits
  RecordHeader header;
  uint32_t key;  // modulo ShortRecord::kMaxValue + 1
  uint32_t pad;
};

}  // namespace torchprof

#include "tracer/spool/gpu_records.h"  // uses what is above; what is below uses it

namespace torchprof {

// ---- the recorder ---------------------------------------------------------------------------------------------------

struct ThreadEnd {  // the thread ends: nothing on it stays open
  RecordHeader header;
};

// Stands at the beginning of a chunk whose predecessors may be gone. The `count` records that follow say what was open
// on the thread, outermost first, as PythonFrame, CCallBegin and OpBegin; the ticks at which each began are its tail. A
// reader that has the chunk before this one knows all of it already.
struct Restate {
  RecordHeader header;
  uint32_t count;
  uint32_t pad;
};

// In chunks of kSteps alone, in the order of time.
struct StepEnd {  // a step has ended now; it began when the one before it ended
  RecordHeader header;
  uint64_t step;               // steps that have ended, with this one
  uint32_t window;             // number of the window that was open at its end; 0: none
  uint32_t was_open : 8;       // a window was open: 0 never, 1 for some of it, 2 for all of it
  uint32_t switching_us : 24;  // what closing and opening windows took at its begin: none of its own time
  static constexpr int64_t kMostSwitching = (1 << 24) - 1;
};

// The Python stack of a thread, as a thread of ours has read it from memory, without a part of the thread itself. Where
// the thread has events after it, those hold.
struct ThreadStack {
  RecordHeader header;
  uint32_t tid;     // gettid(); it may have no track
  uint16_t count;   // frames that follow as StackFrame, innermost first
  uint8_t is_same;  // 1: none follow, since they are those of the ThreadStack before it of this thread
  uint8_t pad;
  uint32_t beyond;  // frames that are further out than those
  uint32_t window;  // number of the window that was open; 0: none
};
struct StackFrame {
  FunctionId function;
  uint32_t line;  // that it was executing; 0: not known
};

struct Resident {  // what the process has in memory now, by the kernel's count (VmRSS)
  RecordHeader header;
  uint64_t bytes;
};

// What a thread that has just ended a step, and its process, have used so far, in ns: whoever wants to know what they
// used in between takes the difference of two of one thread. Not at each step's end (tracer/processor_time.h).
struct ProcessorTime {
  RecordHeader header;
  uint32_t tid;  // gettid()
  uint32_t pad;
  uint64_t ran;          // by the thread, on a processor
  uint64_t queued;       // it was ready to run and had no processor; kNotKnown: the kernel does not say
  uint64_t process_ran;  // by all threads that the process has had
  static constexpr uint64_t kNotKnown = UINT64_MAX;
};

// A thread of ours looks at the others (--sample). What it sees is a tree of frames: stacks share the outer ones that
// they have in common. A node is stated before the sample that names it; the same place may have several.
struct StackNode {
  RecordHeader header;
  uint32_t id;      // from 1
  uint32_t caller;  // a smaller id; 0: the outermost
  FunctionId function;
  uint32_t line;  // that it was executing; 0: not known
};

// What a thread that does not run waits for, by the system call that it is in.
enum class SampledWait : uint8_t {
  kUnknown,  // it was running again when we asked, or it cannot be asked
  kSleep,    // nanosleep()
  kLock,     // a futex; `what`: the lower half of its address
  kGil,      // Python's lock; `what`: gettid() of the thread that had it, 0: nobody
  kPoll,     // select(), poll(), epoll_wait(); `what`: the descriptor, where it is one alone and has a name
  kRead,     // read() and the like; `what`: the descriptor
  kWrite,    // write() and the like; likewise
  kSocket,   // recv(), send(), accept(), connect(); likewise
  kChild,    // wait(); `what`: its process id, 0: any
  kDisk,     // fsync() and the like; `what`: the descriptor
  kOther,    // `what`: the number of the system call
  kCount
};

// What a thread did from `period` before this moment until now: `ran` and `queued` as in ProcessorTime, the rest it
// waited. It counts for the place at which the thread was last seen in that time.
struct Sample {
  RecordHeader header;
  uint32_t tid;
  uint32_t node;       // its innermost frame; 0: not known, or no Python
  uint32_t period_us;  // at least what follows together
  uint32_t ran_us;
  uint32_t queued_us;
  uint32_t what;  // it waits for
  StringId name;  // of that: a file's path, "pipe", "socket 10.0.0.7:443", a child's command; none: not known
  SampledWait wait;
  uint8_t is_inner;  // 1: frames further out are not known
  uint8_t pad[2];
  uint32_t late_us;  // the moment that it speaks of was so long before this one
  uint32_t pad2;
};

struct MachineTime {  // likewise of the machine, as this process sees it
  RecordHeader header;
  uint64_t idle;  // ns that its processors had nothing to do, all together; whole hundredths of a second
  uint32_t processors;
  uint32_t allowed;           // on which the thread that says so may run; 0: not known
  uint32_t operator_threads;  // among which torch divides an operator of that thread; 0: not known
  uint32_t pad;
};

// Bytes of the struct when the kind was new, and now.
template <class R>
inline constexpr uint64_t kFirstBytes = 0;
template <class R>
inline constexpr uint64_t kListedBytes = kFirstBytes<R>;
#define X(number, name, first) \
  template <>                  \
  inline constexpr uint64_t kFirstBytes<name> = first;
TORCHPROF_RECORDS(X)
#undef X
#define X(name, now)                                                                         \
  static_assert((now) > kFirstBytes<name>, #name ": what a struct once had stays for ever"); \
  template <>                                                                                \
  inline constexpr uint64_t kListedBytes<name> = now;
TORCHPROF_GROWN_RECORDS(X)
#undef X
#define X(number, name, first)                                                                                  \
  static_assert(sizeof(name) == kListedBytes<name>,                                                             \
                #name ": its new size belongs into TORCHPROF_GROWN_RECORDS; TORCHPROF_RECORDS stays as it is"); \
  static_assert(std::is_trivially_copyable_v<name> && alignof(name) == 8 && kFirstBytes<name> % 8 == 0);
TORCHPROF_RECORDS(X)
#undef X
// Readers take one for the other.
static_assert(sizeof(PythonFrame) == sizeof(PythonBegin) && sizeof(OutOfMemory) == sizeof(Memory));

// Bytes of the struct; 0 for a kind that this build does not know.
constexpr uint64_t fixed_size(Kind kind) {
  switch (kind) {
#define X(number, name, first) \
  case Kind::name:             \
    return sizeof(name);
    TORCHPROF_RECORDS(X)
#undef X
  }
  return 0;
}

// Bytes of the struct when the kind was new; likewise.
constexpr uint64_t first_size(Kind kind) {
  switch (kind) {
#define X(number, name, first) \
  case Kind::name:             \
    return first;
    TORCHPROF_RECORDS(X)
#undef X
  }
  return 0;
}

inline constexpr size_t kLargestRecord = [] {
  size_t largest = 0;
#define X(number, name, first) largest = sizeof(name) > largest ? sizeof(name) : largest;
  TORCHPROF_RECORDS(X)
#undef X
  return largest;
}();

// Where the tail lies in a record of so many bytes, at least kFirstBytes<R>. Not whole: the record is damaged, and has
// fewer bytes than `length` says; the tail is then what follows the struct.
struct Tail {
  uint64_t begin;
  uint64_t size;
  bool is_whole;
};
template <class R>
constexpr Tail tail_of(uint64_t bytes, uint64_t length) {
  const uint64_t rounded = (length + 7) / 8 * 8;
  if (rounded <= bytes - kFirstBytes<R>) return {bytes - rounded, length, true};
  const uint64_t begin = bytes < sizeof(R) ? bytes : sizeof(R);
  return {begin, bytes - begin, false};
}
// How long a tail is stands in the struct from the beginning.
static_assert(offsetof(StringDef, length) < kFirstBytes<StringDef>);
static_assert(offsetof(ObjectDetailDef, length) < kFirstBytes<ObjectDetailDef>);
static_assert(offsetof(LinesDef, length) < kFirstBytes<LinesDef>);
static_assert(offsetof(Restate, count) < kFirstBytes<Restate>);
static_assert(offsetof(ThreadStack, count) < kFirstBytes<ThreadStack>);

constexpr bool is_definition(Kind kind) { return static_cast<uint8_t>(kind) < 32; }

template <class R>
inline constexpr Kind kKindOf = Kind{};
#define X(number, name, first) \
  template <>                  \
  inline constexpr Kind kKindOf<name> = Kind::name;
TORCHPROF_RECORDS(X)
#undef X

#define X(number, name)                                 \
  template <>                                           \
  inline constexpr uint8_t kShortKindOf<name> = number; \
  static_assert(number >= 128 && kFirstBytes<name> == 16, "a short record says what two words say");
TORCHPROF_SHORT_RECORDS(X)
#undef X

// Bytes of the longest form that a short record or a span that is restated has.
inline constexpr size_t kMaxExpanded = sizeof(OpBegin);
#define X(number, name) static_assert(sizeof(name) <= kMaxExpanded);
TORCHPROF_SHORT_RECORDS(X)
#undef X
static_assert(sizeof(Memory) <= kMaxExpanded && sizeof(StepEnd) <= kMaxExpanded && sizeof(PythonLine) <= kMaxExpanded);
static_assert(sizeof(PythonFrame) <= kMaxExpanded);

// What kShortNextOp refers to: the last OpBegin of the chunk, whatever its form.
struct LastOp {
  uint64_t handle = 0;  // 0: there is none, or it has no handle
  int64_t sequence = -1;
};

struct ShortStep {
  uint64_t bits;

  static constexpr uint64_t kMostAhead = (1u << 12) - 1;
  static constexpr ShortStep make(uint64_t step, uint64_t time) {
    return {kShortStep | (step & kMostAhead) << 8 | time << 20};
  }
  constexpr uint64_t time() const { return bits >> 20; }
  // Whether this form says all of `end`. `before`: the step of the StepEnd before it in its chunk; 0: there is none.
  static constexpr bool can_say(const StepEnd& end, uint64_t before) {
    return before != 0 && end.step > before && end.step - before <= kMostAhead && end.window == 0 &&
           end.was_open == 0 && end.switching_us == 0;
  }
  constexpr uint64_t step(uint64_t before) const { return before + (((bits >> 8) - before) & kMostAhead); }
};

struct ShortLine {
  uint64_t bits;

  static constexpr uint64_t kMostInstruction = (1u << 20) - 1;
  static constexpr ShortLine make(FunctionId function, uint64_t instruction) {
    return {kShortLine | instruction << 8 | uint64_t{function.value} << 28};
  }
  constexpr FunctionId function() const { return {static_cast<uint32_t>(bits >> 28)}; }
  constexpr uint32_t instruction() const { return static_cast<uint32_t>(bits >> 8 & kMostInstruction); }
};

// Writes the long form of a whole short record of a known kind to `out`, which holds kMaxExpanded bytes.
// `last_step`: the step of the StepEnd before it.
inline void expand(const std::byte* record, const LastOp& last, uint64_t last_step, std::byte* out) {
  uint64_t words[3] = {};
  std::memcpy(words, record, sizeof(uint64_t));
  const ShortRecord head{words[0]};
  std::memcpy(words, record, head.words() * sizeof(uint64_t));
  const auto put = [out](const auto& expanded) { std::memcpy(out, &expanded, sizeof(expanded)); };
  if (head.kind() == kShortStep) {
    const ShortStep step{words[0]};
    put(StepEnd{RecordHeader::make(Kind::StepEnd, sizeof(StepEnd) / 8, step.time()), step.step(last_step), 0, 0, 0});
    return;
  }
  if (head.kind() == kShortLine) {
    const ShortLine line{words[0]};
    put(PythonLine{RecordHeader::make(Kind::PythonLine, sizeof(PythonLine) / 8, 0), line.function(),
                   line.instruction()});
    return;
  }
  if (head.long_kind() == Kind::Memory) {
    Memory memory{};
    memory.header = RecordHeader::make(Kind::Memory, sizeof(Memory) / 8, head.time());
    memory.address = words[1];
    const int64_t bytes = int64_t{head.value()} * kShortMemoryUnit;
    memory.bytes = head.kind() == kShortMemory       ? static_cast<int64_t>(words[2])
                   : head.kind() == kShortAllocation ? bytes
                                                     : -bytes;
    memory.allocated = kNoTotal;
    memory.device_index = -1;
    put(memory);
    return;
  }
  if (head.long_kind() != Kind::OpBegin) {
    // All are alike: what two words say, and zeros for what their structs have had since.
    constexpr size_t kMost = [] {
      size_t most = 0;
#define X(number, name) most = sizeof(name) > most ? sizeof(name) : most;
      TORCHPROF_SHORT_RECORDS(X)
#undef X
      return most;
    }();
    std::array<uint64_t, kMost / 8> alike{};
    alike[0] = RecordHeader::make(head.long_kind(), 2, head.time()).bits;
    alike[1] = head.value();
    put(alike);
    return;
  }
  OpBegin op{};
  op.header = RecordHeader::make(Kind::OpBegin, sizeof(OpBegin) / 8, head.time());
  op.name = {head.value()};
  if (head.kind() == kShortNextOp || head.kind() == kShortNextOpNextSequence) {
    op.scope = OpScope::kFunction;
    op.key = op.handle = last.handle + 1;
    op.sequence = last.sequence + (head.kind() == kShortNextOpNextSequence ? 1 : 0);
  } else {
    op.scope = static_cast<OpScope>(words[1] & 0xff);
    op.key = op.handle = words[1] >> 8;
    op.sequence = head.kind() == kShortOpWithSequence ? static_cast<int64_t>(words[2]) : -1;
  }
  put(op);
}

}  // namespace torchprof
