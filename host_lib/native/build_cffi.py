"""Writes the C source of `xts_socket._native` (cffi, API mode) to the path given as the only argument.

Python calls the thin functions of python_calls.h, which see to waiting with a timeout and report errors as
results. Pointers are declared as `void *` where Python passes bytes or a buffer: cffi then hands over their
address without making an object first.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from cffi import FFI

MESSAGES = Path(__file__).resolve().parents[2] / "messages" / "native"

CDEF = """
const char *xts_environment(int variable);
int xts_environment_find(const char *name);
int xts_environment_fault(int variable, const char *value, char *out, size_t room);
int xts_environment_nth_fault(unsigned n, char *out, size_t room);
const char *xts_environment_value(int variable);
int xts_environment_origin(int variable, char *out, size_t room);
const char *xts_environment_file(void);
struct xts_settings_fault {
    unsigned line, column;
    char text[...];
};
struct xts_settings_file {
    unsigned lines[...];
    unsigned count;
    struct xts_settings_fault fault[...];
    ...;
};
int xts_settings_file_read(struct xts_settings_file *out, const char *path);
int xts_settings_file_parse(struct xts_settings_file *out, const char *text, size_t bytes);
void xts_settings_file_free(struct xts_settings_file *file);
int xts_py_socket(int domain, int type, int protocol);
int xts_py_close(int s);
int xts_py_getsockopt(int s, int level, int option, void *value, unsigned int *length);
int xts_py_getsockopt_int(int s, int level, int option, int *value);
int xts_py_setsockopt(int s, int level, int option, const void *value, unsigned int length);
int xts_py_setsockopt_int(int s, int level, int option, int value);
int xts_py_set_nodelay(int s);
int xts_py_bind(int s, const void *address, unsigned int length);
int xts_py_connect(int s, const void *address, unsigned int length);
struct ulp_info;
struct xts_ulp_push {
    unsigned long request;
    const struct ulp_info *info;
};
int xts_py_ulp_connect(int s, const void *address, unsigned int length, const struct xts_ulp_push *pushes,
                       unsigned count);
int xts_py_listen(int s, int backlog);
int xts_py_getsockname(int s, void *address, unsigned int *length);
int xts_py_getpeername(int s, void *address, unsigned int *length);
int xts_py_shutdown(int s, int how);
int xts_py_fileno(int s);
int xts_py_wake_sleepers_of(int s, int fd);
int xts_py_give(int s, int on);
int xts_py_pass(int s, int kernel_fd);
int xts_py_take_passed(int fd, int *again);
int xts_py_fcntl(int s, int command, int argument);
int xts_py_ioctl(int s, unsigned long request, void *argument);
int xts_py_ioctl_int(int s, unsigned long request, int argument);

struct iovec {
    void *iov_base;
    size_t iov_len;
};
struct msghdr {
    void *msg_name;
    unsigned int msg_namelen;
    struct iovec *msg_iov;
    size_t msg_iovlen;
    void *msg_control;
    size_t msg_controllen;
    int msg_flags;
};

ssize_t xts_py_accept(int s, void *address, unsigned int *length, int64_t timeout_ms);
ssize_t xts_py_send(int s, const void *data, size_t bytes, int flags, int64_t timeout_ms);
ssize_t xts_py_sendto(int s, const void *data, size_t bytes, int flags, const void *address,
                      unsigned int length, int64_t timeout_ms);
ssize_t xts_py_sendmsg(int s, const struct msghdr *message, int flags, int64_t timeout_ms);
ssize_t xts_py_recv(int s, void *data, size_t bytes, int flags, int64_t timeout_ms);
ssize_t xts_py_recvfrom(int s, void *data, size_t bytes, int flags, void *address, unsigned int *length,
                        int64_t timeout_ms);
ssize_t xts_py_recvmsg(int s, struct msghdr *message, int flags, int64_t timeout_ms);
ssize_t xts_py_poll(int s, int events, int64_t timeout_ms);

struct sockaddr;
struct xts_packet {
    const void *data;
    size_t bytes;
    size_t segment_bytes;
    const struct sockaddr *address;
    unsigned int address_bytes;
    uint64_t stamp_ns;
    const void *control;
    size_t control_bytes;
    int s;
};
enum xts_packet_verdict { XTS_PACKET_DROP, XTS_PACKET_RECV, XTS_PACKET_HOLD };
#define XTS_PY_PACKET_ASKS ...
int xts_py_ask_reader(int s, int on);
int xts_py_undecided(int s, const struct xts_packet **out);
void xts_packet_decided(const struct xts_packet *packet, enum xts_packet_verdict verdict);
void xts_packet_release(const struct xts_packet *packet);
void xts_packet_free(const struct xts_packet *packet);

