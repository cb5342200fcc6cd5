"""The metrics of the proxy: their names, what they mean, and which figures they are made of.

Figures have the names of the fields of the native structs. There are no labels per connection, so that the number of
series is bounded by workers, queues and tenants.
"""

from __future__ import annotations

from xts_messages.metrics.metric import counter, counter_by, counter_each, gauge, gauge_each, histogram
from xts_messages.metrics.metric_list import Parts

#: Of the supervisor (Figures.of_metrics()), without labels.
PROXY = (
    gauge("xts_proxy_start_time_seconds", "When the proxy started, in seconds of Unix time.", "started_at"),
    gauge(
        "xts_proxy_draining", "1 while the proxy drains: it is stopping, and waits for connections to end.", "draining"
    ),
    counter_each("xts_proxy_reloads", "Reloads of the configuration, by result.", "result", "reloads"),
    counter_each(
        "xts_proxy_tls_file_renewals",
        "How often files that [tls] names had new contents, without a reload, by result: taken over, or refused "
        "because they did not fit together.",
        "result",
        "tls_files",
    ),
    gauge(
        "xts_proxy_tls_files_waiting",
        "Identities and trust roots whose files have changed and do not fit: what was in force before stays. "
        "`xts-proxy status` says why.",
        "tls_waiting",
    ),
)
INFO = (gauge("xts_proxy_info", "Always 1. Labels: the proxy's version and its kind of queue.", "one"),)
SHM = (
    counter_by(
        "xts_proxy_attaches",
        "Processes of this machine that asked for a queue (shm), by result.",
        "result",
        ok="attaches",
        refused="attaches_refused",
    ),
)
#: Of the interface of AF_XDP queues.
INTERFACE = (
    gauge(
        "xts_interface_serves",
        "1 while the queues of the interface carry messages. 0: the interface is not there, its MTU is too small, or "
        "another XDP program is there in place of the proxy's program; `xts-proxy status` says which.",
        "serves",
    ),
    gauge(
        "xts_interface_steered",
        "1 while the card has the rules by which frames find their queue, or needs none. 0: some cannot be had; "
        "`xts-proxy status` says why. Processes then share queue 0.",
        "steered",
    ),
    gauge(
        "xts_interface_zero_copy_queues",
        "Queues whose memory the driver uses itself, as the kernel says. For the others it copies each frame; "
        "`xts-proxy status` says why.",
        "zero_copy",
    ),
    counter(
        "xts_interface_copy_fallbacks",
        "How often a queue was bound again in copy mode, because zero copy was refused or moved no frame.",
        "copy_fallbacks",
    ),
    counter(
        "xts_program_attaches",
        "How often the XDP program was attached again, because another tool had taken it off.",
        "reattached",
    ),
    counter(
        "xts_interface_renewals",
        "How often all queues were opened again, because the interface was made again or its MTU was lowered.",
        "renewed",
    ),
)
#: Of each queue over RDMA.
RDMA = (
    gauge("xts_rdma_connected", "1 while an agent is connected to this queue over RDMA.", "connected"),
    counter("xts_rdma_connections", "Agents that have connected to this queue over RDMA.", "connections"),
    counter(
        "xts_rdma_refusals",
        "Those who were refused: by their address (rdma.hosts), or because connecting failed; the log says which.",
        "refused",
    ),
)
#: Of the XDP program, which counts for the interface.
STEER = (
    counter_by(
        "xts_steer_frames",
        "Frames that the XDP program handled. admitted: to a queue's socket. passed: to the device's kernel, not "
        "messages. The rest were dropped. foreign: from another MAC address than the peer's. malformed: shorter "
        "than a message's header. no_socket: for a queue to which nobody is attached. others_dropped: not "
        "messages, on an exclusive interface. wrong_secret: without the secret of the process that has the queue. "
        "probes: whether frames find their queue.",
        "verdict",
        admitted="admitted",
        passed="passed",
        foreign="foreign",
        malformed="malformed",
        no_socket="no_socket",
        others_dropped="others_dropped",
        wrong_secret="wrong_secret",
        probes="probes",
    ),
)

#: Of each worker, whether it answers or not (Heartbeat.figures()).
PROGRESS = (
    gauge(
        "xts_worker_stalled_seconds",
        "Seconds for which a worker has not ended a round. 0: it makes progress.",
        "stands_s",
    ),
    counter("xts_worker_stalls", "How often a worker did not end a round for a second.", "reports"),
)

