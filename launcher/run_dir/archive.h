// The archive of a run: what `torchprof collect` writes, or `tar` of a run directory, compressed by gzip or not.
//
// Read are ustar (POSIX.1-1988) and the long names and sizes of pax (POSIX.1-2001) and of GNU tar. Of an archive only
// what a run directory has of ours is written anywhere: regular files called run.json or like a spool or a trace, and
// what lies in a spool/. No link is made and none is followed. A name that leads out of the archive is refused, and so
// is an archive that holds more than there is room for: before it is written, by the sizes that it states.
//
// Errors are thrown as Error, naming the archive. One thread at a time.
#pragma once

#include <filesystem>
#include <string>

namespace torchprof::launcher {

// Judging by its first bytes. Throws Error if the file cannot be read.
bool is_archive(const std::filesystem::path& file);

// For a file that is packed in another way (zip, zstd...): what to say of it; empty: it is not.
std::string other_packing(const std::filesystem::path& file);

// Writes the run into `directory`, which is empty, and gives the run directory, or what stands for it, within.
// `damage` becomes what is wrong with an archive of which a part can be read, or empty.
std::filesystem::path unpack(const std::filesystem::path& archive, const std::filesystem::path& directory,
                             std::string& damage);

}  // namespace torchprof::launcher