ssize_t xts_py_push(int s, unsigned long request, void *info, int64_t timeout_ms);
ssize_t xts_py_ulp_handshake(int s, int64_t timeout_ms);
struct xts_py_pdu {
    int flags;
    int level, type;
    unsigned control_bytes;
    unsigned char control[...];
};
ssize_t xts_py_recv_pdu(int s, void *data, size_t bytes, struct xts_py_pdu *pdu, int64_t timeout_ms);
ssize_t xts_py_send_pdu(int s, const void *data, size_t bytes, int level, int type, const void *control,
                        size_t control_bytes, int flags, int64_t timeout_ms);
int xts_py_ulp_error(int s, unsigned *protocol, unsigned *fault, char *text, size_t bytes);
ssize_t xts_py_ulp_tell(int s, int send, unsigned layer, unsigned item, void *value, size_t bytes);
struct xts_ulp_offer {
    uint16_t ulp_id, version;
    uint8_t receive, send;
};
int xts_py_ulps(struct xts_ulp_offer *offers, unsigned max);
#define SIOC_PUSH_ULP_RX ...
#define SIOC_PUSH_ULP_TX ...
#define SIOC_PUSH_ULP ...
#define SIOC_PEEK_MODE ...
#define SIOC_END_PEEK_MODE ...
#define XTS_ULP_INFO_BYTES_MAX ...
#define XTS_CONNECT_PUSH_BYTES ...
#define XTS_ULP_COUNT ...

void *xts_epoll_ctx_create_flags(unsigned flags);
int xts_epoll_fd(void *ectx);
void xts_epoll_ctx_destroy(void *ectx);
void xts_flush(void);
#define XTS_EPOLL_BATCH ...
#define XTS_EPOLL_TURN ...
#define XTS_EPOLL_PATIENT ...
#define XTS_PY_EVENTS_MAX ...
int xts_py_epoll_ctl(void *ectx, int op, int s, uint32_t events);
ssize_t xts_py_epoll_wait(void *ectx, int32_t *pairs, int maxevents, int64_t timeout_ms);
int xts_py_epoll_now(void *ectx, int32_t *pairs, int maxevents);
#define XTS_PY_KERNEL ...
int xts_py_epoll_ctl_mixed(void *ectx, int op, int s, uint32_t events);
ssize_t xts_py_epoll_wait_mixed(void *ectx, int kernel_set, int32_t *pairs, int64_t timeout_ns);

struct xts_options {
    size_t size;
    const char *endpoint;
    uint32_t spin_us;
    uint32_t window_bytes;
    uint32_t window_bytes_max;
    uint32_t frame_window;
    const char *pcap;
    uint32_t dead_ms;
    const char *stacks;
    ...;
};
int xts_py_configure(const struct xts_options *options);

struct xts_info {
    size_t size;
    char queue_kind[16];
    char interface[16];
    uint32_t queue_id;
    uint32_t link_state;
    int32_t link_error;
    uint32_t frame_window, frame_credits, largest_message;
    uint32_t sockets;
    uint64_t features, epoch;
    uint64_t sent_frames, received_frames, sent_acks, received_acks, kicks, sleeps, spins, malformed;
    uint64_t sent_packets, received_packets;
    char attach_error[256];
    uint64_t sent_bytes, received_bytes;
    uint64_t lock_waits;
    uint32_t stack;
    ...;
};
int xts_py_get_info(struct xts_info *info);
void xts_leave(void);
int xts_names_served(void);
unsigned xts_device_families(void);
void xts_publish_counts(const uint64_t *sockets, unsigned count);
int xts_py_stack_create(const char *endpoint);
int xts_py_stack_at(const char *endpoint);
int xts_py_stack_use(int stack, int *before);
int xts_py_stack_release(int stack);
int xts_py_stack_of(int s);
#define XTS_STACK_OF_SETTING ...
void xts_lose(uint32_t share_ppm, uint32_t next);
int xts_py_end_with_parent(int number);
void xts_py_notice(const char *text);
const char *xts_py_reason_of(int code);
int xts_py_state(int s);
"""

#: rules/rules.h; addresses are bytes of a struct sockaddr, or NULL.
RULES_CDEF = """
struct xts_rules;
struct xts_rule_group;
struct xts_rules_error {
    unsigned line, column;
    char text[256];
};
#define XTS_RULES_ERRORS ...
struct xts_rules_errors {
    unsigned count;
    struct xts_rules_error error[...];
};
struct xts_verdict {
    bool offload;
    unsigned line, group_line;
    const char *endpoint;
    const char *why;
};
int xts_rules_read(struct xts_rules **out, const char *path, struct xts_rules_errors *errors);
int xts_rules_parse(struct xts_rules **out, const char *text, size_t bytes, struct xts_rules_errors *errors);
const struct xts_rules *xts_rules_default(void);
void xts_rules_loopback(bool as_others);
void xts_rules_free(struct xts_rules *rules);
struct xts_rule_program {
    const char *name, *id, *user, *cgroup;
    uint32_t uid;
};
const struct xts_rule_group *xts_rules_group(const struct xts_rules *rules, const struct xts_rule_program *program);
const struct xts_rule_group *xts_rules_group_here(const struct xts_rules *rules, const char *name, const char *id);
struct xts_verdict xts_rules_ask(const struct xts_rule_group *group, int role, const void *local, const void *peer);
bool xts_rules_may_offload(const struct xts_rule_group *group, int role);
bool xts_rules_try_group(const struct xts_rules *rules, unsigned n, const struct xts_rule_program *program,
                         unsigned *line, const char **why);