#: Of each worker (struct xts_worker_stats).
WORKER = (
    counter(
        "xts_worker_rounds",
        "Rounds of a worker. In each it receives from its queues, handles events and sends.",
        "rounds",
    ),
    histogram(
        "xts_worker_round_cpu_seconds",
        "CPU time of those rounds of a worker that had work. It bounds how long a queue waits for its turn. "
        "Rounds are measured together until 100 microseconds have passed.",
        "round_cpu",
    ),
    histogram(
        "xts_worker_turn_delay_seconds",
        "The longest time that messages of a queue that had been idle may have waited for the worker: the "
        "wall-clock time since the worker last checked that queue. It shows how long a busy queue delays the "
        "others of its worker.",
        "turn_delay",
    ),
    histogram("xts_connect_seconds", "How long TCP took to connect, for connects that succeeded.", "connect_time"),
    histogram(
        "xts_handshake_seconds",
        "How long all handshakes of a connection's pushed protocols took, if they succeeded.",
        "handshake_time",
    ),
    histogram(
        "xts_request_gap_seconds",
        "Time between two messages of a host with data for one connection. Messages received in one batch "
        "count as one.",
        "request_gap",
    ),
    counter(
        "xts_worker_busy_rounds",
        "Of xts_worker_rounds: those that found something to do. The others have polled in vain.",
        "hits",
    ),
    counter("xts_worker_cpu_seconds", "CPU time of a worker's thread.", "cpu_ns", ns=True),
    counter(
        "xts_worker_polling_seconds",
        "Of xts_worker_cpu_seconds: for rounds that found nothing, after which the worker polled again.",
        "poll_ns",
        ns=True,
    ),
    counter("xts_worker_sleeps", "How often a worker went to sleep.", "sleeps"),
    counter(
        "xts_worker_gaps",
        "How often a worker slept until a wake-up was allowed again (proxy.wakeup_gap_us).",
        "gaps",
    ),
    counter(
        "xts_worker_spins",
        "Rounds without work after which a worker polled again instead of sleeping (proxy.spin_us, proxy.polling).",
        "spins",
    ),
    counter(
        "xts_worker_yields",
        "Of xts_worker_spins: rounds after which the worker yielded the core (sched_yield).",
        "yields",
    ),
    counter(
        "xts_worker_timer_looks",
        "How often a timer checked something that has no event, such as the end of a lingering close.",
        "looks",
    ),
    counter(
        "xts_worker_paced",
        "How often a connection waited until the rate of its tenant, or of its own socket, let it send "
        "(tenant.pacing_mbit_s, SO_MAX_PACING_RATE).",
        "paced",
    ),
    counter(
        "xts_worker_common_locks",
        "How often a worker took a mutex that all workers share: for sockets that go to another process, "
        "never for messages.",
        "common_locks",
    ),
    gauge("xts_worker_channels", "Channels that a worker serves: one for each attached process.", "channels"),
    gauge("xts_worker_channels_up", "Of xts_worker_channels: those whose link is up.", "channels_up"),
    gauge("xts_relay_processes", "Processes that are attached through a relay (proxy.relayed_max).", "relayed"),
    counter(
        "xts_relay_refusals",
        "Processes behind a relay that were refused: relayed_max was reached, or there was no memory.",
        "relayed_refused",
    ),
    counter_by(
        "xts_relay_dropped_frames",
        "Frames of a relay that were dropped: from a process that it has not announced (unknown), or "
        "malformed, or from a process whose channel has ended (invalid).",
        "reason",
        unknown="relayed_unknown",
        invalid="relayed_dropped",
    ),
    gauge("xts_connections", "TCP sockets of hosts, except listeners.", "connections"),
    gauge("xts_listeners", "TCP sockets of hosts that listen.", "listeners"),
    gauge("xts_shared_listeners", "Of xts_listeners: those that several processes may share.", "shared_listeners"),
    gauge(
        "xts_kept_listeners",
        "Listeners that no process has at the moment, kept for a process that may join.",
        "kept_listeners",
    ),
    gauge(
        "xts_parked_connections",
        "Connections that one process has given up and another has not claimed yet.",
        "parked_connections",
    ),
    counter(
        "xts_connection_log_lost",
        "Records missing in proxy.connection_log because too many connections ended at once.",
        "closed_lost",
    ),
    gauge(
        "xts_orphans",
        "Connections whose process has closed them or has ended, and whose last bytes are still being "
        "delivered. They are counted in xts_connections, too.",
        "orphans",
    ),
    gauge(
        "xts_datagram_sockets",
        "Datagram sockets of hosts. They are not counted in xts_connections.",
        "datagram_sockets",
    ),
    counter_by(
        "xts_connects",
        "Connects of hosts, by result.",
        "result",
        ok="connects_ok",
        failed="connects_failed",
    ),
    counter("xts_accepts", "Connections accepted by listeners.", "accepts"),
    counter("xts_connection_failures", "Connections that failed, by a peer's reset or another error.", "resets"),
    counter(
        "xts_connections_given_back",
        "Accepted connections that one process gave back, so that another gets them.",
        "given_back",
    ),
    counter("xts_connections_parked", "Connections that a process gave up for another one.", "parks"),
    counter("xts_connections_claimed", "Connections that a process took over from another one.", "claims"),
    counter(
        "xts_sockets_resumed",
        "Connections and listeners that went on after the workers had died by a signal.",
        "resumed",
    ),
    counter("xts_connections_torn", "Connections that were reset then, because bytes were under way.", "torn"),
    counter("xts_connections_unclaimed", "Parked connections that were reset: no process took them over.", "unclaimed"),
    counter("xts_orphans_cut", "Orphans that were reset because their tenant's limit was reached.", "orphans_cut"),
    counter_by(
        "xts_refusals",
        "Requests of hosts that were refused: connect, bind and listen by policy, any request by a limit.",
        "reason",
        policy="refused_policy",
        limit="refused_limit",
    ),
    counter("xts_tcp_sent_bytes", "Bytes sent to TCP.", "sent_bytes"),
    counter("xts_tcp_received_bytes", "Bytes received from TCP.", "received_bytes"),
    counter("xts_tcp_writes", "Writes to TCP sockets in which at least one byte was taken.", "writes"),
    counter("xts_tcp_gathered_messages", "Messages of hosts whose data was gathered for a write.", "gathered_messages"),
    counter(
        "xts_tcp_spilled_bytes",
        "Bytes that TCP did not take at once, so that they were put into a spill buffer.",
        "spilled_bytes",
    ),
    gauge("xts_spill_bytes", "Bytes that wait in spill buffers now.", "spill_bytes"),
    gauge("xts_window_bytes", "Bytes of windows that are granted to hosts now.", "window_bytes"),
    counter(
        "xts_datagrams_sent",
        "Datagrams of hosts that the device's kernel has taken. Segments sent by one call (UDP_SEGMENT) count as one.",
        "datagrams_sent",
    ),
    counter(
        "xts_datagrams_received",
        "Datagrams taken from the device's kernel for hosts. Datagrams that the kernel has merged (GRO) count as one.",
        "datagrams_received",
    ),
    counter(
        "xts_datagrams_refused",
        "Datagrams of hosts that policy or the kernel refused, or that were still waiting when their socket ended.",
        "datagrams_refused",
    ),
    counter(
        "xts_datagrams_dropped",
        "Datagrams from the network that were dropped: the socket's receive buffer was full, or a filter "
        "rejected them.",
        "datagrams_dropped",
    ),
    gauge(
        "xts_datagrams_waiting",
        "Datagrams of hosts that wait in the proxy until the device's kernel has room.",
        "datagrams_waiting",
    ),
    gauge("xts_name_lookups_active", "Name lookups for hosts that are under way.", "lookups"),
    counter("xts_name_lookups", "Name lookups that hosts have requested.", "names_asked"),
    counter_by(
        "xts_name_results",
        "Name lookups by result: answered by a name server; failed, because no server gave an answer that "
        "could be passed on; or denied by the rules in [names].",
        "result",
        answered="names_answered",
        failed="names_failed",
        denied="names_denied",
    ),
    counter(
        "xts_name_wrong_answers",
        "Datagrams and messages of name servers that were dropped because they did not answer the query.",
        "names_wrong",
    ),
    counter_by(
        "xts_host_errors",
        "Wrong messages of hosts: malformed or not allowed (message), or about sockets that they do not have "
        "(identifier).",
        "kind",
        message="bad_messages",
        identifier="bad_identifiers",
    ),
    counter("xts_link_failures", "Links that ended with an error.", "link_failures"),
    counter("xts_links_opened", "Links that were opened.", "hellos"),
    counter("xts_links_closed", "Links that ended without an error: their process detached or ended.", "goodbyes"),
    gauge("xts_ulp_bytes", "Memory of pushed protocols, in addition to the windows.", "ulp_bytes"),
    gauge("xts_ulp_handshakes_active", "Handshakes of pushed protocols that are under way.", "ulp_handshakes"),
    counter_by(
        "xts_ulp_handshakes",
        "Handshakes of pushed protocols, by result.",
        "result",
        ok="ulp_handshakes_ok",
        failed="ulp_handshakes_failed",
    ),
    counter_each("xts_ulp_pushes", "Protocols pushed onto connections, by protocol.", "ulp", "ulp_pushed"),
    counter_each(
        "xts_ulp_faults", "Faults that pushed protocols have detected, by kind of fault.", "fault", "ulp_faults"
    ),
)

