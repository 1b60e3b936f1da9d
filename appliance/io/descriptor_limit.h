// How many files and sockets this process may have open.
#pragma once

#include <cstddef>

namespace ph::io {

/// Kept free of accepted connections, for files, stores, upstreams and the status socket; of small limits a quarter.
inline constexpr size_t kDescriptorReserve = 64;

/// Raises the soft limit to the hard one: the soft one is 1024 on many systems, for the sake of select(2), which
/// nothing here uses. Returns what holds now. Call first in main.
size_t raise_descriptor_limit();
/// Makes room for that many in the kernel's table, 8 bytes each. Call while the process has one thread: the table
/// doubles when it is full, and of a process with threads the kernel then waits until every CPU has let go of the old
/// one, 10 to 30 ms in which an accept(2) stands still.
void reserve_descriptors(size_t count);
/// What holds since then; 0: not known.
size_t descriptor_limit();
/// From this descriptor on, which is only given when all below are in use, an accepted connection is one too many.
size_t descriptor_ceiling();

}  // namespace ph::io