bool xts_rules_try(const struct xts_rule_group *group, unsigned n, int role, const void *local, const void *peer,
                   unsigned *line, const char **why);
int xts_rules_take_notes(struct xts_rules *rules);
bool xts_rules_note(const struct xts_rules *rules, unsigned n, unsigned *line, const char **text);
"""

#: decision/decision.h
DECISION_CDEF = """
struct xts_undecided {
    const struct xts_rule_group *rules;
    int fd;
    int family, type;
};
struct xts_decision {
    unsigned line;
    const char *endpoint;
    int s;
    int error;
    int reason;
    char explanation[256];
    ...;
};
enum { XTS_STEP_OPTIONS = ..., XTS_STEP_BIND = ... };
int xts_decide(const struct xts_undecided *socket, int role, const void *local, const void *peer,
               struct xts_decision *out);
void xts_decision_failed(struct xts_decision *decision, int step, int error);
int xts_decision_option_failed(struct xts_decision *decision, int level, int option, int error);
bool xts_decide_also_local(const struct xts_rule_group *rules, const void *bound);
int xts_reason_error(unsigned reason);
bool xts_reason_is_noticed(unsigned reason);
"""

#: core/reason.h and the interposer's process_page.h, for `xts status --processes`.
REPORT_CDEF = """
enum { XTS_REASON_COUNT = ..., XTS_REASON_ELSEWHERE = ..., XTS_REASON_LOST = ..., XTS_REASON_NO_ENDPOINT = ...,
       XTS_REASON_PROXY_DOWN = ..., XTS_REASON_REFUSED = ..., XTS_REASON_NO_QUEUE = ...,
       XTS_REASON_VERSION = ... };
const char *xts_reason_name(unsigned number);
const char *xts_reason_text(unsigned number);
const char *xts_sandboxed(const char *program);

#define ONCE_BYTES ...
#define ONCE_WRAP_BIO ...
#define XTS_REPORT_MAGIC ...
#define XTS_REPORT_VERSION ...
#define XTS_REPORT_ENTRIES ...
#define XTS_REPORT_REASONS ...
struct xts_endpoint {
    uint16_t port;
    uint8_t ip_version;
    uint32_t scope_id;
    uint8_t address[16];
    ...;
};
struct xts_report_entry {
    uint8_t kind, flags;
    uint16_t reason;
    uint32_t rule_line;
    int32_t number;
    struct xts_endpoint local, peer;
    ...;
};
struct xts_report_page {
    uint32_t magic, version, entries, pid;
    char program[32];
    char rules[256];
    uint32_t strict;
    uint64_t offloaded, unseen;
    uint64_t stayed[...];
    char endpoint[112];
    char attach_error[256];
    struct xts_report_entry entry[...];
    ...;
};
"""

#: core/control_page.h
CONTROL_CDEF = """
struct xts_control_page {
    uint32_t magic, version, pid, log_level;
    char program[32];
    uint32_t log_asked, rules_asked, rules_done;
    int32_t rules_error;
    char rules_text[...];
    uint32_t settings_writes;
    char settings[...];
    ...;
};
#define XTS_CONTROL_MAGIC ...
#define XTS_CONTROL_VERSION ...
void xts_control_start(void);
uint32_t xts_control_rules_asked(void);
void xts_control_rules_done(uint32_t number, int error, const char *text);
"""

#: Tables of states (state_table.h), for the documentation.
STATES_CDEF = """
const struct xts_state_table *xts_socket_states(void);
const struct xts_state_table *xts_owner_states(void);
"""

PRELUDE = """
#include "settings/environment.h"
#include "settings/settings_file.h"
#include "common/state_table.h"
#include "xts_private.h"
#include "python_calls.h"
#include "core/control_page.h"
#include "core/reason.h"
#include "process_page.h"
#include "once_per_run.h"
#include "decision/decision.h"
#include "decision/sandboxed.h"
"""


def structs(header: Path) -> str:
    """The structs of a header that has nothing else for Python."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    return "\n".join(re.findall(r"^struct xts_(?:state|flag)_\w+ \{.*?^\};", text, re.DOTALL | re.MULTILINE))


def main(output: str) -> None:
    """Generates the module's C source; compiling it is CMake's."""
    ffi = FFI()
    ffi.cdef(
        CDEF
        + RULES_CDEF
        + DECISION_CDEF
        + REPORT_CDEF
        + CONTROL_CDEF
        + structs(MESSAGES / "common/state_table.h")
        + STATES_CDEF
    )
    ffi.set_source("xts_socket._native", PRELUDE)
    ffi.emit_c_code(output)
    assert Path(output).exists()


if __name__ == "__main__":
    main(sys.argv[1])