#: Of each channel, which is a queue's link to one process (struct xts_channel_stats). They start at 0 when another
#: process attaches to the queue, as counters may.
CHANNEL = (
    gauge("xts_channel_up", "1 if the link of a queue is up.", "up"),
    gauge("xts_channel_connections", "TCP sockets of a queue's process, except listeners.", "connections"),
    gauge("xts_channel_listeners", "Listeners of a queue's process.", "listeners"),
    gauge("xts_channel_frame_credits", "Frames that the proxy may send to the host now.", "frame_credits"),
    gauge("xts_channel_window_bytes", "Bytes of windows that are granted to a queue's process now.", "window_bytes"),
    gauge("xts_channel_spill_bytes", "Bytes that wait in spill buffers of a queue's connections.", "spill_bytes"),
    gauge("xts_channel_ulp_bytes", "Memory of the pushed protocols of a queue's connections.", "ulp_bytes"),
    counter("xts_link_sent_frames", "Sequenced frames sent to the host.", "link.sent_frames"),
    counter("xts_link_received_frames", "Sequenced frames received from the host.", "link.received_frames"),
    counter("xts_link_sent_acks", "Frames sent that only acknowledge others.", "link.sent_acks"),
    counter("xts_link_received_acks", "Frames received that only acknowledge others.", "link.received_acks"),
    counter_by(
        "xts_link_dropped_frames",
        "Frames of a host that were dropped: early (the link was not up yet), foreign (wrong EtherType or "
        "source address), stale (GOODBYE, HELLO_ACK or OVER of another epoch), malformed (too short, of unknown "
        "type or in the wrong direction).",
        "reason",
        early="link.dropped_early",
        foreign="link.dropped_foreign",
        stale="link.dropped_stale",
        malformed="link.malformed",
    ),
    counter_by(
        "xts_link_errors",
        "Errors that ended a link: a gap in the sequence numbers (sequence); frames beyond the window, or "
        "acknowledgements of frames that were never sent (credit).",
        "kind",
        sequence="link.sequence_errors",
        credit="link.credit_errors",
    ),
    counter("xts_link_hellos", "HELLOs received.", "link.hellos"),
    counter("xts_queue_sent_frames", "Frames put into a queue.", "queue.tx_frames"),
    counter("xts_queue_sent_bytes", "Bytes of the frames put into a queue.", "queue.tx_bytes"),
    counter("xts_queue_received_frames", "Frames taken from a queue.", "queue.rx_frames"),
    counter("xts_queue_received_bytes", "Bytes of these frames.", "queue.rx_bytes"),
    counter(
        "xts_queue_kicks",
        "Wake-ups of the other end: bytes sent on a doorbell socket (shm), or sendto() calls on an AF_XDP socket.",
        "queue.kicks",
    ),
    counter("xts_queue_kick_retries", "Kicks that had to be repeated (EAGAIN, ENOBUFS).", "queue.kicks_again"),
    counter_by(
        "xts_queue_lost_frames",
        "Frames that were lost in a queue: by the kernel on sending, and not sent again (sent_busy), by the kernel "
        "for lack of a buffer (no_buffer, AF_XDP), or with descriptors out of bounds, too many pieces or bytes "
        "(invalid).",
        "reason",
        sent_busy="queue.tx_lost",
        no_buffer="queue.rx_dropped",
        invalid="queue.rx_invalid",
        foreign="queue.rx_foreign",
    ),
    counter(
        "xts_queue_resent_frames",
        "Frames that the kernel had lost on sending (EBUSY: the interface has no carrier, or its queue is full), and "
        "that were sent again (AF_XDP).",
        "queue.tx_resent",
    ),
    counter(
        "xts_queue_repeated_frames", "Frames that were sent again, with proxy.reliable: lost ones.", "queue.tx_repeated"
    ),
    counter("xts_queue_duplicate_frames", "Frames that came again, with proxy.reliable.", "queue.rx_duplicates"),
    counter("xts_queue_early_frames", "Frames that came before one sent before them.", "queue.rx_early"),
    counter(
        "xts_queue_card_polls",
        "Looks at an AF_XDP queue in which the kernel polled the card (proxy.busy_poll_us); 0: it has nothing to poll.",
        "queue.card_polls",
    ),
    counter(
        "xts_queue_violations",
        "Acknowledgements of frames that were never sent: each ended a channel.",
        "queue.violations",
    ),
    gauge(
        "xts_queue_round_trip_seconds",
        "Mean round trip of frames lately, with proxy.reliable; 0: not known.",
        "queue.rtt_ns",
        ns=True,
    ),
    gauge(
        "xts_queue_window_frames",
        "Frames that may be on their way, with proxy.reliable; 0: lost frames are not repeated.",
        "queue.window_frames",
    ),
    counter("xts_queue_no_slot", "How often no transmit slot was free.", "queue.tx_no_slot"),
    counter("xts_queue_sleeps", "How often the worker asked this queue to wake it.", "queue.sleeps"),
    counter("xts_queue_wakeups", "How often this queue woke the worker.", "queue.wakeups"),
)

