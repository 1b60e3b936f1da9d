// TCP_INFO alone: the kernel's header with tcpi_bytes_acked and the C library's <netinet/tcp.h> exclude each other.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace ph::io {

uint64_t tcp_bytes_acked(int descriptor);

uint64_t tcp_bytes_acked(int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  if (size < offsetof(tcp_info, tcpi_bytes_acked) + sizeof info.tcpi_bytes_acked) return 0;
  return info.tcpi_bytes_acked;
}

}  // namespace ph::io
