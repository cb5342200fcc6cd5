/*
 * Static probes (USDT), with which bcc, bpftrace or perf observe a running process; `xts-trace` (bpf/xts_bpf) uses
 * them.
 *
 * A probe is one nop in the code, and a note in the object file that says where it is and which registers hold its
 * arguments. Each argument has a type of its own: int, uint32_t (identifiers, queues, frames, windows, waiting bytes)
 * or 64 bits (the rest). While a tool is attached, the kernel puts a breakpoint over the nop. The arguments are values
 * that the code has at hand: nothing that costs more than a load is computed for a probe. Without <sys/sdt.h> (Debian:
 * systemtap-sdt-dev), or with -DXTS_PROBES=OFF, there are no probes.
 *
 * Both ends identify a connection by the epoch of the attachment and the proxy's identifier. A position is the number
 * of bytes that the host has sent on the connection so far, as each end counts them.
 *
 *     provider xts, in libxts
 *     send_call(descriptor, bytes)                                xts_send() and its relatives begin
 *     send_taken(epoch, proxy_id, position)                       bytes of the caller have been copied
 *     send_queued(epoch, proxy_id, position, frames, window)      they enter the queue; frames in flight, of so many
 *     host_sleep(), host_wake()                                   a thread sleeps in ppoll(), and is back
 *     provider xts, in the proxy's module
 *     worker_frames(queue, frames)                                a look at a queue has found these
 *     worker_took(epoch, proxy_id, position)                      a message is decoded
 *     worker_offers(epoch, proxy_id, position)                    its bytes are next for TCP, or for its protocols
 *     worker_wrote(epoch, proxy_id, position, waiting_bytes)      they have been taken; what waits in the spill buffer
 *     worker_replies(queue, frames, window)                       the host is rung; frames in flight, of so many
 *     worker_sleep(), worker_wake()                               the worker sleeps in epoll_wait(), and is back
 */
#ifndef XTS_PROBE_H
#define XTS_PROBE_H

#if defined(__has_include) && !defined(XTS_NO_PROBES)
#if __has_include(<sys/sdt.h>)
#define XTS_HAS_PROBES 1
#endif
#endif

#ifdef XTS_HAS_PROBES
#include <sys/sdt.h>
#define XTS_PROBE0(name) STAP_PROBE(xts, name)
#define XTS_PROBE2(name, a, b) STAP_PROBE2(xts, name, a, b)
#define XTS_PROBE3(name, a, b, c) STAP_PROBE3(xts, name, a, b, c)
#define XTS_PROBE4(name, a, b, c, d) STAP_PROBE4(xts, name, a, b, c, d)
#define XTS_PROBE5(name, a, b, c, d, e) STAP_PROBE5(xts, name, a, b, c, d, e)
#else
#define XTS_PROBE0(name) ((void)0)
#define XTS_PROBE2(name, a, b) ((void)(a), (void)(b))
#define XTS_PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#define XTS_PROBE4(name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#define XTS_PROBE5(name, a, b, c, d, e) ((void)(a), (void)(b), (void)(c), (void)(d), (void)(e))
#endif

#endif