#: Of each tenant (Account.figures(), see metrics.tenant_row()).
TENANT = (
    counter("xts_tenant_cpu_seconds", "CPU time that workers have spent on a tenant.", "cpu_ns", ns=True),
    gauge_each(
        "xts_tenant_used",
        "How much a tenant uses now, for resources that are counted, by resource.",
        "resource",
        "used",
    ),
    gauge_each(
        "xts_tenant_used_bytes",
        "How many bytes a tenant uses now, for resources in bytes, by resource.",
        "resource",
        "used_bytes",
    ),
    counter_each(
        "xts_tenant_refusals",
        "Requests that a tenant was refused because of its limit, by resource.",
        "resource",
        "refused",
    ),
    gauge("xts_tenant_descriptors", "Descriptors that a tenant uses.", "descriptors"),
    gauge("xts_tenant_guaranteed_descriptors", "Descriptors that a tenant is guaranteed.", "descriptors_guaranteed"),
    gauge("xts_tenant_memory_bytes", "Memory of the proxy that a tenant uses.", "memory"),
    gauge("xts_tenant_guaranteed_memory_bytes", "Memory that a tenant is guaranteed.", "memory_guaranteed"),
    gauge(
        "xts_tenant_guaranteed_local_ports",
        "Local ports that only this tenant may connect from. 0: local ports are not divided.",
        "local_ports_guaranteed",
    ),
    counter_each(
        "xts_tenant_pool_refusals",
        "Requests that a tenant was refused above its guarantee, because others used the rest of the pool, by pool.",
        "pool",
        "pool_refused",
    ),
)

#: Of each filter of the operator's that a host has named (struct xts_filter_totals).
FILTER = (
    gauge("xts_filter_sockets", "Datagram sockets that have an operator's filter now.", "sockets"),
    counter(
        "xts_filter_socket_drops",
        "Datagrams that the device's kernel dropped at sockets with an operator's filter: rejected by the "
        "filter, or the receive buffer was full; the kernel has one count for both. Updated when the next "
        "datagram passes, and when the socket closes or gets another filter.",
        "dropped",
    ),
)

#: struct xts_tls_counts.
TLS = (
    counter_by(
        "xts_tls_handshakes",
        "TLS handshakes that succeeded, by the proxy's role.",
        "role",
        client="client_handshakes",
        server="server_handshakes",
    ),
    counter("xts_tls_resumed_handshakes", "Handshakes that resumed an earlier session.", "resumed"),
    counter_by(
        "xts_tls_encrypting_connections",
        "Connections by who encrypts: the proxy (user), the device's kernel, or a network card (device).",
        "by",
        user="sent_by_user",
        kernel="sent_by_kernel",
        device="sent_by_device",
    ),
    counter_by(
        "xts_tls_decrypting_connections",
        "Connections by who decrypts: the proxy (user), the device's kernel, or a network card (device).",
        "by",
        user="received_by_user",
        kernel="received_by_kernel",
        device="received_by_device",
    ),
    counter_by(
        "xts_tls_fallbacks",
        "Connections that are not encrypted by the fastest means, by reason. no_kernel: the kernel has no TLS. "
        "configured: the configuration says so. stack: TLS is not the lowest pushed protocol. refused: kernel or "
        "OpenSSL lack this cipher, version or direction. no_device: the network card has no TLS offload. "
        "keys_change: keys of TLS 1.3 may have to change.",
        "reason",
        no_kernel="fallback_no_kernel",
        configured="fallback_configured",
        stack="fallback_stack",
        refused="fallback_refused",
        no_device="fallback_no_device",
        keys_change="fallback_keys_change",
    ),
    counter_by(
        "xts_tls_carried_connections",
        "Connections by who makes and reads their records after the handshake. proxy: the proxy's own record layer. "
        "The others stay with OpenSSL: openssl_configured: the configuration says so. openssl_cipher: the cipher is "
        "not an AEAD. openssl_kernel: the kernel or a card has the keys, and OpenSSL the rest. openssl_unknown: "
        "keys or numbers were not known, or there was no memory. openssl_memory: the memory for keys was full.",
        "by",
        proxy="carried_ours",
        openssl_configured="kept_configured",
        openssl_cipher="kept_cipher",
        openssl_kernel="kept_kernel",
        openssl_memory="kept_memory",
        openssl_unknown="kept_unknown",
    ),
    counter(
        "xts_tls_dropped_tickets",
        "Session tickets of TLS 1.3 that a server sent after its first data or after tls.ticket_wait_ms.",
        "tickets_late",
    ),
    counter("xts_tls_key_updates", "Key updates of TLS 1.3 that the proxy has begun.", "key_updates"),
    counter(
        "xts_tls_late_signatures",
        "Requests to the process with the private keys (xts-keys) that were not answered within a second. "
        "Handshakes wait for them.",
        "keys_late",
    ),
    gauge(
        "xts_tls_late_signatures_waiting",
        "Of xts_tls_late_signatures_total: those that still wait.",
        "keys_late_now",
    ),
    counter(
        "xts_tls_lost_signatures",
        "Requests to the process with the private keys that were never answered, because it has ended.",
        "keys_unanswered",
    ),
    gauge(
        "xts_tls_key_memory_kind",
        "Where keys of connections are: 1: memory that nobody else can read (memfd_secret). 2: locked memory. "
        "3: memory that may be swapped. 0: not made yet.",
        "key_memory_kind",
    ),
    gauge(
        "xts_tls_key_memory_limit_bytes", "Memory for keys of connections (proxy.key_memory_mib).", "key_memory_limit"
    ),
    gauge("xts_tls_key_memory_used_bytes", "Of the memory for keys: what is in use.", "key_memory_used"),
    gauge("xts_tls_key_memory_most_bytes", "Of the memory for keys: the most that was in use.", "key_memory_most"),
    counter(
        "xts_tls_key_memory_refusals",
        "Keys for which there was no room in the memory for keys.",
        "key_memory_refused",
    ),
)

#: What the metrics are of -> the labels of its rows, and the metrics.
PARTS: Parts = {
    "The version of the proxy": (("queue", "version"), INFO),
    "The proxy": ((), (*PROXY, *SHM)),
    "Workers": (("worker",), (*PROGRESS, *WORKER)),
    "Queues and their links": (("queue", "worker"), CHANNEL),
    "Tenants": (("tenant",), TENANT),
    "Filters": (("filter",), FILTER),
    "TLS": ((), TLS),
    "The interface": ((), INTERFACE),
    "Queues over RDMA": (("queue", "device"), RDMA),
    "The XDP program": ((), STEER),
}
